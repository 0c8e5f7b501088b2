"""How many requests came, how long they took, and which errors their answers had: counted where it happens.

One `ApiCounts` for each API. A request costs a few additions; everything that can wait for it is left to whoever reads
the counts (`metrics_requests.py`). The time of a request runs from when it was whole until its answer was ready to be
sent, with all that it waited for in between.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable
from functools import cache
from operator import attrgetter
from typing import Any

from penstock.base.errors import Error
from penstock.wire.schema import Message, schema_of

#: Upper bounds of the classes that times are sorted into; there is one more class for longer ones.
BOUNDS_S = (0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)

CountErrors = Callable[[Any, Counter[int]], None]


class ApiCounts:
    """The requests of one API since the start."""

    __slots__ = ("_monotonic", "errors", "name", "received", "sum_s", "times")

    def __init__(self, name: str, monotonic: Callable[[], float]) -> None:
        self.name = name
        self.received = 0
        self.times = [0] * (len(BOUNDS_S) + 1)
        self.sum_s = 0.0
        self.errors: Counter[int] = Counter()
        self._monotonic = monotonic

    def ended(self, started_s: float, weight: int = 1) -> None:
        """The answer to a request is there; `weight` is how many like it this one stands for."""
        seconds = self._monotonic() - started_s
        self.sum_s += seconds * weight
        self.times[bisect_left(BOUNDS_S, seconds)] += weight

    def refused(self, error: Error) -> None:
        """An answer, or one of the things it tells of, has an error."""
        self.errors[error] += 1

    def count_errors(self, answer: Message) -> None:
        """All that an answer has."""
        count = _errors_of(type(answer))
        if count is not None:
            count(answer, self.errors)


@cache
def _errors_of(cls: type[Message]) -> CountErrors | None:
    """What counts the error codes in a message of a class, and in everything inside it; None if it cannot have any."""
    fields = schema_of(cls).fields
    codes = [attrgetter(each.name) for each in fields if each.name.endswith("error_code") and not each.is_array]
    inner: list[tuple[Callable[[Any], Any], bool, CountErrors]] = []
    for each in fields:
        count_inner = _errors_of(each.struct) if each.struct is not None else None
        if count_inner is not None:
            inner.append((attrgetter(each.name), each.is_array, count_inner))
    if not inner:
        return _count_own(codes) if codes else None

    def count(message: Any, errors: Counter[int]) -> None:
        for code_of in codes:
            if code := code_of(message):
                errors[code] += 1
        for value_of, is_array, count_inner in inner:
            value = value_of(message)
            if is_array:
                for each in value or ():
                    count_inner(each, errors)
            elif value is not None:
                count_inner(value, errors)

    return count


def _count_own(codes: list[Any]) -> CountErrors:
    """The same for a message with nothing inside: of these there may be thousands in an answer."""

    def count(message: Any, errors: Counter[int]) -> None:
        for code_of in codes:
            if code := code_of(message):
                errors[code] += 1

    return count
