"""Groups in quiet: where members begin, what they commit, and who gets which partitions."""

from __future__ import annotations

import pytest

from penstock.base.identifiers import TopicPartition

from .client import Admin, Message, Refused
from .conftest import NewTopic
from .group_client import COOPERATIVE, UNIFORM, GroupClient, MemberOptions, NobodyWatches
from .new_topics import create_topics, grow_topic
from .polling import PolledMember, joined, shares, take_from_all, wait_until

pytestmark = pytest.mark.clients

UNKNOWN_MEMBER_ID = 25
#: Far longer than any of these scenarios, so that nobody is thrown out.
QUIET_MS = 30_000


def options_for(topic: str, **others: object) -> MemberOptions:
    return MemberOptions(f"group-of-{topic}", (topic,), session_timeout_ms=QUIET_MS, **others)  # type: ignore[arg-type]


def fill(groups: GroupClient, topic: str, count: int, partitions: int = 1) -> list[Message]:
    messages = [Message(b"%d" % number, partition=number % partitions) for number in range(count)]
    groups.plain.produce(topic, messages)
    return messages


def values(messages: list[Message]) -> list[bytes | None]:
    return [message.value for message in messages]


# Where members begin


def test_the_next_member_goes_on_where_the_last_one_left(groups: GroupClient, new_group_topic: NewTopic) -> None:
    topic = new_group_topic()
    where = TopicPartition(topic, 0)
    sent = fill(groups, topic, 10)
    with joined(groups, options_for(topic)) as (member,):
        assert values(member.take(10)) == values(sent)
        member.commit({where: 6})
    with joined(groups, options_for(topic)) as (member,):
        assert values(member.take(4)) == values(sent[6:])
        assert member.committed(where) == 6


@pytest.mark.parametrize("reset", ["earliest", "latest", "error"])
def test_where_a_group_without_commits_begins(groups: GroupClient, new_group_topic: NewTopic, reset: str) -> None:
    topic = new_group_topic()
    sent = fill(groups, topic, 3)
    with joined(groups, options_for(topic, reset=reset)) as (member,):
        if reset == "earliest":
            assert values(member.take(3)) == values(sent)
        elif reset == "error":
            with pytest.raises(Refused):
                member.take(1)
        else:
            shares([member], 1)
            assert first_new(groups, topic, member) >= 3


def first_new(groups: GroupClient, topic: str, member: PolledMember) -> int:
    """When a member has found the end only it knows: write until it has read something. The offset of that."""

    def write() -> bool:
        groups.plain.produce(topic, [Message(b"new")])
        return member.has(1)

    wait_until(write)
    return member.take(1)[0].offset


def test_a_committed_offset_that_does_not_exist(groups: GroupClient, new_group_topic: NewTopic) -> None:
    topic = new_group_topic()
    sent = fill(groups, topic, 3)
    with groups.outsider(f"group-of-{topic}", [TopicPartition(topic, 0)]) as outsider:
        outsider.commit({TopicPartition(topic, 0): 1_000})
    with joined(groups, options_for(topic)) as (member,):
        assert values(member.take(3)) == values(sent)


def test_going_back_to_what_is_committed(groups: GroupClient, new_group_topic: NewTopic) -> None:
    topic = new_group_topic()
    where = TopicPartition(topic, 0)
    fill(groups, topic, 10)
    with joined(groups, options_for(topic)) as (member,):
        member.take(10)
        member.commit({where: 4})
        member.seek(where, member.committed(where) or 0)
        assert member.take(6)[0].offset == 4
        member.seek(where, 0)
        assert member.take(10)[0].offset == 0


# Commits


def test_commits_are_seen_by_everybody(groups: GroupClient, new_group_topic: NewTopic) -> None:
    topic = new_group_topic(partitions=2)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    fill(groups, topic, 10, partitions=2)
    answers: list[Exception | None] = []
    with joined(groups, options_for(topic)) as (member,), groups.outsider(f"group-of-{topic}", [first]) as outsider:
        member.take(10)
        assert outsider.committed(first) is None
        member.commit({first: 3})
        assert outsider.committed(first) == 3
        member.do(lambda client: client.commit_later({first: 5, second: 1}, answers.append))
        wait_until(lambda: bool(answers))
        assert answers == [None]
        assert (outsider.committed(first), outsider.committed(second)) == (5, 1)
        member.commit({first: 2})
        assert outsider.committed(first) == member.committed(first) == 2


def test_only_members_commit_while_there_are_any(groups: GroupClient, new_group_topic: NewTopic) -> None:
    topic = new_group_topic()
    where = TopicPartition(topic, 0)
    fill(groups, topic, 10)
    with groups.outsider(f"group-of-{topic}", [where]) as outsider:
        outsider.commit({where: 2})
        with joined(groups, options_for(topic)) as (member,):
            assert member.take(8)[0].offset == 2
            with pytest.raises(Refused) as refusal:
                outsider.commit({where: 1})
            assert refusal.value.code in (UNKNOWN_MEMBER_ID, -1)
            assert outsider.committed(where) == 2
        outsider.commit({where: 7})
        assert outsider.committed(where) == 7


# Who gets which partitions


@pytest.mark.slow
@pytest.mark.parametrize("kind", range(4))
def test_assignors_share_out(groups: GroupClient, new_group_topic: NewTopic, kind: int) -> None:
    if kind >= len(groups.assignors):
        pytest.skip(f"{groups.name} has no more assignors")
    assignor = groups.assignors[kind]
    topic = new_group_topic(partitions=7)
    options = options_for(topic, assignor=assignor)
    sent = fill(groups, topic, 21, partitions=7)
    with joined(groups, options, options) as (first, second):
        before = shares([first, second], 7)
        with joined(groups, options) as (third,):
            after = shares([first, second, third], 7)
            if assignor in (COOPERATIVE, UNIFORM):
                assert after[0] <= before[0] and after[1] <= before[1]
        shares([first, second], 7)
        offsets = {TopicPartition(topic, number): 1 for number in range(7)}
        for member in (first, second):
            member.commit({where: offset for where, offset in offsets.items() if where in member.assignment()})
    with joined(groups, options) as (member,):
        assert sorted(values(member.take(14))) == sorted(values(sent[7:]))  # type: ignore[type-var]


def test_members_get_only_what_they_want(groups: GroupClient, new_group_topic: NewTopic) -> None:
    both, one = new_group_topic(partitions=2), new_group_topic(partitions=2)
    group = f"group-of-{both}"
    wants_both = MemberOptions(group, (both, one), session_timeout_ms=QUIET_MS)
    wants_one = MemberOptions(group, (one,), session_timeout_ms=QUIET_MS)
    with joined(groups, wants_both, wants_one) as (first, second):
        wait_until(
            lambda: len(first.assignment() | second.assignment()) == 4 and 0 < len(second.assignment()) <= 2,
            lambda: (first.assignment(), second.assignment()),
        )
        assert {where.topic for where in second.assignment()} == {one}
        assert {where for where in first.assignment() if where.topic == both} == {
            TopicPartition(both, 0),
            TopicPartition(both, 1),
        }


@pytest.mark.slow
def test_more_members_than_partitions(groups: GroupClient, new_group_topic: NewTopic) -> None:
    topic = new_group_topic(partitions=2)
    with joined(groups, *[options_for(topic)] * 4) as members:
        parts = shares(members, 2)
        assert sorted(map(len, parts)) == [0, 0, 1, 1]


def test_new_partitions_are_given_to_members(
    groups: GroupClient, new_group_topic: NewTopic, group_admin: Admin
) -> None:
    topic = new_group_topic(partitions=2)
    with joined(groups, options_for(topic), options_for(topic)) as members:
        shares(members, 2)
        grow_topic(group_admin, topic, 4)
        shares(members, 4)
        groups.plain.produce(topic, [Message(b"new", partition=3)])
        assert values(take_from_all(members, 1)) == [b"new"]


def test_topics_that_match_a_pattern(groups: GroupClient, new_group_topic: NewTopic, group_admin: Admin) -> None:
    topic = new_group_topic(partitions=2)
    options = MemberOptions(f"group-of-{topic}", (), pattern=f"^{topic}.*", session_timeout_ms=QUIET_MS)
    with joined(groups, options) as (member,):
        shares([member], 2)
        create_topics(group_admin, {f"{topic}-more": 3})
        shares([member], 5)
        groups.plain.produce(f"{topic}-more", [Message(b"new", partition=2)])
        assert values(member.take(1)) == [b"new"]


# Static members


class Changes(NobodyWatches):
    """Counts how often a member's partitions changed."""

    def __init__(self) -> None:
        self.count = 0

    def assigned(self, partitions: object, generation: int | None) -> None:
        self.count += 1

    def revoked(self, partitions: object) -> None:
        self.count += 1

    def lost(self, partitions: object) -> None:
        self.count += 1


def test_a_static_member_comes_back_to_its_partitions(groups: GroupClient, new_group_topic: NewTopic) -> None:
    topic = new_group_topic(partitions=4)
    changes = Changes()
    static = options_for(topic, instance_id=f"static-{topic}")
    with joined(groups, options_for(topic), watcher=changes) as (other,):
        with joined(groups, static) as (member,):
            part = shares([other, member], 4)[1]
        seen = changes.count
        with joined(groups, static) as (again,):
            wait_until(lambda: again.assignment() == part, again.assignment)
            groups.plain.produce(topic, [Message(b"mine", partition=min(part).partition)])
            assert values(take_from_all([other, again], 1)) == [b"mine"]
            assert changes.count == seen


def test_two_members_cannot_be_the_same_static_one(groups: GroupClient, new_group_topic: NewTopic) -> None:
    if groups.fencing_code is None:
        pytest.skip(f"{groups.name} joins again whenever it is fenced")
    topic = new_group_topic(partitions=2)
    static = options_for(topic, instance_id=f"static-{topic}")
    with joined(groups, static) as (old,):
        shares([old], 2)
        with joined(groups, static) as (new,):
            if groups.polls_tell_fencing:
                wait_until(lambda: old.refusal is not None or new.refusal is not None)
                refusals = [one.refusal for one in (old, new) if one.refusal is not None]
                assert [getattr(refusal, "code", refusal) for refusal in refusals] == [groups.fencing_code]
                shares([old if new.refusal is not None else new], 2)
            else:
                shares([new], 2)
                with pytest.raises(Refused) as refusal:
                    old.commit({TopicPartition(topic, 0): 0})
                assert refusal.value.code in (groups.fencing_code, -1)
