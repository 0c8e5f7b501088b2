"""The znode tree, with ZooKeeper's exact rules, as a deterministic state machine.

Only `Tree.apply` changes state: given the same transactions with the same numbers and times it ends in the same tree,
which is how the journal is replayed. A transaction that fails changes nothing at all. What it changed comes back as
events, for `watches.py` to match with those who wait; watches are not part of the state.

Inside a transaction every operation sees the effect of those before it; when one fails, the earlier ones are undone by
the list of undo steps that each of them left. By the same list `Tree.revert` takes back a whole transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec

from penstock.zookeeper import operations as ops
from penstock.zookeeper.access import effective_acl, require, shown_acl
from penstock.zookeeper.errors import (
    ROLLED_BACK,
    RUNTIME_INCONSISTENCY,
    BadArgumentsError,
    BadVersionError,
    CoordinationError,
    NoChildrenForEphemeralsError,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    SessionExpiredError,
)
from penstock.zookeeper.operations import Acl, EventType, Identity, Stat, WatchEvent
from penstock.zookeeper.paths import name_of, parent_of, path_problem


@dataclass(slots=True)
class Node:
    """One znode. `creates` counts the children ever made: it numbers sequential ones and gives the shown cversion."""

    data: bytes
    acl: tuple[Acl, ...]
    czxid: int
    mzxid: int
    pzxid: int
    ctime_ms: int
    mtime_ms: int
    ephemeral_owner: int = 0
    version: int = 0
    aversion: int = 0
    creates: int = 0
    is_container: bool = False
    children: set[str] = field(default_factory=set)

    def stat(self) -> Stat:
        count = len(self.children)
        return Stat(
            czxid=self.czxid,
            mzxid=self.mzxid,
            ctime_ms=self.ctime_ms,
            mtime_ms=self.mtime_ms,
            version=self.version,
            cversion=self.creates * 2 - count,  # every child was created, and those not here were deleted too
            aversion=self.aversion,
            ephemeral_owner=self.ephemeral_owner,
            data_length=len(self.data),
            num_children=count,
            pzxid=self.pzxid,
        )


class Session(msgspec.Struct):
    """A client, alive or not yet known to be dead."""

    timeout_ms: int
    password: bytes = b""
    ephemerals: set[str] = msgspec.field(default_factory=set)


class Applied(NamedTuple):
    """The outcome of a transaction: a result for each operation, and what changed (nothing, if it failed)."""

    results: list[ops.Result]
    events: list[WatchEvent]
    failure: CoordinationError | None = None
    undo: Sequence[Callable[[], None]] = ()


class _Step(NamedTuple):
    """Number and time of the transaction being applied, and who asks."""

    zxid: int
    time_ms: int
    session_id: int
    identities: tuple[Identity, ...]
    events: list[WatchEvent]
    undo: list[Callable[[], None]]


class Tree:
    """All znodes and sessions."""

    def __init__(self) -> None:
        self.nodes: dict[str, Node] = {"/": Node(b"", ops.OPEN_ACL, 0, 0, 0, 0, 0)}
        self.sessions: dict[int, Session] = {}
        self.last_zxid = 0

    # Reading

    def get(self, path: str, identities: tuple[Identity, ...] = ()) -> tuple[bytes, Stat]:
        """Data and stat of a znode."""
        node = self._node(path)
        require(node.acl, ops.READ, identities, path)
        return node.data, node.stat()

    def exists(self, path: str) -> Stat | None:
        """The stat of a znode, or None. Nobody is refused."""
        node = self.nodes.get(path)
        return None if node is None else node.stat()

    def children(self, path: str, identities: tuple[Identity, ...] = ()) -> tuple[list[str], Stat]:
        """The names of the children, sorted, and the stat of the parent."""
        node = self._node(path)
        require(node.acl, ops.READ, identities, path)
        return sorted(node.children), node.stat()

    def acl(self, path: str, identities: tuple[Identity, ...] = ()) -> tuple[tuple[Acl, ...], Stat]:
        """The access control list of a znode."""
        node = self._node(path)
        require(node.acl, ops.READ | ops.ADMIN, identities, path)
        return shown_acl(node.acl, identities), node.stat()

    def empty_containers(self) -> list[str]:
        """Containers that had children and have none any more."""
        return [path for path, node in self.nodes.items() if node.is_container and node.creates and not node.children]

    # Changing

    def apply(self, transaction: ops.Transaction, zxid: int, time_ms: int) -> Applied:
        """Perform a transaction, whole or not at all."""
        assert zxid > self.last_zxid, "transactions are numbered upwards"
        step = _Step(zxid, time_ms, transaction.session_id, getattr(transaction, "identities", ()), [], [])
        match transaction:
            case ops.Write():
                applied = self._write(transaction, step)
            case ops.OpenSession():
                applied = self._open_session(transaction, step)
            case ops.CloseSession():
                applied = self._close_session(step)
            case ops.RemoveContainer():
                applied = self._remove_container(transaction.path, step)
        if applied.failure is None:
            self.last_zxid = zxid
        return applied

    def revert(self, applied: Applied, last_zxid: int) -> None:
        """Take back the newest transaction; `last_zxid` is the one before it."""
        _undo(applied.undo)
        self.last_zxid = last_zxid

    def _write(self, write: ops.Write, step: _Step) -> Applied:
        if write.session_id not in self.sessions:
            return _failed(len(write.operations), 0, SessionExpiredError())
        results: list[ops.Result] = []
        for index, operation in enumerate(write.operations):
            try:
                results.append(self._perform(operation, step))
            except CoordinationError as error:
                _undo(step.undo)
                error.operation_index = index
                return _failed(len(write.operations), index, error)
        return Applied(results, step.events, undo=step.undo)

    def _perform(self, operation: ops.Operation, step: _Step) -> ops.Result:
        match operation:
            case ops.Create():
                return self._create(operation, step)
            case ops.Delete():
                return self._delete(operation, step)
            case ops.SetData():
                return self._set_data(operation, step)
            case ops.SetAcl():
                return self._set_acl(operation, step)
            case ops.Check():
                return self._check(operation, step)

    def _create(self, create: ops.Create, step: _Step) -> ops.Created:
        path = create.path
        if "/" not in path or "\0" in path:
            raise BadArgumentsError(path_problem(path) or path)
        acl = effective_acl(create.acl, step.identities)
        parent_path = parent_of(path)
        parent = self._node(parent_path)
        require(parent.acl, ops.CREATE, step.identities, path)
        if create.sequential:
            path = f"{path}{parent.creates:010d}"
        _require_path(path)
        if path in self.nodes:
            raise NodeExistsError(f"znode {path} exists already")
        if parent.ephemeral_owner:
            raise NoChildrenForEphemeralsError(f"znode {parent_path} is ephemeral and cannot have children")
        owner = step.session_id if create.ephemeral else 0
        node = Node(create.data, acl, step.zxid, step.zxid, step.zxid, step.time_ms, step.time_ms, owner)
        node.is_container = create.container
        self._attach(path, node, parent, step)
        step.events.append(WatchEvent(EventType.CREATED, path))
        step.events.append(WatchEvent(EventType.CHILDREN_CHANGED, parent_path))
        return ops.Created(path, node.stat())

    def _attach(self, path: str, node: Node, parent: Node, step: _Step) -> None:
        pzxid_before = parent.pzxid

        def undo() -> None:
            self._unlink(path, parent)
            parent.creates -= 1
            parent.pzxid = pzxid_before

        self.nodes[path] = node
        parent.children.add(name_of(path))
        parent.creates += 1
        parent.pzxid = step.zxid
        if node.ephemeral_owner:
            self.sessions[node.ephemeral_owner].ephemerals.add(path)
        step.undo.append(undo)

    def _delete(self, delete: ops.Delete, step: _Step) -> ops.Done:
        path = delete.path
        if "/" not in path or "\0" in path or path == "/":
            raise BadArgumentsError(f"cannot delete {path!r}")
        parent = self._node(parent_of(path))
        require(parent.acl, ops.DELETE, step.identities, path)
        node = self._node(path)
        _require_version(node.version, delete.version, path)
        if node.children:
            raise NotEmptyError(f"znode {path} has children")
        self._detach(path, node, parent, step)
        return ops.Done()

    def _detach(self, path: str, node: Node, parent: Node, step: _Step) -> None:
        pzxid_before = parent.pzxid

        def undo() -> None:
            self.nodes[path] = node
            parent.children.add(name_of(path))
            parent.pzxid = pzxid_before
            if node.ephemeral_owner:
                self.sessions[node.ephemeral_owner].ephemerals.add(path)

        self._unlink(path, parent)
        parent.pzxid = step.zxid
        step.events.append(WatchEvent(EventType.DELETED, path))
        step.events.append(WatchEvent(EventType.CHILDREN_CHANGED, parent_of(path)))
        step.undo.append(undo)

    def _unlink(self, path: str, parent: Node) -> None:
        node = self.nodes.pop(path)
        parent.children.remove(name_of(path))
        if node.ephemeral_owner:
            self.sessions[node.ephemeral_owner].ephemerals.remove(path)

    def _set_data(self, change: ops.SetData, step: _Step) -> ops.Changed:
        _require_path(change.path)
        node = self._node(change.path)
        require(node.acl, ops.WRITE, step.identities, change.path)
        _require_version(node.version, change.version, change.path)
        before = node.data, node.version, node.mzxid, node.mtime_ms

        def undo() -> None:
            node.data, node.version, node.mzxid, node.mtime_ms = before

        node.data, node.version, node.mzxid, node.mtime_ms = change.data, node.version + 1, step.zxid, step.time_ms
        step.undo.append(undo)
        step.events.append(WatchEvent(EventType.DATA_CHANGED, change.path))
        return ops.Changed(node.stat())

    def _set_acl(self, change: ops.SetAcl, step: _Step) -> ops.Changed:
        _require_path(change.path)
        acl = effective_acl(change.acl, step.identities)
        node = self._node(change.path)
        require(node.acl, ops.ADMIN, step.identities, change.path)
        _require_version(node.aversion, change.version, change.path)
        before = node.acl, node.aversion

        def undo() -> None:
            node.acl, node.aversion = before

        node.acl, node.aversion = acl, node.aversion + 1
        step.undo.append(undo)
        return ops.Changed(node.stat())

    def _check(self, check: ops.Check, step: _Step) -> ops.Done:
        _require_path(check.path)
        node = self._node(check.path)
        require(node.acl, ops.READ, step.identities, check.path)
        _require_version(node.version, check.version, check.path)
        return ops.Done()

    def _open_session(self, opened: ops.OpenSession, step: _Step) -> Applied:
        if opened.session_id in self.sessions:
            return Applied([], [], BadArgumentsError(f"session {opened.session_id:#x} exists already"))
        self.sessions[opened.session_id] = Session(opened.timeout_ms, opened.password)
        step.undo.append(lambda: self.sessions.__delitem__(opened.session_id))
        return Applied([], [], undo=step.undo)

    def _close_session(self, step: _Step) -> Applied:
        session = self.sessions.get(step.session_id)
        if session is None:
            return Applied([], [], SessionExpiredError())
        for path in sorted(session.ephemerals):
            self._detach(path, self.nodes[path], self.nodes[parent_of(path)], step)
        del self.sessions[step.session_id]
        step.undo.append(lambda: self.sessions.__setitem__(step.session_id, session))
        return Applied([], step.events, undo=step.undo)

    def _remove_container(self, path: str, step: _Step) -> Applied:
        node = self.nodes.get(path)
        if node is None or not node.is_container or not node.creates or node.children:
            return Applied([], [], NotEmptyError(f"{path} is not an empty container"))
        self._detach(path, node, self.nodes[parent_of(path)], step)
        return Applied([], step.events, undo=step.undo)

    def _node(self, path: str) -> Node:
        node = self.nodes.get(path)
        if node is None:
            raise NoNodeError(f"there is no znode {path}")
        return node


def _undo(steps: Sequence[Callable[[], None]]) -> None:
    for step in reversed(steps):
        step()


def _failed(count: int, index: int, error: CoordinationError) -> Applied:
    """ZooKeeper's codes: 0 for the operations that were undone, -2 for those after the one that failed."""
    results: list[ops.Result] = [ops.Failed(ROLLED_BACK) for _ in range(index)]
    results.append(ops.Failed(error.code, str(error)))
    results += [ops.Failed(RUNTIME_INCONSISTENCY) for _ in range(count - index - 1)]
    return Applied(results, [], error)


def _require_path(path: str) -> None:
    if (problem := path_problem(path)) is not None:
        raise BadArgumentsError(problem)


def _require_version(actual: int, expected: int, path: str) -> None:
    if expected not in (ops.ANY_VERSION, actual):
        raise BadVersionError(f"znode {path} has version {actual}, not {expected}")
