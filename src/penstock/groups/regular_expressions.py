"""Which topics a client's regular expression stands for.

Patterns come from clients, so they run on RE2, whose time is bounded by (size of the pattern) x (length of the name),
with little memory and a cap on their length. What is left to do is measured in that product and done in portions: a
hostile pattern over many topics takes its time, and between two portions everybody else is served.

Each pattern is compiled once and meets each topic name once: what it stands for is kept, and a change of the topics
touches only the names that came or went. A pattern must match the whole name.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from typing import Any

import re2

from penstock.base.errors import ApiError, Error

PATTERN_LENGTH_MAX = 4096
PATTERN_MEMORY_BYTES_MAX = 256 * 1024
PATTERNS_MAX = 1000
WORK_PER_PORTION = 2_000_000
"""steps of the matcher: some milliseconds for ordinary patterns, twenty for the worst"""
WORK_PER_CALL = 500
"""what it costs to call the matcher at all, in such steps"""

_OPTIONS = re2.Options()
_OPTIONS.max_mem = PATTERN_MEMORY_BYTES_MAX
_OPTIONS.log_errors = False
_OPTIONS.never_capture = True


class _Pattern:
    """A compiled pattern, the names it matches, and those it has not met yet."""

    def __init__(self, text: str, names: Iterable[str]) -> None:
        self._compiled = compile_pattern(text)
        self._cost = max(1, self._compiled.programsize)
        self.matched: set[str] = set()
        self.pending = list(names)

    def work(self, budget: int) -> int:
        """Match some pending names; what is left of the budget."""
        while self.pending and budget > 0:
            name = self.pending.pop()
            if self._compiled.fullmatch(name) is not None:
                self.matched.add(name)
            budget -= WORK_PER_CALL + self._cost * len(name)
        return budget

    def names_changed(self, added: Set[str], removed: Set[str]) -> None:
        self.matched -= removed
        if removed:
            self.pending = [name for name in self.pending if name not in removed]
        self.pending += added


def compile_pattern(text: str) -> Any:
    """A pattern that is safe to run; ApiError if it is no regular expression, or too large."""
    if len(text) > PATTERN_LENGTH_MAX:
        raise ApiError(
            Error.INVALID_REGULAR_EXPRESSION,
            f"a regular expression has at most {PATTERN_LENGTH_MAX} characters, this one has {len(text)}",
        )
    try:
        return re2.compile(text, _OPTIONS)
    except (re2.error, UnicodeError) as error:
        raise ApiError(
            Error.INVALID_REGULAR_EXPRESSION, f"SubscribedTopicRegex {text!r} is not valid: {error}"
        ) from None


class TopicPatterns:
    """The patterns that somebody has asked for lately, always in step with the names of the topics."""

    def __init__(self, names: Iterable[str] = ()) -> None:
        self._names = set(names)
        self._patterns: dict[str, _Pattern] = {}

    @property
    def is_behind(self) -> bool:
        """Whether there is something to `work` on."""
        return any(pattern.pending for pattern in self._patterns.values())

    def names_changed(self, names: Iterable[str]) -> None:
        """The topics are now these."""
        now = set(names)
        added, removed = now - self._names, self._names - now
        self._names = now
        for pattern in self._patterns.values():
            pattern.names_changed(added, removed)

    def topics(self, text: str) -> frozenset[str] | None:
        """The names a pattern matches, or None while that is being found out. ApiError if it is not a pattern."""
        pattern = self._patterns.pop(text, None)
        if pattern is None:
            pattern = _Pattern(text, self._names)
            pattern.work(WORK_PER_PORTION)
        self._patterns[text] = pattern  # behind all others: the first is the one that nobody has asked for the longest
        if len(self._patterns) > PATTERNS_MAX:
            del self._patterns[next(iter(self._patterns))]
        return None if pattern.pending else frozenset(pattern.matched)

    def work(self) -> None:
        """One portion of what is left to do."""
        budget = WORK_PER_PORTION
        for pattern in self._patterns.values():
            if budget <= 0:
                break
            budget = pattern.work(budget)
