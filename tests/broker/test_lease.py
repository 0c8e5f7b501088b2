"""A lease is of the session in which a broker has read what it acts on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import cast

import pytest

from penstock.base.errors import Error
from penstock.base.identifiers import TopicPartition
from penstock.base.world import Clock
from penstock.broker.lease import Lease
from penstock.testing.sim_client import batch_of
from penstock.testing.sim_cluster import SimCluster
from penstock.testing.sim_world import Simulation
from penstock.zookeeper.coordination import Coordination, SessionState


class Service:
    """A coordination whose sessions end when the test says so."""

    def __init__(self) -> None:
        self.session_id = 1
        self.timeout_ms = 6000
        self.lease_until_s = 6.0
        self.now = 0.0
        self.listener: Callable[[SessionState], None]

    def add_listener(self, listener: Callable[[SessionState], None]) -> None:
        self.listener = listener

    def monotonic(self) -> float:
        return self.now


def test_a_lease_ends_with_its_time_and_with_its_session() -> None:
    service = Service()
    lease = Lease(cast(Clock, service), cast(Coordination, service))
    assert lease.holds()
    service.now = 6.0
    assert not lease.holds()
    service.lease_until_s = 9.0
    assert lease.holds()
    service.listener(SessionState.EXPIRED)
    service.session_id, service.lease_until_s = 2, 20.0
    service.listener(SessionState.CONNECTED)
    assert not lease.holds()
    lease.acts_on(1)  # what was under way when it ended
    assert not lease.holds()
    lease.acts_on(2)
    assert lease.holds()
    lease.acts_on(0)  # something has to be read again
    assert not lease.holds()


@pytest.fixture
def simulation() -> Iterator[Simulation]:
    made = Simulation(8, limit_s=10_000)
    yield made
    made.close()


def test_a_broker_with_a_new_session_does_not_lead_as_before(
    simulation: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its topic has no copies, so nobody else leads it; but that is not for it to know."""

    async def main() -> None:
        cluster = SimCluster(simulation, 2, {"default.replication.factor": "1"})
        await cluster.start()
        process = simulation.machine("client").process("client")
        client = await cluster.broker(1).connect(process)
        await client.create_topic("t", 4)
        broker = cluster.broker(1)
        assert broker.running is not None
        partition = next(
            found
            for index in range(4)
            if (found := broker.running.broker.partitions.get(TopicPartition("t", index))) and found.leader
        )
        where = partition.name
        assert (await client.produce(*where, batch_of([b"a"]))).error_code == Error.NONE
        view = broker.running.broker.view
        read_all = view._read_all
        may_read = asyncio.Event()

        async def read_later() -> None:
            await may_read.wait()
            await read_all()

        monkeypatch.setattr(view, "_read_all", read_later)
        former = broker.session_id
        cluster.keeper.expire(former)
        while broker.session_id == former:
            await asyncio.sleep(0.01)
        await asyncio.sleep(1)
        assert partition.leader is not None  # it has not heard yet
        assert (await client.produce(*where, batch_of([b"b"]))).error_code == Error.NOT_LEADER_OR_FOLLOWER
        may_read.set()
        while (await client.produce(*where, batch_of([b"c"]))).error_code != Error.NONE:
            await asyncio.sleep(0.1)

    simulation.run(asyncio.wait_for(main(), 100))
