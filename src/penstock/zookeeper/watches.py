"""Who waits for a change of which znode.

There are four kinds, as in ZooKeeper. Two fire once: one for a znode itself (left by `get` and `exists`) and one for
its children. Two stay until they are removed: *persistent* ones hear of both, *recursive* ones of every znode below as
well, but not that children came or went, because they hear of the children themselves. Whoever waits for a change in
several ways hears of it once.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Generic, NamedTuple, TypeVar

from penstock.zookeeper.operations import EventType, WatchEvent
from penstock.zookeeper.paths import parent_of

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
        self._persistent: dict[str, dict[W, None]] = {}
        self._recursive: dict[str, dict[W, None]] = {}

    @property
    def _tables(self) -> tuple[dict[str, dict[W, None]], ...]:
        return self._of_node, self._of_children, self._persistent, self._recursive

    def watch_node(self, path: str, watcher: W) -> None:
        """Wait for creation, deletion or new data."""
        self._of_node.setdefault(path, {})[watcher] = None

    def watch_children(self, path: str, watcher: W) -> None:
        """Wait for a child that comes or goes, or for the deletion of the znode."""
        self._of_children.setdefault(path, {})[watcher] = None

    def watch_always(self, path: str, watcher: W, *, is_recursive: bool) -> None:
        """Wait for everything that happens to a znode, or also to those below it, until told otherwise."""
        (self._recursive if is_recursive else self._persistent).setdefault(path, {})[watcher] = None

    def remove(
        self, path: str, watcher: W, *, of_node: bool = False, of_children: bool = False, always: bool = False
    ) -> bool:
        """Wait no longer for the named kinds; False if none of them was there."""
        chosen = [
            *([self._of_node] if of_node else ()),
            *([self._of_children] if of_children else ()),
            *([self._persistent, self._recursive] if always else ()),
        ]
        found = False
        for table in chosen:
            watchers = table.get(path, {})
            if watcher in watchers:
                found = True
                del watchers[watcher]
                if not watchers:
                    del table[path]
        return found

    def waits(self, path: str, watcher: W, *, of_node: bool, of_children: bool) -> bool:
        """Whether a watcher waits for something at a path."""
        tables = [*([self._of_node] if of_node else ()), *([self._of_children] if of_children else ())]
        return any(watcher in table.get(path, {}) for table in [*tables, self._persistent, self._recursive])

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
            staying = self._persistent.get(event.path, {}) | self._above(event)
            fired += [
                Fired(watcher, event, watcher in of_node, watcher in of_children)
                for watcher in of_node | of_children | staying
            ]
        return fired

    def _above(self, event: WatchEvent) -> dict[W, None]:
        """The recursive watchers of a znode and of all above it."""
        if not self._recursive or event.type is EventType.CHILDREN_CHANGED:
            return {}
        found: dict[W, None] = {}
        path = event.path
        while True:
            found |= self._recursive.get(path, {})
            if path == "/":
                return found
            path = parent_of(path)

    def put_back(self, fired: Iterable[Fired[W]]) -> None:
        """The changes did not happen after all: those who would have been told go on waiting."""
        for watcher, event, of_node, of_children in fired:
            if of_node:
                self.watch_node(event.path, watcher)
            if of_children:
                self.watch_children(event.path, watcher)

    def forget(self, is_gone: Callable[[W], bool]) -> None:
        """Drop everything these watchers wait for."""
        for table in self._tables:
            for path, watchers in list(table.items()):
                for watcher in [watcher for watcher in watchers if is_gone(watcher)]:
                    del watchers[watcher]
                if not watchers:
                    del table[path]

    def __len__(self) -> int:
        return sum(len(watchers) for table in self._tables for watchers in table.values())
