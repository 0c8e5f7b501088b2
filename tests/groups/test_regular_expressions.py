"""Patterns of clients: what they match, that they keep up with the topics, and that none can hold up the broker."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.base.errors import ApiError, Error
from penstock.groups import regular_expressions
from penstock.groups.regular_expressions import PATTERN_LENGTH_MAX, TopicPatterns

NAMES = ["orders", "orders.eu", "orders.us", "payments", "x"]


def look_up(patterns: TopicPatterns, text: str, *in_use: str) -> frozenset[str] | None:
    return patterns.look_up(text, lambda: frozenset(in_use))


def test_a_pattern_matches_whole_names() -> None:
    patterns = TopicPatterns(lambda: NAMES)
    assert look_up(patterns, "orders") == {"orders"}
    assert look_up(patterns, r"orders\..*") == {"orders.eu", "orders.us"}
    assert look_up(patterns, "^orders.*$") == {"orders", "orders.eu", "orders.us"}
    assert look_up(patterns, "payments|x") == {"payments", "x"}
    assert look_up(patterns, "") == set()


def test_a_pattern_follows_the_topics() -> None:
    patterns = TopicPatterns(lambda: NAMES)
    look_up(patterns, "orders.*")
    patterns.names_changed(frozenset({"orders.eu", "orders.asia", "other"}), frozenset({"orders", "orders.us"}))
    assert patterns.is_behind
    assert patterns.work() == {"orders.*"}
    assert not patterns.is_behind
    assert patterns.topics("orders.*") == {"orders.eu", "orders.asia"}


@pytest.mark.parametrize(
    "text", ["(", "[a", "a{2,1}", "*", r"(?=a)", r"(a)\1", "a" * (PATTERN_LENGTH_MAX + 1), "a\ud800"]
)
def test_what_is_not_a_pattern_is_refused(text: str) -> None:
    with pytest.raises(ApiError) as refused:
        look_up(TopicPatterns(lambda: NAMES), text)
    assert refused.value.error is Error.INVALID_REGULAR_EXPRESSION


def test_a_pattern_that_needs_much_memory_is_refused() -> None:
    with pytest.raises(ApiError):
        look_up(TopicPatterns(lambda: NAMES), "((([a-z]{1,100}){1,100}){1,100})")


def test_the_work_is_done_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pattern that makes backtracking matchers run for years, over names that are made for it."""
    monkeypatch.setattr(regular_expressions, "WORK_PER_PORTION", 20_000)
    names = [f"{'a' * 240}{number:03}" for number in range(200)]
    patterns = TopicPatterns(lambda: names)
    portions = 0
    pattern = "(a+a+)+b|(a*)*007"
    assert look_up(patterns, pattern) is None
    while (found := patterns.topics(pattern)) is None:
        assert patterns.is_behind
        patterns.work()
        portions += 1
    assert portions > 10
    assert found == {f"{'a' * 240}007"}


def test_there_are_only_so_many_patterns_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regular_expressions, "PATTERNS_MAX", 3)
    patterns = TopicPatterns(lambda: NAMES)
    for text in ("o.*", "p.*", "x"):
        look_up(patterns, text)
    with pytest.raises(ApiError):
        look_up(patterns, "other", "o.*", "p.*", "x")
    assert look_up(patterns, "orders", "o.*", "p.*") == {"orders"}
    assert look_up(patterns, "o.*", "o.*") == {"orders", "orders.eu", "orders.us"}


def test_what_is_not_a_pattern_and_lies_in_a_log_matches_nothing() -> None:
    """A release with another syntax may have written it."""
    patterns = TopicPatterns(lambda: NAMES)
    assert patterns.topics("(?=a)") == set()
    patterns.names_changed(frozenset("a"), frozenset())
    assert patterns.topics("(?=a)") == set()
    assert not patterns.is_behind


names = st.text("ab.", min_size=1, max_size=4)


@settings(max_examples=60, deadline=None)
@given(
    texts=st.lists(st.sampled_from(["a.*", "b", ".*b.*", "[ab]+", "(a|b\\.)*"]), max_size=4),
    changes=st.lists(st.frozensets(names, max_size=8), max_size=5),
)
def test_like_matching_every_name_every_time(texts: list[str], changes: list[frozenset[str]]) -> None:
    now: frozenset[str] = frozenset()
    patterns = TopicPatterns(lambda: now)
    for change in changes:
        for text in texts:
            patterns.topics(text)
        before, now = now, change
        patterns.names_changed(now & (now ^ before), before - now)
        while patterns.is_behind:
            patterns.work()
        for text in texts:
            assert patterns.topics(text) == {name for name in now if re.fullmatch(text, name)}
