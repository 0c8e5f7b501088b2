"""What the controller does on request, by the clock and for leaders, in a simulated cluster of four brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import pytest

from penstock.base.errors import Error
from penstock.testing.sim_client import SimClient, batch_of
from penstock.testing.sim_cluster import DATA, SimCluster, SimClusterBroker
from penstock.testing.sim_device import os_error
from penstock.testing.sim_world import Process, Simulation
from penstock.wire.messages.k19_create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestConfig,
    CreateTopicsRequestReplicaAssignment,
    CreateTopicsRequestTopic,
)
from penstock.wire.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicsRequestTopic
from penstock.wire.messages.k43_elect_leaders import ElectLeadersRequest, ElectLeadersRequestTopic
from penstock.wire.messages.k44_incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestConfig,
    IncrementalAlterConfigsRequestResource,
)
from penstock.wire.messages.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsRequestPartition,
    AlterPartitionReassignmentsRequestTopic,
)
from penstock.wire.messages.k46_list_partition_reassignments import ListPartitionReassignmentsRequest
from penstock.wire.messages.k64_unregister_broker import UnregisterBrokerRequest
from penstock.zookeeper.topic_znodes import PartitionState
from penstock.zookeeper.znodes import TOPIC_DELETIONS_PATH

pytestmark = pytest.mark.sim

SETTINGS = {
    "replica.lag.time.max.ms": "3000",
    "leader.imbalance.check.interval.seconds": "3600",
    "log.dirs": f"{DATA}/first,{DATA}/second",
}


class Bench:
    """Four brokers; topic `t` has one partition on brokers 1, 2 and 3, of which 1 is the preferred leader."""

    def __init__(self, seed: int = 1, settings: Mapping[str, str] | None = None) -> None:
        self.simulation = Simulation(seed, shuffle=True, limit_s=600)
        self.cluster = SimCluster(self.simulation, 4, {**SETTINGS, **(settings or {})}, has_watchers=True)
        self.process: Process = self.simulation.machine("client").process("client")

    def run(self, drive: Callable[[], Awaitable[None]], replicas: tuple[int, ...] = (1, 2, 3), **configs: str) -> None:
        async def main() -> None:
            await self.cluster.start()
            await self.create("t", replicas, **configs)
            await drive()

        with self.simulation:
            self.simulation.run(main())

    async def create(self, name: str, replicas: tuple[int, ...], **configs: str) -> None:
        topic = CreateTopicsRequestTopic(
            name=name,
            num_partitions=-1,
            replication_factor=-1,
            assignments=[CreateTopicsRequestReplicaAssignment(partition_index=0, broker_ids=list(replicas))],
            configs=[CreateTopicsRequestConfig(name=key.replace("_", "."), value=configs[key]) for key in configs],
        )
        (answer,) = (await self.call(CreateTopicsRequest(topics=[topic], timeout_ms=10_000))).topics
        assert answer.error_code == Error.NONE, answer

    @property
    def running(self) -> list[SimClusterBroker]:
        return [broker for broker in self.cluster.brokers if broker.is_running and broker.running is not None]

    async def client(self, broker: SimClusterBroker | None = None) -> SimClient:
        return await (broker or self.running[0]).connect(self.process)

    async def call(self, request: Any) -> Any:
        """Ask a broker that is not the controller, if there is one."""
        controller = self.cluster.controller
        others = [broker for broker in self.running if broker is not controller]
        client = await self.client(others[0] if others else None)
        answer = await client.call(request)
        client.close()
        return answer

    def state(self, name: str = "t") -> PartitionState:
        """As the newest of the brokers knows it."""
        states = [broker.running.broker.view.topics[name].partitions[0] for broker in self.running]  # type: ignore[union-attr]
        return max(states, key=lambda state: (state.leader_epoch, state.partition_epoch))

    def pending_deletions(self) -> bool:
        keeper = self.cluster.keeper.keeper
        assert keeper is not None
        return any(path.startswith(f"{TOPIC_DELETIONS_PATH}/") for path in keeper.store.tree.nodes)

    async def until(self, holds: Callable[[], bool], within_s: float = 60) -> float:
        start_s = self.simulation.loop.time()
        while not holds():
            assert self.simulation.loop.time() < start_s + within_s, self.state()
            await asyncio.sleep(0.02)
        return self.simulation.loop.time() - start_s

    async def write(self, count: int = 1) -> None:
        """With acks=all, until each is acknowledged."""
        while count:
            leader = self.state().leader
            broker = self.cluster.broker(leader) if leader > 0 else None
            try:
                if broker is not None and broker.is_running:
                    client = await self.client(broker)
                    answer = await client.produce("t", 0, batch_of([b"v"]), timeout_ms=1000)
                    client.close()
                    count -= answer.error_code == Error.NONE
            except OSError:
                pass
            await asyncio.sleep(0.02)

    def isr_is(self, *members: int) -> Callable[[], bool]:
        return lambda: set(self.state().isr) == set(members)


async def elect(bench: Bench, kind: int, topics: list[str] | None) -> dict[str, Error]:
    asked = None if topics is None else [ElectLeadersRequestTopic(topic=name, partitions=[0]) for name in topics]
    answer = await bench.call(ElectLeadersRequest(election_type=kind, topic_partitions=asked))
    assert answer.error_code == Error.NONE
    return {
        topic.topic: Error(part.error_code)
        for topic in answer.replica_election_results
        for part in topic.partition_result
    }


async def reassign(bench: Bench, replicas: list[int] | None) -> Error:
    part = AlterPartitionReassignmentsRequestPartition(partition_index=0, replicas=replicas)
    topic = AlterPartitionReassignmentsRequestTopic(name="t", partitions=[part])
    answer = await bench.call(AlterPartitionReassignmentsRequest(topics=[topic]))
    assert answer.error_code == Error.NONE
    return Error(answer.responses[0].partitions[0].error_code)


async def ongoing(bench: Bench) -> list[tuple[list[int], list[int], list[int]]]:
    answer = await bench.call(ListPartitionReassignmentsRequest(topics=None))
    parts = [part for topic in answer.topics for part in topic.partitions]
    return [(part.replicas, part.adding_replicas, part.removing_replicas) for part in parts]


# ── in-sync replicas ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("seed", range(3))
def test_who_is_cut_off_from_its_leader_leaves_and_comes_back(seed: int) -> None:
    bench = Bench(seed)

    async def drive() -> None:
        await bench.write(5)
        links = bench.simulation.network.links
        cut, kept = (3, 2) if bench.cluster.controller is not bench.cluster.broker(3) else (2, 3)
        links.cut_both("broker1", f"broker{cut}")
        await bench.write(5)
        assert set(bench.state().isr) == {1, kept}
        links.heal_all()
        await bench.until(bench.isr_is(1, 2, 3))
        await bench.write(1)
        assert bench.state().leader_epoch == 0

    bench.run(drive)


def test_who_is_stopped_and_comes_back_is_in_sync_again_at_once() -> None:
    bench = Bench()

    async def drive() -> None:
        await bench.write(5)
        bench.cluster.broker(3).kill()
        await bench.until(bench.isr_is(1, 2))
        await bench.write(5)
        await bench.cluster.broker(3).start()
        assert await bench.until(bench.isr_is(1, 2, 3)) < 1

    bench.run(drive)


def test_a_leader_that_cannot_reach_the_controller_holds_back_until_it_can() -> None:
    bench = Bench()

    async def drive() -> None:
        await bench.write(5)
        await bench.until(lambda: bench.cluster.controller is not None)
        controller = bench.cluster.controller
        assert controller is not None
        leader = next(each for each in (1, 2, 3) if each != controller.broker_id)
        if bench.state().leader != leader:
            bench.cluster.broker(bench.state().leader).kill()
            await bench.until(lambda: bench.state().leader not in (-1, controller.broker_id))
            leader = bench.state().leader
        lost = next(each for each in bench.state().isr if each not in (leader, controller.broker_id))
        links = bench.simulation.network.links
        links.cut_both(f"broker{leader}", controller.machine.name)
        links.cut_both(f"broker{leader}", f"broker{lost}")
        await asyncio.sleep(20)
        links.heal_all()
        await bench.write(3)
        for broker_id in (1, 2, 3):
            if not bench.cluster.broker(broker_id).is_running:
                await bench.cluster.broker(broker_id).start()
        await bench.until(bench.isr_is(1, 2, 3))

    bench.run(drive)


# ── elections ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_leadership_is_given_back_on_request() -> None:
    bench = Bench()

    async def drive() -> None:
        assert await elect(bench, 0, ["t"]) == {"t": Error.ELECTION_NOT_NEEDED}
        bench.cluster.broker(1).kill()
        await bench.until(lambda: bench.state().leader == 2)
        assert await elect(bench, 0, ["t"]) == {"t": Error.PREFERRED_LEADER_NOT_AVAILABLE}
        await bench.cluster.broker(1).start()
        await bench.until(bench.isr_is(1, 2, 3))
        assert bench.state().leader == 2
        assert await elect(bench, 0, None) == {"t": Error.NONE}
        assert bench.state().leader == 1
        await bench.write(1)

    bench.run(drive)


@pytest.mark.parametrize("is_on", [True, False])
def test_leadership_is_given_back_by_itself(is_on: bool) -> None:
    interval = {"leader.imbalance.check.interval.seconds": "20", "auto.leader.rebalance.enable": str(is_on).lower()}
    bench = Bench(settings=interval)

    async def drive() -> None:
        for _ in range(2):
            bench.cluster.broker(1).kill()
            await bench.until(lambda: bench.state().leader == 2)
            await bench.cluster.broker(1).start()
            await bench.until(bench.isr_is(1, 2, 3))
            await asyncio.sleep(45)
            assert bench.state().leader == (1 if is_on else 2)

    bench.run(drive)


def test_an_unclean_election_on_request_or_as_soon_as_it_is_allowed() -> None:
    bench = Bench()

    async def drive() -> None:
        await bench.create("u", (1, 2))
        await bench.write(2)
        bench.cluster.broker(2).kill()
        bench.cluster.broker(3).kill()
        await bench.until(lambda: set(bench.state().isr) == {1} and set(bench.state("u").isr) == {1})
        await bench.write(2)
        bench.cluster.broker(1).kill()
        await bench.until(lambda: bench.state().leader == -1 and bench.state("u").leader == -1)
        await bench.cluster.broker(2).start()
        await bench.until(lambda: bench.cluster.controller is not None)
        assert bench.state().leader == bench.state("u").leader == -1
        assert await elect(bench, 0, ["t"]) == {"t": Error.PREFERRED_LEADER_NOT_AVAILABLE}
        assert await elect(bench, 1, ["t"]) == {"t": Error.NONE}
        assert (bench.state().leader, bench.state().isr) == (2, (2,))
        assert bench.state("u").leader == -1
        config = IncrementalAlterConfigsRequestConfig(
            name="unclean.leader.election.enable", config_operation=0, value="true"
        )
        resource = IncrementalAlterConfigsRequestResource(resource_type=2, resource_name="u", configs=[config])
        answer = await bench.call(IncrementalAlterConfigsRequest(resources=[resource]))
        assert answer.responses[0].error_code == Error.NONE
        assert await bench.until(lambda: bench.state("u").leader == 2) < 5

    bench.run(drive, min_insync_replicas="1")


# ── reassignments ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("seed", range(3))
def test_a_partition_moves_to_other_brokers(seed: int) -> None:
    bench = Bench(seed)

    async def drive() -> None:
        await bench.write(20)
        assert await reassign(bench, [4, 2]) is Error.NONE
        await bench.until(lambda: not bench.state().adding and bench.state().replicas == (4, 2))
        assert await ongoing(bench) == []
        assert bench.state().leader == 4 and set(bench.state().isr) == {2, 4}
        await bench.write(5)
        assert held(bench.cluster.broker(1)) == held(bench.cluster.broker(3)) == set()

    bench.run(drive)


def test_a_reassignment_that_cannot_end_is_shown_and_taken_back() -> None:
    bench = Bench()

    async def drive() -> None:
        await bench.write(5)
        for other in (1, 2, 3):
            bench.simulation.network.links.cut_both("broker4", f"broker{other}")
        assert await reassign(bench, None) is Error.NO_REASSIGNMENT_IN_PROGRESS
        assert await reassign(bench, [4, 2, 3]) is Error.NONE
        assert await ongoing(bench) == [([4, 2, 3, 1], [4], [1])]
        await bench.write(3)
        assert await reassign(bench, None) is Error.NONE
        assert await ongoing(bench) == []
        assert bench.state().replicas == (2, 3, 1) and set(bench.state().isr) == {1, 2, 3}
        await bench.write(3)

    bench.run(drive)


def test_a_broker_is_emptied_stopped_and_forgotten() -> None:
    bench = Bench()

    async def drive() -> None:
        await bench.write(5)
        unregister = UnregisterBrokerRequest(broker_id=3)
        assert (await bench.call(unregister)).error_code == Error.INVALID_REQUEST, "it runs"
        await bench.cluster.broker(3).stop()
        await bench.until(bench.isr_is(1, 2))
        assert (await bench.call(unregister)).error_code == Error.INVALID_REQUEST, "it holds a replica"
        assert await reassign(bench, [1, 2, 4]) is Error.NONE
        await bench.until(lambda: bench.state().replicas == (1, 2, 4))
        assert (await bench.call(unregister)).error_code == Error.NONE
        assert (await bench.call(unregister)).error_code == Error.BROKER_ID_NOT_REGISTERED

    bench.run(drive)


def test_what_was_moved_away_or_deleted_meanwhile_is_removed_after_a_return() -> None:
    bench = Bench()

    async def drive() -> None:
        await bench.create("u", (3, 4))
        await bench.write(5)
        away = bench.cluster.broker(3)
        away.kill()
        await bench.until(bench.isr_is(1, 2))
        assert await reassign(bench, [1, 2, 4]) is Error.NONE
        await bench.until(lambda: bench.state().replicas == (1, 2, 4))
        answer = await bench.call(DeleteTopicsRequest(topics=[DeleteTopicsRequestTopic(name="u")]))
        assert answer.responses[0].error_code == Error.NONE
        assert held(away) == {"t-0", "u-0"} and bench.pending_deletions()
        await away.start()
        await bench.until(lambda: not held(away) and not bench.pending_deletions())
        await bench.write(1)

    bench.run(drive)


def held(broker: SimClusterBroker) -> set[str]:
    """The folders of partitions on a broker's disk."""
    disk = broker.machine.disk
    names = {name for path in ("first", "second") for name in disk.list_dir(f"{DATA}/{path}")}
    return {name for name in names if name.endswith("-0")}


# ── failed log directories ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("failing", [1, 2])
def test_a_log_directory_fails_and_others_go_on(seed: int, failing: int) -> None:
    bench = Bench(seed)

    async def drive() -> None:
        await bench.write(10)
        broker = bench.cluster.broker(failing)
        assert broker.running is not None
        partitions = broker.running.broker.partitions
        directory = partitions.directory_of(partitions.find("t", 0))
        broker.machine.disk.fail_when(
            lambda operation: operation.kind in ("write", "sync") and operation.path.startswith(directory.path),
            os_error(5, directory.path),
            times=1_000_000,
        )
        await bench.write(10)
        await bench.until(bench.isr_is(*({1, 2, 3} - {failing})))
        await bench.until(lambda: directory.offline is not None)
        assert broker.is_running
        assert bench.state().leader != failing
        other = "v"
        await bench.create(other, (failing,))
        assert partitions.find(other, 0).leader is not None, "the other directory serves"
        broker.machine.disk.heal()
        broker.kill()
        await broker.start()
        await bench.until(bench.isr_is(1, 2, 3))
        await bench.write(1)

    bench.run(drive, flush_mode="always")


def test_a_broker_that_can_tell_nobody_of_its_failed_directory_ends() -> None:
    bench = Bench(settings={"log.dir.failure.timeout.ms": "5000"})

    async def drive() -> None:
        await bench.write(5)
        controller = bench.cluster.controller
        assert controller is not None
        broker = next(bench.cluster.broker(each) for each in (1, 2, 3) if bench.cluster.broker(each) is not controller)
        assert broker.running is not None
        bench.simulation.network.links.cut_both(broker.machine.name, controller.machine.name)
        partitions = broker.running.broker.partitions
        partitions.directory_failed(partitions.directory_of(partitions.find("t", 0)), "it is broken")
        await bench.until(lambda: not broker.is_running)
        await bench.until(bench.isr_is(*({1, 2, 3} - {broker.broker_id})))
        await bench.write(2)

    bench.run(drive)


def test_the_only_replica_of_a_failed_directory_waits_for_it() -> None:
    bench = Bench()

    async def drive() -> None:
        await bench.write(5)
        broker = bench.cluster.broker(2)
        assert broker.running is not None
        partitions = broker.running.broker.partitions
        partitions.directory_failed(partitions.directory_of(partitions.find("t", 0)), "it is broken")
        await bench.until(lambda: bench.state().leader == -1)
        assert bench.state().isr == (2,)
        await broker.stop()
        await broker.start()
        await bench.until(lambda: bench.state().leader == 2)
        client = await bench.client(broker)
        assert len(await client.read_all("t", 0)) == 5

    bench.run(drive, replicas=(2,))
