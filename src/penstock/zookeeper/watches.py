"""Who waits for a change of which znode.

There are four kinds, as in ZooKeeper. Two fire once: one for a znode itself (left by `get` and `exists`) and one for
its children. Two stay until they are removed: *persistent* ones hear of both, *recursive* ones of every znode below as
well, but not that children came or went, because they hear of the children themselves. Whoever waits for a change in
several ways hears of it once.

Those that stay have two halves, one for the znode and one for its children, because each can be removed alone.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator
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
        # Those that stay: by half, "is it that of the children", and by "is it recursive".
        self._always: dict[tuple[bool, bool], dict[str, dict[W, None]]] = {
            (of_children, is_recursive): {} for of_children in (False, True) for is_recursive in (False, True)
        }

    def _half(self, *, of_children: bool) -> list[dict[str, dict[W, None]]]:
        once = self._of_children if of_children else self._of_node
        return [once, self._always[of_children, False], self._always[of_children, True]]

    def _halves(self, of_node: bool, of_children: bool) -> list[dict[str, dict[W, None]]]:
        chosen = self._half(of_children=False) if of_node else []
        return chosen + self._half(of_children=True) if of_children else chosen

    def watch_node(self, path: str, watcher: W) -> None:
        """Wait for creation, deletion or new data."""
        self._of_node.setdefault(path, {})[watcher] = None

    def watch_children(self, path: str, watcher: W) -> None:
        """Wait for a child that comes or goes, or for the deletion of the znode."""
        self._of_children.setdefault(path, {})[watcher] = None

    def watch_always(self, path: str, watcher: W, *, is_recursive: bool) -> None:
        """Wait for everything that happens to a znode, or also to those below it, until told otherwise."""
        for of_children in (False, True):
            self._always[of_children, is_recursive].setdefault(path, {})[watcher] = None

    def remove(self, path: str, watcher: W, *, of_node: bool = False, of_children: bool = False) -> bool:
        """Wait no longer for one half or both; False if nothing was there."""
        found = False
        for table in self._halves(of_node, of_children):
            watchers = table.get(path, {})
            if watcher in watchers:
                found = True
                del watchers[watcher]
                if not watchers:
                    del table[path]
        return found

    def waits(self, path: str, watcher: W, *, of_node: bool, of_children: bool) -> bool:
        """Whether a watcher waits for something at a path."""
        return any(watcher in table.get(path, {}) for table in self._halves(of_node, of_children))

    def count(self, watcher: W) -> int:
        """For how much a watcher waits; slow."""
        return sum(watcher in watchers for table in self._halves(True, True) for watchers in table.values())

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
                Fired(watcher, event, watcher in of_node, watcher in of_children)
                for watcher in of_node | of_children | self._staying(event)
            ]
        return fired

    def _staying(self, event: WatchEvent) -> dict[W, None]:
        """The persistent watchers of a znode, and the recursive ones of it and of all above it."""
        found: dict[W, None] = {}
        for of_children in (False, True):
            is_told = event.type is EventType.DELETED or (event.type is EventType.CHILDREN_CHANGED) == of_children
            if is_told:
                found |= self._always[of_children, False].get(event.path, {})
            recursive = self._always[of_children, True]
            if is_told and recursive and event.type is not EventType.CHILDREN_CHANGED:
                for path in _upwards(event.path):
                    found |= recursive.get(path, {})
        return found

    def put_back(self, fired: Iterable[Fired[W]]) -> None:
        """The changes did not happen after all: those who would have been told go on waiting."""
        for watcher, event, of_node, of_children in fired:
            if of_node:
                self.watch_node(event.path, watcher)
            if of_children:
                self.watch_children(event.path, watcher)

    def forget(self, is_gone: Callable[[W], bool]) -> None:
        """Drop everything these watchers wait for."""
        for table in self._halves(True, True):
            for path, watchers in list(table.items()):
                for watcher in [watcher for watcher in watchers if is_gone(watcher)]:
                    del watchers[watcher]
                if not watchers:
                    del table[path]

    def __len__(self) -> int:
        return sum(len(watchers) for table in self._halves(True, True) for watchers in table.values())


def _upwards(path: str) -> Iterator[str]:
    """A path and all above it."""
    while path != "/":
        yield path
        path = parent_of(path)
    yield path
