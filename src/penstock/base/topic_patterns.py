"""Which topics a regular expression means, where Spark's users and pipelines write one.

A pattern may match any part of a name, as in Spark's Kafka connector: `^orders$` is one topic. RE2 reads it first,
which knows Java's `\\p{…}` and `\\Q…\\E` and cannot be made slow; what it does not have (looking ahead and behind, back
references) Python's `re` does. Java's possessive quantifiers work, its intersections of character classes
(`[a-z&&[^b]]`) do not.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from functools import lru_cache

import re2

PATTERN_LENGTH_MAX = 10_000

#: A class of characters that is not quoted, and one that begins within it (RE2's [:alpha:] does not).
_CLASS = re.compile(r"(?<!\\)\[\^?\]?(?:\\.|[^\]\\])*\]")
_NESTED = re.compile(r"(?<!\\)\[(?!:)")


class PatternError(ValueError):
    """The text is no pattern that can be used; says why."""


@lru_cache(maxsize=16)
def topic_matcher(pattern: str) -> Callable[[str], bool]:
    """Whether a topic is meant. PatternError."""
    if not pattern:
        raise PatternError("is empty; it is a regular expression for names of topics")
    if len(pattern) > PATTERN_LENGTH_MAX:
        raise PatternError(f"has more than {PATTERN_LENGTH_MAX} characters")
    if "&&" in pattern or any(_NESTED.search(found[0][1:]) for found in _CLASS.finditer(pattern)):
        raise PatternError("has Java's classes within classes, as in [a-z&&[^b]], which cannot be used here")
    try:
        return _compiled(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        raise PatternError(f"is not a regular expression that can be used here: {error}") from None


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
