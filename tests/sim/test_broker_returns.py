"""What a broker may believe of what its last process left behind."""

from __future__ import annotations

import pytest

from penstock.base.errors import Error
from penstock.testing.history import body_of
from penstock.testing.sim_broker import DATA, PORT, SimBroker
from penstock.testing.sim_client import SimClient, batch_of
from penstock.testing.sim_world import Simulation

pytestmark = pytest.mark.sim

LOG_FILE = f"{DATA}/logs/t-0/00000000000000000000.log"


def test_a_batch_whose_sync_failed_is_durable_once_its_retry_is_acknowledged() -> None:
    """The system takes pages of a failed sync for written; a restart must not take its word for it."""

    async def drive() -> None:
        await broker.start()
        world = simulation.machine("client").process("client").world
        client = await SimClient.connect(world, "broker", PORT)
        await client.create_topic("t", 1, {"flush.mode": "always"})
        numbered = {"producer_id": 7, "producer_epoch": 0}
        first = batch_of([b"first"], base_sequence=0, **numbered)
        second = batch_of([b"second"], base_sequence=1, **numbered)
        assert (await client.produce("t", 0, first)).error_code == Error.NONE
        machine.disk.fail_sync(LOG_FILE)
        assert (await client.produce("t", 0, second)).error_code == Error.KAFKA_STORAGE_ERROR
        broker.kill()
        await broker.start()
        client = await SimClient.connect(world, "broker", PORT)
        assert (await client.produce("t", 0, second)).error_code == Error.NONE
        broker.lose_power("all")
        await broker.start()
        client = await SimClient.connect(world, "broker", PORT)
        assert [body_of(batch.content) for batch in await client.read_all("t", 0)] == [body_of(first), body_of(second)]

    with Simulation(3, limit_s=100_000) as simulation:
        machine = simulation.machine("broker")
        broker = SimBroker(machine)
        simulation.run(drive())


def test_every_return_has_a_new_leader_epoch() -> None:
    async def drive() -> None:
        world = simulation.machine("client").process("client").world
        for expected in range(3):
            await broker.start()
            client = await SimClient.connect(world, "broker", PORT)
            if expected == 0:
                await client.create_topic("t", 1, {})
            assert (await client.produce("t", 0, batch_of([b"x"]))).error_code == Error.NONE
            broker.kill()
        await broker.start()
        client = await SimClient.connect(world, "broker", PORT)
        epochs = [batch.header.leader_epoch for batch in await client.read_all("t", 0)]
        assert epochs == [0, 1, 2]

    with Simulation(4, limit_s=100_000) as simulation:
        broker = SimBroker(simulation.machine("broker"))
        simulation.run(drive())
