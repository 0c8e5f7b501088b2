"""Spreading: even at the end, few moves, racks no worse than before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.controller.placement import Candidate, place_more, place_replicas
from penstock.controller.replica_balance import spread_replicas

Topics = Sequence[Sequence[Sequence[int]]]


def unevenness(counts: Counter[int], broker_ids: Iterable[int]) -> int:
    numbers = [counts[broker_id] for broker_id in broker_ids]
    return max(numbers) - min(numbers)


def held(topics: Topics) -> Counter[int]:
    return Counter(broker_id for topic in topics for replicas in topic for broker_id in replicas)


def moves(before: Topics, after: Topics) -> int:
    return sum(
        len(set(new) - set(old))
        for topic_before, topic_after in zip(before, after, strict=True)
        for old, new in zip(topic_before, topic_after, strict=True)
    )


@st.composite
def clusters(draw: st.DrawFn) -> tuple[list[int], Topics]:
    """Brokers, and topics that only some of them hold."""
    count = draw(st.integers(2, 8))
    holders = draw(st.integers(1, count))
    topics = [
        place_replicas(
            [Candidate(broker_id) for broker_id in range(holders)],
            draw(st.integers(1, 12)),
            draw(st.integers(1, holders)),
            start=draw(st.integers(0, 10)),
        )
        for _ in range(draw(st.integers(1, 6)))
    ]
    return list(range(count)), topics


@settings(max_examples=200, deadline=None)
@given(clusters())
def test_everything_is_even_at_the_end(cluster: tuple[list[int], Topics]) -> None:
    ids, topics = cluster
    after = spread_replicas([Candidate(broker_id) for broker_id in ids], topics)
    for topic_before, topic_after in zip(topics, after, strict=True):
        assert [len(set(replicas)) for replicas in topic_after] == [len(replicas) for replicas in topic_before]
        assert unevenness(held([topic_after]), ids) <= 1
    assert unevenness(held(after), ids) <= 1
    assert spread_replicas([Candidate(broker_id) for broker_id in ids], after) == after


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 5), st.integers(1, 40), st.integers(1, 3))
def test_a_new_broker_takes_its_share_and_nothing_else_moves(holders: int, partitions: int, factor: int) -> None:
    brokers = [Candidate(broker_id) for broker_id in range(holders + 1)]
    before = [place_replicas(brokers[:-1], partitions, min(factor, holders))]
    after = spread_replicas(brokers, before)
    share = held(after)[holders]
    assert moves(before, after) == share
    assert share in {partitions * min(factor, holders) // (holders + 1) + extra for extra in (0, 1)}


@settings(max_examples=150, deadline=None)
@given(st.data(), clusters())
def test_racks_become_better_and_never_worse(data: st.DataObject, cluster: tuple[list[int], Topics]) -> None:
    ids, topics = cluster
    racks = {broker_id: data.draw(st.sampled_from("abc")) for broker_id in ids}
    after = spread_replicas([Candidate(broker_id, racks[broker_id]) for broker_id in ids], topics)
    for topic in after:
        for replicas in topic:
            used = {racks[broker_id] for broker_id in replicas}
            assert len(used) == min(len(replicas), len(set(racks.values())))


def test_preferred_leaders_are_even() -> None:
    before = [[(0, 1, 2)] * 12]
    after = spread_replicas([Candidate(broker_id) for broker_id in range(4)], before)
    leaders = Counter(replicas[0] for replicas in after[0])
    assert unevenness(leaders, range(4)) <= 1


def test_replicas_on_brokers_that_are_away_stay() -> None:
    before = [[(9, 0), (0, 9), (0, 1), (0, 1), (0, 1)]]
    after = spread_replicas([Candidate(0), Candidate(1), Candidate(2)], before)
    assert [9 in replicas for replicas in after[0]] == [True, True, False, False, False]


def test_one_broker_has_everything() -> None:
    assert spread_replicas([Candidate(0)], [[(0,), (0,)], []]) == [[(0,), (0,)], []]


def test_more_replicas_go_to_other_racks_and_evenly() -> None:
    brokers = [Candidate(0, "a"), Candidate(1, "a"), Candidate(2, "b"), Candidate(3, "b")]
    after = place_more(brokers, [(0,), (1,), (2,), (3,)], 2)
    assert [replicas[0] for replicas in after] == [0, 1, 2, 3]
    assert all(brokers[first].rack != brokers[second].rack for first, second in after)
    assert unevenness(held([after]), range(4)) == 0
    assert place_more(brokers, after, 2) == after
