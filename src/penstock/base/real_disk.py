"""The disk of this machine: POSIX calls, and small thread pools for what blocks."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from penstock.base._real_ends import FileEnd

T = TypeVar("T")

POOL_THREADS = {"sync": 4, "read": 4, "delete": 1, "compact": 4}
PROBE_STRIDE_BYTES = 128 * 1024  # read-ahead works in pieces of this size: one probe tells of one piece
_RWF_NOWAIT = getattr(os, "RWF_NOWAIT", 0)
_PROBE = (bytearray(1),)  # what a probe reads; nobody looks at it
_PROBE_IS_UNSUPPORTED = (errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS)


class RealFile(FileEnd):
    """One open file descriptor."""

    __slots__ = ("_can_probe",)

    def __init__(self, path: str, fd: int) -> None:
        super().__init__(path, fd)
        self._can_probe = bool(_RWF_NOWAIT)

    def size(self) -> int:
        return os.fstat(self.fd).st_size

    def read(self, count: int, offset: int) -> bytes:
        data = os.pread(self.fd, count, offset)
        while len(data) < count:
            more = os.pread(self.fd, count - len(data), offset + len(data))
            if not more:
                break
            data += more
        return data

    def truncate(self, size: int) -> None:
        os.ftruncate(self.fd, size)

    def sync(self) -> None:
        if self.fd < 0:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self.path)
        os.fdatasync(self.fd)

    def is_cached(self, offset: int, count: int) -> bool:
        if not self._can_probe:
            return True
        end = offset + count
        try:
            while offset < end:
                os.preadv(self.fd, _PROBE, offset, _RWF_NOWAIT)
                offset += PROBE_STRIDE_BYTES
            os.preadv(self.fd, _PROBE, end - 1, _RWF_NOWAIT)
        except BlockingIOError:
            return False
        except OSError as error:
            if error.errno in _PROBE_IS_UNSUPPORTED:  # a file system in memory, for one
                self._can_probe = False
                return True
            raise
        return True

    def close(self) -> None:
        if self.fd >= 0:
            fd, self.fd = self.fd, -1
            os.close(fd)

    def __del__(self) -> None:
        self.close()


class RealLock:
    """A lock file held with flock: the kernel lets go of it when the process ends, however it ends."""

    __slots__ = ("_fd",)

    def __init__(self, path: str) -> None:
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(self._fd)
            raise

    def release(self) -> None:
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            os.close(fd)


class RealDisk:
    """The file system, and the pools."""

    def __init__(self) -> None:
        self._pools: dict[str, ThreadPoolExecutor] = {}

    def open(self, path: str, *, create: bool = False) -> RealFile:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return RealFile(path, os.open(path, flags, 0o600))

    def exists(self, path: str) -> bool:
        return os.path.lexists(path)

    def is_dir(self, path: str) -> bool:
        return os.path.isdir(path)

    def list_dir(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def make_dirs(self, path: str) -> None:
        os.makedirs(path, mode=0o700, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def remove(self, path: str) -> None:
        os.unlink(path)

    def remove_dir(self, path: str) -> None:
        os.rmdir(path)

    def sync_dir(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def file_size(self, path: str) -> int:
        return os.stat(path).st_size

    def modified_ms(self, path: str) -> int:
        return os.stat(path).st_mtime_ns // 1_000_000

    def set_modified_ms(self, path: str, modified_ms: int) -> None:
        os.utime(path, ns=(modified_ms * 1_000_000, modified_ms * 1_000_000))

    def free_bytes(self, path: str) -> int:
        usage = os.statvfs(path)
        return usage.f_bavail * usage.f_frsize

    def total_bytes(self, path: str) -> int:
        usage = os.statvfs(path)
        return usage.f_blocks * usage.f_frsize

    def lock(self, path: str) -> RealLock:
        return RealLock(path)

    def run(self, pool: str, work: Callable[[], T]) -> Awaitable[T]:
        executor = self._pools.get(pool)
        if executor is None:
            executor = ThreadPoolExecutor(POOL_THREADS[pool], thread_name_prefix=f"penstock-{pool}")
            self._pools[pool] = executor
        return asyncio.get_running_loop().run_in_executor(executor, work)

    def close(self) -> None:
        """Wait for work under way and end the threads."""
        for executor in self._pools.values():
            executor.shutdown(wait=True)
        self._pools.clear()
