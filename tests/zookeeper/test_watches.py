"""Watches fire once, for the right changes, in order."""

from __future__ import annotations

from penstock.zookeeper.operations import EventType, WatchEvent
from penstock.zookeeper.watches import Fired, Watches

CREATED = WatchEvent(EventType.CREATED, "/a")
DELETED = WatchEvent(EventType.DELETED, "/a")
CHANGED = WatchEvent(EventType.DATA_CHANGED, "/a")
CHILDREN = WatchEvent(EventType.CHILDREN_CHANGED, "/a")


def told(fired: list[Fired[str]]) -> list[tuple[str, WatchEvent]]:
    return [(watcher, event) for watcher, event, _, _ in fired]


def test_a_watch_fires_once() -> None:
    watches: Watches[str] = Watches()
    watches.watch_node("/a", "w")
    watches.watch_node("/a", "w")
    assert told(watches.fire([CHANGED, CHANGED])) == [("w", CHANGED)]
    assert len(watches) == 0


def test_kinds_hear_what_concerns_them() -> None:
    for event, expected in [
        (CREATED, ["node"]),
        (CHANGED, ["node"]),
        (CHILDREN, ["children"]),
        (DELETED, ["node", "children"]),
    ]:
        watches: Watches[str] = Watches()
        watches.watch_node("/a", "node")
        watches.watch_children("/a", "children")
        watches.watch_node("/b", "elsewhere")
        assert told(watches.fire([event])) == [(watcher, event) for watcher in expected]


def test_a_deletion_is_told_once_to_one_who_watches_both() -> None:
    watches: Watches[str] = Watches()
    watches.watch_node("/a", "w")
    watches.watch_children("/a", "w")
    assert told(watches.fire([DELETED])) == [("w", DELETED)]


def test_those_who_are_gone_are_forgotten() -> None:
    watches: Watches[str] = Watches()
    watches.watch_node("/a", "gone")
    watches.watch_node("/a", "here")
    watches.watch_children("/b", "gone")
    watches.forget(lambda watcher: watcher == "gone")
    assert len(watches) == 1
    assert told(watches.fire([CHANGED])) == [("here", CHANGED)]


def test_watches_of_changes_that_did_not_happen_are_put_back_as_they_were() -> None:
    for event in (CREATED, DELETED, CHANGED, CHILDREN):
        watches: Watches[str] = Watches()
        watches.watch_node("/a", "node")
        watches.watch_children("/a", "children")
        watches.watch_node("/a", "both")
        watches.watch_children("/a", "both")
        watches.put_back(watches.fire([event]))
        assert len(watches) == 4
        assert {watcher for watcher, _ in told(watches.fire([CHANGED]))} == {"node", "both"}
        assert {watcher for watcher, _ in told(watches.fire([CHILDREN]))} == {"children", "both"}
