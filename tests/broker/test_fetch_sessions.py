"""The rules of fetch sessions (KIP-227)."""

from __future__ import annotations

import pytest

from penstock.base.errors import ApiError, Error
from penstock.base.identifiers import TopicPartition
from penstock.broker.fetch_sessions import EVICTION_IDLE_S, FetchedPartition, FetchSession, FetchSessions
from penstock.testing.sim_world import SimRandom


def sessions(slots: int = 3) -> FetchSessions:
    return FetchSessions(slots, SimRandom("test"))


def opened(cache: FetchSessions, now: float = 0.0) -> FetchSession:
    session = cache.open(uses_topic_ids=False, now=now)
    assert session is not None
    return session


def item(index: int, offset: int = 0) -> FetchedPartition:
    return FetchedPartition(TopicPartition("t", index), "t", offset, 100, -1, -1)


def test_ids_are_positive_and_different() -> None:
    cache = sessions(100)
    ids = {opened(cache).session_id for _ in range(100)}
    assert len(ids) == 100 and all(0 < session_id < 2**31 for session_id in ids)


def test_the_epoch_counts_from_one_and_wraps_to_one() -> None:
    cache = sessions()
    session = opened(cache)
    for epoch in (1, 2, 3):
        assert cache.resume(session.session_id, epoch, uses_topic_ids=False, now=1.0) is session
    session.epoch = 0x7FFFFFFF
    cache.resume(session.session_id, 0x7FFFFFFF, uses_topic_ids=False, now=1.0)
    assert session.epoch == 1


@pytest.mark.parametrize(
    ("session_offset", "epoch", "by_id", "error"),
    [
        (1, 1, False, Error.FETCH_SESSION_ID_NOT_FOUND),
        (0, 2, False, Error.INVALID_FETCH_SESSION_EPOCH),
        (0, 3, False, Error.INVALID_FETCH_SESSION_EPOCH),
        (0, 1, True, Error.FETCH_SESSION_TOPIC_ID_ERROR),
    ],
)
def test_a_request_that_does_not_fit_must_begin_anew(
    session_offset: int, epoch: int, by_id: bool, error: Error
) -> None:
    cache = sessions()
    session = opened(cache)
    with pytest.raises(ApiError) as refused:
        cache.resume(session.session_id + session_offset, epoch, uses_topic_ids=by_id, now=0.0)
    assert refused.value.error is error
    assert cache.resume(session.session_id, 1, uses_topic_ids=False, now=0.0) is session


def test_the_same_epoch_twice_is_refused() -> None:
    cache = sessions()
    session = opened(cache)
    cache.resume(session.session_id, 1, uses_topic_ids=False, now=0.0)
    with pytest.raises(ApiError):
        cache.resume(session.session_id, 1, uses_topic_ids=False, now=0.0)


def test_a_closed_session_is_gone() -> None:
    cache = sessions()
    session = opened(cache)
    cache.close(session.session_id)
    cache.close(session.session_id)
    with pytest.raises(ApiError):
        cache.resume(session.session_id, 1, uses_topic_ids=False, now=0.0)
    assert len(cache) == 0


def test_a_full_cache_gives_no_session_while_all_are_in_use() -> None:
    cache = sessions(2)
    for _ in range(2):
        opened(cache)
    assert cache.open(uses_topic_ids=False, now=1.0) is None


def test_a_full_cache_lets_the_longest_idle_go() -> None:
    cache = sessions(2)
    old, new = opened(cache, 0.0), opened(cache, 50.0)
    third = opened(cache, EVICTION_IDLE_S + 1)
    assert [session.session_id for session in cache] == [new.session_id, third.session_id]
    with pytest.raises(ApiError):
        cache.resume(old.session_id, 1, uses_topic_ids=False, now=200.0)


def test_no_slots_no_sessions() -> None:
    assert sessions(0).open(uses_topic_ids=False, now=0.0) is None


def test_partitions_are_added_changed_and_forgotten() -> None:
    session = opened(sessions())
    session.update([item(0), item(1), item(2)], ())
    session.partitions[TopicPartition("t", 1)].told_high_watermark = 77
    session.update([item(1, offset=5), item(3)], [TopicPartition("t", 0), TopicPartition("unknown", 9)])
    assert [index for _, index in session.partitions] == [1, 2, 3]
    changed = session.partitions[TopicPartition("t", 1)]
    assert (changed.fetch_offset, changed.told_high_watermark) == (5, 77)


def test_what_is_forgotten_and_named_in_one_request_is_new() -> None:
    session = opened(sessions())
    session.update([item(0)], ())
    session.partitions[TopicPartition("t", 0)].told_high_watermark = 9
    session.update([item(0)], [TopicPartition("t", 0)])
    assert session.partitions[TopicPartition("t", 0)].told_high_watermark == -1


def test_a_partition_that_was_served_goes_to_the_end() -> None:
    session = opened(sessions())
    session.update([item(0), item(1), item(2)], ())
    session.served(session.partitions[TopicPartition("t", 0)])
    assert [index for _, index in session.partitions] == [1, 2, 0]


def test_a_partition_that_was_forgotten_meanwhile_does_not_come_back() -> None:
    session = opened(sessions())
    session.update([item(0), item(1)], ())
    first = session.partitions[TopicPartition("t", 0)]
    session.update((), [("t", 0)])
    session.served(first)
    assert [index for _, index in session.partitions] == [1]


def test_all_sessions_together_name_a_bounded_number_of_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.broker.fetch_sessions.PARTITIONS_MAX", 10)
    cache = sessions(100)
    assert cache.open(uses_topic_ids=False, now=0.0, size=11) is None
    first = cache.open(uses_topic_ids=False, now=0.0, size=6)
    assert first is not None
    cache.update(first, [item(index) for index in range(6)], ())
    assert cache.open(uses_topic_ids=False, now=1.0, size=5) is None
    second = cache.open(uses_topic_ids=False, now=1.0, size=4)
    assert second is not None
    cache.update(second, [item(index) for index in range(4)], ())
    cache.update(second, [item(0, offset=9)], ())
    with pytest.raises(ApiError) as refused:
        cache.update(second, [item(4)], ())
    assert refused.value.error is Error.FETCH_SESSION_ID_NOT_FOUND and len(cache) == 1
    cache.update(first, (), [TopicPartition("t", 0)])
    third = cache.open(uses_topic_ids=False, now=2.0, size=5)
    assert third is not None
    cache.update(third, [item(index) for index in range(5)], ())
    assert cache.open(uses_topic_ids=False, now=EVICTION_IDLE_S + 1, size=5) is not None
    assert len(cache) == 2
