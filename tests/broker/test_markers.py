"""Carrying out how transactions end, in the simulator: whatever comes in between, all of it is done in the end."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from penstock.base.errors import Error
from penstock.base.identifiers import TopicPartition
from penstock.base.steps import ProducerEpoch
from penstock.broker.broker import Broker
from penstock.broker.markers import Ending
from penstock.testing.sim_broker import PORT, SimBroker
from penstock.testing.sim_client import SimClient, batch_of
from penstock.testing.sim_committed import read_committed
from penstock.testing.sim_device import os_error
from penstock.testing.sim_world import Simulation
from penstock.wire.batch import CONTROL
from penstock.wire.messages.k00_produce import ProduceRequest, ProduceRequestPartition, ProduceRequestTopic
from penstock.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicsRequestTopic
from penstock.wire.messages.k22_init_producer_id import InitProducerIdRequest
from penstock.wire.messages.k24_add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnRequestTopic
from penstock.wire.messages.k26_end_txn import EndTxnRequest
from penstock.wire.messages.k65_describe_transactions import DescribeTransactionsRequest
from penstock.zookeeper.errors import ConnectionLossError
from penstock.zookeeper.topic_znodes import PartitionState

ID = "orders"
PARTITIONS = 3


class Bench:
    """A broker with a topic, and a producer with an open transaction in all of its partitions."""

    def __init__(self, flush_mode: str) -> None:
        self.simulation = Simulation(7, limit_s=10_000)
        self.machine = self.simulation.machine("broker")
        settings = {"log.flush.mode": flush_mode, "transaction.state.log.num.partitions": "1"}
        self.sim_broker = SimBroker(self.machine, settings)
        self.world = self.simulation.machine("client").process("client").world
        self.client: SimClient
        self.producer: ProducerEpoch

    @property
    def broker(self) -> Broker:
        assert self.sim_broker.running is not None
        return self.sim_broker.running.broker

    def run(self, drive: Callable[[], Awaitable[None]]) -> None:
        async def main() -> None:
            await self.sim_broker.start()
            self.client = await SimClient.connect(self.world, "broker", PORT)
            await self.client.create_topic("t", PARTITIONS)
            await self.client.create_topic("other")
            await self.client.call(FindCoordinatorRequest(key_type=1, coordinator_keys=[ID]), 6)
            await self.begin()
            await asyncio.wait_for(drive(), 600)

        self.simulation.run(main())

    async def begin(self) -> None:
        """Write "a" to all partitions."""
        answer = await self.client.call(InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=60_000), 5)
        while answer.error_code:
            await asyncio.sleep(0.01)
            answer = await self.client.call(
                InitProducerIdRequest(transactional_id=ID, transaction_timeout_ms=60_000), 5
            )
        self.producer = ProducerEpoch(answer.producer_id, answer.producer_epoch)
        batch = batch_of(
            [b"a"],
            producer_id=self.producer.producer_id,
            producer_epoch=self.producer.producer_epoch,
            base_sequence=0,
            transactional=True,
        )
        parts = [ProduceRequestPartition(index=index, records=batch) for index in range(PARTITIONS)]
        topic = ProduceRequestTopic(name="t", partition_data=parts)
        request = ProduceRequest(transactional_id=ID, acks=-1, timeout_ms=1000, topic_data=[topic])
        answer = await self.client.call(request, 12)
        assert {each.error_code for each in answer.responses[0].partition_responses} == {Error.NONE}

    async def end(self, *, commit: bool = True) -> Any:
        request = EndTxnRequest(
            transactional_id=ID,
            producer_id=self.producer.producer_id,
            producer_epoch=self.producer.producer_epoch,
            committed=commit,
        )
        return await self.client.call(request, 5)

    async def state(self) -> str:
        answer = await self.client.call(DescribeTransactionsRequest(transactional_ids=[ID]))
        state: str = answer.transaction_states[0].transaction_state
        return state

    async def until_complete(self) -> None:
        while not (await self.state()).startswith("Complete"):
            await asyncio.sleep(0.01)

    async def markers(self, index: int) -> int:
        batches = await self.client.read_all("t", index)
        return sum(bool(batch.header.attributes & CONTROL) for batch in batches)


@pytest.fixture(params=["always", "os"])
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    made = Bench(request.param)
    yield made
    made.simulation.close()


def test_every_partition_gets_one(bench: Bench) -> None:
    async def drive() -> None:
        assert (await bench.end()).error_code == Error.NONE
        await bench.until_complete()
        for index in range(PARTITIONS):
            assert await bench.markers(index) == 1
            assert len(await read_committed(bench.client, "t", index)) == 1

    bench.run(drive)


def test_a_deleted_topic_needs_none(bench: Bench) -> None:
    async def drive() -> None:
        topics = [AddPartitionsToTxnRequestTopic(name="other", partitions=[0])]
        await bench.client.call(
            AddPartitionsToTxnRequest(
                v3_and_below_transactional_id=ID,
                v3_and_below_producer_id=bench.producer.producer_id,
                v3_and_below_producer_epoch=bench.producer.producer_epoch,
                v3_and_below_topics=topics,
            ),
            3,
        )
        await bench.client.call(DeleteTopicsRequest(topics=[DeleteTopicsRequestTopic(name="other")], timeout_ms=1000))
        assert (await bench.end()).error_code == Error.NONE
        await bench.until_complete()
        assert await bench.markers(0) == 1

    bench.run(drive)


def test_what_cannot_be_written_is_tried_until_it_can(bench: Bench) -> None:
    async def drive() -> None:
        disk = bench.machine.disk
        disk.fail_when(
            lambda operation: operation.kind == "write" and "/t-1/" in operation.path,
            os_error(errno.ENOSPC, "t-1"),
            times=1_000,
        )
        assert (await bench.end()).error_code == Error.NONE
        await asyncio.sleep(10)
        assert await bench.state() == "PrepareCommit"
        assert len(await read_committed(bench.client, "t", 0)) == 1  # the others do not wait for it
        assert await read_committed(bench.client, "t", 1) == []
        disk.heal()
        await bench.until_complete()
        assert len(await read_committed(bench.client, "t", 1)) == 1
        assert [await bench.markers(index) for index in range(PARTITIONS)] == [1, 1, 1]

    bench.run(drive)


def test_a_partition_that_waits_for_its_sync_holds_up_no_other() -> None:
    bench = Bench("always")

    async def drive() -> None:
        bench.machine.disk.slow_when(lambda operation: operation.kind == "sync" and "/t-0/" in operation.path, 100)
        assert (await bench.end()).error_code == Error.NONE
        await asyncio.sleep(10)
        assert await bench.state() == "PrepareCommit"
        assert [len(await read_committed(bench.client, "t", index)) for index in range(PARTITIONS)] == [0, 1, 1]
        await bench.until_complete()

    bench.run(drive)
    bench.simulation.close()


def test_a_shard_that_is_read_again_begins_anew_and_the_old_work_stops(bench: Bench) -> None:
    async def drive() -> None:
        disk = bench.machine.disk
        disk.fail_when(
            lambda operation: operation.kind == "write" and "/t-1/" in operation.path,
            os_error(errno.ENOSPC, "t-1"),
            times=1_000,
        )
        assert (await bench.end()).error_code == Error.NONE
        await asyncio.sleep(1)
        for log in bench.broker.transactions:
            log.do(lambda machine, now: 1 / 0)  # type: ignore[arg-type, return-value]
        await asyncio.sleep(5)
        assert await bench.state() == "PrepareCommit"
        disk.heal()
        await bench.until_complete()
        assert await bench.markers(1) == 1  # not one from each
        await bench.begin()
        await asyncio.sleep(10)
        assert await bench.state() == "Ongoing"
        await bench.end(commit=False)
        await bench.until_complete()
        assert [len(await read_committed(bench.client, "t", index)) for index in range(PARTITIONS)] == [1, 1, 1]

    bench.run(drive)


def test_a_broker_that_is_killed_goes_on_where_it_was(bench: Bench) -> None:
    async def drive() -> None:
        disk = bench.machine.disk
        disk.fail_when(
            lambda operation: operation.kind == "write" and "/t-1/" in operation.path,
            os_error(errno.ENOSPC, "t-1"),
            times=1_000,
        )
        assert (await bench.end()).error_code == Error.NONE
        await asyncio.sleep(1)
        bench.sim_broker.kill()
        disk.heal()
        await bench.sim_broker.start()
        bench.client = await SimClient.connect(bench.world, "broker", PORT)
        await bench.until_complete()
        assert [len(await read_committed(bench.client, "t", index)) for index in range(PARTITIONS)] == [1, 1, 1]

    bench.run(drive)


def test_a_topic_that_is_not_known_yet_is_not_taken_for_deleted(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """The coordinator may know less of the cluster than its predecessor, who added the partitions."""

    async def drive() -> None:
        view = bench.broker.view
        refresh = view.refresh
        failures = [ConnectionLossError(), ConnectionLossError()]
        hidden = view.topics.pop("t")

        async def find_out() -> None:
            if failures:
                raise failures.pop()
            view.topics["t"] = hidden
            await refresh()

        monkeypatch.setattr(view, "refresh", find_out)
        assert (await bench.end()).error_code == Error.NONE
        await bench.until_complete()
        assert not failures
        assert [await bench.markers(index) for index in range(PARTITIONS)] == [1] * PARTITIONS

    bench.run(drive)


def test_markers_wait_for_replicas_in_sync_and_for_the_lease(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    async def drive() -> None:
        partition = bench.broker.partitions.find("t", 1)
        state = partition.state
        epoch, partition_epoch = state.leader_epoch, state.partition_epoch + 1
        partition.take_role(PartitionState((0, 1), (0,), 0, epoch, partition_epoch), 0, may_lead=True)
        assert partition.leader is not None
        partition.leader.use_min_isr(2)
        assert (await bench.end()).error_code == Error.NONE
        await asyncio.sleep(10)
        assert await bench.state() == "PrepareCommit"
        assert [await bench.markers(index) for index in range(PARTITIONS)] == [1, 0, 1]
        for log in bench.broker.transactions:
            monkeypatch.setattr(log, "_lease_holds", lambda: False)
        partition.leader.use_min_isr(1)
        await asyncio.sleep(10)
        assert await bench.markers(1) == 0
        for log in bench.broker.transactions:
            monkeypatch.setattr(log, "_lease_holds", lambda: True)
        await bench.until_complete()
        assert [await bench.markers(index) for index in range(PARTITIONS)] == [1, 1, 1]

    bench.run(drive)


def test_a_marker_of_an_old_coordinator_is_refused(bench: Bench) -> None:
    async def drive() -> None:
        def ending(coordinator_epoch: int) -> list[Ending]:
            return [Ending(bench.producer, True, coordinator_epoch, 0)]

        markers, where = bench.broker.markers, TopicPartition("t", 0)
        assert await markers.append(where, ending(5), lambda: True) == [Error.NONE]
        assert await markers.append(where, ending(4), lambda: True) == [Error.TRANSACTION_COORDINATOR_FENCED]
        assert await markers.append(where, ending(6), lambda: True) == [Error.NONE]

    bench.run(drive)
