"""Which topics a pattern stands for depends on who asks: topics that may not be described are not there for them.

A group has one answer for each of its patterns, whoever its members are: that of the member who asked first, until the
rules change, and then of the member who is heard of first. It is not on record: after a restart the first heartbeat
decides anew.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

FORGETS_FROM = 1_000


class Sight(NamedTuple):
    """What somebody may see, by rules of this version; they are asked for at the moment of the question."""

    rules_version: int
    may_see: Callable[[str], bool]


class PatternSights:
    """By whose eyes the patterns of groups are looked at. `is_used` says whether a group has such a pattern."""

    def __init__(self, is_used: Callable[[str, str], bool]) -> None:
        self._is_used = is_used
        self._sights: dict[tuple[str, str], Sight] = {}
        self._forgets_at = FORGETS_FROM

    def heard(self, group_id: str, pattern: str, sight: Sight | None) -> bool:
        """A member with this pattern was heard of; whether the pattern has to be looked at again for that."""
        if sight is None or not pattern:
            return False
        known = self._sights.get((group_id, pattern))
        if known is not None and known.rules_version == sight.rules_version:
            return False
        if len(self._sights) >= self._forgets_at:
            self._sights = {key: each for key, each in self._sights.items() if self._is_used(*key)}
            self._forgets_at = max(2 * len(self._sights), FORGETS_FROM)
        self._sights[group_id, pattern] = sight
        return True

    def seen(self, group_id: str, pattern: str, topics: frozenset[str] | None) -> frozenset[str] | None:
        """Those of a pattern's topics that the group may have; all if nobody is known who may not."""
        sight = self._sights.get((group_id, pattern))
        if topics is None or sight is None:
            return topics
        return frozenset(topic for topic in topics if sight.may_see(topic))
