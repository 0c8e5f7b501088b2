"""The arithmetic of quotas: how fast somebody was of late, and how long they have to wait for that.

A `Rate` counts in windows of time, as Kafka does: so many windows (`quota.window.num`) of so many seconds each. A
window begins with what is counted first, and is forgotten as a whole. Time that is not covered by windows yet counts as
time in which nothing happened, so that a client may begin with a burst. Whoever is over the bound waits until the same
amount, over the longer time, is at the bound: (rate - bound) / bound * time.

A `TokenBucket` is filled at the rate of its quota and holds what all windows together would allow. As long as there is
something in it, any amount may be taken, also more than there is: the debt has to be paid before anything else goes.

Times are whole milliseconds of the monotonic clock.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

#: However small a quota is, nobody is told to wait for longer than this (ten days fit into the 32 bits of an answer).
THROTTLE_MS_MAX = 10 * 24 * 3600 * 1000


@dataclass(frozen=True, slots=True)
class Windows:
    """How many windows of time are looked at, and how long each is."""

    count: int = 11
    size_ms: int = 1000


class _Window:
    __slots__ = ("amount", "last_ms", "start_ms")

    def __init__(self, now_ms: int) -> None:
        self.start_ms = self.last_ms = now_ms
        self.amount = 0.0


class Rate:
    """What was counted lately, per second."""

    __slots__ = ("_amount", "_kept_ms", "_recorded", "_size_ms", "_windows_max")

    def __init__(self, windows: Windows) -> None:
        self._windows_max = windows.count
        self._size_ms = windows.size_ms
        self._kept_ms = windows.count * windows.size_ms
        self._recorded: deque[_Window] = deque()  # the oldest first; one more than are looked at may overlap them
        self._amount = 0.0

    def record(self, amount: float, now_ms: int) -> None:
        """Count something; a negative amount takes back what was counted in this very moment."""
        recorded = self._recorded
        if not recorded or now_ms - recorded[-1].start_ms >= self._size_ms:
            if len(recorded) > self._windows_max:
                self._amount -= recorded.popleft().amount
            recorded.append(_Window(now_ms))
        window = recorded[-1]
        window.amount += amount
        window.last_ms = now_ms
        self._amount += amount

    def per_s(self, now_ms: int) -> float:
        self._forget(now_ms)
        return self._amount * 1000 / self._covered_ms(now_ms)

    def throttle_ms(self, bound: float, now_ms: int) -> int:
        """How long to wait until the rate is at the bound; 0 if it is not above it."""
        rate = self.per_s(now_ms)
        if rate <= bound:
            return 0
        if bound <= 0:
            return THROTTLE_MS_MAX
        return min(int((rate - bound) / bound * self._covered_ms(now_ms) + 0.5), THROTTLE_MS_MAX)

    def is_idle(self, now_ms: int) -> bool:
        """Whether everything that was counted is forgotten."""
        self._forget(now_ms)
        return not self._recorded

    def _forget(self, now_ms: int) -> None:
        recorded = self._recorded
        while recorded and now_ms - recorded[0].last_ms >= self._kept_ms:
            self._amount -= recorded.popleft().amount
        if not recorded:
            self._amount = 0.0  # also what is left of fractions

    def _covered_ms(self, now_ms: int) -> int:
        """The time that the rate is over: since the oldest window began, and never less than the windows say."""
        covered_ms = now_ms - self._recorded[0].start_ms if self._recorded else 0
        lacking = self._windows_max - 1 - covered_ms // self._size_ms
        if lacking > 0:
            covered_ms += lacking * self._size_ms
        return max(covered_ms, 1)


class TokenBucket:
    """See the head of this file."""

    __slots__ = ("_seconds", "_tokens", "_updated_ms", "per_s")

    def __init__(self, windows: Windows, per_s: float, now_ms: int) -> None:
        self.per_s = per_s
        self._seconds = windows.count * windows.size_ms / 1000
        self._tokens = self._seconds * per_s
        self._updated_ms = now_ms

    def take(self, amount: float, now_ms: int) -> None:
        """Take tokens, or (a negative amount) give some back."""
        self._fill(now_ms)
        self._tokens = min(self._tokens - amount, self._seconds * self.per_s)

    def throttle_ms(self, now_ms: int) -> int:
        """How long to wait until the debt is paid; 0 if there is none."""
        self._fill(now_ms)
        if self._tokens >= 0:
            return 0
        if self.per_s <= 0:
            return THROTTLE_MS_MAX
        return min(int(-self._tokens / self.per_s * 1000 + 0.5), THROTTLE_MS_MAX)

    def is_idle(self, now_ms: int) -> bool:
        """Whether it is as full as a new one."""
        self._fill(now_ms)
        return self._tokens >= self._seconds * self.per_s

    def _fill(self, now_ms: int) -> None:
        gained = self.per_s * (now_ms - self._updated_ms) / 1000
        self._tokens = min(self._tokens + gained, self._seconds * self.per_s)
        self._updated_ms = now_ms


class Meter:
    """A rate with its bound."""

    __slots__ = ("_rate", "bound", "burst_max", "throttle_ms_max")

    def __init__(self, windows: Windows, throttle_ms_max: int = THROTTLE_MS_MAX) -> None:
        self.bound = 0.0
        self.throttle_ms_max = throttle_ms_max
        self.burst_max = (windows.count - 1) * windows.size_ms / 1000
        """Times the bound: the most that can come at once without a wait."""
        self._rate = Rate(windows)

    def take(self, amount: float, now_ms: int) -> int:
        """Count something that has happened; how many milliseconds to wait for it."""
        self._rate.record(amount, now_ms)
        return min(self._rate.throttle_ms(self.bound, now_ms), self.throttle_ms_max)

    def take_if_free(self, amount: float, now_ms: int) -> bool:
        """Count something, unless there would be a wait for it: then nothing is counted."""
        return self.take_or_wait(amount, now_ms) == 0

    def take_or_wait(self, amount: float, now_ms: int) -> int:
        """The same; how long to wait before it can happen, or 0 if it is counted."""
        throttle_ms = self.take(amount, now_ms)
        if throttle_ms:
            self._rate.record(-amount, now_ms)
        return throttle_ms

    def is_idle(self, now_ms: int) -> bool:
        return self._rate.is_idle(now_ms)
