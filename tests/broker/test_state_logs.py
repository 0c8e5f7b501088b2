"""The shards of a topic, as its partitions begin and cease to be led here, and while nobody may be told anything.

The machine counts, as in `test_state_log`; the roles of the partitions and the lease are what a test says.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, cast

import pytest

from penstock.base.errors import ApiError, Error
from penstock.base.identifiers import TopicPartition
from penstock.base.steps import Moment, ProducerEpoch, StateRecord, Step, Token
from penstock.broker.lease import Lease
from penstock.broker.partition import Partition
from penstock.broker.state_log import Shape, StateLog
from penstock.broker.state_logs import StateLogs
from penstock.testing.sim_broker import PORT, SimBroker
from penstock.testing.sim_client import SimClient
from penstock.testing.sim_world import Simulation
from penstock.wire.compression import Compression
from penstock.wire.messages.offsets_topic_records import OFFSETS_TOPIC_RECORDS, OffsetCommitKey, OffsetCommitValue
from penstock.wire.state_records import StateCodec
from penstock.zookeeper.topic_znodes import PartitionState

CODEC = StateCodec(OFFSETS_TOPIC_RECORDS, {OffsetCommitValue: 3})
TOPIC = "counters"
OTHER = 1  # the broker that leads, or follows, what is not led here
BROKER_EPOCH = 5


class Counter:
    """Counts, and expires when it was not heard of for ten seconds."""

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.count = 0
        self.deadline_ms: int | None = None
        self.expired: list[int] = []

    def replay(self, record: StateRecord, producer: ProducerEpoch | None, offset: int) -> None:
        assert record.value is not None
        self.count = record.value.offset

    def replay_marker(self, producer: ProducerEpoch, *, is_commit: bool) -> None:
        pass

    def start(self, now: Moment) -> Step:
        self.deadline_ms = now.monotonic_ms + 10_000
        return Step(actions=["started"])

    def next_deadline_ms(self) -> int | None:
        return self.deadline_ms

    def on_time(self, now: Moment) -> Step:
        if self.deadline_ms is not None and now.monotonic_ms >= self.deadline_ms:
            self.deadline_ms = None
            self.expired.append(now.monotonic_ms)
        return Step()

    def add(self, now: Moment) -> Step:
        self.deadline_ms = now.monotonic_ms + 10_000
        key = OffsetCommitKey(group="g", topic="t", partition=0)
        return Step([StateRecord(key, OffsetCommitValue(offset=self.count + 1))])

    def add_and_tell(self, token: Token, now: Moment) -> Step:
        step = self.add(now)
        step.answers.append((token, self.count + 1))
        return step

    def look(self, token: Token, now: Moment) -> Step:
        return Step(answers=[(token, self.count)])

    def wait(self, token: Token, now: Moment) -> Step:
        return Step()


class TestLease:
    """Holds if the test says so."""

    __test__ = False

    def __init__(self) -> None:
        self.is_good = True

    def holds(self) -> bool:
        return self.is_good


class Bench:
    """A broker in the simulator, and the shards of its topic `counters`, which has two partitions."""

    def __init__(self) -> None:
        self.simulation = Simulation(5, limit_s=10_000)
        self.sim_broker = SimBroker(self.simulation.machine("broker"))
        self.client_world = self.simulation.machine("client").process("client").world
        self.lease = TestLease()
        self.actions: list[Any] = []
        self.machines: list[Counter] = []
        self.logs: StateLogs[Counter]

    def run(self, drive: Callable[[], Awaitable[None]], **configs: str) -> None:
        async def main() -> None:
            await self.sim_broker.start()
            client = await SimClient.connect(self.client_world, "broker", PORT)
            await client.create_topic(TOPIC, 2, {name.replace("_", "."): text for name, text in configs.items()})
            assert self.sim_broker.running is not None
            broker = self.sim_broker.running.broker
            self.partitions = broker.partitions
            shape = Shape(CODEC, self.make_machine, lambda _, action: self.actions.append(action), Compression.NONE)
            self.logs = StateLogs(TOPIC, shape, broker.world, broker.view, broker.partitions, cast(Lease, self.lease))
            await drive()
            self.logs.stop()

        self.simulation.run(main())

    def make_machine(self, epoch: int) -> Counter:
        self.machines.append(Counter(epoch))
        return self.machines[-1]

    def partition(self, index: int = 0) -> Partition:
        found = self.partitions.get(TopicPartition(TOPIC, index))
        assert found is not None
        return found

    def become(self, index: int, *, leader: int = 0, isr: tuple[int, ...] = (0,), epochs: int = 0) -> None:
        state = self.partition(index).state
        changed = PartitionState((0, OTHER), isr, leader, state.leader_epoch + epochs, state.partition_epoch + 1)
        self.partition(index).take_role(changed, 0, may_lead=True)

    async def shard(self, index: int = 0) -> StateLog[Counter]:
        while True:
            try:
                return self.logs.at(index)
            except ApiError as error:
                assert error.error is Error.COORDINATOR_LOAD_IN_PROGRESS
                await asyncio.sleep(0.01)


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.simulation.close()


async def add(log: StateLog[Counter]) -> int:
    count: int = await log.ask(lambda machine, token, now: machine.add_and_tell(token, now))
    return count


async def look(log: StateLog[Counter]) -> int:
    count: int = await log.ask(lambda machine, token, now: machine.look(token, now))
    return count


async def refused(asking: Awaitable[Any]) -> Error:
    with pytest.raises(ApiError) as raised:
        await asking
    return raised.value.error


def refused_at(bench: Bench, index: int) -> Error:
    with pytest.raises(ApiError) as raised:
        bench.logs.at(index)
    return raised.value.error


# ── led and not led ──────────────────────────────────────────────────────────────────────────────────────────────


def test_there_is_a_shard_for_each_partition_that_is_led(bench: Bench) -> None:
    async def drive() -> None:
        bench.become(1, leader=OTHER, epochs=1)
        bench.logs.follow()
        await add(await bench.shard(0))
        assert refused_at(bench, 1) is Error.NOT_COORDINATOR
        assert [log.index for log in bench.logs] == [0]
        bench.become(1, leader=0, epochs=1)
        bench.logs.follow()
        assert await add(await bench.shard(1)) == 1
        assert [machine.epoch for machine in bench.machines] == [0, 2]

    bench.run(drive)


def test_who_waits_hears_at_once_when_another_leads(bench: Bench) -> None:
    async def drive() -> None:
        bench.logs.follow()
        log = await bench.shard()
        bench.become(0, isr=(0, OTHER))
        answers = [
            asyncio.ensure_future(log.ask(lambda machine, token, now: machine.wait(token, now))),
            asyncio.ensure_future(add(log)),  # not committed: the follower never fetches
            asyncio.ensure_future(look(log)),
        ]
        await asyncio.sleep(5)
        assert not any(answer.done() for answer in answers)
        bench.become(0, leader=OTHER, epochs=1)
        assert [await refused(answer) for answer in answers] == [Error.NOT_COORDINATOR] * 3
        assert await refused(add(log)) is Error.NOT_COORDINATOR
        assert refused_at(bench, 0) is Error.NOT_COORDINATOR
        bench.logs.follow()
        await asyncio.sleep(60)
        assert bench.actions == ["started", "started"] and len(bench.machines) == 2  # of both partitions, once

    bench.run(drive)


def test_a_new_epoch_is_a_new_shard_with_all_that_is_in_the_log(bench: Bench) -> None:
    async def drive() -> None:
        bench.logs.follow()
        old = await bench.shard()
        assert [await add(old) for _ in range(3)] == [1, 2, 3]
        bench.become(0, epochs=1)
        assert old.is_over
        bench.logs.follow()
        new = await bench.shard()
        assert new is not old and new.machine.epoch == old.machine.epoch + 1
        assert await look(new) == 3
        assert await refused(look(old)) is Error.NOT_COORDINATOR
        bench.become(0)  # the same epoch: a change of the ISR
        bench.logs.follow()
        assert await bench.shard() is new

    bench.run(drive)


def test_partitions_tell_of_their_roles(bench: Bench) -> None:
    async def drive() -> None:
        for listener in bench.partitions._on_roles:
            listener([bench.partition(0)])
        assert await add(await bench.shard(0)) == 1
        bench.become(0, epochs=1)
        for listener in bench.partitions._on_roles:
            listener([bench.partition(0)])
        assert await look(await bench.shard(0)) == 1

    bench.run(drive)


def test_what_is_read_is_told_when_it_is_committed(bench: Bench) -> None:
    """The end of the log may be of a former epoch, and known to nobody else yet."""

    async def drive() -> None:
        bench.logs.follow()
        log = await bench.shard()
        bench.become(0, isr=(0, OTHER))
        adding = asyncio.ensure_future(add(log))
        await asyncio.sleep(0.1)
        bench.become(0, isr=(0, OTHER), epochs=1)
        assert await refused(adding) is Error.NOT_COORDINATOR
        bench.logs.follow()
        seen = asyncio.ensure_future(look(await bench.shard()))
        await asyncio.sleep(5)
        assert not seen.done() and len(bench.actions) == 2
        bench.partition().follower_fetched(OTHER, BROKER_EPOCH, bench.partition().log.end_offset, 0)
        assert await seen == 1
        assert len(bench.actions) == 3

    bench.run(drive)


def test_an_append_that_comes_too_late_reads_nothing_again(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    async def drive() -> None:
        bench.logs.follow()
        log = await bench.shard()
        made = len(bench.machines)
        adding = asyncio.ensure_future(add(log))
        await asyncio.sleep(0)  # decided, and to be written at the end of the turn
        bench.become(0, leader=OTHER, epochs=1)
        assert await refused(adding) is Error.NOT_COORDINATOR
        await asyncio.sleep(100)
        assert len(bench.machines) == made
        assert bench.partition().log.end_offset == 0

    with caplog.at_level(logging.WARNING):
        bench.run(drive)
    assert "read again" not in caplog.text


def test_all_shards_are_asked_but_those_that_go_meanwhile(bench: Bench) -> None:
    async def drive() -> None:
        bench.logs.follow()
        with pytest.raises(ApiError) as raised:
            await bench.logs.ask_all(lambda machine, token, now: machine.look(token, now))
        assert raised.value.error is Error.COORDINATOR_LOAD_IN_PROGRESS
        await bench.shard(0)
        await bench.shard(1)

        def look_and_move(machine: Counter, token: Token, now: Moment) -> Step:
            bench.become(1, leader=OTHER, epochs=1)
            return machine.look(token, now)

        assert await bench.logs.ask_all(look_and_move) == [0]
        bench.lease.is_good = False
        asking = bench.logs.ask_all(lambda machine, token, now: machine.look(token, now))
        assert await refused(asking) is Error.COORDINATOR_NOT_AVAILABLE

    bench.run(drive)


def test_nothing_comes_back_after_the_stop(bench: Bench) -> None:
    async def drive() -> None:
        bench.logs.follow()
        log = await bench.shard()
        bench.logs.stop()
        bench.become(0, epochs=1)
        bench.logs.follow()
        assert list(bench.logs) == [] and not bench.logs.is_loading
        assert await refused(look(log)) is Error.NOT_COORDINATOR

    bench.run(drive)


# ── not sure to be in charge, or not enough of them ──────────────────────────────────────────────────────────────


def test_without_a_lease_nothing_is_decided(bench: Bench) -> None:
    async def drive() -> None:
        bench.logs.follow()
        log = await bench.shard()
        bench.lease.is_good = False
        assert await refused(add(log)) is Error.NOT_COORDINATOR
        assert await refused(look(log)) is Error.NOT_COORDINATOR
        assert refused_at(bench, 0) is Error.NOT_COORDINATOR
        assert not log.may_act and not log.is_over
        assert bench.partition().log.end_offset == 0
        bench.lease.is_good = True
        assert log.may_act
        assert await add(log) == 1

    bench.run(drive)


def test_a_process_that_was_stopped_does_not_tell_what_it_knew(bench: Bench) -> None:
    async def drive() -> None:
        bench.logs.follow()
        log = await bench.shard()
        bench.become(0, isr=(0, OTHER))
        answers = [asyncio.ensure_future(add(log)), asyncio.ensure_future(look(log))]
        await asyncio.sleep(1)
        bench.lease.is_good = False
        bench.partition().follower_fetched(OTHER, BROKER_EPOCH, 1, 0)
        assert [await refused(answer) for answer in answers] == [Error.NOT_COORDINATOR] * 2

    bench.run(drive)


def test_decisions_that_nobody_waits_for_are_made_later(bench: Bench) -> None:
    async def drive() -> None:
        bench.logs.follow()
        log = await bench.shard()
        bench.lease.is_good = False
        for _ in range(3):
            log.do(lambda machine, now: machine.add(now))
        await asyncio.sleep(60)
        assert log.machine.count == 0
        bench.lease.is_good = True
        await asyncio.sleep(1)
        assert log.machine.count == 3

    bench.run(drive)


def test_a_shard_that_is_read_without_a_lease_starts_when_it_has_one(bench: Bench) -> None:
    async def drive() -> None:
        bench.lease.is_good = False
        bench.logs.follow()
        await asyncio.sleep(60)
        assert bench.actions == [] and refused_at(bench, 0) is Error.NOT_COORDINATOR
        bench.lease.is_good = True
        log = await bench.shard()
        assert await add(log) == 1
        assert bench.actions[0] == "started"
        assert log.machine.deadline_ms is not None

    bench.run(drive)


def test_too_few_in_sync(bench: Bench) -> None:
    async def drive() -> None:
        bench.become(0, isr=(0, OTHER))
        bench.logs.follow()
        log = await bench.shard()
        bench.become(0, isr=(0,))
        assert await refused(add(log)) is Error.COORDINATOR_NOT_AVAILABLE
        assert await refused(look(log)) is Error.COORDINATOR_NOT_AVAILABLE
        marker = log.append_marker(ProducerEpoch(7, 0), is_commit=True, coordinator_epoch=0, transaction_version=0)
        assert await refused(marker) is Error.COORDINATOR_NOT_AVAILABLE
        assert bench.partition().log.end_offset == 0
        bench.become(0, isr=(0, OTHER))
        assert await look(log) == 0

    bench.run(drive, min_insync_replicas="2")


@pytest.mark.parametrize("obstacle", ["lease", "replicas"])
def test_time_stands_still_while_nobody_can_be_heard(bench: Bench, obstacle: str) -> None:
    def hinder(is_hindered: bool) -> None:
        if obstacle == "lease":
            bench.lease.is_good = not is_hindered
        else:
            bench.become(0, isr=(0,) if is_hindered else (0, OTHER))

    async def drive() -> None:
        bench.become(0, isr=(0, OTHER))
        bench.logs.follow()
        log = await bench.shard()
        await asyncio.sleep(5)
        hinder(True)
        assert await refused(look(log))
        await asyncio.sleep(100)
        assert not log.machine.expired
        hinder(False)
        await asyncio.sleep(4)
        assert not log.machine.expired
        await asyncio.sleep(2)
        assert log.machine.expired

    bench.run(drive, min_insync_replicas="2")
