"""A broker in the simulator that compacts while it serves: readers, restarts, groups and transactions."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from penstock.base.errors import ApiError, Error
from penstock.broker.partition import Partition
from penstock.testing.sim_broker import PORT, SimBroker
from penstock.testing.sim_client import SimClient, StoredBatch, batches_of
from penstock.testing.sim_world import Simulation
from penstock.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.wire.messages.k09_offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from penstock.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicsRequestTopic
from penstock.wire.messages.k22_init_producer_id import InitProducerIdRequest
from penstock.wire.records import Record, build_batch, read_records

pytestmark = pytest.mark.sim

SETTINGS = {
    "log.cleaner.backoff.ms": "50",
    "log.cleaner.io.buffer.size": "2000",  # many small steps
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "log.initial.task.delay.ms": "10",
    "log.cleaner.min.cleanable.ratio": "0.05",
}
COMPACT = {"cleanup.policy": "compact"}
KEYS = 15
RETRIED = (Error.COORDINATOR_LOAD_IN_PROGRESS, Error.NOT_COORDINATOR, Error.COORDINATOR_NOT_AVAILABLE)


class Site:
    def __init__(self, seed: int, settings: dict[str, str] | None = None) -> None:
        self.simulation = Simulation(seed, limit_s=100_000)
        self.broker = SimBroker(self.simulation.machine("broker"), {**SETTINGS, **(settings or {})})
        self.world = self.simulation.machine("client").process("client").world
        self.chance = random.Random(f"compaction {seed}")

    async def connect(self) -> SimClient:
        return await SimClient.connect(self.world, "broker", PORT)

    def run(self, drive: Callable[[], Awaitable[Any]]) -> None:
        async def main() -> None:
            await self.broker.start()
            await drive()

        try:
            self.simulation.run(main())
        finally:
            self.simulation.close()

    def partition(self, topic: str) -> Partition:
        assert self.broker.running is not None
        return next(each for each in self.broker.running.broker.partitions if each.name.topic == topic)

    def roll(self, topic: str) -> None:
        """Close the active segment, as its size or age would."""
        self.partition(topic).log.roll(self.world.clock.wall_ms())

    async def until_compacted(self, topic: str) -> None:
        self.roll(topic)
        for _ in range(2000):
            log = self.partition(topic).log
            if log.cleaned_offset >= log.segments[-1].base_offset > 0:
                return
            await asyncio.sleep(0.05)
        raise AssertionError(f"{topic} is not compacted: {log.cleaned_offset} of {log.end_offset}")


def batch(site: Site, number: int) -> bytes:
    records = [
        Record(n, site.world.clock.wall_ms(), b"k%d" % site.chance.randrange(KEYS), b"%d.%d" % (number, n) + bytes(40))
        for n in range(site.chance.randrange(1, 5))
    ]
    return build_batch(records)


@pytest.mark.parametrize("seed", range(4))
def test_a_reader_sees_every_surviving_record_once(seed: int) -> None:
    site = Site(seed)
    sent: dict[int, Record] = {}
    seen: list[Record] = []
    is_written = False

    async def write() -> None:
        nonlocal is_written
        client = await site.connect()
        for number in range(300):
            encoded = batch(site, number)
            answer = await client.produce("t", 0, encoded)
            assert answer.error_code == 0
            for record in read_records(memoryview(encoded)):
                record.offset += answer.base_offset
                sent[record.offset] = record
            if number % 10 == 9:
                site.roll("t")
            await asyncio.sleep(site.chance.random() * 0.02)
        is_written = True

    async def read() -> None:
        client = await site.connect()
        offset = 0
        while True:
            was_written = is_written
            answer = await client.fetch("t", 0, offset, max_bytes=site.chance.choice([100, 1000, 5000]))
            assert answer.error_code == 0
            batches = batches_of(answer)
            if not batches and was_written:
                return
            for stored in batches:
                seen.extend(r for r in read_records(memoryview(stored.content)) if r.offset >= offset)
                offset = stored.header.next_offset
            await asyncio.sleep(site.chance.random() * 0.03)

    async def drive() -> None:
        client = await site.connect()
        await client.create_topic("t", configs=COMPACT)
        await asyncio.gather(write(), read())
        assert site.broker.running is not None
        assert site.broker.running.broker.compactor.counts.rounds > 3
        await site.until_compacted("t")
        left = [record for each in await client.read_all("t", 0) for record in read_records(memoryview(each.content))]
        offsets = [record.offset for record in seen]
        assert offsets == sorted(set(offsets)), "a record was seen twice, or out of order"
        assert all(sent[record.offset] == record for record in seen)
        assert {record.offset for record in left} <= set(offsets), "a surviving record was not seen"
        assert len(left) < len(sent) // 4
        removed_bytes = site.broker.running.broker.partitions.removed_bytes
        assert removed_bytes["compaction"] == site.partition("t").log.removed_bytes["compaction"] > 0
        size_bytes = site.partition("t").log.size_bytes
        await client.call(DeleteTopicsRequest(topics=[DeleteTopicsRequestTopic(name="t")], timeout_ms=10_000))
        while removed_bytes["topic deleted"] < size_bytes:
            await asyncio.sleep(0.1)
        newest = {record.key: record for record in sent.values()}
        assert {record.key: record for record in left} == newest

    site.run(drive)


@pytest.mark.parametrize("seed", range(6))
def test_crashes_while_it_compacts_lose_nothing(seed: int) -> None:
    site = Site(seed, {"log.flush.mode": "always"})
    newest: dict[bytes, bytes] = {}

    async def drive() -> None:
        client = await site.connect()
        await client.create_topic("t", configs=COMPACT)
        number = 0
        for _ in range(6):
            for _ in range(40):
                number += 1
                encoded = batch(site, number)
                assert (await client.produce("t", 0, encoded)).error_code == 0
                newest.update((r.key or b"", r.value or b"") for r in read_records(memoryview(encoded)))
                if number % 7 == 0:
                    site.roll("t")
            await asyncio.sleep(site.chance.random() * 0.6)
            if site.chance.random() < 0.5:
                site.broker.lose_power(lost=site.chance.choice(["all", "none"]))
            else:
                site.broker.kill()
            await site.broker.start()
            client = await site.connect()
            left = await read_all(client)
            records = [record for each in left for record in read_records(memoryview(each.content))]
            assert {record.key: record.value for record in records} == newest
        assert len(records) < number * 2

    site.run(drive)


async def read_all(client: SimClient) -> list[StoredBatch]:
    """All of the topic; after a power loss the broker may lead it a moment later."""
    for _ in range(300):
        try:
            return await client.read_all("t", 0)
        except ApiError as error:
            assert error.error is Error.NOT_LEADER_OR_FOLLOWER
        await asyncio.sleep(0.1)
    raise AssertionError("nobody leads")


async def ask(client: SimClient, request: Any, version: int | None = None) -> Any:
    for _ in range(500):
        answer = await client.call(request, version)
        if getattr(answer, "error_code", 0) not in RETRIED:
            return answer
        await asyncio.sleep(0.1)
    raise AssertionError("the coordinator does not come")


def committing(group: str, offset: int) -> OffsetCommitRequest:
    part = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="m")
    row = OffsetCommitRequestTopic(name="t", partitions=[part])
    return OffsetCommitRequest(group_id=group, generation_id_or_member_epoch=-1, member_id="", topics=[row])


async def commit(client: SimClient, group: str, offset: int) -> None:
    for _ in range(500):
        error = (await client.call(committing(group, offset), 9)).topics[0].partitions[0].error_code
        if error == Error.NONE:
            return
        assert error in RETRIED
        await asyncio.sleep(0.1)
    raise AssertionError("the coordinator does not come")


async def committed(client: SimClient, group: str) -> int:
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)], require_stable=True)
    for _ in range(500):
        answer = (await client.call(request, 9)).groups[0]
        if answer.error_code not in RETRIED:
            offset: int = answer.topics[0].partitions[0].committed_offset
            return offset
        await asyncio.sleep(0.1)
    raise AssertionError("the coordinator does not come")


@pytest.mark.parametrize("is_clean", [True, False], ids=["stopped", "killed"])
def test_groups_and_transactional_ids_are_read_again_after_their_logs_were_compacted(is_clean: bool) -> None:
    site = Site(7)

    async def drive() -> None:
        client = await site.connect()
        await client.create_topic("t")
        await ask(client, FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]))
        await ask(client, FindCoordinatorRequest(key_type=1, coordinator_keys=["x"]))
        for number in range(40):
            for group in ("g", "h", "i"):
                await commit(client, group, number)
            if number % 5 == 0:
                site.roll("__consumer_offsets")
        producers: dict[str, tuple[int, int]] = {}
        for number in range(30):
            name = f"x{number % 4}"
            answer = await ask(client, InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000))
            if answer.error_code == Error.CONCURRENT_TRANSACTIONS:
                continue
            assert answer.error_code == 0, answer
            producers[name] = (answer.producer_id, answer.producer_epoch)
            if number % 5 == 0:
                site.roll("__transaction_state")
        before = {
            topic: site.partition(topic).log.size_bytes for topic in ("__consumer_offsets", "__transaction_state")
        }
        for topic, size_bytes in before.items():
            await site.until_compacted(topic)
            assert site.partition(topic).log.size_bytes < size_bytes
        if is_clean:
            await site.broker.stop()
        else:
            site.broker.kill()
        await site.broker.start()
        client = await site.connect()
        for group in ("g", "h", "i"):
            assert await committed(client, group) == 39
        for name, (producer_id, epoch) in producers.items():
            answer = await ask(client, InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000))
            assert (answer.error_code, answer.producer_id) == (0, producer_id)
            assert answer.producer_epoch > epoch

    site.run(drive)


def test_records_of_a_topic_that_is_only_compacted_are_not_deleted_and_need_keys() -> None:
    site = Site(1)

    async def drive() -> None:
        client = await site.connect()
        await client.create_topic("t", configs=COMPACT)
        refused = await client.produce("t", 0, build_batch([Record(0, 1, None, b"v")]))
        assert refused.error_code == Error.INVALID_RECORD
        with pytest.raises(ApiError):
            await client.create_topic("u", configs={"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "7"})

    site.run(drive)


def test_the_speed_is_limited() -> None:
    site = Site(2, {"log.cleaner.io.max.bytes.per.second": "5000"})

    async def drive() -> None:
        client = await site.connect()
        await client.create_topic("t", configs=COMPACT)
        for number in range(100):
            assert (await client.produce("t", 0, batch(site, number))).error_code == 0
        begun_s = site.world.clock.monotonic()
        await site.until_compacted("t")
        assert site.broker.running is not None
        counts = site.broker.running.broker.compactor.counts
        passed_s = site.world.clock.monotonic() - begun_s
        assert (counts.read_bytes + counts.written_bytes) / passed_s < 6000

    site.run(drive)


def test_a_damaged_log_is_left_alone_and_told() -> None:
    site = Site(3)

    async def drive() -> None:
        client = await site.connect()
        await client.create_topic("t", configs=COMPACT)
        for number in range(20):
            assert (await client.produce("t", 0, batch(site, number))).error_code == 0
        log = site.partition("t").log
        log.segments[0].open_file().write([b"\xff"], 80)
        site.roll("t")
        assert site.broker.running is not None
        compactor = site.broker.running.broker.compactor
        for _ in range(200):
            await asyncio.sleep(0.05)
            if compactor.left_alone:
                break
        assert list(compactor.left_alone) == [site.partition("t")]
        assert (await client.produce("t", 0, batch(site, 99))).error_code == 0
        assert not [name for name in log.files.disk.list_dir(log.folder) if "cleaned" in name]

    site.run(drive)
