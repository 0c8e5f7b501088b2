"""Readers of committed records, in the simulator: what they see, what wakes them and what does not."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from penstock.base.steps import ProducerEpoch
from penstock.broker.partition import Partition
from penstock.testing.sim_broker import PORT, SimBroker
from penstock.testing.sim_client import SimClient, batch_of, batches_of
from penstock.testing.sim_world import Simulation
from penstock.wire.batch import read_header
from penstock.wire.messages.k01_fetch import (
    FetchRequest,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponsePartition,
)
from penstock.wire.messages.k21_delete_records import (
    DeleteRecordsRequest,
    DeleteRecordsRequestPartition,
    DeleteRecordsRequestTopic,
)

READ_COMMITTED = 1
NOW_MS = 1_700_000_000_000


class Bench:
    """A broker, a reader, and the partition that is written to from inside."""

    def __init__(self) -> None:
        self.simulation = Simulation(5, limit_s=10_000)
        self.broker = SimBroker(self.simulation.machine("broker"))
        self.world = self.simulation.machine("client").process("client").world
        self.sequences: dict[int, int] = {}
        self.client: SimClient
        self.partition: Partition

    def run(self, drive: Callable[[], Awaitable[None]], configs: dict[str, str] | None = None) -> None:
        async def main() -> None:
            await self.broker.start()
            self.client = await SimClient.connect(self.world, "broker", PORT)
            await self.client.create_topic("t", configs=configs)
            assert self.broker.running is not None
            self.partition = self.broker.running.broker.partitions.find("t", 0)
            await drive()

        self.simulation.run(main())

    async def write(self, values: list[bytes], producer: int | None = None) -> None:
        """A batch: of a producer's transaction, or of nobody."""
        options: dict[str, Any] = {}
        if producer is not None:
            sequence = self.sequences.get(producer, 0)
            self.sequences[producer] = sequence + len(values)
            options = {"producer_id": producer, "producer_epoch": 0, "base_sequence": sequence, "transactional": True}
        batch = memoryview(bytearray(batch_of(values, **options)))
        await self._when_writable(lambda: self.partition.append(batch, read_header(batch), NOW_MS))

    async def end(self, producer: int, *, is_commit: bool) -> None:
        def append() -> None:
            self.partition.append_marker(
                ProducerEpoch(producer, 0),
                is_commit=is_commit,
                coordinator_epoch=0,
                transaction_version=1,
                now_ms=NOW_MS,
            )

        await self._when_writable(append)

    async def _when_writable(self, work: Callable[[], object]) -> None:
        while self.partition.is_syncing:
            writable = asyncio.Event()
            self.partition.when_writable(writable.set)
            await writable.wait()
        work()

    async def fetch(self, offset: int, **options: int) -> FetchResponsePartition:
        part = FetchRequestPartition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=1,
            isolation_level=READ_COMMITTED,
            topics=[FetchRequestTopic(topic="t", partitions=[part])],
        )
        for name, value in options.items():
            setattr(request, name, value)
        found: FetchResponsePartition = (await self.client.call(request, 12)).responses[0].partitions[0]
        return found

    def wait_for_fetch(self, offset: int, **options: int) -> asyncio.Future[FetchResponsePartition]:
        return asyncio.ensure_future(self.fetch(offset, max_wait_ms=60_000, **options))

    async def settle(self) -> None:
        await asyncio.sleep(1)


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.simulation.close()


def offsets(answer: FetchResponsePartition) -> list[int]:
    return [batch.header.base_offset for batch in batches_of(answer)]


def aborted(answer: FetchResponsePartition) -> list[tuple[int, int]]:
    return [(each.producer_id, each.first_offset) for each in answer.aborted_transactions or ()]


def test_nothing_is_seen_from_the_first_open_transaction_on(bench: Bench) -> None:
    async def drive() -> None:
        await bench.write([b"plain"])
        await bench.write([b"a"], producer=1)
        await bench.write([b"b"], producer=2)
        await bench.write([b"plain"])
        await bench.end(2, is_commit=True)
        answer = await bench.fetch(0)
        assert offsets(answer) == [0]
        assert (answer.high_watermark, answer.last_stable_offset) == (5, 1)
        assert offsets(await bench.fetch(1)) == []
        assert offsets(await bench.fetch(0, isolation_level=0)) == [0, 1, 2, 3, 4]
        await bench.end(1, is_commit=False)
        answer = await bench.fetch(0)
        assert offsets(answer) == [0, 1, 2, 3, 4, 5]
        assert aborted(answer) == [(1, 1)]
        assert (await bench.fetch(0, isolation_level=0)).aborted_transactions is None

    bench.run(drive)


def test_only_the_aborted_transactions_of_what_was_read_are_told(bench: Bench) -> None:
    async def drive() -> None:
        for producer in range(30):
            await bench.write([b"x" * 100], producer=producer)
            await bench.end(producer, is_commit=False)
        answer = await bench.fetch(20, max_bytes=800)
        first, last = offsets(answer)[0], offsets(answer)[-1]
        assert (first, last) == (20, 25)
        assert aborted(answer) == [(10, 20), (11, 22), (12, 24)]
        assert aborted(await bench.fetch(21, max_bytes=1)) == [(10, 20)]

    bench.run(drive)


def test_a_waiting_reader_is_woken_by_the_marker_and_not_before(bench: Bench) -> None:
    async def drive() -> None:
        waiting = bench.wait_for_fetch(0, min_bytes=400)
        await bench.write([bytes(300)], producer=1)
        await bench.write([bytes(3000)])
        await bench.settle()
        assert not waiting.done()
        await bench.end(1, is_commit=True)
        assert offsets(await waiting) == [0, 1, 2]
        assert not bench.partition.stable_waits

    bench.run(drive)


def test_a_marker_that_frees_nothing_wakes_nobody(bench: Bench) -> None:
    async def drive() -> None:
        await bench.write([b"a"], producer=1)
        await bench.write([b"b"], producer=2)
        waiting = bench.wait_for_fetch(0)
        await bench.settle()
        await bench.end(2, is_commit=True)
        await bench.settle()
        assert not waiting.done()
        await bench.end(1, is_commit=True)
        assert offsets(await waiting) == [0, 1, 2, 3]

    bench.run(drive)


def test_without_transactions_bytes_are_counted_as_for_everybody(bench: Bench) -> None:
    async def drive() -> None:
        waiting = bench.wait_for_fetch(0, min_bytes=250)
        await bench.write([bytes(100)])
        await bench.settle()
        assert not waiting.done()
        await bench.write([bytes(100)])
        assert offsets(await waiting) == [0, 1]

    bench.run(drive)


def test_a_marker_counts_when_it_is_synced(bench: Bench) -> None:
    async def drive() -> None:
        await bench.write([b"plain"])
        waiting = bench.wait_for_fetch(0)
        await bench.write([b"a"], producer=1)  # perhaps in one sync with the one before it
        assert offsets(await waiting) == [0]
        waiting = bench.wait_for_fetch(1)
        await bench.settle()
        assert not waiting.done()
        await bench.end(1, is_commit=True)
        assert bench.partition.last_stable_offset == 1
        answer = await waiting
        assert offsets(answer) == [1, 2]
        assert answer.last_stable_offset == answer.high_watermark == 3

    bench.run(drive, {"flush.mode": "always"})


def test_deleted_records_take_the_last_stable_offset_along(bench: Bench) -> None:
    async def drive() -> None:
        await bench.write([b"a"], producer=1)
        await bench.write([b"b"], producer=2)
        part = DeleteRecordsRequestPartition(partition_index=0, offset=1)
        row = DeleteRecordsRequestTopic(name="t", partitions=[part])
        await bench.client.call(DeleteRecordsRequest(topics=[row], timeout_ms=1000))
        answer = await bench.fetch(1)
        assert (answer.log_start_offset, answer.last_stable_offset) == (1, 1)
        assert offsets(answer) == []

    bench.run(drive)


def test_a_reader_after_a_restart(bench: Bench) -> None:
    """The state of transactions is found again: by the snapshot, or by the log."""

    async def drive() -> None:
        await bench.write([b"a"], producer=1)
        await bench.end(1, is_commit=False)
        await bench.write([b"b"], producer=2)
        await bench.write([b"plain"])
        for is_clean in (True, False):
            if is_clean:
                await bench.broker.stop()
            else:
                bench.broker.kill()
            await bench.broker.start()
            bench.client = await SimClient.connect(bench.world, "broker", PORT)
            answer = await bench.fetch(0)
            assert offsets(answer) == [0, 1] and aborted(answer) == [(1, 0)]
            assert (answer.high_watermark, answer.last_stable_offset) == (4, 2)

    bench.run(drive)
