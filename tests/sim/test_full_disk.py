"""A disk without room never ends the broker: what needs space is refused or put off, the rest goes on, and all is well
again when there is space. Only a failed sync is final."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from penstock.base.errors import ApiError, Error
from penstock.base.world import World, read_file
from penstock.testing.history import body_of
from penstock.testing.sim_broker import DATA, PORT, SimBroker
from penstock.testing.sim_client import SimClient, batch_of
from penstock.testing.sim_device import os_error
from penstock.testing.sim_files import Operation
from penstock.testing.sim_world import Simulation
from penstock.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from penstock.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicsRequestTopic
from penstock.wire.messages.k21_delete_records import (
    DeleteRecordsRequest,
    DeleteRecordsRequestPartition,
    DeleteRecordsRequestTopic,
)
from penstock.wire.messages.k37_create_partitions import CreatePartitionsRequest, CreatePartitionsRequestTopic
from penstock.wire.messages.k44_incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestConfig,
    IncrementalAlterConfigsRequestResource,
)

pytestmark = pytest.mark.sim

ALWAYS = {"flush.mode": "always"}
SPACE_BYTES = 1 << 40
EPOCHS_FILE = f"{DATA}/logs/t-0/leader-epoch-checkpoint"


class Bench:
    """One simulation with a broker that was started, and a client's machine."""

    def __init__(self, settings: dict[str, str] | None = None) -> None:
        self.simulation = Simulation(1, limit_s=100_000)
        self.machine = self.simulation.machine("broker")
        self.disk = self.machine.disk
        self.broker = SimBroker(self.machine, settings)
        self.world: World = self.simulation.machine("client").process("client").world

    async def connect(self) -> SimClient:
        return await SimClient.connect(self.world, "broker", PORT)

    def fill(self, free_bytes: int = 0) -> None:
        self.disk.set_capacity(self.disk.device.used_bytes + free_bytes)

    def make_room(self) -> None:
        self.disk.set_capacity(SPACE_BYTES)

    def no_room_for(self, path: str, times: int = 1, code: int = errno.ENOSPC, written_bytes: int = 3) -> None:
        """The next writes to a file, or to its temporary one, find no room."""

        def matches(operation: Operation) -> bool:
            return operation.kind == "write" and operation.path in (path, path + ".tmp")

        self.disk.fail_when(matches, os_error(code, path), times=times, written_bytes=written_bytes)

    def run(self, drive: Callable[[], Awaitable[Any]]) -> None:
        async def main() -> None:
            await self.broker.start()
            await drive()

        with self.simulation:
            self.simulation.run(main())


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.simulation.close()


async def refused(answer: Awaitable[Any], error: Error) -> None:
    with pytest.raises(ApiError) as found:
        await answer
    assert found.value.error is error
    assert error.retriable


def set_topic(topic: str, name: str, value: str) -> IncrementalAlterConfigsRequest:
    row = IncrementalAlterConfigsRequestConfig(name=name, config_operation=0, value=value)
    resource = IncrementalAlterConfigsRequestResource(resource_type=2, resource_name=topic, configs=[row])
    return IncrementalAlterConfigsRequest(resources=[resource])


async def topics_of(client: SimClient) -> list[str | None]:
    return [topic.name for topic in (await client.call(MetadataRequest(topics=None))).topics]


# ── the keeper ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_changes_of_the_cluster_are_refused_and_go_on_when_there_is_space(bench: Bench) -> None:
    async def drive() -> None:
        client = await bench.connect()
        await client.create_topic("t")
        sent = [batch_of([b"1"])]
        assert (await client.produce("t", 0, sent[0])).error_code == 0
        bench.fill()
        for _ in range(3):
            await refused(client.create_topic("u"), Error.KAFKA_STORAGE_ERROR)
            await refused(client.init_producer_id(), Error.COORDINATOR_LOAD_IN_PROGRESS)
        assert await topics_of(client) == ["t"]
        assert bench.broker.is_running
        assert [body_of(batch.content) for batch in await client.read_all("t", 0)] == [body_of(sent[0])]
        bench.make_room()
        await client.create_topic("u")
        producer_id = await client.init_producer_id()
        assert await topics_of(client) == ["t", "u"]
        bench.broker.lose_power(lost="all")
        await bench.broker.start()
        client = await bench.connect()
        assert await topics_of(client) == ["t", "u"]
        assert await client.init_producer_id() > producer_id

    bench.run(drive)


def test_every_change_of_the_cluster_gets_a_retriable_error(bench: Bench) -> None:
    async def drive() -> None:
        client = await bench.connect()
        await client.create_topic("t")
        bench.fill()
        deletion = DeleteTopicsRequest(topics=[DeleteTopicsRequestTopic(name="t")], timeout_ms=1000)
        growth = CreatePartitionsRequest(topics=[CreatePartitionsRequestTopic(name="t", count=3, assignments=None)])
        setting = set_topic("t", "retention.ms", "5000")
        storage = Error.KAFKA_STORAGE_ERROR
        assert [answer.error_code for answer in (await client.call(deletion)).responses] == [storage]
        assert [answer.error_code for answer in (await client.call(growth)).results] == [storage]
        assert [answer.error_code for answer in (await client.call(setting)).responses] == [storage]
        on_demand = MetadataRequest(topics=[MetadataRequestTopic(name="u")], allow_auto_topic_creation=True)
        assert (await client.call(on_demand)).topics[0].error_code == Error.UNKNOWN_TOPIC_OR_PARTITION
        group = FindCoordinatorRequest(coordinator_keys=["group"])
        (coordinator,) = (await client.call(group)).coordinators
        assert coordinator.error_code == Error.COORDINATOR_NOT_AVAILABLE
        bench.make_room()
        assert [answer.error_code for answer in (await client.call(growth)).results] == [0]
        assert [answer.error_code for answer in (await client.call(setting)).responses] == [0]
        assert [answer.error_code for answer in (await client.call(deletion)).responses] == [0]
        assert await topics_of(client) == []

    bench.run(drive)


def test_a_failed_sync_of_the_keeper_is_final(bench: Bench) -> None:
    async def drive() -> None:
        client = await bench.connect()
        error = os_error(errno.ENOSPC, "")
        bench.disk.fail_when(lambda operation: operation.kind == "sync" and "/keeper/" in operation.path, error)
        with pytest.raises((ConnectionError, ApiError)):
            await client.create_topic("t")
        await asyncio.sleep(10)
        assert not bench.broker.is_running

    bench.run(drive)


def test_a_stop_without_space(bench: Bench) -> None:
    async def drive() -> None:
        client = await bench.connect()
        await client.create_topic("t", configs=ALWAYS)
        assert (await client.produce("t", 0, batch_of([b"1"]))).error_code == 0
        bench.fill()
        await bench.broker.stop()
        bench.make_room()
        await bench.broker.start()
        assert len(await (await bench.connect()).read_all("t", 0)) == 1

    bench.run(drive)


# ── the logs ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_flush_without_room_for_the_epochs_is_tried_again(bench: Bench, code: int) -> None:
    async def drive() -> None:
        client = await bench.connect()
        await client.create_topic("t", configs=ALWAYS)
        bench.no_room_for(EPOCHS_FILE, times=3, code=code)
        began = bench.simulation.loop.time()
        answer = await client.produce("t", 0, batch_of([b"1"]))
        assert answer.error_code == 0
        assert bench.simulation.loop.time() - began < 5
        assert (await client.produce("t", 0, batch_of([b"2"]))).error_code == 0
        bench.broker.lose_power(lost="all")
        await bench.broker.start()
        assert len(await (await bench.connect()).read_all("t", 0)) == 2

    bench.run(drive)


def test_nothing_counts_as_durable_while_the_epochs_have_no_room(bench: Bench) -> None:
    async def drive() -> None:
        client = await bench.connect()
        await client.create_topic("t", configs=ALWAYS)
        bench.no_room_for(EPOCHS_FILE, times=1000)
        answer = await client.produce("t", 0, batch_of([b"1"]), timeout_ms=3000)
        assert Error(answer.error_code).retriable and not Error(answer.error_code).definite
        assert await client.read_all("t", 0) == []
        bench.disk.heal()
        assert (await client.produce("t", 0, batch_of([b"2"]))).error_code == 0
        assert len(await client.read_all("t", 0)) == 2

    bench.run(drive)


def test_a_failed_sync_of_the_epochs_is_final(bench: Bench) -> None:
    async def drive() -> None:
        client = await bench.connect()
        await client.create_topic("t", configs=ALWAYS)
        error = os_error(errno.ENOSPC, "")
        bench.disk.fail_when(
            lambda operation: operation.kind == "sync" and operation.path == EPOCHS_FILE + ".tmp", error
        )
        assert (await client.produce("t", 0, batch_of([b"1"]))).error_code == Error.KAFKA_STORAGE_ERROR
        assert bench.broker.running is not None
        async with asyncio.timeout(10):
            await bench.broker.running.failed()  # it was the only directory

    bench.run(drive)


SMALL_SEGMENTS = {"segment.index.bytes": "96", "index.interval.bytes": "500", "retention.ms": "-1"}


async def produce_many(client: SimClient, count: int, topic: str = "t") -> None:
    for number in range(count):
        answer = await client.produce(topic, 0, batch_of([b"%d" % number + bytes(400)]))
        assert answer.error_code == 0, answer


@pytest.mark.parametrize(("name", "value"), [("retention.bytes", "1"), ("retention.ms", "1")])
def test_retention_goes_on_and_makes_room(name: str, value: str) -> None:
    """Also when every segment is due, and there is no room to begin another."""
    bench = Bench({"log.retention.check.interval.ms": "3000", "log.initial.task.delay.ms": "3000"})

    async def drive() -> None:
        client = await bench.connect()
        await client.create_topic("t", configs=SMALL_SEGMENTS)
        await produce_many(client, 100)
        assert (await client.call(set_topic("t", name, value))).responses[0].error_code == 0
        bench.fill()
        assert (await client.produce("t", 0, batch_of([bytes(400)]))).error_code == Error.KAFKA_STORAGE_ERROR
        await asyncio.sleep(10)
        start = await client.list_offset("t", 0, -2)
        assert start > 10
        await produce_many(client, 3)
        bench.broker.kill()
        await bench.broker.start()
        client = await bench.connect()
        assert await client.list_offset("t", 0, -2) >= start
        assert await client.list_offset("t", 0, -1) == 103

    bench.run(drive)


def test_records_can_be_deleted_and_make_room(bench: Bench) -> None:
    async def drive() -> None:
        client = await bench.connect()
        await client.create_topic("t", configs=SMALL_SEGMENTS)
        await produce_many(client, 100)
        bench.fill()
        part = DeleteRecordsRequestPartition(partition_index=0, offset=91)
        request = DeleteRecordsRequest(topics=[DeleteRecordsRequestTopic(name="t", partitions=[part])])
        (answer,) = (await client.call(request)).topics[0].partitions
        assert (answer.error_code, answer.low_watermark) == (0, 91)
        await produce_many(client, 3)
        bench.broker.lose_power(lost="all")
        await bench.broker.start()
        assert await (await bench.connect()).list_offset("t", 0, -2) == 91

    bench.run(drive)


def test_a_start_that_was_not_written_is_not_told(bench: Bench) -> None:
    async def drive() -> None:
        client = await bench.connect()
        await client.create_topic("t", configs=ALWAYS)
        await produce_many(client, 10)
        bench.no_room_for(f"{DATA}/logs/log-start-offset-checkpoint", times=4)
        part = DeleteRecordsRequestPartition(partition_index=0, offset=4)
        request = DeleteRecordsRequest(topics=[DeleteRecordsRequestTopic(name="t", partitions=[part])])
        for _ in range(2):
            (answer,) = (await client.call(request)).topics[0].partitions
            assert answer.error_code == Error.KAFKA_STORAGE_ERROR
        (answer,) = (await client.call(request)).topics[0].partitions
        assert (answer.error_code, answer.low_watermark) == (0, 4)
        bench.broker.lose_power(lost="all")
        await bench.broker.start()
        assert await (await bench.connect()).list_offset("t", 0, -2) == 4

    bench.run(drive)


@pytest.mark.parametrize("kind", ["make_dir", "create", "write"])
@pytest.mark.parametrize("is_deleted", [False, True])
def test_a_partition_without_room_is_opened_when_there_is_some(bench: Bench, kind: str, is_deleted: bool) -> None:
    async def drive() -> None:
        client = await bench.connect()
        bench.disk.fail_when(
            lambda operation: operation.kind == kind and operation.path.startswith(f"{DATA}/logs/t-0"),
            os_error(errno.ENOSPC, ""),
            times=1000,
        )
        await client.create_topic("t", configs=ALWAYS)
        assert Error((await client.produce("t", 0, batch_of([b"1"]))).error_code).retriable
        await asyncio.sleep(10)
        assert Error((await client.produce("t", 0, batch_of([b"1"]))).error_code).retriable
        if is_deleted:
            deletion = DeleteTopicsRequest(topics=[DeleteTopicsRequestTopic(name="t")], timeout_ms=1000)
            assert (await client.call(deletion)).responses[0].error_code == 0
        bench.disk.heal()
        await asyncio.sleep(10)
        assert not bench.disk.exists(f"{DATA}/logs/t-0") or not is_deleted
        if is_deleted:
            await client.create_topic("t", configs=ALWAYS)
        await produce_many(client, 3)
        bench.broker.lose_power(lost="all")
        await bench.broker.start()
        assert len(await (await bench.connect()).read_all("t", 0)) == 3

    bench.run(drive)


def test_a_topic_is_deleted_without_room_for_checkpoints(bench: Bench) -> None:
    """Nothing of the deleted topic's offsets is taken for those of the next one of its name."""

    async def drive() -> None:
        client = await bench.connect()
        await client.create_topic("t", configs=ALWAYS)
        await produce_many(client, 10)
        await bench.broker.stop()
        await bench.broker.start()
        client = await bench.connect()
        for name in ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint"):
            bench.no_room_for(f"{DATA}/logs/{name}", times=1000)
        deletion = DeleteTopicsRequest(topics=[DeleteTopicsRequestTopic(name="t")], timeout_ms=1000)
        assert (await client.call(deletion)).responses[0].error_code == 0
        assert await topics_of(client) == []
        await client.create_topic("t", configs=ALWAYS)
        assert Error((await client.produce("t", 0, batch_of([b"1"]))).error_code).retriable
        bench.disk.heal()
        await asyncio.sleep(10)
        await produce_many(client, 3)
        bench.broker.lose_power(lost="all")
        await bench.broker.start()
        assert len(await (await bench.connect()).read_all("t", 0)) == 3

    bench.run(drive)


def test_checkpoints_without_room_are_written_later() -> None:
    bench = Bench(
        {
            "log.flush.offset.checkpoint.interval.ms": "1000",
            "replica.high.watermark.checkpoint.interval.ms": "1000",
            "log.initial.task.delay.ms": "500",
        }
    )

    async def drive() -> None:
        client = await bench.connect()
        await client.create_topic("t", configs=ALWAYS)
        await produce_many(client, 5)
        bench.fill()
        await asyncio.sleep(20)
        names = [name for name in bench.disk.list_dir(f"{DATA}/logs") if name.endswith(".tmp")]
        assert names == []
        bench.make_room()
        await asyncio.sleep(20)
        for name in ("recovery-point", "replication"):
            assert b"t 0 5" in read_file(bench.disk, f"{DATA}/logs/{name}-offset-checkpoint")

    bench.run(drive)
