"""Requests that wait, in the simulator: who wakes them, what they are told, and that nothing of them is left."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest

from penstock.base.errors import Error
from penstock.broker.partition import Partition
from penstock.testing.sim_broker import PORT, SimBroker
from penstock.testing.sim_client import SimClient, batch_of, batches_of, produce_request
from penstock.testing.sim_world import Simulation
from penstock.wire.messages.k00_produce import ProduceRequest, ProduceRequestPartition, ProduceRequestTopic
from penstock.wire.messages.k01_fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic, FetchResponse
from penstock.wire.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicsRequestTopic
from penstock.wire.messages.k21_delete_records import (
    DeleteRecordsRequest,
    DeleteRecordsRequestPartition,
    DeleteRecordsRequestTopic,
)

ALWAYS = {"flush.mode": "always"}


class Bench:
    """A broker and its clients on one simulated network."""

    def __init__(self) -> None:
        self.simulation = Simulation(3, limit_s=10_000)
        self.machine = self.simulation.machine("broker")
        self.broker = SimBroker(self.machine)
        self.world = self.simulation.machine("client").process("client").world

    async def connect(self) -> SimClient:
        return await SimClient.connect(self.world, "broker", PORT)

    @property
    def now(self) -> float:
        return self.simulation.loop.time()

    def partition(self, topic: str, index: int = 0) -> Partition:
        assert self.broker.running is not None
        return self.broker.running.broker.partitions.find(topic, index)

    def run(self, drive: Callable[[], Awaitable[None]]) -> None:
        async def main() -> None:
            await self.broker.start()
            await drive()

        self.simulation.run(main())


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.simulation.close()


def fetch_request(topic: str, offsets: dict[int, int], **options: int) -> FetchRequest:
    parts = [
        FetchRequestPartition(partition=index, fetch_offset=offset, partition_max_bytes=1 << 20)
        for index, offset in offsets.items()
    ]
    request = FetchRequest(max_wait_ms=60_000, min_bytes=1, topics=[FetchRequestTopic(topic=topic, partitions=parts)])
    for name, value in options.items():
        setattr(request, name, value)
    return request


def test_a_fetch_waits_for_its_bytes_together_over_several_appends(bench: Bench) -> None:
    async def drive() -> None:
        reader, writer = await bench.connect(), await bench.connect()
        await writer.create_topic("t", 2)
        size = len(batch_of([bytes(100)]))
        waiting = asyncio.ensure_future(reader.call(fetch_request("t", {0: 0, 1: 0}, min_bytes=3 * size), 12))
        for number in range(2):
            await writer.produce("t", number, batch_of([bytes(100)]))
            await asyncio.sleep(1)
            assert not waiting.done()
        await writer.produce("t", 0, batch_of([bytes(100)]))
        answer: FetchResponse = await waiting
        found = {part.partition_index: len(batches_of(part)) for part in answer.responses[0].partitions}
        assert found == {0: 2, 1: 1}
        assert not bench.partition("t").fetch_waits and not bench.partition("t", 1).fetch_waits

    bench.run(drive)


def test_what_is_there_already_counts(bench: Bench) -> None:
    async def drive() -> None:
        reader, writer = await bench.connect(), await bench.connect()
        await writer.create_topic("t")
        batch = batch_of([bytes(100)])
        await writer.produce("t", 0, batch)
        waiting = asyncio.ensure_future(reader.call(fetch_request("t", {0: 0}, min_bytes=len(batch) + 1), 12))
        await asyncio.sleep(1)
        assert not waiting.done()
        await writer.produce("t", 0, batch)
        assert len(batches_of((await waiting).responses[0].partitions[0])) == 2

    bench.run(drive)


def test_a_reader_that_goes_is_forgotten(bench: Bench) -> None:
    async def drive() -> None:
        reader, writer = await bench.connect(), await bench.connect()
        await writer.create_topic("t")
        for _ in range(5):
            reader.send(fetch_request("t", {0: 0}), 12).add_done_callback(lambda done: done.exception())
        await asyncio.sleep(1)
        assert len(bench.partition("t").fetch_waits) == 5
        reader.close()
        await asyncio.sleep(1)
        assert not bench.partition("t").fetch_waits
        assert (await writer.produce("t", 0, batch_of([b"x"]))).error_code == 0

    bench.run(drive)


def test_readers_of_one_connection_are_answered_in_order(bench: Bench) -> None:
    async def drive() -> None:
        reader, writer = await bench.connect(), await bench.connect()
        await writer.create_topic("slow")
        await writer.create_topic("fast")
        first = reader.send(fetch_request("slow", {0: 0}, max_wait_ms=5000), 12)
        second = reader.send(fetch_request("fast", {0: 0}), 12)
        await writer.produce("fast", 0, batch_of([b"x"]))
        await asyncio.sleep(1)
        assert not first.done() and not second.done()
        began = bench.now
        assert (await second).responses[0].partitions[0].records
        assert first.done() and bench.now - began < 5

    bench.run(drive)


def test_deleting_a_topic_wakes_its_readers_and_writers(bench: Bench) -> None:
    async def drive() -> None:
        reader, writer, admin = await bench.connect(), await bench.connect(), await bench.connect()
        await admin.create_topic("t", 1, ALWAYS)
        reading = reader.send(fetch_request("t", {0: 0}), 12)
        await asyncio.sleep(1)
        bench.machine.disk.slow_when(lambda operation: operation.kind == "sync" and "/t-0/" in operation.path, 5)
        writing = [writer.send(produce_request("t", 0, batch_of([b"%d" % number])), 11) for number in range(3)]
        await asyncio.sleep(0.5)
        deletion = DeleteTopicsRequest(topics=[DeleteTopicsRequestTopic(name="t")], timeout_ms=30_000)
        assert (await admin.call(deletion)).responses[0].error_code == 0
        answer = (await reading).responses[0].partitions[0]
        assert answer.error_code == Error.UNKNOWN_TOPIC_OR_PARTITION
        for each in writing:
            row = (await each).responses[0].partition_responses[0]
            assert Error(row.error_code).retriable, row

    bench.run(drive)


def test_deleting_records_wakes_a_reader(bench: Bench) -> None:
    async def drive() -> None:
        reader, writer = await bench.connect(), await bench.connect()
        await writer.create_topic("t")
        for _ in range(4):
            await writer.produce("t", 0, batch_of([b"x"]))
        waiting = reader.send(fetch_request("t", {0: 4}, session_epoch=0), 12)
        part = DeleteRecordsRequestPartition(partition_index=0, offset=3)
        row = DeleteRecordsRequestTopic(name="t", partitions=[part])
        answer = await writer.call(DeleteRecordsRequest(topics=[row], timeout_ms=1000))
        assert answer.topics[0].partitions[0].low_watermark == 3
        assert (await waiting).responses[0].partitions[0].log_start_offset == 3

    bench.run(drive)


def test_a_produce_that_is_not_synced_in_time_is_told_so_and_stored_all_the_same(bench: Bench) -> None:
    async def drive() -> None:
        client = await bench.connect()
        await client.create_topic("t", 1, ALWAYS)
        await client.produce("t", 0, batch_of([b"first"]))
        bench.machine.disk.slow_when(lambda operation: operation.kind == "sync", 3)
        began = bench.now
        answer = await client.produce("t", 0, batch_of([b"slow"]), timeout_ms=500)
        assert answer.error_code == Error.REQUEST_TIMED_OUT
        assert 0.5 <= bench.now - began < 1
        await asyncio.sleep(5)
        assert len(await client.read_all("t", 0)) == 2

    bench.run(drive)


def test_nothing_unsynced_is_shown_to_readers(bench: Bench) -> None:
    async def drive() -> None:
        reader, writer = await bench.connect(), await bench.connect()
        await writer.create_topic("t", 1, ALWAYS)
        await writer.produce("t", 0, batch_of([b"first"]))
        bench.machine.disk.slow_when(lambda operation: operation.kind == "sync", 3)
        writing = writer.send(produce_request("t", 0, batch_of([b"slow"])), 11)
        await asyncio.sleep(1)
        found = await reader.fetch("t", 0, 0)
        assert len(batches_of(found)) == 1 and found.high_watermark == 1
        assert await reader.list_offset("t", 0, -1) == 1
        await writing
        assert len(batches_of(await reader.fetch("t", 0, 0))) == 2

    bench.run(drive)


def test_one_request_to_many_partitions_waits_for_all_of_them(bench: Bench) -> None:
    async def drive() -> None:
        client = await bench.connect()
        await client.create_topic("always", 2, ALWAYS)
        await client.create_topic("os", 1)
        rows = [
            ProduceRequestTopic(
                name=name,
                partition_data=[
                    ProduceRequestPartition(index=index, records=batch_of([b"%d" % index])) for index in range(3)
                ],
            )
            for name in ("always", "os", "unknown")
        ]
        answer = await client.call(ProduceRequest(acks=-1, timeout_ms=5000, topic_data=rows), 11)
        codes = [[Error(part.error_code) for part in topic.partition_responses] for topic in answer.responses]
        unknown = Error.UNKNOWN_TOPIC_OR_PARTITION
        assert codes == [[Error.NONE, Error.NONE, unknown], [Error.NONE, unknown, unknown], [unknown] * 3]
        assert bench.partition("always").log.recovery_point == 1

    bench.run(drive)


def test_acks_of_none_is_not_answered_and_errors_close(bench: Bench) -> None:
    async def drive() -> None:
        client = await bench.connect()
        await client.create_topic("t")
        client.send_unanswered(produce_request("t", 0, batch_of([b"x"]), acks=0), 11)
        assert len(await client.read_all("t", 0)) == 1
        client.send_unanswered(produce_request("nowhere", 0, batch_of([b"x"]), acks=0), 11)
        with pytest.raises(ConnectionError):
            await client.fetch("t", 0, 0)

    bench.run(drive)


def test_clients_who_leave_while_a_sync_runs_harm_nobody(bench: Bench) -> None:
    async def drive() -> None:
        client = await bench.connect()
        await client.create_topic("t", 1, ALWAYS)
        bench.machine.disk.slow_when(lambda operation: operation.kind == "sync", 1)
        leavers = [await bench.connect() for _ in range(5)]
        for number, leaver in enumerate(leavers):
            for each in range(3):
                leaver.send(produce_request("t", 0, batch_of([b"%d %d" % (number, each)])), 11).add_done_callback(
                    lambda done: done.exception()
                )
        await asyncio.sleep(0.1)
        for leaver in leavers:
            leaver.close()
        answer = await client.produce("t", 0, batch_of([b"last"]))
        assert answer.error_code == 0
        found = await client.read_all("t", 0)
        assert [batch.header.base_offset for batch in found] == list(range(len(found)))

    bench.run(drive)


def test_a_fetch_is_told_of_the_bytes_of_many_batches_that_shared_a_sync(bench: Bench) -> None:
    async def drive() -> None:
        reader, writer = await bench.connect(), await bench.connect()
        await writer.create_topic("t", 1, ALWAYS)
        size = len(batch_of([bytes(100)]))
        waiting = asyncio.ensure_future(reader.call(fetch_request("t", {0: 0}, min_bytes=100 * size), 12))
        await asyncio.sleep(1)
        appends = [asyncio.ensure_future(writer.produce("t", 0, batch_of([bytes(100)]))) for _ in range(99)]
        await asyncio.gather(*appends)
        await asyncio.sleep(1)
        assert not waiting.done()
        await writer.produce("t", 0, batch_of([bytes(100)]))
        answer = await asyncio.wait_for(waiting, 1)
        assert len(batches_of(answer.responses[0].partitions[0])) == 100

    bench.run(drive)
