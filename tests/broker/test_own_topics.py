"""The cluster's own topics, where they cannot be made."""

from __future__ import annotations

import logging

import pytest

from penstock.base.errors import Error
from penstock.testing.sim_broker import PORT, SimBroker
from penstock.testing.sim_client import SimClient
from penstock.testing.sim_world import Simulation
from penstock.wire.messages.k10_find_coordinator import FindCoordinatorRequest


def test_who_runs_the_broker_hears_once_what_is_lacking(caplog: pytest.LogCaptureFixture) -> None:
    """Clients only hear that they should ask again."""
    caplog.set_level(logging.WARNING)
    with Simulation(3, limit_s=1000) as simulation:
        broker = SimBroker(simulation.machine("broker"), {"offsets.topic.replication.factor": "3"})
        world = simulation.machine("client").process("client").world

        async def main() -> None:
            await broker.start()
            client = await SimClient.connect(world, "broker", PORT)
            for _ in range(3):
                answer = await client.call(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
                assert answer.coordinators[0].error_code == Error.COORDINATOR_NOT_AVAILABLE

        simulation.run(main())
    (told,) = [record.getMessage() for record in caplog.records if "__consumer_offsets" in record.getMessage()]
    assert "cannot be made yet" in told and "3" in told
