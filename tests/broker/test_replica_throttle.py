"""Which replicas are limited, and when their rate is used up."""

from __future__ import annotations

import random

import pytest

from penstock.broker.replica_throttle import UNLIMITED_RATE, ReplicaThrottle, ThrottledPartitions


@pytest.mark.parametrize(
    ("setting", "limited"),
    [([], set()), (["*"], {0, 1, 2, 3}), (["0:7", "2:7", "3:8"], {0, 2}), (["1:17", "17:1"], set())],
)
def test_the_replicas_of_a_topic_that_are_limited_here(setting: list[str], limited: set[int]) -> None:
    partitions = ThrottledPartitions.of(setting, broker_id=7)
    assert {index for index in range(4) if index in partitions} == limited


def test_nothing_went_nothing_is_used_up() -> None:
    throttle = ReplicaThrottle(windows_max=11, window_s=1)
    assert throttle.bytes_per_s(100.5) == 0
    assert not throttle.is_used_up(100.5, 1)


def test_a_rate_of_nothing_lets_nothing_through() -> None:
    assert ReplicaThrottle(windows_max=11, window_s=1).is_used_up(5.0, 0)


def test_a_burst_is_paid_for_over_time() -> None:
    throttle = ReplicaThrottle(windows_max=11, window_s=1)
    throttle.record(5000, 20.0)
    assert throttle.bytes_per_s(20.2) == 5000
    used_up = [at for at in range(20, 40) if throttle.is_used_up(at, 1000)]
    assert used_up == [20, 21, 22, 23, 24, 25]


def test_what_is_older_than_the_windows_is_forgotten() -> None:
    throttle = ReplicaThrottle(windows_max=3, window_s=2)
    throttle.record(100, 0.0)
    throttle.record(10, 5.9)
    assert throttle.bytes_per_s(5.9) == pytest.approx(110 / 5.9)
    assert throttle.bytes_per_s(6.0) == pytest.approx(10 / 2)
    assert throttle.bytes_per_s(60.0) == 0


def test_without_a_limit_nothing_is_used_up() -> None:
    throttle = ReplicaThrottle(windows_max=1, window_s=1)
    throttle.record(1 << 60, 0.0)
    assert not throttle.is_used_up(0.0, UNLIMITED_RATE)


@pytest.mark.parametrize("seed", range(20))
def test_who_keeps_to_it_gets_the_rate_and_no_more(seed: int) -> None:
    draws = random.Random(seed)
    rate, portion = draws.randrange(1_000, 100_000), draws.randrange(1, 20_000)
    throttle = ReplicaThrottle(windows_max=11, window_s=1)
    now_s, sent = 1000.0, 0
    while now_s < 1060:
        if not throttle.is_used_up(now_s, rate):
            throttle.record(portion, now_s)
            sent += portion
        now_s += draws.random() * portion / rate / 2
    assert 0.85 * rate <= sent / 60 <= 1.1 * rate + portion
