"""A follower's fetches as its leader takes them, request by request: who may, what is told, and what is counted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import pytest

from penstock.base.errors import Error
from penstock.broker.follower_session import FollowerSession
from penstock.log.config import LogConfig
from penstock.replication.leader import FollowerState
from penstock.testing.sim_client import SimClient, batches_of
from penstock.testing.sim_replicas import PORT, TOPIC, TOPIC_ID, SimReplicas
from penstock.testing.sim_world import Simulation
from penstock.wire.messages.k01_fetch import (
    FetchRequest,
    FetchRequestForgottenTopic,
    FetchRequestPartition,
    FetchRequestReplicaState,
    FetchRequestTopic,
    FetchResponse,
    FetchResponsePartition,
)
from penstock.wire.messages.k02_list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
)

LEADER, FOLLOWER, STRANGER = 1, 2, 9
LATEST, EARLIEST = -1, -2


@dataclass
class Position:
    """Where the follower is in a partition."""

    index: int
    offset: int = 0
    epoch: int = 1
    last_epoch: int = -1


@dataclass
class Ask:
    """One request."""

    positions: list[Position] = field(default_factory=list)
    forgotten: list[int] = field(default_factory=list)
    session_id: int = 0
    session_epoch: int = 0
    wait_ms: int = 0
    version: int = 18
    replica_id: int = FOLLOWER
    broker_epoch: int = 5
    topic_id: UUID = TOPIC_ID
    min_bytes: int = 1

    def request(self) -> FetchRequest:
        parts = [
            FetchRequestPartition(
                partition=each.index,
                current_leader_epoch=each.epoch,
                fetch_offset=each.offset,
                last_fetched_epoch=each.last_epoch,
                log_start_offset=0,
                partition_max_bytes=1 << 20,
            )
            for each in self.positions
        ]
        by_name = self.version < 13
        made = FetchRequest(max_wait_ms=self.wait_ms, min_bytes=self.min_bytes)
        if parts:
            row = FetchRequestTopic(partitions=parts)
            row.topic, row.topic_id = (TOPIC, row.topic_id) if by_name else (row.topic, self.topic_id)
            made.topics = [row]
        if self.forgotten:
            made.forgotten_topics_data = [FetchRequestForgottenTopic(topic_id=TOPIC_ID, partitions=self.forgotten)]
        if self.version >= 7:
            made.session_id, made.session_epoch = self.session_id, self.session_epoch
        if self.version >= 15:
            made.replica_state = FetchRequestReplicaState(replica_id=self.replica_id, replica_epoch=self.broker_epoch)
        else:
            made.replica_id = self.replica_id
        return made


class Bench:
    """A leader, and a client that says it is its follower."""

    def __init__(self, config: LogConfig | None = None) -> None:
        self.simulation = Simulation(4, limit_s=10_000)
        self.replicas = SimReplicas(self.simulation, 3, partitions=3, config=config)
        self.leader = self.replicas.node(LEADER)
        self.session_id = 0
        self.session_epoch = 0

    def run(self, drive: Callable[[], Awaitable[None]]) -> None:
        async def main() -> None:
            await self.leader.start()
            for index in range(3):
                self.replicas.decide(index, LEADER)
            await self.leader.learn()
            self.client = await self.connect()
            await drive()

        with self.simulation:
            self.simulation.run(main())

    async def connect(self) -> SimClient:
        process = self.simulation.machine("client").process("client")
        client: Any = await process.start(SimClient.connect(process.world, "node1", PORT))
        return client  # type: ignore[no-any-return]

    def send(self, *positions: Position, **options: Any) -> asyncio.Future[FetchResponse]:
        """The next request of the session."""
        ask = Ask(list(positions), session_id=self.session_id, session_epoch=self.session_epoch, **options)
        self.session_epoch += 1
        return self.client.send(ask.request(), ask.version)

    async def fetch(self, *positions: Position, **options: Any) -> dict[int, FetchResponsePartition]:
        return self.rows(await self.send(*positions, **options))

    def rows(self, answer: FetchResponse) -> dict[int, FetchResponsePartition]:
        assert not answer.error_code
        self.session_id = answer.session_id
        return {row.partition_index: row for topic in answer.responses for row in topic.partitions}

    def follower(self, index: int = 0) -> FollowerState:
        leader = self.leader.partition(index).leader
        assert leader is not None
        return leader.followers[FOLLOWER]

    @property
    def sessions(self) -> set[FollowerSession]:
        waits = [wait for index in range(3) for wait in self.leader.partition(index).follower_waits]
        return {wait._session for wait in waits}  # type: ignore[attr-defined]


@pytest.fixture
def bench() -> Bench:
    return Bench()


def offsets(row: FetchResponsePartition) -> list[int]:
    return [batch.header.base_offset for batch in batches_of(row)]


def test_it_is_given_what_is_not_committed(bench: Bench) -> None:
    async def drive() -> None:
        bench.leader.append(0, [b"a", b"b"])
        bench.leader.append(0, [b"c"])
        found = await bench.fetch(Position(0), Position(1))
        assert offsets(found[0]) == [0, 2] and found[0].high_watermark == 0
        assert found[1].records == b"" and found[1].high_watermark == 0
        assert bench.follower().end_offset == 0 and bench.follower().broker_epoch == 5

    bench.run(drive)


def test_what_was_sent_is_not_sent_again_before_it_is_named_again(bench: Bench) -> None:
    async def drive() -> None:
        bench.leader.append(0, [b"a"])
        await bench.fetch(Position(0), Position(1))
        bench.leader.append(0, [b"b"])
        assert await bench.fetch() == {}
        assert offsets((await bench.fetch(Position(0)))[0]) == [0, 1]
        assert offsets((await bench.fetch(Position(0, 1, last_epoch=1)))[0]) == [1]

    bench.run(drive)


def test_a_high_watermark_and_a_log_start_are_told_once(bench: Bench) -> None:
    async def drive() -> None:
        bench.replicas.decide(0, LEADER, isr=(LEADER,))
        await bench.leader.learn()
        bench.leader.append(0, [b"a"])
        assert (await bench.fetch(Position(0, 1, epoch=2, last_epoch=2)))[0].high_watermark == 1
        assert await bench.fetch() == {}
        bench.leader.partition(0).log.advance_start_offset(1)
        bench.leader.partition(0).log_start_moved()
        assert (await bench.fetch())[0].log_start_offset == 1
        assert await bench.fetch() == {}

    bench.run(drive)


def test_who_is_named_again_is_told_again(bench: Bench) -> None:
    """It may have been busy, and not have listened."""

    async def drive() -> None:
        assert (await bench.fetch(Position(0)))[0].high_watermark == 0
        assert (await bench.fetch(Position(0)))[0].high_watermark == 0

    bench.run(drive)


def test_it_waits_for_its_bytes_and_is_woken_by_them(bench: Bench) -> None:
    async def drive() -> None:
        await bench.fetch(Position(0), Position(1))
        waiting = bench.send(wait_ms=10_000, min_bytes=200)
        await asyncio.sleep(1)
        bench.leader.append(1, [b"x" * 50])
        await asyncio.sleep(1)
        assert not waiting.done()
        bench.leader.append(0, [b"x" * 50])
        assert set(bench.rows(await waiting)) == {0, 1}
        assert bench.simulation.loop.time() < 3

    bench.run(drive)


def test_the_time_it_gave_is_up(bench: Bench) -> None:
    async def drive() -> None:
        await bench.fetch(Position(0))
        before_s = bench.simulation.loop.time()
        assert await bench.fetch(wait_ms=700) == {}
        assert bench.simulation.loop.time() - before_s == pytest.approx(0.7, abs=0.01)

    bench.run(drive)


def test_the_next_request_ends_the_wait_of_the_one_before(bench: Bench) -> None:
    async def drive() -> None:
        await bench.fetch(Position(0), Position(1))
        first = bench.send(wait_ms=10_000)
        second = bench.send(Position(0, 0), wait_ms=10_000)
        assert bench.rows(await first) == {}
        bench.leader.append(0, [b"a"])
        assert offsets(bench.rows(await second)[0]) == [0]

    bench.run(drive)


@pytest.mark.parametrize(
    ("changes", "position", "error"),
    [
        ({"replica_id": STRANGER}, Position(0), Error.UNKNOWN_LEADER_EPOCH),
        ({"replica_id": LEADER}, Position(0), Error.UNKNOWN_LEADER_EPOCH),
        ({}, Position(0, epoch=0), Error.FENCED_LEADER_EPOCH),
        ({}, Position(0, epoch=2), Error.UNKNOWN_LEADER_EPOCH),
        ({}, Position(0, epoch=-1), Error.NOT_LEADER_OR_FOLLOWER),
        ({}, Position(7), Error.UNKNOWN_TOPIC_OR_PARTITION),
        ({"topic_id": UUID(int=5)}, Position(0), Error.UNKNOWN_TOPIC_ID),
        ({}, Position(0, 3), Error.OFFSET_OUT_OF_RANGE),
        ({}, Position(0, -1), Error.OFFSET_OUT_OF_RANGE),
    ],
)
def test_who_may_not_is_told_at_once_and_gets_no_session(
    bench: Bench, changes: dict[str, Any], position: Position, error: Error
) -> None:
    async def drive() -> None:
        bench.leader.append(0, [b"a"])
        answer = await bench.client.call(Ask([position], wait_ms=10_000, **changes).request())
        ((row,),) = [topic.partitions for topic in answer.responses]
        assert row.error_code == error and not row.records and answer.session_id == 0
        assert not bench.sessions and bench.follower().fetched_ms is None

    bench.run(drive)


def test_a_former_life_of_the_follower_is_refused(bench: Bench) -> None:
    async def drive() -> None:
        await bench.fetch(Position(0))
        late = await bench.client.call(Ask([Position(0)], broker_epoch=4).request())
        assert late.responses[0].partitions[0].error_code == Error.NOT_LEADER_OR_FOLLOWER
        assert bench.follower().broker_epoch == 5

    bench.run(drive)


def test_who_does_not_lead_refuses(bench: Bench) -> None:
    async def drive() -> None:
        await bench.fetch(Position(0), Position(1))
        waiting = bench.send(wait_ms=10_000)
        await asyncio.sleep(0.1)
        bench.replicas.decide(0, FOLLOWER)
        await bench.leader.learn()
        found = bench.rows(await waiting)
        assert [found[0].error_code, set(found)] == [Error.NOT_LEADER_OR_FOLLOWER, {0}]
        assert await bench.fetch() == {}, "told once"
        again = await bench.fetch(Position(0, epoch=2))
        assert again[0].error_code == Error.NOT_LEADER_OR_FOLLOWER

    bench.run(drive)


def test_who_is_no_replica_any_more_is_told_so(bench: Bench) -> None:
    async def drive() -> None:
        await bench.fetch(Position(0))
        state = bench.replicas.states[0]
        bench.replicas.decide(0, LEADER, replicas=(LEADER, 3), isr=(LEADER, 3))
        bench.replicas.states[0] = type(state)(  # without a new leader epoch
            (LEADER, 3), (LEADER, 3), LEADER, state.leader_epoch, state.partition_epoch + 1
        )
        await bench.leader.learn()
        bench.leader.append(0, [b"a"])
        assert (await bench.fetch())[0].error_code == Error.UNKNOWN_LEADER_EPOCH
        assert not bench.sessions

    bench.run(drive)


def test_where_the_logs_part_is_told_and_nothing_counted(bench: Bench) -> None:
    async def drive() -> None:
        bench.leader.append(0, [b"a", b"b"])
        bench.replicas.decide(0, LEADER)
        bench.replicas.decide(0, LEADER)
        await bench.leader.learn()
        found = await bench.fetch(Position(0, 4, epoch=3, last_epoch=2), Position(1), wait_ms=10_000)
        diverging = found[0].diverging_epoch
        assert (diverging.epoch, diverging.end_offset) == (1, 2) and not found[0].records
        assert bench.follower().fetched_ms is None
        found = await bench.fetch(Position(0, 3, epoch=3, last_epoch=1))
        assert found[0].diverging_epoch.end_offset == 2
        await bench.fetch(Position(0, 2, epoch=3, last_epoch=1))
        assert bench.follower().end_offset == 2

    bench.run(drive)


def test_positions_move_the_high_watermark(bench: Bench) -> None:
    async def drive() -> None:
        bench.replicas.decide(0, LEADER, isr=(LEADER, FOLLOWER))
        await bench.leader.learn()
        bench.leader.append(0, [b"a", b"b"])
        await bench.fetch(Position(0, epoch=2))
        assert bench.leader.partition(0).high_watermark == 0
        found = await bench.fetch(Position(0, 2, epoch=2, last_epoch=2))
        assert bench.leader.partition(0).high_watermark == 2 and found[0].high_watermark == 2

    bench.run(drive)


def test_sessions_that_are_not_known_or_out_of_step(bench: Bench) -> None:
    async def drive() -> None:
        await bench.fetch(Position(0))
        known = bench.session_id
        for ask, error in [
            (Ask(session_id=known + 1, session_epoch=1), Error.FETCH_SESSION_ID_NOT_FOUND),
            (Ask(session_id=known, session_epoch=1, broker_epoch=6), Error.FETCH_SESSION_ID_NOT_FOUND),
            (Ask(session_id=known, session_epoch=1, replica_id=3), Error.FETCH_SESSION_ID_NOT_FOUND),
            (Ask(session_id=known, session_epoch=3), Error.INVALID_FETCH_SESSION_EPOCH),
        ]:
            assert (await bench.client.call(ask.request())).error_code == error
        assert await bench.fetch() == {}

    bench.run(drive)


def test_a_new_session_takes_the_place_of_the_old_one(bench: Bench) -> None:
    async def drive() -> None:
        await bench.fetch(Position(0), Position(1))
        waiting, old = bench.send(wait_ms=10_000), bench.session_id
        other = await bench.connect()
        answer = await other.call(Ask([Position(0)]).request())
        assert answer.session_id not in (0, old)
        assert (await waiting).session_id == 0
        assert len(bench.sessions) == 1 and len(bench.leader.partition(1).follower_waits) == 0

    bench.run(drive)


def test_a_connection_that_ends_takes_its_session_with_it(bench: Bench) -> None:
    async def drive() -> None:
        await bench.fetch(Position(0), Position(1))
        waiting = bench.send(wait_ms=10_000)
        await asyncio.sleep(0.1)
        assert len(bench.sessions) == 1
        bench.client.close()
        await asyncio.sleep(0.1)
        assert not bench.sessions
        bench.leader.append(0, [b"a"])
        waiting.cancel()

    bench.run(drive)


def test_partitions_are_forgotten(bench: Bench) -> None:
    async def drive() -> None:
        await bench.fetch(Position(0), Position(1))
        await bench.fetch(forgotten=[0, 2])
        bench.leader.append(0, [b"a"])
        bench.leader.append(1, [b"b"])
        assert set(await bench.fetch()) == {1}
        await bench.fetch(forgotten=[1])
        assert await bench.fetch(Position(0)) != {}, "an empty session goes on"

    bench.run(drive)


@pytest.mark.parametrize("version", [4, 9, 12, 14, 15, 18])
def test_every_version_without_a_session(bench: Bench, version: int) -> None:
    async def drive() -> None:
        bench.leader.append(0, [b"a"])
        epoch = 1 if version >= 9 else -1
        ask = Ask([Position(0, epoch=epoch)], version=version, session_epoch=-1)
        (topic,) = (await bench.client.call(ask.request(), version)).responses
        if version < 9:
            assert topic.partitions[0].error_code == Error.NOT_LEADER_OR_FOLLOWER, "replicas know the epoch"
        else:
            assert offsets(topic.partitions[0]) == [0]
        assert not bench.sessions

    bench.run(drive)


def test_a_cold_range_holds_up_nobody_else(bench: Bench) -> None:
    async def drive() -> None:
        bench.leader.append(0, [b"x" * 5000])
        partition = bench.leader.partition(0)
        disk = bench.leader.machine.disk
        disk.evict(partition.log.segments[0].log_path)
        disk.slow_when(lambda operation: operation.kind == "read", 0.5)
        bench.leader.append(1, [b"a"])
        found = await bench.fetch(Position(0), Position(1), wait_ms=10_000)
        assert offsets(found[1]) == [0] and not found[0].records
        assert bench.simulation.loop.time() < 0.4
        assert offsets((await bench.fetch(wait_ms=10_000))[0]) == [0]

    bench.run(drive)


def test_a_bad_range_is_not_replicated(bench: Bench) -> None:
    async def drive() -> None:
        bench.leader.append(0, [b"x" * 500])
        bench.leader.append(1, [b"y"])
        path = bench.leader.partition(0).log.segments[0].log_path
        partition = bench.leader.partition(0)
        assert bench.leader.process is not None and bench.leader.partitions is not None
        await bench.leader.process.start(bench.leader.partitions.close())
        await bench.leader.start()
        bench.leader.machine.disk.corrupt(path, 200)
        bench.replicas.decide(0, LEADER)
        await bench.leader.learn()
        bench.client = await bench.connect()
        answer = await bench.fetch(Position(0, epoch=2), wait_ms=10_000)
        while 0 not in answer or not answer[0].error_code:
            answer = await bench.fetch(wait_ms=10_000)
        assert answer[0].error_code == Error.KAFKA_STORAGE_ERROR and not answer[0].records
        assert partition is not bench.leader.partition(0)

    bench.run(drive)


def test_offsets_as_a_follower_is_told_them(bench: Bench) -> None:
    async def drive() -> None:
        bench.leader.append(0, [b"a", b"b"])
        bench.leader.partition(0).log.advance_start_offset(1)

        async def offset(timestamp: int, **who: Any) -> int:
            part = ListOffsetsRequestPartition(partition_index=0, current_leader_epoch=1, timestamp=timestamp)
            request = ListOffsetsRequest(topics=[ListOffsetsRequestTopic(name=TOPIC, partitions=[part])], **who)
            found: int = (await bench.client.call(request)).topics[0].partitions[0].offset
            return found

        assert await offset(LATEST, replica_id=FOLLOWER) == 2
        assert await offset(EARLIEST, replica_id=FOLLOWER) == 1
        assert await offset(LATEST, replica_id=-1) == 0

    bench.run(drive)
