"""Who waits for a change of which znode. A watch fires once.

There are two kinds, as in ZooKeeper: one for a znode itself (left by `get` and `exists`) and one for its children.
A watcher that left both on a znode hears of its deletion once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Generic, NamedTuple, TypeVar

from penstock.zookeeper.operations import EventType, WatchEvent

W = TypeVar("W", bound=Hashable)


class Fired(NamedTuple, Generic[W]):
    """Who is to be told what, and which of the two kinds of watches were taken out for it."""

    watcher: W
    event: WatchEvent
    of_node: bool
    of_children: bool


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

    def fire(self, events: Iterable[WatchEvent]) -> list[Fired[W]]:
        """Take out the watches that these changes concern: who is to be told what, in order."""
        fired: list[Fired[W]] = []
        for event in events:
            of_node: dict[W, None] = {}
            of_children: dict[W, None] = {}
            if event.type != EventType.CHILDREN_CHANGED:
                of_node = self._of_node.pop(event.path, {})
            if event.type in (EventType.CHILDREN_CHANGED, EventType.DELETED):
                of_children = self._of_children.pop(event.path, {})
            fired += [
                Fired(watcher, event, watcher in of_node, watcher in of_children) for watcher in of_node | of_children
            ]
        return fired

    def put_back(self, fired: Iterable[Fired[W]]) -> None:
        """The changes did not happen after all: those who would have been told go on waiting."""
        for watcher, event, of_node, of_children in fired:
            if of_node:
                self.watch_node(event.path, watcher)
            if of_children:
                self.watch_children(event.path, watcher)

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
