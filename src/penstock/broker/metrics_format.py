"""Metrics as text, in the format that Prometheus reads (version 0.0.4), and how a family of them is declared.

A family has a name, a kind, a help text and the names of its labels: the reference page is written from that. Its
`read` gives the samples of one scrape, each as what follows the family's name (`labels` makes it) and a number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Generic, TypeAlias, TypeVar

S = TypeVar("S")

Number: TypeAlias = int | float
Sample: TypeAlias = tuple[str, Number]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


class Kind(Enum):
    """What the numbers of a family are."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


@dataclass(frozen=True, slots=True)
class Family(Generic[S]):
    """One name with all its samples; `read` is given what the scrape knows."""

    name: str
    kind: Kind
    help: str
    read: Callable[[S], Iterable[Sample]]
    labels: tuple[str, ...] = ()

    @property
    def head(self) -> str:
        text = self.help.replace("\\", r"\\").replace("\n", r"\n")
        return f"# HELP {self.name} {text}\n# TYPE {self.name} {self.kind.value}\n"


@dataclass(frozen=True, slots=True)
class Section(Generic[S]):
    """Families that belong together, for the reference page."""

    title: str
    intro: str
    families: tuple[Family[S], ...]


def labels(**values: object) -> str:
    """Labels as they are written after a name."""
    return "{" + ",".join(f'{name}="{str(value).translate(_ESCAPES)}"' for name, value in values.items()) + "}"


def line(name: str, sample: Sample) -> str:
    """One sample as it is written."""
    tail, value = sample
    return f"{name}{tail} {number(value)}\n"


def number(value: Number) -> str:
    if isinstance(value, int):
        return str(int(value))  # a bool, too
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return "NaN" if math.isnan(value) else repr(value)


def histogram(tags: str, bounds: Iterable[float], counts: Iterable[int], total: float) -> Iterable[Sample]:
    """The samples of one histogram: how many were at most each bound, all, and their sum."""
    inside = tags[1:-1] + "," if tags else ""
    seen = 0
    for bound, count in zip((*bounds, math.inf), counts, strict=True):
        seen += count
        yield f'_bucket{{{inside}le="{number(bound)}"}}', seen
    yield f"_sum{tags}", total
    yield f"_count{tags}", seen
