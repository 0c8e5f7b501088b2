"""The values of settings: their kinds, how they are written, and the checks a row of a table can carry.

A setting is given as text (a file, the environment, a request) and read as a typed value. `parse_value` turns text into
a value or says in one sentence why it cannot; `format_value` writes a value as Kafka writes it. Sizes and times are
plain numbers, as in Kafka; for "1GB" or "7d" the sentence names the number to write instead.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import TypeAlias

Value: TypeAlias = bool | int | float | str | tuple[str, ...] | None

INT_MAX = 2**31 - 1
LONG_MAX = 2**63 - 1
DOUBLE_MAX = 1.7976931348623157e308
_SHOWN_LENGTH_MAX = 100


class Kind(IntEnum):
    """What a value is; the numbers are those of DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


_BITS = {Kind.SHORT: 16, Kind.INT: 32, Kind.LONG: 64}
_INTEGER = re.compile(r"[+-]?[0-9]{1,20}")
_DOUBLE = re.compile(r"[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,4})?")
_HUMAN = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,15})?)\s*([a-zA-Z]{1,10})")
_SIZES = {"b": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}
_TIMES_MS = {
    "ms": 1,
    "s": 1000,
    "sec": 1000,
    "second": 1000,
    "m": 60_000,
    "min": 60_000,
    "minute": 60_000,
    "h": 3_600_000,
    "hour": 3_600_000,
    "d": 86_400_000,
    "day": 86_400_000,
    "w": 604_800_000,
    "week": 604_800_000,
}
UNIT_MS = {"ms": 1, "seconds": 1000, "minutes": 60_000, "hours": 3_600_000}


def quoted(text: object) -> str:
    """Text as it is shown in a sentence: in quotes, and not longer than anybody wants to read."""
    shown = str(text)
    return repr(shown if len(shown) <= _SHOWN_LENGTH_MAX else shown[:_SHOWN_LENGTH_MAX] + "…")


def parse_value(kind: Kind, text: str, unit: str | None = None) -> Value:
    """The value that `text` means; ValueError says why it means none."""
    trimmed = text.strip()
    if kind is Kind.PASSWORD:
        return text
    if kind is Kind.BOOLEAN:
        return _parse_boolean(trimmed)
    if kind in _BITS:
        return _parse_integer(trimmed, _BITS[kind], unit)
    if kind is Kind.DOUBLE:
        return _parse_double(trimmed)
    if kind is Kind.LIST:
        return tuple(part.strip() for part in trimmed.split(",")) if trimmed else ()
    return trimmed


def _parse_boolean(text: str) -> bool:
    if text.lower() not in ("true", "false"):
        raise ValueError(f"must be true or false, not {quoted(text)}")
    return text.lower() == "true"


def _parse_integer(text: str, bits: int, unit: str | None) -> int:
    if not _INTEGER.fullmatch(text):
        suggestion = plain_number(text, unit)
        if suggestion is not None:
            raise ValueError(f"is a plain number of {unit}: write {suggestion} rather than {quoted(text)}")
        raise ValueError(f"must be a whole number{f' of {unit}' if unit else ''}, not {quoted(text)}")
    number = int(text)
    limit = 2 ** (bits - 1)
    if not -limit <= number < limit:
        raise ValueError(f"must be between {-limit} and {limit - 1}, not {text}")
    return number


def _parse_double(text: str) -> float:
    if not _DOUBLE.fullmatch(text):
        raise ValueError(f"must be a number, not {quoted(text)}")
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"must be a finite number, not {quoted(text)}")
    return number


def plain_number(text: str, unit: str | None) -> int | None:
    """The number somebody meant by "1GB" or "7 days" in a setting of this unit, or None."""
    match = _HUMAN.fullmatch(text.strip())
    if match is None or unit is None:
        return None
    amount, suffix = float(match[1]), match[2].lower()
    if unit == "bytes":
        size = _SIZES.get(suffix.removesuffix("b").removesuffix("i") or "b")
        return None if size is None else int(amount * size)
    time_ms = _TIMES_MS.get(suffix) or _TIMES_MS.get(suffix.removesuffix("s"))
    if time_ms is None or unit not in UNIT_MS:
        return None
    return int(amount * time_ms) // UNIT_MS[unit]


def format_value(value: Value) -> str | None:
    """The value as text, the way Kafka writes it; None for no value."""
    if value is None:
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, tuple):
        return ",".join(value)
    if isinstance(value, float):
        return repr(value).replace("e+", "E").replace("e", "E")
    return str(value)


@dataclass(frozen=True, slots=True)
class Check:
    """A condition on a value: how the reference page writes it, and what is wrong with a value (or None)."""

    text: str
    problem: Callable[[Value], str | None]


def at_least(minimum: float) -> Check:
    """A number that is not below `minimum`."""

    def problem(value: Value) -> str | None:
        assert isinstance(value, int | float)
        return None if value >= minimum else f"must be at least {minimum}, not {format_value(value)}"

    return Check(f"at least {minimum}", problem)


def between(minimum: float, maximum: float, or_equal: float | None = None) -> Check:
    """A number from `minimum` to `maximum`, both allowed, or one other."""
    text = f"{minimum} to {maximum}" + ("" if or_equal is None else f", or {or_equal}")

    def problem(value: Value) -> str | None:
        assert isinstance(value, int | float)
        if minimum <= value <= maximum or value == or_equal:
            return None
        return f"must be {text}, not {format_value(value)}"

    return Check(text, problem)


def one_of(*allowed: str, ignore_case: bool = False) -> Check:
    """One of a few words."""
    words = {word.lower() if ignore_case else word for word in allowed}
    listed = ", ".join(f"`{word}`" if word else "empty" for word in allowed)

    def problem(value: Value) -> str | None:
        assert isinstance(value, str)
        if (value.lower() if ignore_case else value) in words:
            return None
        return f"must be one of {', '.join(word or '(empty)' for word in allowed)}, not {quoted(value)}"

    return Check(listed, problem)


def each_one_of(*allowed: str, may_be_empty: bool = False) -> Check:
    """A list without repetitions whose members are all among a few words."""

    def problem(value: Value) -> str | None:
        assert isinstance(value, tuple)
        wrong = [word for word in value if word not in allowed]
        if wrong:
            return f"takes {', '.join(allowed)}, not {', '.join(map(quoted, wrong[:5]))}"
        return _list_problem(value, may_be_empty)

    return Check("any of " + ", ".join(f"`{word}`" for word in allowed), problem)


def distinct(may_be_empty: bool = False) -> Check:
    """A list without empty or repeated members."""

    def problem(value: Value) -> str | None:
        assert isinstance(value, tuple)
        return _list_problem(value, may_be_empty)

    return Check("no repetitions" if may_be_empty else "not empty, no repetitions", problem)


def _list_problem(value: tuple[str, ...], may_be_empty: bool) -> str | None:
    if not value and not may_be_empty:
        return "must not be empty"
    if "" in value:
        return "has an empty member (two commas in a row?)"
    if len(set(value)) != len(value):
        return f"names {next(word for word in value if value.count(word) > 1)} more than once"
    return None


def matching(pattern: str, text: str) -> Check:
    """A value that is written in a certain form, which `text` describes."""
    compiled = re.compile(pattern)

    def problem(value: Value) -> str | None:
        written = format_value(value) or ""
        return None if compiled.fullmatch(written) else f"must be {text}, not {quoted(written)}"

    return Check(text, problem)


def not_zero_at_least(minimum: int) -> Check:
    """A number that is not below `minimum` and not zero, where zero would throw everything away."""

    def problem(value: Value) -> str | None:
        assert isinstance(value, int)
        if value >= minimum and value != 0:
            return None
        return f"must be {minimum} (no limit) or at least 1, not {value}"

    return Check(f"{minimum} (no limit), or at least 1", problem)
