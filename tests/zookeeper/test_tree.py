"""The znode tree against a dumb model that copies everything before a change, and its finer points one by one."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.zookeeper import operations as ops
from penstock.zookeeper.errors import ERRORS, BadVersionError, NoAuthError, NoNodeError, error_for
from penstock.zookeeper.operations import Acl, Check, Create, Delete, EventType, Identity, SetAcl, SetData, WatchEvent
from penstock.zookeeper.tree import Applied, Tree
from penstock.zookeeper.tree_snapshot import decode_tree, encode_tree

SESSIONS = (11, 12)
names = st.sampled_from(["a", "b", "c"])
paths = st.lists(names, min_size=1, max_size=3).map(lambda parts: "/" + "/".join(parts))
versions = st.sampled_from([-1, -1, 0, 1, 2])
operations = st.one_of(
    st.builds(Create, path=paths, data=st.binary(max_size=3), ephemeral=st.booleans(), sequential=st.booleans()),
    st.builds(Create, path=paths, data=st.binary(max_size=3)),
    st.builds(Delete, path=paths, version=versions),
    st.builds(SetData, path=paths, data=st.binary(max_size=3), version=versions),
    st.builds(Check, path=paths, version=versions),
)
writes = st.builds(
    ops.Write, session_id=st.sampled_from(SESSIONS), operations=st.lists(operations, min_size=1, max_size=4).map(tuple)
)
closes = st.sampled_from(SESSIONS).map(ops.CloseSession)
opens = st.sampled_from(SESSIONS).map(lambda session_id: ops.OpenSession(session_id, 1000))
scripts = st.lists(st.one_of(writes, writes, writes, closes, opens), max_size=25)


class Refused(Exception):
    """The model's error."""


class Model:
    """Paths to plain dicts; all-or-nothing by copying the whole."""

    def __init__(self) -> None:
        self.nodes: dict[str, dict[str, Any]] = {"/": self.node(b"", 0, 0)}
        self.sessions: set[int] = set()

    @staticmethod
    def node(data: bytes, zxid: int, owner: int) -> dict[str, Any]:
        return {
            "data": data,
            "czxid": zxid,
            "mzxid": zxid,
            "pzxid": zxid,
            "version": 0,
            "made": 0,
            "gone": 0,
            "owner": owner,
        }

    def children(self, path: str) -> list[str]:
        prefix = "/" if path == "/" else path + "/"
        return sorted(
            p[len(prefix) :] for p in self.nodes if p != "/" and p.startswith(prefix) and "/" not in p[len(prefix) :]
        )

    def apply(self, transaction: ops.Transaction, zxid: int) -> int:
        """The error's code, or 0."""
        before = copy.deepcopy((self.nodes, self.sessions))
        try:
            match transaction:
                case ops.OpenSession(session_id=session_id):
                    self.require(session_id not in self.sessions, -8)
                    self.sessions.add(session_id)
                case ops.CloseSession(session_id=session_id):
                    self.require(session_id in self.sessions, -112)
                    for path in [path for path, node in self.nodes.items() if node["owner"] == session_id]:
                        self.remove(path, zxid)
                    self.sessions.remove(session_id)
                case ops.Write():
                    self.require(transaction.session_id in self.sessions, -112)
                    for operation in transaction.operations:
                        self.perform(operation, transaction.session_id, zxid)
        except Refused as refused:
            self.nodes, self.sessions = before
            return int(refused.args[0])
        return 0

    def perform(self, operation: ops.Operation, session_id: int, zxid: int) -> None:
        path = operation.path
        parent = path.rpartition("/")[0] or "/"
        match operation:
            case Create():
                self.require(parent in self.nodes, -101)
                if operation.sequential:
                    path += str(self.nodes[parent]["made"]).zfill(10)
                self.require(path not in self.nodes, -110)
                self.require(not self.nodes[parent]["owner"], -108)
                self.nodes[path] = self.node(operation.data, zxid, session_id if operation.ephemeral else 0)
                self.nodes[parent]["made"] += 1
                self.nodes[parent]["pzxid"] = zxid
            case Delete():
                self.require(parent in self.nodes and path in self.nodes, -101)
                self.require(operation.version in (-1, self.nodes[path]["version"]), -103)
                self.require(not self.children(path), -111)
                self.remove(path, zxid)
            case SetData():
                self.require(path in self.nodes, -101)
                self.require(operation.version in (-1, self.nodes[path]["version"]), -103)
                self.nodes[path]["data"] = operation.data
                self.nodes[path]["version"] += 1
                self.nodes[path]["mzxid"] = zxid
            case Check():
                self.require(path in self.nodes, -101)
                self.require(operation.version in (-1, self.nodes[path]["version"]), -103)

    def remove(self, path: str, zxid: int) -> None:
        del self.nodes[path]
        parent = self.nodes[path.rpartition("/")[0] or "/"]
        parent["gone"] += 1
        parent["pzxid"] = zxid

    @staticmethod
    def require(holds: bool, code: int) -> None:
        if not holds:
            raise Refused(code)


def assert_same(tree: Tree, model: Model) -> None:
    assert set(tree.sessions) == model.sessions
    assert set(tree.nodes) == set(model.nodes)
    for path, expected in model.nodes.items():
        data, stat = tree.get(path)
        children, _ = tree.children(path)
        assert (data, children) == (expected["data"], model.children(path))
        assert (stat.czxid, stat.mzxid, stat.pzxid) == (expected["czxid"], expected["mzxid"], expected["pzxid"])
        assert (stat.version, stat.cversion) == (expected["version"], expected["made"] + expected["gone"])
        assert (stat.ephemeral_owner, stat.data_length) == (expected["owner"], len(data))
        assert stat.num_children == len(children)


def _take_back_and_apply_again(journal: list[ops.JournalEntry]) -> None:
    """Everything is taken back, newest first: each time the tree is what it was before that transaction."""
    tree = Tree()
    states, outcomes = [encode_tree(tree)], []
    for entry in journal:
        outcomes.append(tree.apply(entry.transaction, entry.zxid, entry.time_ms))
        states.append(encode_tree(tree))
    for number in reversed(range(len(journal))):
        tree.revert(outcomes[number], journal[number].zxid - 1)
        assert encode_tree(tree) == states[number]
        assert encode_tree(decode_tree(encode_tree(tree))) == states[number]
    for entry in journal:
        tree.apply(entry.transaction, entry.zxid, entry.time_ms)
    assert encode_tree(tree) == states[-1]


@settings(max_examples=150, deadline=None)
@given(scripts)
def test_random_scripts_do_what_the_model_does(script: list[ops.Transaction]) -> None:
    tree, model, journal = Tree(), Model(), []
    for transaction in [ops.OpenSession(SESSIONS[0], 1000), *script]:
        zxid = tree.last_zxid + 1
        applied = tree.apply(transaction, zxid, zxid * 10)
        assert (applied.failure.code if applied.failure else 0) == model.apply(transaction, zxid)
        if applied.failure is None:
            journal.append(ops.JournalEntry(zxid, zxid * 10, transaction))
        assert_same(tree, model)
    replayed = Tree()
    for entry in ops.decode_entries(ops.encode_entries(journal)):
        replayed.apply(entry.transaction, entry.zxid, entry.time_ms)
    assert encode_tree(replayed) == encode_tree(tree)
    _take_back_and_apply_again(journal)
    restored = decode_tree(encode_tree(tree))
    assert_same(restored, model)
    assert encode_tree(restored) == encode_tree(tree)


def new_tree(*paths_: str) -> Tree:
    tree = Tree()
    tree.apply(ops.OpenSession(1, 1000), 1, 100)
    for path in paths_:
        assert write(tree, Create(path)).failure is None
    return tree


def write(tree: Tree, *operations_: ops.Operation, session_id: int = 1, who: tuple[Identity, ...] = ()) -> Applied:
    return tree.apply(ops.Write(session_id, operations_, who), tree.last_zxid + 1, 200)


def test_a_failed_multi_gives_zookeepers_codes_and_changes_nothing() -> None:
    tree = new_tree("/a")
    before = encode_tree(tree)
    applied = write(tree, Create("/b"), SetData("/a", b"x"), Check("/a", 7), Create("/c"), Delete("/a"))
    assert [result.code for result in applied.results if isinstance(result, ops.Failed)] == [0, 0, -103, -2, -2]
    assert isinstance(applied.failure, BadVersionError)
    assert applied.failure.operation_index == 2
    assert applied.events == []
    assert encode_tree(tree) == before


def test_operations_of_a_multi_see_those_before_them() -> None:
    tree = new_tree("/q")
    applied = write(
        tree, Create("/q/x", sequential=True), Create("/q/x", sequential=True), Delete("/q/x0000000000"), Check("/q", 0)
    )
    assert applied.failure is None
    created = [result for result in applied.results if isinstance(result, ops.Created)]
    assert [result.path for result in created] == ["/q/x0000000000", "/q/x0000000001"]
    stat = tree.exists("/q")
    assert stat is not None
    assert (stat.cversion, stat.num_children, stat.pzxid) == (3, 1, tree.last_zxid)


def test_sequence_numbers_count_creations_only() -> None:
    tree = new_tree("/q", "/q/plain")
    write(tree, Delete("/q/plain"))
    applied = write(tree, Create("/q/", sequential=True))
    assert isinstance(applied.results[0], ops.Created)
    assert applied.results[0].path == "/q/0000000001"


def test_the_end_of_a_session_removes_its_ephemerals() -> None:
    tree = new_tree("/a")
    tree.apply(ops.OpenSession(2, 1000), tree.last_zxid + 1, 0)
    write(tree, Create("/a/mine", ephemeral=True))
    write(tree, Create("/a/other", ephemeral=True), session_id=2)
    applied = tree.apply(ops.CloseSession(1), tree.last_zxid + 1, 0)
    assert applied.events == [
        WatchEvent(EventType.DELETED, "/a/mine"),
        WatchEvent(EventType.CHILDREN_CHANGED, "/a"),
    ]
    assert tree.children("/a")[0] == ["other"]
    assert write(tree, Create("/x")).results == [ops.Failed(-112, "the session has expired or was closed")]


@pytest.mark.parametrize(
    ("operation", "code"),
    [
        (Create("/"), -110),
        (Create("no-slash"), -8),
        (Create("/a/"), -8),
        (Create("/a//b"), -101),
        (Create("/a/.."), -8),
        (Create("/a/\x01"), -8),
        (Create("/missing/b"), -101),
        (Create("/a"), -110),
        (Create("/x", acl=()), -114),
        (Create("/x", acl=(Acl(31, Identity("auth", "")),)), -114),
        (Create("/x", acl=(Acl(31, Identity("ip", "nowhere")),)), -114),
        (Create("/e/child"), -108),
        (Delete("/"), -8),
        (Delete("/missing"), -101),
        (Delete("/parent"), -111),
        (Delete("/parent", 3), -103),
        (SetData("/missing", b""), -101),
        (SetData("/a", b"", 1), -103),
        (SetAcl("/a", ops.OPEN_ACL, 1), -103),
        (Check("/missing"), -101),
        (Check("/a", 1), -103),
    ],
)
def test_refusals_have_zookeepers_codes(operation: ops.Operation, code: int) -> None:
    tree = new_tree("/a", "/parent", "/parent/child")
    write(tree, Create("/e", ephemeral=True))
    before = encode_tree(tree)
    failure = write(tree, operation).failure
    assert failure is not None
    assert failure.code == code
    assert encode_tree(tree) == before


def test_access_control_lists_are_enforced() -> None:
    alice = Identity("digest", "alice:hash")
    readable = (Acl(ops.ALL_PERMISSIONS, alice), Acl(ops.READ, ops.ANYONE))
    tree = new_tree()
    write(tree, Create("/open"), Create("/open/secret", b"s", acl=(Acl(ops.ALL_PERMISSIONS, alice),)))
    write(tree, Create("/shown", b"s", acl=(Acl(31, Identity("auth", "")), Acl(ops.READ, ops.ANYONE))), who=(alice,))
    assert tree.acl("/shown", (alice,))[0] == readable
    assert tree.acl("/shown")[0] == (Acl(31, Identity("digest", "alice:x")), readable[1])
    with pytest.raises(NoAuthError):
        tree.get("/open/secret")
    assert tree.get("/open/secret", (alice,))[0] == b"s"
    assert tree.get("/open/secret", (Identity("super", ""),))[0] == b"s"
    assert tree.get("/shown")[0] == b"s"
    for refused in (SetData("/shown", b""), Create("/shown/x"), SetAcl("/shown", ops.OPEN_ACL), Check("/open/secret")):
        assert isinstance(write(tree, refused).failure, NoAuthError)
    assert write(tree, SetAcl("/shown", ops.OPEN_ACL), who=(alice,)).failure is None
    assert write(tree, SetData("/shown", b"new")).failure is None
    restored = decode_tree(encode_tree(tree))
    assert restored.acl("/open/secret", (alice,))[0] == (Acl(ops.ALL_PERMISSIONS, alice),)


def test_reading_what_is_not_there() -> None:
    tree = new_tree()
    assert tree.exists("/a") is None
    for read in (tree.get, tree.children, tree.acl):
        with pytest.raises(NoNodeError):
            read("/a")


def test_every_code_has_its_error() -> None:
    assert all(error.code == code for code, error in ERRORS.items())
    assert isinstance(error_for(-101), NoNodeError)
    assert error_for(-9999).definite is False
