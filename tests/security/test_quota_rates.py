"""The arithmetic of quotas, beside a model that does everything the long way."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.security.quota_rates import THROTTLE_MS_MAX, Meter, Rate, TokenBucket, Windows


class RingOfSamples:
    """The rate as Kafka has it: a ring of samples that are used again, and reset when they are too old."""

    def __init__(self, windows: Windows) -> None:
        self.windows = windows
        self.samples: list[list[float]] = []  # start, last event, value
        self.current = 0

    def record(self, value: float, now_ms: int) -> None:
        if not self.samples:
            self.samples.append([now_ms, now_ms, 0.0])
        if now_ms - self.samples[self.current][0] >= self.windows.size_ms:
            self.current = (self.current + 1) % (self.windows.count + 1)
            if self.current >= len(self.samples):
                self.samples.append([now_ms, now_ms, 0.0])
            else:
                self.samples[self.current] = [now_ms, now_ms, 0.0]
        self.samples[self.current][1] = now_ms
        self.samples[self.current][2] += value

    def window_ms(self, now_ms: int) -> int:
        for sample in self.samples:
            if now_ms - sample[1] >= self.windows.count * self.windows.size_ms:
                sample[:] = [now_ms, now_ms, 0.0]
        elapsed = now_ms - min((int(sample[0]) for sample in self.samples), default=now_ms)
        full = elapsed // self.windows.size_ms
        if full < self.windows.count - 1:
            elapsed += (self.windows.count - 1 - full) * self.windows.size_ms
        return max(elapsed, 1)

    def per_s(self, now_ms: int) -> float:
        window_ms = self.window_ms(now_ms)
        return sum(sample[2] for sample in self.samples) * 1000 / window_ms


windows = st.builds(Windows, st.integers(1, 12), st.integers(1, 2000))
steps = st.lists(st.tuples(st.integers(0, 5000), st.integers(1, 10**7), st.booleans()), max_size=60)


@given(windows, steps)
def test_a_rate_is_what_a_ring_of_samples_says(windows: Windows, steps: list[tuple[int, int, bool]]) -> None:
    rate, ring, now_ms = Rate(windows), RingOfSamples(windows), 1_000_000
    for pause_ms, amount, is_taken_back in steps:
        now_ms += pause_ms
        rate.record(amount, now_ms)
        ring.record(amount, now_ms)
        if is_taken_back:
            rate.record(-amount, now_ms)
            ring.record(-amount, now_ms)
        assert rate.per_s(now_ms) == pytest.approx(ring.per_s(now_ms))
        bound = 1000.0
        over = ring.per_s(now_ms) - bound
        expected = min(int(over / bound * ring.window_ms(now_ms) + 0.5), THROTTLE_MS_MAX) if over > 0 else 0
        assert rate.throttle_ms(bound, now_ms) == pytest.approx(expected, abs=1)


@given(
    st.builds(Windows, st.integers(2, 12), st.integers(1000, 3000)),
    st.lists(st.tuples(st.integers(0, 3000), st.integers(1, 10**6)), min_size=1, max_size=40),
)
def test_who_waits_as_told_is_not_twice_as_fast_as_allowed(windows: Windows, requests: list[tuple[int, int]]) -> None:
    """It can be a little faster: what is larger than all windows together is forgotten before it is waited for."""
    meter, now_ms, total = Meter(windows), 0, 0
    meter.bound = 5000.0
    for pause_ms, amount in requests:
        now_ms += pause_ms
        throttle_ms = meter.take(amount, now_ms)
        total += amount
        now_ms += throttle_ms
        allowed_s = 2 * now_ms / 1000 + (windows.count + 1) * windows.size_ms / 1000
        assert total <= 5000.0 * allowed_s * 1.001 + 5.0


def test_a_rate_begins_with_a_burst() -> None:
    rate = Rate(Windows(11, 1000))
    rate.record(100_000, 50)
    assert rate.per_s(50) == 10_000  # over the ten windows before this one, in which nothing happened
    assert rate.throttle_ms(10_000, 50) == 0
    rate.record(1, 50)
    assert rate.throttle_ms(10_000, 50) == 0  # less than half a millisecond
    rate.record(10_000, 50)
    assert rate.throttle_ms(10_000, 50) == 1000
    assert rate.throttle_ms(10_000, 9050) == 1000  # the time before the first window is used up first
    assert rate.throttle_ms(10_000, 10_550) == 500
    assert rate.throttle_ms(10_000, 11_049) == 1
    assert rate.throttle_ms(10_000, 11_050) == 0


def test_what_is_over_for_long_is_forgotten() -> None:
    rate = Rate(Windows(2, 1000))
    rate.record(5000, 0)
    assert not rate.is_idle(1999)
    assert rate.is_idle(2000)
    assert rate.per_s(2000) == 0


def test_a_bound_of_nothing() -> None:
    rate = Rate(Windows())
    assert rate.throttle_ms(0, 0) == 0
    rate.record(1, 0)
    assert rate.throttle_ms(0, 0) == THROTTLE_MS_MAX


def test_a_meter_that_asks_before() -> None:
    meter = Meter(Windows(11, 1000))
    meter.bound = 100.0
    assert meter.take_if_free(1000, 0)
    assert not meter.take_if_free(100, 0)
    assert meter.take_or_wait(100, 0) == 1000
    assert not meter.take_if_free(100, 10_999)
    assert meter.take_if_free(100, 11_000)
    short = Meter(Windows(11, 1000), throttle_ms_max=1000)
    short.bound = 1.0
    assert short.take(1e9, 0) == 1000


@given(
    st.floats(0.1, 1000),
    st.lists(st.tuples(st.integers(0, 20_000), st.floats(0, 500), st.booleans()), max_size=50),
)
def test_a_bucket_beside_a_sum(per_s: float, steps: list[tuple[int, float, bool]]) -> None:
    windows = Windows(11, 1000)
    bucket, now_ms = TokenBucket(windows, per_s, 0), 0
    tokens = 11 * per_s
    for pause_ms, amount, gives_back in steps:
        now_ms += pause_ms
        tokens = min(11 * per_s, tokens + per_s * pause_ms / 1000)
        wait_ms = bucket.throttle_ms(now_ms)
        assert wait_ms == pytest.approx(max(-tokens, 0) / per_s * 1000, abs=1)
        if wait_ms == 0:
            bucket.take(amount, now_ms)
            tokens -= amount
            if gives_back:
                bucket.take(-amount, now_ms)
                tokens += amount
        assert bucket.is_idle(now_ms) == (tokens >= 11 * per_s) or tokens == pytest.approx(11 * per_s)


def test_a_bucket_lends() -> None:
    bucket = TokenBucket(Windows(10, 1000), 2.0, 0)
    bucket.take(19, 0)
    assert bucket.throttle_ms(0) == 0
    bucket.take(11, 0)
    assert bucket.throttle_ms(0) == 5000
    assert bucket.throttle_ms(4999) == 1
    assert bucket.throttle_ms(5000) == 0
    assert not bucket.is_idle(14_999)
    assert bucket.is_idle(15_000)
    empty = TokenBucket(Windows(10, 1000), 0.0, 0)
    empty.take(1, 0)
    assert empty.throttle_ms(0) == THROTTLE_MS_MAX
