"""Several log directories, one of which fails; and topics that are deleted then."""

from __future__ import annotations

import asyncio

import pytest

from penstock.base.errors import Error
from penstock.broker.deletions import finish_deletions
from penstock.testing.history import body_of
from penstock.testing.sim_broker import DATA, PORT, SimBroker
from penstock.testing.sim_client import SimClient, batch_of
from penstock.testing.sim_world import Simulation
from penstock.wire.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicsRequestTopic
from penstock.zookeeper.znodes import TOPIC_DELETIONS_PATH

pytestmark = pytest.mark.sim

ALWAYS = {"flush.mode": "always"}
FIRST, SECOND = f"{DATA}/first", f"{DATA}/second"


async def delete(client: SimClient, name: str) -> Error:
    response = await client.call(DeleteTopicsRequest(topics=[DeleteTopicsRequestTopic(name=name)]), 6)
    return Error(response.responses[0].error_code)


def test_a_topic_that_was_deleted_on_a_failed_disk_is_not_taken_for_the_next_of_its_name() -> None:
    async def drive() -> None:
        await broker.start()
        client = await SimClient.connect(world, "broker", PORT)
        await client.create_topic("other")
        await client.create_topic("t", 1, ALWAYS)
        machine.disk.fail_sync(f"{SECOND}/t-0/{0:020d}.log")
        assert (await client.produce("t", 0, batch_of([b"old"]))).error_code == Error.KAFKA_STORAGE_ERROR
        assert await delete(client, "t") is Error.NONE
        await client.create_topic("t", 1, ALWAYS)
        new = batch_of([b"new"])
        assert (await client.produce("t", 0, new)).error_code == Error.NONE
        await broker.stop()
        assert machine.disk.is_dir(f"{FIRST}/t-0") and machine.disk.is_dir(f"{SECOND}/t-0")
        await broker.start()
        client = await SimClient.connect(world, "broker", PORT)
        assert [body_of(batch.content) for batch in await client.read_all("t", 0)] == [body_of(new)]
        assert machine.disk.is_dir(f"{FIRST}/t-0") and not machine.disk.is_dir(f"{SECOND}/t-0")

    with Simulation(5, limit_s=100_000) as simulation:
        machine = simulation.machine("broker")
        world = simulation.machine("client").process("client").world
        broker = SimBroker(machine, {"log.dirs": f"{FIRST},{SECOND}"})
        simulation.run(drive())


def test_a_deletion_that_is_only_decided_yet_is_not_taken_for_done() -> None:
    async def drive() -> None:
        broker = (await started.start()).broker
        client = await SimClient.connect(world, "broker", PORT)
        await client.create_topic("t")
        coordination = broker.role._coordination
        async with broker.view._lock:  # so the broker cannot hear of it yet
            deletion = asyncio.ensure_future(delete(client, "t"))
            while not (await coordination.children(TOPIC_DELETIONS_PATH))[0]:
                await asyncio.sleep(0.01)
            await finish_deletions(broker, coordination)
            assert (await coordination.children(TOPIC_DELETIONS_PATH))[0]
        assert await deletion is Error.NONE
        assert not (await coordination.children(TOPIC_DELETIONS_PATH))[0]
        assert not machine.disk.is_dir(f"{DATA}/logs/t-0")

    with Simulation(5, limit_s=100_000) as simulation:
        machine = simulation.machine("broker")
        world = simulation.machine("client").process("client").world
        started = SimBroker(machine)
        simulation.run(drive())
