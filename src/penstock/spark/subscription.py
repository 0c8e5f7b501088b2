"""Which partitions a query reads: topics by name, topics by a pattern, or partitions one by one.

A pattern may match any part of a name, as in Spark's connector: `^orders$` is one topic. RE2 reads it first, which
knows Java's `\\p{…}` and `\\Q…\\E` and cannot be made slow; what it does not have (looking ahead and behind, back
references) Python's `re` does. Java's possessive quantifiers work, its intersections of character classes
(`[a-z&&[^b]]`) do not.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache

import re2

from penstock.base.identifiers import TopicPartition
from penstock.spark.given_options import OptionError, shown

PATTERN_LENGTH_MAX = 10_000

#: A class of characters that is not quoted, and one that begins within it (RE2's [:alpha:] does not).
_CLASS = re.compile(r"(?<!\\)\[\^?\]?(?:\\.|[^\]\\])*\]")
_NESTED = re.compile(r"(?<!\\)\[(?!:)")


@dataclass(frozen=True, slots=True)
class Subscription:
    """One of the three is given."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: tuple[TopicPartition, ...] = ()

    @property
    def names(self) -> tuple[str, ...] | None:
        """The topics to ask brokers for; None: all of them."""
        if self.pattern is not None:
            return None
        return self.topics or tuple(dict.fromkeys(where.topic for where in self.assigned))

    def partitions(self, counts: Mapping[str, int]) -> list[TopicPartition]:
        """What there is to read when the topics have so many partitions; sorted."""
        if self.assigned:
            return [where for where in self.assigned if where.partition < counts.get(where.topic, 0)]
        matches = self._matches()
        return [
            TopicPartition(topic, partition)
            for topic in sorted(counts)
            if matches(topic)
            for partition in range(counts[topic])
        ]

    def missing(self, counts: Mapping[str, int]) -> list[str]:
        """What was named and is not there: topics, or partitions of `assign`. A pattern names nothing."""
        if self.assigned:
            absent = [where for where in self.assigned if where.partition >= counts.get(where.topic, 0)]
            topics = dict.fromkeys(where.topic for where in absent if where.topic not in counts)
            return [f"topic {topic}" for topic in topics] + [
                f"partition {where.partition} of topic {where.topic}" for where in absent if where.topic in counts
            ]
        return [f"topic {topic}" for topic in self.topics if topic not in counts]

    def _matches(self) -> Callable[[str], bool]:
        if self.pattern is None:
            return frozenset(self.topics).__contains__
        return _compiled(self.pattern)


def parse_pattern(option: str, text: str) -> str:
    """The pattern itself, if it can be used."""
    if not text:
        raise OptionError(option, "is empty; it is a regular expression for names of topics")
    if len(text) > PATTERN_LENGTH_MAX:
        raise OptionError(option, f"has more than {PATTERN_LENGTH_MAX} characters")
    if "&&" in text or any(_NESTED.search(found[0][1:]) for found in _CLASS.finditer(text)):
        raise OptionError(
            option, f"{shown(text)}: Java's classes within classes, as in [a-z&&[^b]], cannot be used here"
        )
    try:
        _compiled(text)
    except (re.error, RecursionError, OverflowError) as error:
        raise OptionError(option, f"{shown(text)} is not a regular expression that can be used here: {error}") from None
    return text


@lru_cache(maxsize=16)
def _compiled(text: str) -> Callable[[str], bool]:
    settings = re2.Options()
    settings.log_errors = False
    try:
        pattern = re2.compile(text, options=settings)
    except re2.error:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            try:
                pattern = re.compile(text, re.ASCII)
            except Warning as warning:
                raise re.error(str(warning)) from None
    return lambda topic: pattern.search(topic) is not None
