"""The disk in memory: the `Disk` of the world with a faithful crash model, for tests.

A `SimDisk` is the disk as one process sees it; `for_process` gives another process of the same machine its own view.
All views share one device (`sim_device.py`), which numbers every change and remembers which of them a power loss may
still take (`sim_files.py` has the rules). Results and errors are those of Linux: one suite of scripts runs on this disk
and on the real one.

    disk = SimDisk(seed=1)
    disk.stop_at(17)                        # Crashed at the 17th operation, and ever after
    with pytest.raises(Crashed): workload(disk)
    for change in disk.pending(): ...       # what is not durable yet
    after = disk.after_crash(lost="all")    # a new disk; this one stays as it was, to try another loss
"""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from penstock.base.world import Buffer
from penstock.testing.sim_device import Crashed, Device, os_error
from penstock.testing.sim_files import (
    PAGE_BYTES,
    Change,
    Folder,
    Inode,
    Lost,
    LostPages,
    Node,
    Operation,
    Torn,
)

__all__ = ["Crashed", "Operation", "SimDisk", "SimFile", "SimLock"]

T = TypeVar("T")
CAPACITY_BYTES = 1 << 40
POOLS = ("sync", "read", "delete", "compact")


class SimFile:
    """One open file of one process; EBADF after close, kill and crash. One that nobody refers to closes itself."""

    _open = False

    def __init__(self, disk: SimDisk, path: str, inode: Inode) -> None:
        self.path = path
        self._disk = disk
        self._device = disk.device
        self.generation = disk.generation
        self._inode = inode
        self._handle = disk.handle_opened(inode)
        self._open = True

    def __del__(self) -> None:
        self.close()

    def _check(self, *positions: int) -> None:
        self._disk.check_alive()
        if not self._open or self.generation != self._disk.generation:
            raise os_error(errno.EBADF, self.path)
        if any(position < 0 for position in positions):
            raise os_error(errno.EINVAL, self.path)

    def size(self) -> int:
        self._check()
        return len(self._inode.content)

    def read(self, count: int, offset: int) -> bytes:
        self._check(count, offset)
        self._inode.cold_pages.difference_update(_pages(offset, count))
        return bytes(memoryview(self._inode.content)[offset : offset + count])

    def write(self, buffers: Sequence[Buffer], offset: int) -> int:
        self._check(offset)
        data = b"".join(buffers)
        if data:
            self._device.write(self._inode, self.path, data, offset)
            self._disk.after_blocking()
        return len(data)

    def truncate(self, size: int) -> None:
        self._check(size)
        self._device.truncate(self._inode, self.path, size)
        self._disk.after_blocking()

    def sync(self) -> None:
        self._check()
        self._device.sync(self._inode, self.path)
        self._disk.after_blocking()

    def is_cached(self, offset: int, count: int) -> bool:
        self._check(offset)
        cold = self._inode.cold_pages
        return not cold or cold.isdisjoint(_pages(offset, count))

    def close(self) -> None:
        if self._open:
            self._open = False
            self._disk.handle_closed(self._handle)


class SimLock:
    """A held lock file."""

    def __init__(self, disk: SimDisk, inode: Inode) -> None:
        self.disk = disk
        self._inode = inode

    def release(self) -> None:
        held = self.disk.device.locked
        if held.get(self._inode) is self:
            del held[self._inode]


class SimDisk:
    """The file system of a simulated machine as one process sees it."""

    def __init__(
        self,
        *,
        seed: int = 0,
        capacity_bytes: int = CAPACITY_BYTES,
        wall_ms: Callable[[], int] = lambda: 0,
        device: Device | None = None,
    ) -> None:
        self.device = device or Device(capacity_bytes, wall_ms)
        self.delays_s: dict[str, tuple[float, float]] = dict.fromkeys(POOLS, (0.0001, 0.002))
        self.on_blocked: Callable[[float], None] | None = None
        self._seed = seed
        self._random = random.Random(f"disk {seed}")
        self._dead_generations = 0
        self._dead = False
        self._in_pool = False
        self._handles_count = 0
        self._open_files: dict[int, tuple[Inode, int]] = {}  # by handle: the file, and the generation of its device

    def for_process(self, seed: int = 0) -> SimDisk:
        """The same machine's disk for another process: its own handles and locks, killed alone."""
        other = SimDisk(seed=seed, device=self.device)
        other.delays_s = dict(self.delays_s)
        return other

    @property
    def generation(self) -> tuple[int, int]:
        """Changes when the handles of this process die."""
        return self.device.generation, self._dead_generations

    # The file system

    def open(self, path: str, *, create: bool = False) -> SimFile:
        folder, name, node = self._find(path)
        if isinstance(node, Folder):
            raise os_error(errno.EISDIR, path)
        if node is None:
            if not create:
                raise os_error(errno.ENOENT, path)
            node = self._create(path, folder, name)
        return SimFile(self, path, node)

    def handle_opened(self, inode: Inode) -> int:
        """The number of the new handle."""
        inode.handles += 1
        self._handles_count += 1
        self._open_files[self._handles_count] = inode, self.device.generation
        return self._handles_count

    def handle_closed(self, handle: int) -> None:
        inode, generation = self._open_files.pop(handle, (None, -1))
        if inode is not None and generation == self.device.generation:
            inode.handles -= 1
            self.device.forget_if_unused(inode)

    def _create(self, path: str, folder: Folder, name: str) -> Inode:
        inode = Inode(self.device.wall_ms())
        self.device.link("create", path, folder, name, inode)
        self.after_blocking()
        return inode

    def exists(self, path: str) -> bool:
        return self._node_or_none(path) is not None

    def is_dir(self, path: str) -> bool:
        return isinstance(self._node_or_none(path), Folder)

    def list_dir(self, path: str) -> list[str]:
        return sorted(self._folder(path).entries)

    def make_dirs(self, path: str) -> None:
        self.check_alive()
        folder = self.device.root
        made = ""
        for part in _parts(path):
            made += "/" + part
            if part not in folder.entries:
                self.device.link("make_dir", made, folder, part, Folder(self.device.wall_ms()))
                self.after_blocking()
            node = folder.entries[part]
            if not isinstance(node, Folder):
                raise os_error(errno.EEXIST if made == _normal(path) else errno.ENOTDIR, path)
            folder = node

    def rename(self, source: str, target: str) -> None:
        source_folder, source_name, node = self._find(source)
        target_folder, target_name, replaced = self._find(target)
        if node is None:
            raise os_error(errno.ENOENT, source)
        self._check_rename(source, target, node, replaced)
        if replaced is not node:
            self.device.rename(source, (source_folder, source_name), target, (target_folder, target_name))
            self.after_blocking()

    @staticmethod
    def _check_rename(source: str, target: str, node: Node, replaced: Node | None) -> None:
        source_parts, target_parts = _parts(source), _parts(target)
        if not source_parts or not target_parts:
            raise os_error(errno.EBUSY, source)
        if len(target_parts) > len(source_parts) and target_parts[: len(source_parts)] == source_parts:
            raise os_error(errno.EINVAL, source)
        if len(source_parts) > len(target_parts) and source_parts[: len(target_parts)] == target_parts:
            raise os_error(errno.ENOTEMPTY, source)
        if replaced is None or replaced is node:
            return
        if isinstance(node, Folder):
            if not isinstance(replaced, Folder):
                raise os_error(errno.ENOTDIR, source)
            if replaced.entries:
                raise os_error(errno.ENOTEMPTY, source)
        elif isinstance(replaced, Folder):
            raise os_error(errno.EISDIR, source)

    def remove(self, path: str) -> None:
        folder, name, node = self._find(path)
        if node is None:
            raise os_error(errno.ENOENT, path)
        if isinstance(node, Folder):
            raise os_error(errno.EISDIR, path)
        self.device.unlink("remove", path, folder, name)
        self.after_blocking()

    def remove_dir(self, path: str) -> None:
        if not _parts(path):
            raise os_error(errno.EBUSY, path)
        folder, name, _ = self._find(path)
        if self._folder(path).entries:
            raise os_error(errno.ENOTEMPTY, path)
        self.device.unlink("remove_dir", path, folder, name)
        self.after_blocking()

    def sync_dir(self, path: str) -> None:
        self.device.sync_folder(self._folder(path), path)
        self.after_blocking()

    def file_size(self, path: str) -> int:
        node = self._node(path)
        return PAGE_BYTES if isinstance(node, Folder) else len(node.content)

    def modified_ms(self, path: str) -> int:
        return self._node(path).modified_ms

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        self._node(path).modified_ms = modified_ms

    def free_bytes(self, path: str) -> int:
        self._node(path)
        return max(0, self.device.capacity_bytes - self.device.used_bytes)

    def total_bytes(self, path: str) -> int:
        self._node(path)
        return self.device.capacity_bytes

    def lock(self, path: str) -> SimLock:
        self.open(path, create=True).close()
        inode = self._inode(path)
        if inode in self.device.locked:
            raise os_error(errno.EAGAIN, path)
        lock = SimLock(self, inode)
        self.device.locked[inode] = lock
        return lock

    def run(self, pool: str, work: Callable[[], T]) -> Awaitable[T]:
        """The work happens at one instant of virtual time, a seeded while from now; its end is seen later still."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        half_s = self._random.uniform(*self.delays_s[pool]) / 2
        loop.call_later(half_s, self._run_now, work, future, half_s, self.generation)
        return future

    def _run_now(
        self, work: Callable[[], T], future: asyncio.Future[T], rest_s: float, generation: tuple[int, int]
    ) -> None:
        if self._dead or future.cancelled() or generation != self.generation:
            return
        self._in_pool = True
        try:
            result = work()
        except BaseException as error:
            future.get_loop().call_later(rest_s + self._take_latency(), _fail, future, error)
        else:
            future.get_loop().call_later(rest_s + self._take_latency(), _finish, future, result)
        finally:
            self._in_pool = False

    def _take_latency(self) -> float:
        latency_s, self.device.latency_s = self.device.latency_s, 0.0
        return latency_s

    def after_blocking(self) -> None:
        """Outside of `run` a slow operation holds up the process that called it."""
        if self.device.latency_s and not self._in_pool:
            latency_s = self._take_latency()
            if self.on_blocked is not None:
                self.on_blocked(latency_s)

    # Finding things

    def check_alive(self) -> None:
        """Raise `Crashed` if this process, or the whole machine, has stopped."""
        if self._dead:
            raise Crashed("this process has ended")
        self.device.refuse_if_stopped()

    def _find(self, path: str) -> tuple[Folder, str, Node | None]:
        """The folder that holds or would hold the path, the last name, and what it names now."""
        self.check_alive()
        parts = _parts(path)
        folder = self.device.root
        if not parts:
            return folder, "", folder
        for part in parts[:-1]:
            node = folder.entries.get(part)
            if node is None:
                raise os_error(errno.ENOENT, path)
            if not isinstance(node, Folder):
                raise os_error(errno.ENOTDIR, path)
            folder = node
        return folder, parts[-1], folder.entries.get(parts[-1])

    def _node(self, path: str) -> Node:
        node = self._find(path)[2]
        if node is None:
            raise os_error(errno.ENOENT, path)
        return node

    def _node_or_none(self, path: str) -> Node | None:
        try:
            return self._find(path)[2]
        except OSError:
            return None

    def _folder(self, path: str) -> Folder:
        node = self._node(path)
        if not isinstance(node, Folder):
            raise os_error(errno.ENOTDIR, path)
        return node

    def _inode(self, path: str) -> Inode:
        node = self._node(path)
        if isinstance(node, Folder):
            raise os_error(errno.EISDIR, path)
        return node

    # What only tests call: looking, faults, damage

    @property
    def operations_count(self) -> int:
        """How many numbered operations there have been; the next one gets this number plus one."""
        return self.device.operations_count

    def content(self, path: str, start: int = 0, end: int | None = None) -> bytes:
        """What a process would read of a file, without being one: no operation, no delay; empty if there is none."""
        node: Node | None = self.device.root
        for part in _parts(path):
            node = node.entries.get(part) if isinstance(node, Folder) else None
        return bytes(node.content[start:end]) if isinstance(node, Inode) else b""

    def pending(self) -> list[Change]:
        """The changes that a power loss may take, oldest first."""
        return list(self.device.journal)

    def stop_at(self, number: int) -> None:
        """Raise `Crashed` instead of doing operation `number`, and at everything after it until crash or kill."""
        self.device.stop_number = number

    def fail_at(self, number: int, error: BaseException, *, written_bytes: int = 0) -> None:
        """Raise the error at operation `number`; a write has done its first `written_bytes` then."""
        self.device.fail_when(lambda operation: operation.number == number, error, 1, written_bytes)

    def fail_when(
        self,
        matches: Callable[[Operation], bool],
        error: BaseException,
        *,
        times: int = 1,
        written_bytes: int = 0,
    ) -> None:
        """Raise the error at the next operations that match."""
        self.device.fail_when(matches, error, times, written_bytes)

    def fail_sync(self, path: str | None = None, *, times: int = 1) -> None:
        """EIO at the next sync (of that file or folder). As on Linux, what it should have made durable counts as clean
        afterwards: reads show it, later syncs succeed without writing it, and the next crash loses it."""
        error = os_error(errno.EIO, path or "")
        self.device.fail_when(
            lambda operation: operation.kind in ("sync", "sync_dir") and path in (None, operation.path), error, times
        )

    def slow_when(self, matches: Callable[[Operation], bool], seconds: float) -> None:
        """Let matching operations take this long in virtual time (inside `run`, or as a pause of the process)."""
        self.device.slow_when(matches, seconds)

    def heal(self) -> None:
        """Forget the faults that have not happened yet."""
        self.device.heal()

    def set_capacity(self, capacity_bytes: int) -> None:
        """Writes beyond it are cut short with ENOSPC."""
        self.device.capacity_bytes = capacity_bytes

    def corrupt(self, path: str, offset: int, mask: int = 0x01) -> None:
        """Flip bits of one byte, durably."""
        self.device.flip(self._inode(path), offset, mask)

    def evict(self, path: str) -> None:
        """Forget the file's cached pages: `is_cached` says False until they were read."""
        self.device.evict(self._inode(path))

    # The end of a process, and of power

    def kill(self) -> None:
        """This process ends: its handles and locks are gone, nothing that was written is. A new one may begin."""
        self._drop_handles()
        self.device.stopped = False
        self.device.stop_number = None

    def end(self) -> None:
        """As `kill`, but this view can never be used again: the disk of a process that is over."""
        self._drop_handles()
        self._dead = True

    def _drop_handles(self) -> None:
        self._dead_generations += 1
        for handle in list(self._open_files):
            self.handle_closed(handle)
        held = self.device.locked
        for inode in [inode for inode, lock in held.items() if isinstance(lock, SimLock) and lock.disk is self]:
            del held[inode]

    def crash(
        self,
        lost: Lost = "all",
        torn: Torn = None,
        lost_pages: LostPages = None,
        *,
        ordered_names: bool = False,
    ) -> None:
        """Lose power, here: the disk goes on with what survived; the handles and locks of every process are gone.

        `lost`: "all" or "none" of the pending changes, their numbers, or a function of the change. `torn`: how many
        bytes of the last surviving write got to the medium, or a mapping from numbers of writes to that. `lost_pages`:
        pairs (number of a write, page of the file) or a function of both: the page keeps its old content, or zeros
        where the file grew. `ordered_names`: as on a journalling file system, a folder's changes are lost from the
        first lost one on.
        """
        image = self.device.image(lost=lost, torn=torn, lost_pages=lost_pages, ordered_names=ordered_names)
        self.device.replace_tree(image)

    def after_crash(
        self,
        lost: Lost = "all",
        torn: Torn = None,
        lost_pages: LostPages = None,
        *,
        ordered_names: bool = False,
    ) -> SimDisk:
        """A new disk (numbers from 1, no faults) as `crash` would leave this one; this one is not changed."""
        image = self.device.image(lost=lost, torn=torn, lost_pages=lost_pages, ordered_names=ordered_names)
        other = SimDisk(seed=self._seed, capacity_bytes=self.device.capacity_bytes, wall_ms=self.device.wall_ms)
        other.device.replace_tree(image)
        return other

    def snapshot(self) -> dict[str, bytes | None]:
        """Every path and its content as a process sees it (None: a folder), to compare disks."""
        found: dict[str, bytes | None] = {}
        _snapshot(self.device.root, "", found)
        return found


def _snapshot(folder: Folder, path: str, found: dict[str, bytes | None]) -> None:
    for name in sorted(folder.entries):
        node = folder.entries[name]
        if isinstance(node, Folder):
            found[f"{path}/{name}"] = None
            _snapshot(node, f"{path}/{name}", found)
        else:
            found[f"{path}/{name}"] = bytes(node.content)


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


def _normal(path: str) -> str:
    return "/" + "/".join(_parts(path))


def _pages(offset: int, count: int) -> range:
    return range(offset // PAGE_BYTES, (offset + max(count, 1) - 1) // PAGE_BYTES + 1)


def _finish(future: asyncio.Future[T], result: T) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: asyncio.Future[T], error: BaseException) -> None:
    if not future.done():
        future.set_exception(error)
