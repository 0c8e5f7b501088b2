"""Which topics a client's regular expression stands for.

Patterns come from clients, so they run on RE2, whose time is bounded by (size of the pattern) x (length of the name),
with little memory and a cap on their length. What is left to do is measured in that product and done in portions: a
hostile pattern over many topics takes its time, and between two portions everybody else is served.

Each pattern is compiled once and meets each topic name once: what it stands for is kept, and a change of the topics
touches only the names that came or went. A pattern must match the whole name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set
from functools import cache
from typing import Any

from penstock.base.errors import ApiError, Error

PATTERN_LENGTH_MAX = 4096
PATTERN_MEMORY_BYTES_MAX = 256 * 1024
PATTERNS_MAX = 500
WORK_PER_PORTION = 2_000_000
"""steps of the matcher: some milliseconds for ordinary patterns, twenty for the worst"""
WORK_PER_CALL = 500
"""what it costs to call the matcher at all, in such steps"""


class _Pattern:
    """A compiled pattern, the names it matches, and those it has not met yet. One that is none matches nothing."""

    def __init__(self, text: str, names: Iterable[str]) -> None:
        self.problem: ApiError | None = None
        self.matched: set[str] = set()
        self.pending: list[str] = []
        try:
            self._compiled = compile_pattern(text)
        except ApiError as problem:
            self.problem = problem
            return
        self._cost = max(1, self._compiled.programsize)
        self.pending.extend(names)

    def work(self, budget: int) -> int:
        """Match some pending names; what is left of the budget."""
        while self.pending and budget > 0:
            name = self.pending.pop()
            if self._compiled.fullmatch(name) is not None:
                self.matched.add(name)
            budget -= WORK_PER_CALL + self._cost * len(name)
        return budget

    def names_changed(self, there: Set[str], gone: Set[str]) -> None:
        if self.problem is None:
            self.matched -= gone
            if self.pending:
                self.pending = [name for name in self.pending if name not in gone]
            self.pending += there


@cache
def _matcher() -> tuple[Any, Any]:
    """RE2 and its options. A broker whose clients send no patterns does without its three megabytes."""
    import re2

    options = re2.Options()
    options.max_mem = PATTERN_MEMORY_BYTES_MAX
    options.log_errors = False
    options.never_capture = True
    return re2, options


def compile_pattern(text: str) -> Any:
    """A pattern that is safe to run; ApiError if it is no regular expression, or too large."""
    if len(text) > PATTERN_LENGTH_MAX:
        raise ApiError(
            Error.INVALID_REGULAR_EXPRESSION,
            f"a regular expression has at most {PATTERN_LENGTH_MAX} characters, this one has {len(text)}",
        )
    re2, options = _matcher()
    try:
        return re2.compile(text, options)
    except (re2.error, UnicodeError) as error:
        raise ApiError(
            Error.INVALID_REGULAR_EXPRESSION, f"SubscribedTopicRegex {text!r} is not valid: {error}"
        ) from None


class TopicPatterns:
    """The patterns that somebody has asked for, always in step with the topics. `names` gives the names of all."""

    def __init__(self, names: Callable[[], Iterable[str]]) -> None:
        self._names = names
        self._patterns: dict[str, _Pattern] = {}
        self._behind: dict[str, _Pattern] = {}
        """those that have not met all names yet"""

    @property
    def is_behind(self) -> bool:
        """Whether there is something to `work` on."""
        return bool(self._behind)

    def names_changed(self, there: Set[str], gone: Set[str]) -> None:
        """Of some topics that have changed: those that exist now, and those that do not."""
        for text, pattern in self._patterns.items():
            pattern.names_changed(there, gone)
            self._note(text, pattern)

    def topics(self, text: str) -> frozenset[str] | None:
        """The names a pattern matches, or None while that is being found out."""
        pattern = self._patterns.get(text)
        if pattern is None:
            self._patterns[text] = pattern = _Pattern(text, self._names())
            self._note(text, pattern)
        return None if text in self._behind else frozenset(pattern.matched)

    def look_up(self, text: str, in_use: Callable[[], Set[str]]) -> frozenset[str] | None:
        """The same for one that may be new: it gets a portion of the work at once. ApiError if it is refused."""
        if text not in self._patterns:
            self._make_room(in_use)
        self.topics(text)
        pattern = self._patterns[text]
        if pattern.problem is not None:
            del self._patterns[text]
            raise pattern.problem
        pattern.work(WORK_PER_PORTION)
        self._note(text, pattern)
        return self.topics(text)

    def work(self) -> set[str]:
        """One portion of what is left to do; the patterns that are in step again."""
        budget = WORK_PER_PORTION
        finished: set[str] = set()
        for text, pattern in list(self._behind.items()):
            budget = pattern.work(budget)
            if not pattern.pending:
                finished.add(text)
                self._note(text, pattern)
            if budget <= 0:
                break
        return finished

    def _note(self, text: str, pattern: _Pattern) -> None:
        if pattern.pending:
            self._behind[text] = pattern
        else:
            self._behind.pop(text, None)

    def _make_room(self, in_use: Callable[[], Set[str]]) -> None:
        """For one more; those that nobody uses any more go."""
        if len(self._patterns) >= PATTERNS_MAX:
            for unused in self._patterns.keys() - in_use():
                del self._patterns[unused]
                self._behind.pop(unused, None)
        if len(self._patterns) >= PATTERNS_MAX:
            raise ApiError(
                Error.INVALID_REGULAR_EXPRESSION, f"groups have {PATTERNS_MAX} regular expressions here, and no more"
            )
