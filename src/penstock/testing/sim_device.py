"""The device under a simulated disk: numbered operations, the journal of unsynced ones, and the faults a test asks for.

Every change and every sync gets the next number when it is about to happen, after its arguments were found good. At
that moment a test may look (`before_operation`), let it fail (`fail_when`), slow it down, or stop the whole workload
(`stop_number`: `Crashed` is raised then and at every later operation, so that no `finally` block reaches the disk).
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from dataclasses import dataclass

from penstock.testing.sim_files import (
    PAGE_BYTES,
    Change,
    Folder,
    Inode,
    Link,
    Lost,
    LostPages,
    Node,
    Operation,
    Rename,
    Torn,
    Truncate,
    Unlink,
    Write,
    drop_folder_changes,
    drop_inode_changes,
    image_after_crash,
    put,
    resize,
    sync_folder,
    sync_inode,
    without_forgotten,
)


class Crashed(BaseException):
    """The simulated machine stopped here. Not an `Exception`, so that no handler of the program swallows it."""


def os_error(code: int, path: str) -> OSError:
    """The operating system's error, as Python would raise it."""
    return OSError(code, os.strerror(code), path)


@dataclass(slots=True)
class FaultRule:
    """One fault to come: which operations, how often, what happens."""

    matches: Callable[[Operation], bool]
    error: BaseException
    times: int
    written_bytes: int = 0


class Device:
    """The tree, its journal, and its faults; shared by the processes of one machine."""

    def __init__(self, capacity_bytes: int, wall_ms: Callable[[], int]) -> None:
        self.root = Folder()
        self.journal: list[Change] = []
        self.operations_count = 0
        self.capacity_bytes = capacity_bytes
        self.used_bytes = 0
        self.wall_ms = wall_ms
        self.generation = 0
        self.locked: dict[Inode, object] = {}
        self.before_operation: Callable[[Operation], None] | None = None
        self.after_operation: Callable[[Operation], None] | None = None
        self.on_stop: Callable[[], None] | None = None
        self.latency_s = 0.0
        self.stop_number: int | None = None
        self.stopped = False
        self._faults: list[FaultRule] = []
        self._slow: list[tuple[Callable[[Operation], bool], float]] = []

    # The faults of a test

    def fail_when(
        self, matches: Callable[[Operation], bool], error: BaseException, times: int = 1, written_bytes: int = 0
    ) -> None:
        self._faults.append(FaultRule(matches, error, times, written_bytes))

    def slow_when(self, matches: Callable[[Operation], bool], seconds: float) -> None:
        self._slow.append((matches, seconds))

    def heal(self) -> None:
        """Forget every fault that has not happened yet."""
        self._faults.clear()
        self._slow.clear()
        self.stop_number = None

    def refuse_if_stopped(self) -> None:
        if self.stopped:
            raise Crashed("the machine has stopped")

    def _begin(self, operation: Operation) -> FaultRule | None:
        """Number the operation; the fault that meets it, if any."""
        self.refuse_if_stopped()
        self.operations_count += 1
        assert operation.number == self.operations_count
        if self.before_operation is not None:
            self.before_operation(operation)
        if operation.number == self.stop_number:
            self.stopped = True
            if self.on_stop is not None:
                self.on_stop()
            raise Crashed(f"stopped at {operation}")
        self.latency_s += sum(seconds for matches, seconds in self._slow if matches(operation))
        for rule in self._faults:
            if rule.times and rule.matches(operation):
                rule.times -= 1
                return rule
        return None

    def _end(self, operation: Operation) -> None:
        if self.after_operation is not None:
            self.after_operation(operation)

    @property
    def next_number(self) -> int:
        return self.operations_count + 1

    # Content

    def write(self, inode: Inode, path: str, data: bytes, offset: int) -> None:
        """All of the data, or what fits and ENOSPC."""
        operation = Write(self.next_number, "write", path, inode, offset, data)
        fault = self._begin(operation)
        error: BaseException | None = None
        if fault is not None:
            error = fault.error
            operation.data = data[: fault.written_bytes]
        room = len(inode.content) + max(0, self.capacity_bytes - self.used_bytes) - offset
        if room < len(operation.data):
            error = error or os_error(errno.ENOSPC, path)
            operation.data = operation.data[: max(0, room)]
        if operation.data:
            self._grow(inode, lambda: put(inode.content, operation.data, offset))
            self.journal.append(operation)
        self._end(operation)
        if error is not None:
            raise error

    def truncate(self, inode: Inode, path: str, size: int) -> None:
        operation = Truncate(self.next_number, "truncate", path, inode, size)
        self._refuse(self._begin(operation))
        self._grow(inode, lambda: resize(inode.content, size))
        self.journal.append(operation)
        self._end(operation)

    def _grow(self, inode: Inode, change: Callable[[], None]) -> None:
        before = len(inode.content)
        change()
        self.used_bytes += len(inode.content) - before
        inode.modified_ms = self.wall_ms()

    def sync(self, inode: Inode, path: str) -> None:
        """Durable from here on; or, after an error, lost at the next crash although reads go on showing it."""
        operation = Operation(self.next_number, "sync", path)
        fault = self._begin(operation)
        if fault is not None:
            self.journal = drop_inode_changes(self.journal, inode)
            raise fault.error
        self.journal = sync_inode(self.journal, inode)
        self._end(operation)

    @staticmethod
    def _refuse(fault: FaultRule | None) -> None:
        if fault is not None:
            raise fault.error

    # Names

    def link(self, kind: str, path: str, folder: Folder, name: str, node: Node) -> None:
        operation = Link(self.next_number, kind, path, folder, name, node)
        self._refuse(self._begin(operation))
        folder.entries[name] = node
        if isinstance(node, Inode):
            node.links += 1
        self._names_changed(operation, folder)

    def unlink(self, kind: str, path: str, folder: Folder, name: str) -> None:
        node = folder.entries[name]
        operation = Unlink(self.next_number, kind, path, folder, name, node)
        self._refuse(self._begin(operation))
        del folder.entries[name]
        self._drop_link(node)
        self._names_changed(operation, folder)

    def rename(self, path: str, source: tuple[Folder, str], target_path: str, target: tuple[Folder, str]) -> None:
        node = source[0].entries[source[1]]
        operation = Rename(self.next_number, "rename", path, *source, *target, node, target_path)
        self._refuse(self._begin(operation))
        replaced = target[0].entries.get(target[1])
        del source[0].entries[source[1]]
        target[0].entries[target[1]] = node
        if replaced is not None:
            self._drop_link(replaced)
        self._names_changed(operation, source[0], target[0])

    def _names_changed(self, operation: Change, *folders: Folder) -> None:
        for folder in folders:
            folder.modified_ms = self.wall_ms()
        self.journal.append(operation)
        self._end(operation)

    def _drop_link(self, node: Node) -> None:
        if isinstance(node, Inode):
            node.links -= 1
            self.forget_if_unused(node)

    def forget_if_unused(self, inode: Inode) -> None:
        if inode.links == 0 and inode.handles == 0:
            self.used_bytes -= len(inode.content)

    def sync_folder(self, folder: Folder, path: str) -> None:
        operation = Operation(self.next_number, "sync_dir", path)
        fault = self._begin(operation)
        if fault is not None:
            self.journal = drop_folder_changes(self.journal, folder)
            raise fault.error
        self.journal = without_forgotten(self.root, sync_folder(self.journal, folder))
        self._end(operation)

    # Damage

    def flip(self, inode: Inode, offset: int, mask: int) -> None:
        """Change bits of one byte everywhere it is kept."""
        inode.content[offset] ^= mask
        if offset < len(inode.durable):
            inode.durable[offset] ^= mask
        for change in self.journal:
            if isinstance(change, Write) and change.inode is inode:
                at = offset - change.offset
                if 0 <= at < len(change.data):
                    change.data = change.data[:at] + bytes([change.data[at] ^ mask]) + change.data[at + 1 :]

    def evict(self, inode: Inode) -> None:
        inode.cold_pages.update(range(len(inode.content) // PAGE_BYTES + 1))

    def image(self, *, lost: Lost, torn: Torn, lost_pages: LostPages, ordered_names: bool) -> Folder:
        return image_after_crash(
            self.root, self.journal, lost=lost, torn=torn, lost_pages=lost_pages, ordered_names=ordered_names
        )

    def replace_tree(self, root: Folder) -> None:
        """Start again from what a crash left: nothing unsynced, nothing open, nothing locked."""
        self.root = root
        self.journal = []
        self.used_bytes = _content_bytes(root)
        self.generation += 1
        self.locked.clear()
        self.stopped = False
        self.stop_number = None


def _content_bytes(folder: Folder) -> int:
    nodes = folder.entries.values()
    return sum(_content_bytes(node) if isinstance(node, Folder) else len(node.content) for node in nodes)
