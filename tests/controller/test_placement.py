"""Placement: balanced, never twice on one broker, racks and hosts spread."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.controller.placement import Candidate, place_replicas


def spread(counts: Counter[int], broker_ids: Iterable[int]) -> int:
    numbers = [counts[broker_id] for broker_id in broker_ids]
    return max(numbers) - min(numbers)


@settings(max_examples=150, deadline=None)
@given(st.data(), st.integers(1, 12), st.integers(1, 60), st.integers(0, 100))
def test_replicas_and_leaders_are_balanced(data: st.DataObject, count: int, partitions: int, start: int) -> None:
    factor = data.draw(st.integers(1, min(count, 5)))
    ids = data.draw(st.lists(st.integers(0, 1000), min_size=count, max_size=count, unique=True))
    brokers = [Candidate(broker_id) for broker_id in ids]
    placed = place_replicas(brokers, partitions, factor, start=start)
    assert [len(set(replicas)) for replicas in placed] == [factor] * partitions
    assert spread(Counter(broker_id for replicas in placed for broker_id in replicas), ids) <= 1
    assert spread(Counter(replicas[0] for replicas in placed), ids) <= 1
    assert placed == place_replicas(brokers[::-1], partitions, factor, start=start)


@settings(max_examples=150, deadline=None)
@given(st.data(), st.integers(1, 12), st.integers(1, 40), st.integers(0, 100))
def test_racks_and_hosts_differ_while_there_is_a_choice(
    data: st.DataObject, count: int, partitions: int, start: int
) -> None:
    factor = data.draw(st.integers(1, min(count, 5)))
    racks = data.draw(st.lists(st.sampled_from("abcd"), min_size=count, max_size=count))
    hosts = data.draw(st.lists(st.sampled_from("xyz"), min_size=count, max_size=count))
    brokers = {number: Candidate(number, racks[number], racks[number] + hosts[number]) for number in range(count)}
    for replicas in place_replicas(list(brokers.values()), partitions, factor, start=start):
        assert len(set(replicas)) == factor
        used_racks = Counter(brokers[broker_id].rack for broker_id in replicas)
        assert len(used_racks) == min(factor, len(set(racks)))
        for rack, replicas_there in used_racks.items():
            hosts_there = {broker.host for broker in brokers.values() if broker.rack == rack}
            used = {brokers[broker_id].host for broker_id in replicas if brokers[broker_id].rack == rack}
            assert len(used) == min(replicas_there, len(hosts_there))


def test_the_start_moves_the_first_leader() -> None:
    brokers = [Candidate(broker_id) for broker_id in (5, 1, 3)]
    assert [place_replicas(brokers, 1, 1, start=start)[0] for start in range(4)] == [(1,), (3,), (5,), (1,)]


def test_the_load_of_a_broker_spreads_over_the_others() -> None:
    placed = place_replicas([Candidate(broker_id) for broker_id in range(5)], 40, 2)
    partners = Counter(other for replicas in placed if 0 in replicas for other in replicas if other != 0)
    assert spread(partners, range(1, 5)) <= 1


def test_growth_fills_up_who_has_least() -> None:
    brokers = [Candidate(broker_id) for broker_id in range(3)]
    placed = place_replicas(brokers, 4, 1, existing=[(0,), (0,), (9,)])
    assert Counter(replicas[0] for replicas in placed) == Counter({1: 2, 2: 2})


def test_brokers_without_a_rack_do_not_count_as_one_rack() -> None:
    brokers = [Candidate(0), Candidate(1), Candidate(2, "a")]
    placed = place_replicas(brokers, 3, 2)
    assert spread(Counter(broker_id for replicas in placed for broker_id in replicas), range(3)) == 0
