"""The assignors' promises, for any group: complete, only to subscribers, even, sticky, and the same every time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from random import Random
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.groups.assignors import ASSIGNORS, AssignedMember, Assignment

TOPIC_IDS = [UUID(int=number) for number in range(1, 7)]
A, B, C = TOPIC_IDS[:3]


def member(member_id: str, *topic_ids: UUID, has: Mapping[UUID, Sequence[int]] | None = None) -> AssignedMember:
    assignment = {topic_id: frozenset(indexes) for topic_id, indexes in (has or {}).items()}
    return AssignedMember(member_id, None, frozenset(topic_ids), assignment)


def plain(assigned: Mapping[str, Assignment]) -> dict[str, dict[UUID, list[int]]]:
    return {
        member_id: {topic_id: sorted(indexes) for topic_id, indexes in topics.items()}
        for member_id, topics in assigned.items()
    }


def partitions_of(assignment: Assignment) -> set[tuple[UUID, int]]:
    return {(topic_id, index) for topic_id, indexes in assignment.items() for index in indexes}


def owners_of(assigned: Mapping[str, Assignment]) -> dict[tuple[UUID, int], str]:
    owners: dict[tuple[UUID, int], str] = {}
    for member_id, assignment in assigned.items():
        for partition in partitions_of(assignment):
            assert partition not in owners, f"{partition} is given to {owners[partition]} and {member_id}"
            owners[partition] = member_id
    return owners


@st.composite
def groups(draw: st.DrawFn) -> tuple[list[AssignedMember], dict[UUID, int]]:
    """Members with whatever they had before: topics that are gone, partitions of others, other topics."""
    counts = draw(st.dictionaries(st.sampled_from(TOPIC_IDS), st.integers(0, 7)))
    topics = st.frozensets(st.sampled_from(TOPIC_IDS), max_size=4)
    shared = draw(st.none() | topics)
    before = st.dictionaries(st.sampled_from(TOPIC_IDS), st.frozensets(st.integers(0, 8), min_size=1, max_size=5))
    members = []
    for number in range(draw(st.integers(1, 7))):
        instance_id = draw(st.none() | st.just(f"i{9 - number}"))
        topic_ids = shared if shared is not None else draw(topics)
        members.append(AssignedMember(f"m{number}", instance_id, topic_ids, draw(before)))
    return members, counts


@pytest.mark.parametrize("name", ASSIGNORS)
@settings(max_examples=80, deadline=None)
@given(group=groups(), random=st.randoms(use_true_random=False))
def test_every_partition_goes_to_exactly_one_subscriber(
    name: str, group: tuple[list[AssignedMember], dict[UUID, int]], random: Random
) -> None:
    members, counts = group
    assigned = ASSIGNORS[name](members, counts)
    topic_ids = {each.member_id: each.topic_ids for each in members}
    owners = owners_of(assigned)
    subscribed = frozenset().union(*topic_ids.values())
    assert set(owners) == {(topic_id, index) for topic_id in subscribed for index in range(counts.get(topic_id, 0))}
    assert all(topic_id in topic_ids[owner] for (topic_id, _), owner in owners.items())
    assert assigned.keys() == topic_ids.keys()
    assert all(indexes for assignment in assigned.values() for indexes in assignment.values()), "no empty topics"

    shuffled = members.copy()
    random.shuffle(shuffled)
    assert ASSIGNORS[name](shuffled, counts) == assigned, "the order of the members means nothing"
    again = [each._replace(assignment=assigned[each.member_id]) for each in members]
    assert ASSIGNORS[name](again, counts) == assigned, "assigning again moves nothing"


@settings(max_examples=80, deadline=None)
@given(group=groups())
def test_uniform_is_even_and_moves_no_more_than_it_must(group: tuple[list[AssignedMember], dict[UUID, int]]) -> None:
    members, counts = group
    assigned = ASSIGNORS["uniform"](members, counts)
    sizes = {member_id: len(partitions_of(assignment)) for member_id, assignment in assigned.items()}
    for (topic_id, _), owner in owners_of(assigned).items():
        for other in members:
            if topic_id in other.topic_ids:
                assert sizes[owner] - sizes[other.member_id] <= 1, f"{owner} could give {topic_id} to {other}"
    if len({each.topic_ids for each in members}) == 1:
        check_that_few_were_moved(members, counts, assigned)


def check_that_few_were_moved(
    members: list[AssignedMember], counts: dict[UUID, int], assigned: Mapping[str, Assignment]
) -> None:
    """With one subscription for all: whoever keeps less than it had is full, and only so many are fuller."""
    had: dict[str, set[tuple[UUID, int]]] = {}
    for each in sorted(members, key=lambda each: each.member_id):  # what two had before, the first one keeps
        valid = {(topic, index) for topic, index in partitions_of(each.assignment) if index < counts.get(topic, 0)}
        valid = {(topic, index) for topic, index in valid if topic in each.topic_ids}
        had[each.member_id] = valid.difference(*had.values())
    stays = sum(len(partitions_of(assigned[member_id]) & partitions) for member_id, partitions in had.items())
    least, larger_count = divmod(sum(counts.get(topic, 0) for topic in members[0].topic_ids), len(members))
    with_one_more = min(larger_count, sum(len(partitions) > least for partitions in had.values()))
    assert stays == sum(min(len(partitions), least) for partitions in had.values()) + with_one_more


def test_uniform_gives_a_leaving_members_partitions_to_the_others_and_moves_no_more() -> None:
    members = [member(f"m{number}", A, B) for number in range(3)]
    counts = {A: 6, B: 3}
    assigned = ASSIGNORS["uniform"](members, counts)
    assert {len(partitions_of(assignment)) for assignment in assigned.values()} == {3}
    left = [each._replace(assignment=assigned[each.member_id]) for each in members[:2]]
    later = ASSIGNORS["uniform"](left, counts)
    for each in left:
        assert partitions_of(each.assignment) < partitions_of(later[each.member_id])


def test_uniform_uses_that_some_can_read_what_others_cannot() -> None:
    members = [member("all", A, B), member("only-a", A)]
    assigned = plain(ASSIGNORS["uniform"](members, {A: 4, B: 4}))
    assert assigned == {"all": {B: [0, 1, 2, 3]}, "only-a": {A: [0, 1, 2, 3]}}


def test_uniform_moves_along_a_chain_of_subscriptions() -> None:
    """m0 can give only to m1, and m1 only to m2."""
    members = [
        member("m0", A, has={A: range(9)}),
        member("m1", A, B),
        member("m2", B),
    ]
    assigned = ASSIGNORS["uniform"](members, {A: 9, B: 0})
    sizes = {member_id: len(partitions_of(assignment)) for member_id, assignment in assigned.items()}
    assert sizes == {"m0": 5, "m1": 4, "m2": 0}


def test_range_cuts_topics_at_the_same_places() -> None:
    members = [member("m0", A, B), member("m1", A, B)]
    assigned = plain(ASSIGNORS["range"](members, {A: 3, B: 3}))
    assert assigned == {"m0": {A: [0, 1], B: [0, 1]}, "m1": {A: [2], B: [2]}}


def test_range_with_different_subscriptions() -> None:
    members = [member("m0", A), member("m1", A, B), member("m2", B, C)]
    assigned = plain(ASSIGNORS["range"](members, {A: 3, B: 1}))
    assert assigned == {"m0": {A: [0, 1]}, "m1": {A: [2], B: [0]}, "m2": {}}


def test_range_gives_a_static_member_the_same_whatever_its_member_id() -> None:
    statics = [member(f"m{number}", A)._replace(instance_id=f"i{number}") for number in range(2)]
    joined_again = [statics[0]._replace(member_id="z"), statics[1], member("a-dynamic-one", A)]
    assigned = plain(ASSIGNORS["range"](joined_again, {A: 6}))
    assert assigned == {"z": {A: [0, 1]}, "m1": {A: [2, 3]}, "a-dynamic-one": {A: [4, 5]}}


def test_five_thousand_members_are_assigned_evenly() -> None:
    members = [member(f"m{number:04}", A, B) for number in range(5000)]
    assigned = ASSIGNORS["uniform"](members, {A: 7000, B: 500})
    assert Counter(len(partitions_of(assignment)) for assignment in assigned.values()) == {1: 2500, 2: 2500}
