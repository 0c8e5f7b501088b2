"""Cutting a table into ranges that are read at the same time: pure.

Ranges meet exactly and are open at both ends of the table, so that together they have every row, whatever was written
since somebody looked for the smallest and the largest key.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from itertools import pairwise
from typing import Any


@dataclass(frozen=True, slots=True)
class KeyRange:
    """Keys from one value on and below another; None: no limit."""

    at_least: Any = None
    below: Any = None


def ranges_between(cuts: Iterable[Any]) -> list[KeyRange]:
    """The ranges that values cut a table into; they must come in the order of the database."""
    different: list[Any] = []
    for cut in cuts:
        if not different or cut != different[-1]:
            different.append(cut)
    edges = [None, *different, None]
    return [KeyRange(low, high) for low, high in pairwise(edges)]


def even_cuts(low: Any, high: Any, parts: int) -> list[Any]:
    """Values that divide what lies between two numbers or times into parts of the same width."""
    if low is None or high is None or parts < 2 or low >= high:
        return []
    return [cut for part in range(1, parts) if low < (cut := _between(low, high, part, parts)) <= high]


def _between(low: Any, high: Any, part: int, parts: int) -> Any:
    if isinstance(low, int) and isinstance(high, int):
        return low + (high - low + 1) * part // parts
    if isinstance(low, datetime | Decimal):
        return low + (high - low) * part / parts
    raise TypeError(f"{type(low).__name__} cannot be divided")


def row_numbers(rows: int, parts: int) -> Sequence[int]:
    """Which rows, counted from zero in the order of the key, begin a new range."""
    return [number for part in range(1, parts) if 0 < (number := rows * part // parts) < rows]
