"""Produce in transactions, in the simulator, with a coordinator that says what the test wants."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest

from penstock.base.errors import Error
from penstock.base.identifiers import TopicPartition
from penstock.base.steps import ProducerEpoch
from penstock.broker._produce_again import ProduceAgain
from penstock.broker.broker import Broker
from penstock.broker.connection import Connection
from penstock.broker.partition import Partition
from penstock.testing.sim_broker import PORT, SimBroker
from penstock.testing.sim_client import SimClient, batch_of, batches_of
from penstock.testing.sim_world import Simulation
from penstock.wire.messages.k00_produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponsePartition,
)

VERIFIES, ADDS = 11, 12
NOW_MS = 1_700_000_000_000


class Coordinator:
    """Answers as it is told, and counts the questions."""

    def __init__(self) -> None:
        self.asked: list[tuple[ProducerEpoch, list[int], bool]] = []
        self.errors: list[Error] = []  # of the next answers; then all is well
        self.meanwhile: Callable[[], Awaitable[None]] | None = None  # done while the question is open

    async def add_or_verify(
        self,
        broker: Broker,
        transactional_id: str,
        producer: ProducerEpoch,
        partitions: Sequence[TopicPartition],
        *,
        is_add: bool,
    ) -> Mapping[TopicPartition, Error]:
        self.asked.append((producer, [name.partition for name in partitions], is_add))
        await asyncio.sleep(0.001)
        if self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            await meanwhile()
        error = self.errors.pop(0) if self.errors else Error.NONE
        return dict.fromkeys(partitions, error)


class Bench:
    """A broker with one topic, and clients."""

    def __init__(self, coordinator: Coordinator) -> None:
        self.coordinator = coordinator
        self.simulation = Simulation(9, limit_s=10_000)
        self.broker: SimBroker
        self.client: SimClient
        self._world = self.simulation.machine("client").process("client").world

    def run(
        self,
        drive: Callable[[], Awaitable[None]],
        settings: dict[str, str] | None = None,
        configs: dict[str, str] | None = None,
    ) -> None:
        async def main() -> None:
            self.broker = SimBroker(self.simulation.machine("broker"), settings)
            await self.broker.start()
            self.client = await self.connect()
            await self.client.create_topic("t", 2, configs)
            await drive()

        self.simulation.run(main())

    async def connect(self) -> SimClient:
        return await SimClient.connect(self._world, "broker", PORT)

    def partition(self, index: int = 0) -> Partition:
        assert self.broker.running is not None
        return self.broker.running.broker.partitions.find("t", index)

    def end(self, producer: int = 1, epoch: int = 0, index: int = 0) -> None:
        self.partition(index).append_marker(
            ProducerEpoch(producer, epoch), is_commit=False, coordinator_epoch=0, transaction_version=1, now_ms=NOW_MS
        )

    def send(
        self,
        version: int,
        *batches: tuple[int, bytes],
        client: SimClient | None = None,
        transactional_id: str | None = "id",
    ) -> asyncio.Future[Any]:
        row = ProduceRequestTopic(name="t", partition_data=[_part(*batch) for batch in batches])
        request = ProduceRequest(transactional_id=transactional_id, acks=-1, timeout_ms=1000, topic_data=[row])
        return (client or self.client).send(request, version)

    async def produce(self, version: int, *batches: tuple[int, bytes], **options: Any) -> list[tuple[Error, int]]:
        return told(await self.send(version, *batches, **options))

    async def values(self, index: int = 0) -> int:
        """How many batches the partition has, markers included."""
        return len(batches_of(await self.client.fetch("t", index, 0)))


def _part(index: int, records: bytes) -> ProduceRequestPartition:
    return ProduceRequestPartition(index=index, records=records)


def told(answer: Any) -> list[tuple[Error, int]]:
    parts: list[ProduceResponsePartition] = answer.responses[0].partition_responses
    return [(Error(part.error_code), part.base_offset) for part in parts]


def batch(sequence: int, count: int = 1, *, producer: int = 1, epoch: int = 0, **options: Any) -> bytes:
    values = [b"v%d" % (sequence + n) for n in range(count)]
    options = {"transactional": True} | options
    return batch_of(values, producer_id=producer, producer_epoch=epoch, base_sequence=sequence, **options)


@pytest.fixture
def coordinator(monkeypatch: pytest.MonkeyPatch) -> Coordinator:
    made = Coordinator()
    monkeypatch.setattr("penstock.broker.transactional_produce.add_or_verify", made.add_or_verify)
    return made


@pytest.fixture
def bench(coordinator: Coordinator) -> Iterator[Bench]:
    made = Bench(coordinator)
    yield made
    made.simulation.close()


@pytest.mark.parametrize("version", [3, VERIFIES, ADDS])
def test_the_coordinator_is_asked_before_the_first_batch_of_a_transaction(bench: Bench, version: int) -> None:
    async def drive() -> None:
        for sequence in range(3):
            assert await bench.produce(version, (0, batch(sequence))) == [(Error.NONE, sequence)]
        assert bench.coordinator.asked == [((1, 0), [0], version >= ADDS)]
        assert await bench.produce(version, (0, batch(3)), (1, batch(0))) == [(Error.NONE, 3), (Error.NONE, 0)]
        assert bench.coordinator.asked[1:] == [((1, 0), [1], version >= ADDS)]
        bench.end()
        assert await bench.produce(version, (0, batch(4)), (1, batch(1))) == [(Error.NONE, 5), (Error.NONE, 1)]
        assert bench.coordinator.asked[2:] == [((1, 0), [0], version >= ADDS)]
        assert len(bench.partition().verifications) == 0

    bench.run(drive)


def test_verification_can_be_turned_off_for_clients_that_add_partitions_themselves(bench: Bench) -> None:
    async def drive() -> None:
        assert await bench.produce(VERIFIES, (0, batch(0))) == [(Error.NONE, 0)]
        assert bench.coordinator.asked == []
        assert await bench.produce(ADDS, (1, batch(0))) == [(Error.NONE, 0)]
        assert len(bench.coordinator.asked) == 1

    bench.run(drive, {"transaction.partition.verification.enable": "false"})


def test_later_batches_wait_behind_the_question(bench: Bench) -> None:
    async def drive() -> None:
        sent = [bench.send(VERIFIES, (0, batch(sequence))) for sequence in range(5)]
        answers = [told(await each) for each in sent]
        assert answers == [[(Error.NONE, offset)] for offset in range(5)]
        assert len(bench.coordinator.asked) == 1

    bench.run(drive)


def test_batches_of_an_open_transaction_go_the_fast_way(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[bool] = []
    remember = Connection.remember

    def remember_counted(self: Connection, head_end: int, head: bytes, again: ProduceAgain) -> None:
        def counted(frame: memoryview) -> bytes | None:
            answer = again(frame)
            taken.append(answer is not None)
            return answer

        remember(self, head_end, head, counted)

    monkeypatch.setattr(Connection, "remember", remember_counted)

    async def drive() -> None:
        for sequence in range(5):
            assert await bench.produce(ADDS, (0, batch(sequence))) == [(Error.NONE, sequence)]
        assert taken == [True] * 3  # the first waited, the second left its head
        bench.end()
        assert await bench.produce(ADDS, (0, batch(5))) == [(Error.NONE, 6)]
        assert taken == [True] * 3 + [False]
        assert len(bench.coordinator.asked) == 2
        plain = batch(6, transactional=False)
        assert await bench.produce(ADDS, (0, plain)) == [(Error.INVALID_TXN_STATE, -1)]

    bench.run(drive)


def test_a_marker_between_question_and_append_makes_the_batch_late(bench: Bench) -> None:
    async def drive() -> None:
        async def end() -> None:
            bench.end()

        bench.coordinator.meanwhile = end
        assert await bench.produce(VERIFIES, (0, batch(0))) == [(Error.INVALID_TXN_STATE, -1)]
        assert await bench.values() == 1
        assert bench.partition().last_stable_offset == 1
        assert await bench.produce(VERIFIES, (0, batch(0))) == [(Error.NONE, 1)]

    bench.run(drive)


def test_a_marker_of_a_newer_epoch_fences_the_batch(bench: Bench) -> None:
    async def drive() -> None:
        async def end() -> None:
            bench.end(epoch=1)

        bench.coordinator.meanwhile = end
        assert await bench.produce(ADDS, (0, batch(0))) == [(Error.INVALID_PRODUCER_EPOCH, -1)]
        assert await bench.produce(ADDS, (0, batch(0))) == [(Error.INVALID_PRODUCER_EPOCH, -1)]
        assert len(bench.coordinator.asked) == 1
        assert await bench.produce(ADDS, (0, batch(0, epoch=1))) == [(Error.NONE, 1)]

    bench.run(drive)


def test_the_next_transaction_does_not_lend_its_verification_to_a_late_batch(bench: Bench) -> None:
    """The answer for the old transaction comes when the new one has been verified, and not yet written."""

    async def drive() -> None:
        other = await bench.connect()
        is_next_asked, may_go_on = asyncio.Event(), asyncio.Event()

        async def next_begins() -> None:
            bench.end()

            async def wait() -> None:
                is_next_asked.set()
                await may_go_on.wait()

            bench.coordinator.meanwhile = wait
            later.append(bench.send(VERIFIES, (0, batch(0)), client=other))
            await is_next_asked.wait()

        later: list[asyncio.Future[Any]] = []
        bench.coordinator.meanwhile = next_begins
        assert await bench.produce(VERIFIES, (0, batch(0))) == [(Error.INVALID_TXN_STATE, -1)]
        may_go_on.set()
        assert told(await later[0]) == [(Error.NONE, 1)]

    bench.run(drive)


@pytest.mark.parametrize(
    ("version", "error", "heard"),
    [
        (VERIFIES, Error.INVALID_PRODUCER_EPOCH, Error.INVALID_PRODUCER_EPOCH),
        (10, Error.TRANSACTION_ABORTABLE, Error.INVALID_TXN_STATE),
        (VERIFIES, Error.TRANSACTION_ABORTABLE, Error.TRANSACTION_ABORTABLE),
        (ADDS, Error.TRANSACTION_ABORTABLE, Error.TRANSACTION_ABORTABLE),
        (VERIFIES, Error.CONCURRENT_TRANSACTIONS, Error.NOT_ENOUGH_REPLICAS),
        (VERIFIES, Error.NOT_COORDINATOR, Error.NOT_ENOUGH_REPLICAS),
        (ADDS, Error.COORDINATOR_LOAD_IN_PROGRESS, Error.NOT_ENOUGH_REPLICAS),
        (ADDS, Error.COORDINATOR_NOT_AVAILABLE, Error.NOT_ENOUGH_REPLICAS),
        (ADDS, Error.NETWORK_EXCEPTION, Error.NOT_ENOUGH_REPLICAS),
        (ADDS, Error.INVALID_PRODUCER_ID_MAPPING, Error.INVALID_PRODUCER_ID_MAPPING),
        (VERIFIES, Error.INVALID_TXN_STATE, Error.INVALID_TXN_STATE),
    ],
)
def test_what_the_coordinator_says_is_told_as_the_client_understands_it(
    bench: Bench, version: int, error: Error, heard: Error
) -> None:
    async def drive() -> None:
        bench.coordinator.errors = [error]
        assert await bench.produce(version, (0, batch(0))) == [(heard, -1)]
        assert await bench.values() == 0
        assert await bench.produce(version, (0, batch(0))) == [(Error.NONE, 0)]

    bench.run(drive)


def test_while_the_transaction_before_is_being_finished_newer_clients_wait_a_moment(bench: Bench) -> None:
    async def drive() -> None:
        assert await bench.produce(ADDS, (0, batch(0))) == [(Error.NONE, 0)]

        async def finish() -> None:
            bench.end(epoch=1)

        bench.coordinator.meanwhile = finish
        bench.coordinator.errors = [Error.CONCURRENT_TRANSACTIONS] * 2
        assert await bench.produce(ADDS, (0, batch(0, epoch=1))) == [(Error.NONE, 2)]
        assert len(bench.coordinator.asked) == 4
        bench.end(epoch=2)
        bench.coordinator.errors = [Error.CONCURRENT_TRANSACTIONS] * 100
        assert await bench.produce(ADDS, (0, batch(0, epoch=2))) == [(Error.CONCURRENT_TRANSACTIONS, -1)]
        assert 4 < len(bench.coordinator.asked) < 12

    bench.run(drive)


def test_a_batch_that_has_to_be_sent_again_goes_before_later_ones(bench: Bench) -> None:
    async def drive() -> None:
        bench.coordinator.errors = [Error.NOT_COORDINATOR]
        assert await bench.produce(VERIFIES, (0, batch(4))) == [(Error.NOT_ENOUGH_REPLICAS, -1)]
        assert await bench.produce(VERIFIES, (0, batch(5))) == [(Error.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)]
        assert await bench.produce(VERIFIES, (0, batch(4))) == [(Error.NONE, 0)]
        assert await bench.produce(VERIFIES, (0, batch(5))) == [(Error.NONE, 1)]

    bench.run(drive)


def test_a_newer_epoch_forgets_what_waited_in_the_older_one(bench: Bench) -> None:
    async def drive() -> None:
        bench.coordinator.errors = [Error.NOT_COORDINATOR]
        assert await bench.produce(VERIFIES, (0, batch(0))) == [(Error.NOT_ENOUGH_REPLICAS, -1)]
        assert await bench.produce(VERIFIES, (0, batch(7, epoch=1))) == [(Error.NONE, 0)]

    bench.run(drive)


def test_a_replaced_producer_does_not_take_the_question_of_the_new_one_away(bench: Bench) -> None:
    """Both are asked for at the same time, and the answer for the old one comes first."""

    async def drive() -> None:
        other = await bench.connect()
        is_new_asked, may_go_on = asyncio.Event(), asyncio.Event()

        async def new_one_begins() -> None:
            async def wait() -> None:
                is_new_asked.set()
                await may_go_on.wait()

            bench.coordinator.meanwhile = wait
            bench.coordinator.errors = [Error.INVALID_PRODUCER_EPOCH]
            later.append(bench.send(ADDS, (0, batch(0, epoch=1)), client=other))
            await is_new_asked.wait()

        later: list[asyncio.Future[Any]] = []
        bench.coordinator.meanwhile = new_one_begins
        assert await bench.produce(ADDS, (0, batch(0))) == [(Error.INVALID_PRODUCER_EPOCH, -1)]
        may_go_on.set()
        assert told(await later[0]) == [(Error.NONE, 0)]

    bench.run(drive)


def test_a_producer_of_the_second_protocol_begins_with_sequence_zero(bench: Bench) -> None:
    async def drive() -> None:
        assert await bench.produce(ADDS, (0, batch(3))) == [(Error.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)]
        assert await bench.produce(ADDS, (0, batch(0))) == [(Error.NONE, 0)]
        assert await bench.produce(VERIFIES, (1, batch(3))) == [(Error.NONE, 0)]

    bench.run(drive)


def test_a_retry_gets_its_old_offset(bench: Bench) -> None:
    async def drive() -> None:
        for _ in range(2):
            assert await bench.produce(ADDS, (0, batch(0, 3))) == [(Error.NONE, 0)]
        assert await bench.values() == 1

    bench.run(drive)


def test_a_request_has_one_producer(bench: Bench) -> None:
    async def drive() -> None:
        refused = [(Error.INVALID_PRODUCER_ID_MAPPING, -1)] * 2
        assert await bench.produce(ADDS, (0, batch(0)), (1, batch(0, producer=2))) == refused
        assert await bench.produce(ADDS, (0, batch(0)), (1, batch(0, epoch=1))) == refused
        assert bench.coordinator.asked == []

    bench.run(drive)


def test_without_its_transactional_id_nothing_of_a_request_is_taken(bench: Bench) -> None:
    async def drive() -> None:
        refused = [(Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, -1)] * 2
        plain = batch_of([b"plain"])
        assert await bench.produce(ADDS, (0, plain), (1, batch(0)), transactional_id=None) == refused
        for _ in range(3):
            assert await bench.produce(ADDS, (0, plain), transactional_id=None) != refused[:1]
        assert await bench.produce(ADDS, (0, batch(0)), transactional_id=None) == refused[:1]

    bench.run(drive)


def test_a_flood_of_producers_is_forgotten(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.broker.verification.VERIFICATIONS_MAX", 10)

    async def drive() -> None:
        for error, left in ((Error.NOT_COORDINATOR, 10), (Error.INVALID_PRODUCER_ID_MAPPING, 0)):
            for producer in range(30):
                bench.coordinator.errors = [error]
                await bench.produce(ADDS, (0, batch(0, producer=producer)))
            assert len(bench.partition().verifications) == left
        assert await bench.produce(ADDS, (0, batch(0, producer=77))) == [(Error.NONE, 0)]

    bench.run(drive)


def test_ordinary_batches_with_a_transactional_id_are_ordinary(bench: Bench) -> None:
    async def drive() -> None:
        idempotent = batch(0, transactional=False)
        assert await bench.produce(ADDS, (0, idempotent), (1, batch_of([b"a"]))) == [(Error.NONE, 0), (Error.NONE, 0)]
        assert bench.coordinator.asked == []
        assert bench.partition().last_stable_offset == 1

    bench.run(drive)


def test_each_partition_has_its_own_answer(bench: Bench) -> None:
    async def drive() -> None:
        bad = batch(0)[:-1] + b"?"
        answers = await bench.produce(ADDS, (0, bad), (1, batch(0)), (7, batch(0)))
        assert answers == [(Error.CORRUPT_MESSAGE, -1), (Error.NONE, 0), (Error.UNKNOWN_TOPIC_OR_PARTITION, -1)]
        control = await bench.produce(ADDS, (0, batch(0, control=True)))
        assert control == [(Error.INVALID_RECORD, -1)]

    bench.run(drive)


def test_the_inside_is_looked_at_after_the_coordinator_has_answered(bench: Bench) -> None:
    async def drive() -> None:
        for sequence in range(3):
            assert await bench.produce(ADDS, (0, batch(sequence))) == [(Error.NONE, sequence)]
        (stored, *_) = batches_of(await bench.client.fetch("t", 0, 0))
        assert stored.header.is_transactional and stored.header.compression == 1
        assert bench.partition().last_stable_offset == 0

    bench.run(drive, configs={"compression.type": "gzip"})


def test_it_waits_for_the_sync_too(bench: Bench) -> None:
    async def drive() -> None:
        sent = [bench.send(ADDS, (index, batch(sequence))) for sequence in range(4) for index in (0, 1)]
        assert [told(await each)[0] for each in sent] == [(Error.NONE, n // 2) for n in range(8)]
        assert len(bench.coordinator.asked) == 2

    bench.run(drive, configs={"flush.mode": "always"})


def test_a_client_that_goes_while_the_coordinator_is_asked(bench: Bench) -> None:
    async def drive() -> None:
        other = await bench.connect()

        async def go() -> None:
            other.close()
            await asyncio.sleep(1)

        bench.coordinator.meanwhile = go
        bench.send(ADDS, (0, batch(0)), client=other).add_done_callback(lambda done: done.exception())
        await asyncio.sleep(2)
        assert await bench.produce(ADDS, (0, batch(0, producer=2))) == [(Error.NONE, 1)]

    bench.run(drive)


def test_a_failing_question_closes_the_connection(bench: Bench) -> None:
    async def drive() -> None:
        async def fail() -> None:
            raise RuntimeError("a bug")

        bench.coordinator.meanwhile = fail
        with pytest.raises(ConnectionError):
            await bench.send(ADDS, (0, batch(0)))

    bench.run(drive)


def test_nobody_but_the_broker_writes_to_internal_topics(bench: Bench) -> None:
    async def drive() -> None:
        assert bench.broker.running is not None
        await bench.broker.running.broker.topics.create_internal("__consumer_offsets")
        for version in (VERIFIES, ADDS):
            for transactional_id in (None, "id"):
                row = ProduceRequestTopic(name="__consumer_offsets", partition_data=[_part(0, batch_of([b"x"]))])
                request = ProduceRequest(transactional_id=transactional_id, acks=-1, timeout_ms=1000, topic_data=[row])
                for _ in range(2):
                    answer = await bench.client.call(request, version)
                    assert told(answer) == [(Error.INVALID_TOPIC_EXCEPTION, -1)]

    bench.run(drive)
