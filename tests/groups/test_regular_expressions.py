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


def test_a_pattern_matches_whole_names() -> None:
    patterns = TopicPatterns(NAMES)
    assert patterns.topics("orders") == {"orders"}
    assert patterns.topics(r"orders\..*") == {"orders.eu", "orders.us"}
    assert patterns.topics("^orders.*$") == {"orders", "orders.eu", "orders.us"}
    assert patterns.topics("payments|x") == {"payments", "x"}
    assert patterns.topics("") == set()


def test_a_pattern_follows_the_topics() -> None:
    patterns = TopicPatterns(NAMES)
    patterns.topics("orders.*")
    patterns.names_changed(["orders.eu", "orders.asia", "other"])
    assert patterns.is_behind
    patterns.work()
    assert not patterns.is_behind
    assert patterns.topics("orders.*") == {"orders.eu", "orders.asia"}


@pytest.mark.parametrize(
    "text", ["(", "[a", "a{2,1}", "*", r"(?=a)", r"(a)\1", "a" * (PATTERN_LENGTH_MAX + 1), "a\ud800"]
)
def test_what_is_not_a_pattern_is_refused(text: str) -> None:
    with pytest.raises(ApiError) as refused:
        TopicPatterns(NAMES).topics(text)
    assert refused.value.error is Error.INVALID_REGULAR_EXPRESSION


def test_a_pattern_that_needs_much_memory_is_refused() -> None:
    with pytest.raises(ApiError):
        TopicPatterns(NAMES).topics("((([a-z]{1,100}){1,100}){1,100})")


def test_the_work_is_done_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    """A pattern that makes backtracking matchers run for years, over names that are made for it."""
    monkeypatch.setattr(regular_expressions, "WORK_PER_PORTION", 20_000)
    names = [f"{'a' * 240}{number:03}" for number in range(200)]
    patterns = TopicPatterns(names)
    portions = 0
    while (found := patterns.topics("(a+a+)+b|(a*)*007")) is None:
        assert patterns.is_behind
        patterns.work()
        portions += 1
    assert portions > 10
    assert found == {f"{'a' * 240}007"}


def test_patterns_that_nobody_asks_for_are_forgotten_and_can_be_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(regular_expressions, "PATTERNS_MAX", 3)
    patterns = TopicPatterns(NAMES)
    for text in ("o.*", "p.*", "x", "o.*", "other"):
        patterns.topics(text)
    patterns.names_changed([*NAMES, "ours"])
    patterns.work()
    assert patterns.topics("o.*") == {"orders", "orders.eu", "orders.us", "ours"}
    assert patterns.topics("p.*") == {"payments"}


names = st.text("ab.", min_size=1, max_size=4)


@settings(max_examples=60, deadline=None)
@given(
    texts=st.lists(st.sampled_from(["a.*", "b", ".*b.*", "[ab]+", "(a|b\\.)*"]), max_size=4),
    changes=st.lists(st.frozensets(names, max_size=8), max_size=5),
)
def test_like_matching_every_name_every_time(texts: list[str], changes: list[frozenset[str]]) -> None:
    patterns = TopicPatterns()
    for change in changes:
        for text in texts:
            patterns.topics(text)
        patterns.names_changed(change)
        while patterns.is_behind:
            patterns.work()
        for text in texts:
            assert patterns.topics(text) == {name for name in change if re.fullmatch(text, name)}
