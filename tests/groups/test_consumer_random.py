"""Random lives of consumer groups, watched by what must always hold.

Clients join, read, hold on to partitions for a while, lose answers, die, leave, come back as static members, change
their minds; topics come, grow and go; time passes; the broker crashes. After every step: no partition has two owners,
and no client owns what the group does not know of. In the end, when everybody is well, the group gets to its target.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any
from uuid import UUID

import pytest

from penstock.base.errors import Error
from penstock.groups.consumer_group import ConsumerGroup
from penstock.groups.settings import GroupSettings

from .consumer_driver import REBALANCE_MS, ConsumerDriver, ManyTopics, Member
from .shard_driver import GROUP

NAMES = ["a1", "a2", "b1", "b2"]
PATTERNS = ["a.*", "b.*", ".*1", ""]


class Life:
    """One group and its clients."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        interval_ms = self.random.choice([0, 0, 1000])
        topics = ManyTopics(*self.random.sample(NAMES, 2))
        self.driver = ConsumerDriver(GroupSettings(consumer_assignment_interval_ms=interval_ms), topics)
        self.members: list[Member] = []
        self.dead: set[str] = set()
        self._count = 0

    # ── what happens ─────────────────────────────────────────────────────────────────────────────────────────────

    def step(self) -> None:
        events: list[tuple[int, Callable[[], None]]] = [
            (3, self.join),
            (20, self.beat),
            (10, self.take_over),
            (2, self.lose_an_answer),
            (2, self.change_subscription),
            (1, self.die),
            (1, self.leave),
            (2, self.pause_static),
            (1, self.change_topics),
            (4, self.pass_time),
            (1, self.crash),
        ]
        self.random.choices([each for _, each in events], [weight for weight, _ in events])[0]()
        self.check()

    def join(self) -> None:
        if len(self.members) < 5:
            instance_id = self.random.choice([None, None, f"i{self._count}"])
            member = Member(self.driver, self._new_id(), instance_id=instance_id)
            self._subscribe(member)
            member.assignor = self.random.choice([None, "uniform", "range"])
            self.members.append(member)
            member.beat()

    def _new_id(self) -> str:
        self._count += 1
        return f"m{self._count}"

    def _subscribe(self, member: Member) -> None:
        pattern = self.random.choice([*PATTERNS, None, None, None])
        names = self.random.sample(NAMES, self.random.randint(0, 3))
        member.names, member.pattern = names, pattern if pattern is not None else ""

    def _any(self) -> Member | None:
        return self.random.choice(self.members) if self.members else None

    def beat(self) -> None:
        if (member := self._any()) is not None:
            error = member.beat()
            assert error in (Error.NONE, Error.UNKNOWN_MEMBER_ID, Error.FENCED_MEMBER_EPOCH), error

    def take_over(self) -> None:
        if (member := self._any()) is not None:
            member.take_over()

    def lose_an_answer(self) -> None:
        """The broker has done what the client asked for, and the client does not know."""
        if (member := self._any()) is not None:
            before = member.epoch, member.owned, member.to_take
            member.beat()
            if before[0]:
                member.epoch, member.owned, member.to_take = before
            else:
                member.lose_all()
            member.must_say_all = True

    def change_subscription(self) -> None:
        if (member := self._any()) is not None:
            self._subscribe(member)
            member.must_say_all = True

    def die(self) -> None:
        if (member := self._any()) is not None:
            self.members.remove(member)
            self.dead.add(member.member_id)

    def leave(self) -> None:
        if (member := self._any()) is not None:
            self.members.remove(member)
            member.leave()

    def pause_static(self) -> None:
        """It leaves for a while, and comes back as another process, or not at all."""
        member = self._any()
        if member is not None and member.instance_id is not None:
            error = member.leave(-2)
            self.members.remove(member)
            if error is Error.NONE and self.random.random() < 0.7:
                back = Member(self.driver, self._new_id(), instance_id=member.instance_id)
                self._subscribe(back)
                self.members.append(back)

    def change_topics(self) -> None:
        name = self.random.choice(NAMES)
        topics = self.driver.topics
        topic = topics.named(name)
        if topic is None:
            topics.create(name, self.random.randint(1, 5))
        elif self.random.random() < 0.5:
            topics.grow(name, topic.partition_count + 1)
        else:
            topics.delete(name)
        self.driver.change_topics(name)

    def pass_time(self) -> None:
        self.driver.pass_time(self.random.choice([10, 1000, REBALANCE_MS // 2, REBALANCE_MS]))

    def crash(self) -> None:
        """What is read again is the same, also when the log was compacted up to some point."""
        before = self.kept()
        if self.random.random() < 0.5:
            self.driver.compact(self.random.randint(0, len(self.driver.log)))
        self.driver.crash()
        assert self.kept() == before

    # ── what must hold ───────────────────────────────────────────────────────────────────────────────────────────

    @property
    def group(self) -> ConsumerGroup | None:
        return self.driver.shard.table.of_kind(GROUP, ConsumerGroup)

    def kept(self) -> dict[str, Any]:
        """Everything that the group knows, sums and all."""
        return dict(vars(self.group)) if self.group is not None else {}

    def check(self) -> None:
        group = self.group
        if group is None:
            return
        owners: dict[tuple[UUID, int], str] = {}
        for member_id, member in group.members.items():
            for partition in member.held_partitions():
                assert partition not in owners, f"{partition} is with {owners[partition]} and {member_id}"
                owners[partition] = member_id
                assert group.owner(*partition) == member_id
        for client in self.members:
            known = group.members.get(client.member_id)
            if known is None or not client.epoch:
                continue  # it is out, and learns of it with its next heartbeat
            held = set(known.held_partitions())
            owned = {(topic_id, index) for topic_id, indexes in client.owned.items() for index in indexes}
            assert owned <= held, f"{client.member_id} owns {owned - held}"

    def check_that_it_settles(self) -> None:
        """Everybody alive sends heartbeats and does what it is told; the dead are found out."""
        for _ in range(12):
            for member in self.members:
                member.beat()
                member.take_over()
                self.check()
            self.driver.pass_time(10_000)
        group = self.group
        if group is None or not self.members:
            assert group is None or group.is_empty
            return
        assert group.state_name == "Stable"
        assert set(group.members) == {member.member_id for member in self.members}
        expected: set[tuple[UUID, int]] = set()
        for name in NAMES:
            topic = self.driver.topics.named(name)
            if topic is not None and group.is_subscribed_to(name):
                expected |= {(topic.topic_id, index) for index in range(topic.partition_count)}
        owned: set[tuple[UUID, int]] = set()
        for member in self.members:
            mine = {(topic_id, index) for topic_id, indexes in member.owned.items() for index in indexes}
            target = group.targets.get(member.member_id, {})
            assert mine == {(topic_id, index) for topic_id, indexes in target.items() for index in indexes}
            assert member.epoch == group.epoch
            owned |= mine
        assert owned == expected
        self.check_balance(group)

    def check_balance(self, group: ConsumerGroup) -> None:
        subscriptions = {(member.topic_names, member.topic_pattern) for member in group.members.values()}
        if len(subscriptions) == 1 and set(group.assignor_counts) <= {"uniform"}:
            sizes = [sum(map(len, member.owned.values())) for member in self.members]
            assert max(sizes) - min(sizes) <= 1


def live(seed: int, steps: int) -> None:
    life = Life(seed)
    try:
        for _ in range(steps):
            life.step()
        life.check_that_it_settles()
        life.crash()
    except AssertionError as failed:
        raise AssertionError(f"seed {seed}: {failed}") from failed


@pytest.mark.parametrize("seed", range(30))
def test_a_random_life(seed: int) -> None:
    live(seed, 80)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(30, 1000))
def test_many_random_lives(seed: int) -> None:
    live(seed, 300)
