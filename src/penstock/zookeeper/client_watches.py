"""The watches of one client: who waits for what, and how they are set again after the connection was lost."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from enum import Enum

from penstock.zookeeper.coordination import Watch
from penstock.zookeeper.operations import EventType, WatchEvent
from penstock.zookeeper.protocol import SetWatches

SET_WATCHES_BYTES = 128 * 1024  # well below what a server takes in one request


class Chroot:
    """A znode that is the root for its users; "" for the real one."""

    def __init__(self, path: str) -> None:
        self.path = path.rstrip("/")

    def full(self, path: str) -> str:
        """The path as the server knows it. What is below a chroot and ends with "/" gets its digits there."""
        return path if not self.path else self.path + (path if path != "/" else "")

    def own(self, path: str) -> str:
        return path[len(self.path) :] or "/"


class WatchKind(Enum):
    """What a watch was left by, as the server distinguishes it."""

    DATA = "data"  # a znode that was there
    EXISTS = "exists"  # one that was not
    CHILDREN = "children"


_FIRED_BY = {
    EventType.CREATED: (WatchKind.DATA, WatchKind.EXISTS),
    EventType.DATA_CHANGED: (WatchKind.DATA, WatchKind.EXISTS),
    EventType.CHILDREN_CHANGED: (WatchKind.CHILDREN,),
    EventType.DELETED: (WatchKind.DATA, WatchKind.EXISTS, WatchKind.CHILDREN),
}


class ClientWatches:
    """Callbacks by kind and path; each fires once."""

    def __init__(self) -> None:
        self._by_kind: dict[WatchKind, dict[str, list[Watch]]] = {kind: {} for kind in WatchKind}

    def add(self, kind: WatchKind, path: str, watch: Watch) -> None:
        watches = self._by_kind[kind].setdefault(path, [])
        if watch not in watches:
            watches.append(watch)

    def fire(self, event: WatchEvent) -> None:
        """Call everybody who waits for this, once; the loop does it, before it resumes who gets the next answer."""
        fired: list[Watch] = []
        for kind in _FIRED_BY[event.type]:
            fired += [watch for watch in self._by_kind[kind].pop(event.path, []) if watch not in fired]
        for watch in fired:
            asyncio.get_running_loop().call_soon(watch, event)

    def to_set_again(self, chroot: Chroot, last_zxid: int) -> Iterator[SetWatches]:
        """The requests that leave all of them again; what happened since `last_zxid` fires at once."""
        everything = [(kind, chroot.full(path)) for kind, watches in self._by_kind.items() for path in watches]
        batch: dict[WatchKind, list[str]] = {kind: [] for kind in WatchKind}
        size_bytes = 0
        for kind, path in everything:
            batch[kind].append(path)
            size_bytes += 4 + len(path.encode())
            if size_bytes >= SET_WATCHES_BYTES:
                yield _request(batch, last_zxid)
                batch, size_bytes = {kind: [] for kind in WatchKind}, 0
        if size_bytes:
            yield _request(batch, last_zxid)

    def clear(self) -> None:
        for watches in self._by_kind.values():
            watches.clear()


def _request(batch: dict[WatchKind, list[str]], last_zxid: int) -> SetWatches:
    return SetWatches(last_zxid, batch[WatchKind.DATA], batch[WatchKind.EXISTS], batch[WatchKind.CHILDREN])
