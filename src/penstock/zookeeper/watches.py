"""Who waits for a change of which znode. A watch fires once.

There are two kinds, as in ZooKeeper: one for a znode itself (left by `get` and `exists`) and one for its children.
A watcher that left both on a znode hears of its deletion once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Generic, TypeVar

from penstock.zookeeper.operations import EventType, WatchEvent

W = TypeVar("W", bound=Hashable)


class Watches(Generic[W]):
    """Watchers (any hashable thing) by znode, in the order in which they came."""

    def __init__(self) -> None:
        self._of_node: dict[str, dict[W, None]] = {}
        self._of_children: dict[str, dict[W, None]] = {}

    def watch_node(self, path: str, watcher: W) -> None:
        """Wait for creation, deletion or new data."""
        self._of_node.setdefault(path, {})[watcher] = None

    def watch_children(self, path: str, watcher: W) -> None:
        """Wait for a child that comes or goes, or for the deletion of the znode."""
        self._of_children.setdefault(path, {})[watcher] = None

    def fire(self, events: Iterable[WatchEvent]) -> list[tuple[W, WatchEvent]]:
        """Take out the watches that these changes concern: who is to be told what, in order."""
        told: list[tuple[W, WatchEvent]] = []
        for event in events:
            watchers: dict[W, None] = {}
            if event.type != EventType.CHILDREN_CHANGED:
                watchers |= self._of_node.pop(event.path, {})
            if event.type in (EventType.CHILDREN_CHANGED, EventType.DELETED):
                watchers |= self._of_children.pop(event.path, {})
            told += [(watcher, event) for watcher in watchers]
        return told

    def forget(self, is_gone: Callable[[W], bool]) -> None:
        """Drop everything these watchers wait for."""
        for table in (self._of_node, self._of_children):
            for path, watchers in list(table.items()):
                for watcher in [watcher for watcher in watchers if is_gone(watcher)]:
                    del watchers[watcher]
                if not watchers:
                    del table[path]

    def __len__(self) -> int:
        return sum(len(watchers) for table in (self._of_node, self._of_children) for watchers in table.values())
