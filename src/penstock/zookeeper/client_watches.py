"""The watches of one client: who waits for what, and how they are set again after the connection was lost."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from penstock.zookeeper.coordination import Watch
from penstock.zookeeper.operations import EventType, WatchEvent
from penstock.zookeeper.protocol import SetWatches


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
        """Call everybody who waits for this, once."""
        fired: list[Watch] = []
        for kind in _FIRED_BY[event.type]:
            fired += [watch for watch in self._by_kind[kind].pop(event.path, []) if watch not in fired]
        for watch in fired:
            watch(event)

    def to_set_again(self, full_path: Callable[[str], str], last_zxid: int) -> SetWatches | None:
        """The request that leaves all of them again; what happened since `last_zxid` fires at once."""
        if not any(self._by_kind.values()):
            return None
        paths = {kind: [full_path(path) for path in watches] for kind, watches in self._by_kind.items()}
        return SetWatches(last_zxid, paths[WatchKind.DATA], paths[WatchKind.EXISTS], paths[WatchKind.CHILDREN])

    def clear(self) -> None:
        for watches in self._by_kind.values():
            watches.clear()
