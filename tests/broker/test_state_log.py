"""The shell of a shard, with the smallest machine that has everything: counters that live in a partition."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from penstock.base.errors import ApiError, Error
from penstock.base.steps import Moment, ProducerEpoch, StateRecord, Step, Token
from penstock.broker.state_log import Shape, StateLog
from penstock.testing.sim_broker import PORT, SimBroker
from penstock.testing.sim_client import SimClient
from penstock.testing.sim_device import os_error
from penstock.testing.sim_world import Simulation
from penstock.wire.compression import Compression
from penstock.wire.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicsRequestTopic
from penstock.wire.messages.offsets_topic_records import OFFSETS_TOPIC_RECORDS, OffsetCommitKey, OffsetCommitValue
from penstock.wire.state_records import StateCodec

CODEC = StateCodec(OFFSETS_TOPIC_RECORDS, {OffsetCommitValue: 3})
PRODUCER = ProducerEpoch(7, 0)


class Counters:
    """Counts under names; can keep somebody waiting, and counts by the clock."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.pending: dict[ProducerEpoch, list[tuple[str, int]]] = {}
        self.waiting: list[Token] = []
        self.deadline_ms: int | None = None
        self.was_started = False

    def replay(self, record: StateRecord, producer: ProducerEpoch | None, offset: int) -> None:
        change = record.key.group, record.value.offset
        if producer is None:
            self.counts[change[0]] = change[1]
        else:
            self.pending.setdefault(producer, []).append(change)

    def replay_marker(self, producer: ProducerEpoch, *, is_commit: bool) -> None:
        changes = self.pending.pop(producer, [])
        if is_commit:
            self.counts.update(changes)

    def start(self, now: Moment) -> Step:
        self.was_started = True
        return Step()

    def next_deadline_ms(self) -> int | None:
        return self.deadline_ms

    def on_time(self, now: Moment) -> Step:
        if self.deadline_ms is None or now.monotonic_ms < self.deadline_ms:
            return Step()
        self.deadline_ms = None
        return Step([self._count("ticks")])

    def add(self, token: Token, name: str, now: Moment, producer: ProducerEpoch | None = None) -> Step:
        record = self._count(name)
        return Step([record], [(token, record.value.offset)], producer=producer)

    def look(self, token: Token, name: str) -> Step:
        return Step(answers=[(token, self.counts.get(name, 0))])

    def wait(self, token: Token) -> Step:
        self.waiting.append(token)
        return Step()

    def _count(self, name: str) -> StateRecord:
        count = self.counts.get(name, 0) + 1
        return StateRecord(OffsetCommitKey(group=name, topic="t", partition=0), OffsetCommitValue(offset=count))


class Bench:
    """A broker in the simulator, and a shard over its topic `counters`."""

    def __init__(self, settings: dict[str, str], seed: int = 5) -> None:
        self.simulation = Simulation(seed, limit_s=10_000)
        self.machine = self.simulation.machine("broker")
        self.broker = SimBroker(self.machine, settings)
        self.client_world = self.simulation.machine("client").process("client").world
        self.done: list[Any] = []

    def run(self, drive: Callable[[], Awaitable[None]]) -> None:
        async def main() -> None:
            await self.broker.start()
            client = await self.connect()
            await client.create_topic("counters", 1)
            await drive()

        self.simulation.run(main())

    async def connect(self) -> SimClient:
        return await SimClient.connect(self.client_world, "broker", PORT)

    async def shard(self) -> StateLog[Counters]:
        assert self.broker.running is not None
        broker = self.broker.running.broker
        partition = broker.partitions.find("counters", 0)
        await self.until(lambda: partition.leader is not None)
        shape = Shape(CODEC, lambda _: Counters(), lambda _, action: self.done.append(action), Compression.NONE)
        log = StateLog(partition, shape, broker.world, broker.membership.lease)
        await self.until(lambda: log.is_loaded)
        return log

    async def until(self, is_so: Callable[[], bool]) -> None:
        while not is_so():
            await asyncio.sleep(0.01)


@pytest.fixture(params=["always", "os"])
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    made = Bench({"log.flush.mode": request.param})
    yield made
    made.simulation.close()


async def add(log: StateLog[Counters], name: str, producer: ProducerEpoch | None = None) -> int:
    count: int = await log.ask(lambda machine, token, now: machine.add(token, name, now, producer))
    return count


async def look(log: StateLog[Counters], name: str) -> int:
    count: int = await log.ask(lambda machine, token, now: machine.look(token, name))
    return count


def test_decisions_are_made_in_order_on_the_newest_state(bench: Bench) -> None:
    async def drive() -> None:
        log = await bench.shard()
        assert log.machine.was_started
        assert await asyncio.gather(*(add(log, "a") for _ in range(50))) == list(range(1, 51))
        assert await look(log, "a") == 50

    bench.run(drive)


def test_a_new_shard_knows_what_the_old_one_was_told(bench: Bench) -> None:
    async def drive() -> None:
        log = await bench.shard()
        await asyncio.gather(*(add(log, name) for name in "abcab" for _ in range(300)))
        before = log.machine.counts
        bench.broker.kill()
        await bench.broker.start()
        assert (await bench.shard()).machine.counts == before

    bench.run(drive)


def _is_safe(seed: int) -> bool:
    """Whether all that was answered is there after a loss of power."""
    bench = Bench({"log.flush.mode": "always"}, seed)
    kept: list[bool] = []

    async def drive() -> None:
        log = await bench.shard()
        answers: list[int] = []

        async def count() -> None:
            while True:
                answers.append(await add(log, "a"))

        counting = [asyncio.ensure_future(count()) for _ in range(3)]
        await bench.until(lambda: len(answers) > 20)
        seen = asyncio.ensure_future(look(log, "a"))  # may see what is not synced yet: then it waits as well
        bench.broker.lose_power()
        for task in [*counting, seen]:
            task.cancel()
        log.end()  # it is the test's, and not of the process that went
        told = max(answers)
        if seen.done() and not seen.cancelled():
            told = max(told, seen.result())
        await bench.broker.start()
        kept.append(await look(await bench.shard(), "a") >= told)

    bench.run(drive)
    bench.simulation.close()
    return kept == [True]


def test_what_was_answered_survives_the_loss_of_power() -> None:
    assert all(_is_safe(seed) for seed in range(5))


def test_answering_before_the_commit_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StateLog, "_when_committed", lambda _self, tell: tell())
    assert not all(_is_safe(seed) for seed in range(5))


def test_transactional_records_count_when_their_producer_commits(bench: Bench) -> None:
    async def drive() -> None:
        log = await bench.shard()
        await add(log, "a", PRODUCER)
        assert await look(log, "a") == 0
        await log.append_marker(PRODUCER, is_commit=False, coordinator_epoch=0, transaction_version=0)
        assert await look(log, "a") == 0
        await add(log, "a", PRODUCER)
        await add(log, "b", ProducerEpoch(8, 0))
        await log.append_marker(PRODUCER, is_commit=True, coordinator_epoch=0, transaction_version=0)
        assert await look(log, "a") == 1
        bench.broker.kill()
        await bench.broker.start()
        machine = (await bench.shard()).machine
        assert machine.counts == {"a": 1} and list(machine.pending) == [ProducerEpoch(8, 0)]

    bench.run(drive)


def test_who_waits_is_told_when_the_partition_goes(bench: Bench) -> None:
    async def drive() -> None:
        log = await bench.shard()
        waiting = asyncio.ensure_future(log.ask(lambda machine, token, now: machine.wait(token)))
        await asyncio.sleep(1)
        client = await bench.connect()
        await client.call(DeleteTopicsRequest(topics=[DeleteTopicsRequestTopic(name="counters")], timeout_ms=1000), 6)
        with pytest.raises(ApiError) as refused:
            await waiting
        assert refused.value.error is Error.NOT_COORDINATOR
        with pytest.raises(ApiError):
            await add(log, "a")

    bench.run(drive)


def test_after_a_failed_append_the_shard_is_read_again(bench: Bench) -> None:
    async def drive() -> None:
        log = await bench.shard()
        await add(log, "a")
        waiting = asyncio.ensure_future(log.ask(lambda machine, token, now: machine.wait(token)))
        await asyncio.sleep(0.1)
        disk = bench.machine.disk
        disk.fail_when(lambda operation: operation.kind == "write", os_error(errno.ENOSPC, "counters"), times=1_000)
        failed = await asyncio.gather(add(log, "a"), waiting, return_exceptions=True)
        assert [error.error for error in failed if isinstance(error, ApiError)] == [Error.NOT_COORDINATOR] * 2
        with pytest.raises(ApiError) as refused:
            await add(log, "a")
        assert refused.value.error is Error.COORDINATOR_LOAD_IN_PROGRESS
        disk.heal()
        await bench.until(lambda: log.is_loaded)
        assert await add(log, "a") == 2

    bench.run(drive)


def test_the_clock_moves_the_machine(bench: Bench) -> None:
    async def drive() -> None:
        log = await bench.shard()
        now_ms = int(bench.simulation.loop.time() * 1000)
        log.machine.deadline_ms = now_ms + 5000
        await add(log, "a")
        log.machine.deadline_ms = now_ms + 2000  # a nearer one moves the timer
        await add(log, "a")
        await asyncio.sleep(1.5)
        assert await look(log, "ticks") == 0
        await asyncio.sleep(1)
        assert await look(log, "ticks") == 1

    bench.run(drive)


def test_actions_follow_the_commit(bench: Bench) -> None:
    async def drive() -> None:
        log = await bench.shard()

        def act(machine: Counters, now: Moment) -> Step:
            step = machine.add("nobody", "a", now)
            return Step(step.records, actions=["sent"])

        log.do(act)
        await bench.until(lambda: bench.done == ["sent"])
        assert log.partition.high_watermark == log.partition.log.end_offset == 1

    bench.run(drive)


def test_a_decision_that_fails_is_a_bug_that_stops_nothing(bench: Bench) -> None:
    async def drive() -> None:
        log = await bench.shard()
        await add(log, "a")
        with pytest.raises(ApiError):
            await log.ask(lambda machine, token, now: machine.no_such_thing(token))  # type: ignore[attr-defined]
        await bench.until(lambda: log.is_loaded)
        assert await add(log, "a") == 2

    bench.run(drive)


def test_what_a_shard_decided_before_it_was_read_again_is_left_to_the_new_one() -> None:
    bench = Bench({"log.flush.mode": "always"})

    async def drive() -> None:
        log = await bench.shard()
        disk = bench.machine.disk

        def act(machine: Counters, now: Moment) -> Step:
            return Step(machine.add("nobody", "a", now).records, actions=["by the old one"])

        disk.slow_when(lambda operation: operation.kind == "sync", 5)
        log.do(act)
        await asyncio.sleep(0)  # it is written by now, and the sync has not begun
        with pytest.raises(ApiError):
            await log.ask(lambda machine, token, now: machine.no_such_thing(token))  # type: ignore[attr-defined]
        await bench.until(lambda: log.is_loaded)
        assert log.partition.high_watermark < log.partition.log.end_offset
        await bench.until(lambda: log.partition.high_watermark == log.partition.log.end_offset)
        assert await look(log, "a") == 1
        assert bench.done == []

    bench.run(drive)
    bench.simulation.close()


def test_a_record_that_cannot_be_replayed_is_told_and_tried_again(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def drive() -> None:
        log = await bench.shard()
        await add(log, "a")
        with monkeypatch.context() as patched:
            patched.setattr(Counters, "replay", lambda *_: 1 / 0)
            with pytest.raises(ApiError):
                await add(log, "a")
            await asyncio.sleep(10)
            assert not log.is_loaded
        assert "cannot be read" in caplog.text
        await bench.until(lambda: log.is_loaded)
        assert await add(log, "a") == 2

    bench.run(drive)


def test_a_marker_behind_a_decision_that_cannot_be_written(bench: Bench) -> None:
    async def drive() -> None:
        log = await bench.shard()
        disk = bench.machine.disk
        disk.fail_when(lambda operation: operation.kind == "write", os_error(errno.ENOSPC, "counters"), times=1_000)
        adding = asyncio.ensure_future(add(log, "a"))
        await asyncio.sleep(0)  # decided, and not written yet
        with pytest.raises(ApiError):
            await log.append_marker(PRODUCER, is_commit=True, coordinator_epoch=0, transaction_version=0)
        with pytest.raises(ApiError):
            await adding
        disk.heal()
        await bench.until(lambda: log.is_loaded)
        assert log.partition.log.end_offset == 0
        await log.append_marker(PRODUCER, is_commit=True, coordinator_epoch=0, transaction_version=0)
        assert await add(log, "a") == 1

    bench.run(drive)
