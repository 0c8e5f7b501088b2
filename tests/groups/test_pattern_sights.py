"""By whose eyes patterns are looked at, and that nothing is kept for ever."""

from __future__ import annotations

from penstock.groups.pattern_sights import FORGETS_FROM, PatternSights, Sight

TOPICS = frozenset({"a", "b"})


def test_the_first_decides_until_the_rules_change() -> None:
    sights = PatternSights(lambda group_id, pattern: True)
    assert sights.seen("g", ".", TOPICS) == TOPICS
    assert sights.heard("g", ".", Sight(1, "a".__eq__))
    assert not sights.heard("g", ".", Sight(1, "b".__eq__))
    assert sights.seen("g", ".", TOPICS) == frozenset("a")
    assert sights.seen("g", ".", None) is None
    assert sights.seen("other", ".", TOPICS) == TOPICS
    assert sights.heard("g", ".", Sight(2, "b".__eq__))
    assert sights.seen("g", ".", TOPICS) == frozenset("b")


def test_without_rules_or_pattern_nothing_is_kept() -> None:
    sights = PatternSights(lambda group_id, pattern: True)
    assert not sights.heard("g", ".", None)
    assert not sights.heard("g", "", Sight(1, "a".__eq__))
    assert sights.seen("g", ".", TOPICS) == TOPICS


def test_patterns_that_no_group_has_are_forgotten() -> None:
    sights = PatternSights(lambda group_id, pattern: pattern == "0")
    nothing = Sight(1, lambda topic: False)
    for number in range(FORGETS_FROM + 1):
        sights.heard("g", str(number), nothing)
    assert sights.seen("g", "0", TOPICS) == frozenset()
    assert sights.seen("g", "1", TOPICS) == TOPICS
    assert sights.seen("g", str(FORGETS_FROM), TOPICS) == frozenset()
