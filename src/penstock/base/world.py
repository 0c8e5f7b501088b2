"""The world: everything outside the program that Penstock touches, as four small interfaces.

The shell takes a `World` as an argument and never reaches for `time`, `os`, `socket` or `random` itself, so that the
same code runs on a real machine (`real_world.py`) and in the deterministic simulator (`penstock.testing`). Timers come
from the running event loop (`loop.call_later`), which the simulator replaces too.

Errors are the operating system's own: an `OSError` with its `errno`, on either world.
"""

from __future__ import annotations

import errno
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias, TypeVar

T = TypeVar("T")
Buffer: TypeAlias = bytes | bytearray | memoryview


class Address(NamedTuple):
    """One end of a connection, or what a listener is bound to."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Clock(Protocol):
    """What time it is. Timeouts use `monotonic`; only what is stored or shown uses `wall_ms`."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970; may jump."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go back and that count while the machine is suspended."""
        ...


class Random(Protocol):
    """Chance: unpredictable on a real machine, from the seed in the simulator."""

    def random(self) -> float: ...

    def randrange(self, stop: int, /) -> int: ...

    def randbytes(self, count: int, /) -> bytes: ...


class File(Protocol):
    """One open file. Positions are always given: there is no cursor. Nothing is durable before `sync`.

    A file that nobody refers to closes itself. So whoever only wants to save descriptors drops its reference instead of
    calling `close`: a response that is still being sent from the file keeps it open.
    """

    path: str

    def size(self) -> int: ...

    def read(self, count: int, offset: int) -> bytes:
        """Up to `count` bytes from `offset`; fewer only at the end of the file."""
        ...

    def write(self, buffers: Sequence[Buffer], offset: int) -> int:
        """Write all of the buffers at `offset` and return their length, or raise.

        After an error any prefix may have been written: the caller truncates back.
        """
        ...

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None:
        """Make the content durable. Blocks: call it through `Disk.run`. Never retry one that failed."""
        ...

    def is_cached(self, offset: int, count: int) -> bool:
        """Whether the range can be read now without waiting for the device."""
        ...

    def close(self) -> None: ...


class Lock(Protocol):
    """An exclusive hold on a folder; lost with the process."""

    def release(self) -> None: ...


class Disk(Protocol):
    """The file system. Entries of a folder (creation, rename, removal) are durable after `sync_dir` of that folder."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing; FileNotFoundError unless it exists or `create` is given."""
        ...

    def exists(self, path: str) -> bool: ...

    def is_dir(self, path: str) -> bool: ...

    def list_dir(self, path: str) -> list[str]:
        """The names in a folder, sorted."""
        ...

    def make_dirs(self, path: str) -> None:
        """Create the folder and its parents, private to the owner (0700); no error if it is there."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Atomically replace `target`."""
        ...

    def remove(self, path: str) -> None: ...

    def remove_dir(self, path: str) -> None:
        """Remove an empty folder."""
        ...

    def sync_dir(self, path: str) -> None: ...

    def file_size(self, path: str) -> int: ...

    def modified_ms(self, path: str) -> int: ...

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        """Let a file look as old as another one. A crash may take it back."""
        ...

    def free_bytes(self, path: str) -> int: ...

    def total_bytes(self, path: str) -> int: ...

    def lock(self, path: str) -> Lock:
        """Take the lock file `path`; BlockingIOError if another process holds it."""
        ...

    def run(self, pool: str, work: Callable[[], T]) -> Awaitable[T]:
        """Run blocking work beside the event loop, in the named pool: "sync", "read", "delete" or "compact"."""
        ...


class Stream(Protocol):
    """One non-blocking connection. `recv_into` and `send` raise BlockingIOError when they would wait."""

    peer: Address
    local: Address

    def recv_into(self, buffer: Buffer) -> int:
        """Bytes received; 0 when the peer has closed."""
        ...

    def send(self, data: Buffer) -> int: ...

    def send_more(self, data: Buffer) -> int:
        """The same, where more follows at once: it need not leave before that."""
        ...

    def send_file(self, file: File, offset: int, count: int) -> int: ...

    def watch_read(self, callback: Callable[[], None] | None) -> None:
        """Call back whenever there is something to receive; None stops."""
        ...

    def after_reading(self, callback: Callable[[], None]) -> None:
        """Call back once, after the streams that have something to receive now have been asked for it."""
        ...

    def watch_write(self, callback: Callable[[], None] | None) -> None:
        """Call back whenever there is room to send; None stops."""
        ...

    def close(self) -> None: ...


class Listener(Protocol):
    """A bound address that accepts connections until closed."""

    address: Address

    def close(self) -> None: ...


class SocketOptions(NamedTuple):
    """How a listener's connections are set up in the operating system; -1 leaves a size to the system."""

    backlog: int = 1024
    receive_buffer_bytes: int = -1
    send_buffer_bytes: int = -1


class Network(Protocol):
    """Connections to other processes."""

    async def listen(
        self, host: str, port: int, accept: Callable[[Stream], None], options: SocketOptions = ...
    ) -> Listener: ...

    async def connect(self, host: str, port: int) -> Stream: ...


@dataclass(frozen=True, slots=True)
class World:
    """The four together; made once, in `cli` or in the simulator, and handed down."""

    clock: Clock
    disk: Disk
    network: Network
    random: Random
    boot_id: str = ""
    """Which start of the machine this is; empty where that cannot be known."""


class NoSpaceError(OSError):
    """There was no room for a write, and all is as it was before: it can be tried again. Never raised for a sync."""

    @classmethod
    def of(cls, error: OSError) -> NoSpaceError:
        return cls(error.errno, error.strerror, error.filename)


def lacks_space(error: BaseException | None) -> bool:
    """Whether this is the system's error for a disk, or a quota, without room."""
    return isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT)


def write_file_durably(disk: Disk, path: str, content: bytes) -> None:
    """Replace a small file so that a crash leaves the old or the new content: write, sync, rename, sync the folder.

    NoSpaceError if there is no room for it: the old content is still there.
    """
    temporary = path + ".tmp"
    with _removing_if_no_space(disk, temporary):
        file = disk.open(temporary, create=True)
        try:
            file.truncate(0)
            file.write([content], 0)
        except BaseException:
            file.close()
            raise
    try:
        file.sync()
    finally:
        file.close()
    with _removing_if_no_space(disk, temporary):
        disk.rename(temporary, path)
    disk.sync_dir(path.rpartition("/")[0] or ".")


@contextmanager
def _removing_if_no_space(disk: Disk, temporary: str) -> Iterator[None]:
    """A part of a file would only hold the last of the room."""
    try:
        yield
    except OSError as error:
        if not lacks_space(error):
            raise
        if disk.exists(temporary):
            disk.remove(temporary)
        raise NoSpaceError.of(error) from error


def read_file(disk: Disk, path: str) -> bytes:
    """The whole of a small file."""
    file = disk.open(path)
    try:
        return file.read(file.size(), 0)
    finally:
        file.close()
