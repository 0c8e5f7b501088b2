"""A cluster with quotas, a client that does not care about them, and a quiet one beside it.

The noisy one keeps several connections full and listens to no throttle time; the quiet one writes and reads a little
every tenth of a second. Whatever kind of quota the noisy one has, it gets what the quota says and no more, and the
quiet one is neither throttled nor late, on the same broker. The same seed is the same run; without the safeguards that
hold clients the story ends differently.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Any

import pytest

from penstock.broker.client_quotas import ClientQuotas
from penstock.broker.connection import Connection
from penstock.security.quota_rates import Meter
from penstock.testing.sim_client import FETCH_VERSION, PRODUCE_VERSION, SimClient, batch_of, batches_of, produce_request
from penstock.testing.sim_cluster import PORT, SimCluster
from penstock.testing.sim_world import Simulation
from penstock.wire.messages import k01_fetch as k01
from penstock.wire.messages import k19_create_topics as k19
from penstock.wire.messages import k49_alter_client_quotas as k49

pytestmark = pytest.mark.sim

SECONDS = 30.0
WINDOWS = 2
CONNECTIONS, IN_FLIGHT = 3, 4
VALUE = bytes(10_000)
QUIET_S_MAX = 0.1
REQUEST_S = 0.02
"""What each request is said to take: steps take no time in a simulation."""
LIMITS = {"producer_byte_rate": 50_000.0, "consumer_byte_rate": 50_000.0, "request_percentage": 10.0}
LEADER = 1


@dataclass
class Seen:
    """What a client got, and was told."""

    done: float = 0.0
    throttles_ms: list[int] = field(default_factory=list)
    slowest_s: float = 0.0
    values: list[bytes] = field(default_factory=list)


class Story:
    """One run."""

    def __init__(self, key: str, seed: int = 7) -> None:
        self._key = key
        self._seed = seed
        self._is_over = False
        self.noisy, self.quiet = Seen(), Seen()

    def play(self) -> Story:
        with Simulation(self._seed, limit_s=10_000) as simulation:
            simulation.run(self._play(simulation))
        return self

    async def _play(self, simulation: Simulation) -> None:
        cluster = SimCluster(simulation, 3, {"quota.window.num": str(WINDOWS)})
        await cluster.start()
        self._world = simulation.machine("client").process("client").world
        admin = await self._connect("admin")
        for topic, replicas in (("loud", [1, 2, 3]), ("quiet", [1, 3, 2])):
            await _create(admin, topic, replicas)
        for _ in range(10 if self._key == "consumer_byte_rate" else 0):
            await admin.produce("loud", 0, batch_of([VALUE]))
        await self._set_quota(admin)
        loud = [await self._connect("noisy") for _ in range(CONNECTIONS)]
        noise = [asyncio.ensure_future(self._make_noise(each)) for each in loud for _ in range(IN_FLIGHT)]
        await self._be_quiet()
        self._is_over = True
        for each in noise:
            each.cancel()
        await asyncio.wait(noise)

    async def _connect(self, client_id: str) -> SimClient:
        return await SimClient.connect(self._world, f"broker{LEADER}", PORT, client_id)

    async def _set_quota(self, admin: SimClient) -> None:
        entity = [k49.AlterClientQuotasRequestEntity(entity_type="client-id", entity_name="noisy")]
        limit = k49.AlterClientQuotasRequestOp(key=self._key, value=LIMITS[self._key])
        entry = k49.AlterClientQuotasRequestEntry(entity=entity, ops=[limit])
        answer = await admin.call(k49.AlterClientQuotasRequest(entries=[entry]))
        assert not answer.entries[0].error_code

    async def _make_noise(self, client: SimClient) -> None:
        while not self._is_over and self.noisy.done < 2 * LIMITS[self._key] * SECONDS:  # more need not be shown
            if self._key == "consumer_byte_rate":
                part = k01.FetchRequestPartition(partition=0, fetch_offset=0, partition_max_bytes=20_000)
                topic = k01.FetchRequestTopic(topic="loud", partitions=[part])
                answer = await client.call(k01.FetchRequest(max_wait_ms=0, min_bytes=1, topics=[topic]), FETCH_VERSION)
                self.noisy.done += sum(len(row.records or b"") for each in answer.responses for row in each.partitions)
            else:
                batch = batch_of([VALUE if self._key == "producer_byte_rate" else b"small"])
                answer = await client.call(produce_request("loud", 0, batch), PRODUCE_VERSION)
                assert not answer.responses[0].partition_responses[0].error_code
                self.noisy.done += len(batch) if self._key == "producer_byte_rate" else REQUEST_S * 100
            self.noisy.throttles_ms.append(answer.throttle_time_ms)

    async def _be_quiet(self) -> None:
        client, clock = await self._connect("quiet"), self._world.clock
        ends_s = clock.monotonic() + SECONDS
        while (began_s := clock.monotonic()) < ends_s:
            value = b"round %d" % len(self.quiet.values)
            answer = await client.call(produce_request("quiet", 0, batch_of([value])), PRODUCE_VERSION)
            told = answer.responses[0].partition_responses[0]
            assert not told.error_code
            found = batches_of(await client.fetch("quiet", 0, told.base_offset))
            assert value in found[0].content
            self.quiet.values.append(value)
            self.quiet.throttles_ms.append(answer.throttle_time_ms)
            self.quiet.slowest_s = max(self.quiet.slowest_s, clock.monotonic() - began_s)
            await asyncio.sleep(0.1)

    def check(self) -> None:
        """The noisy one had its quota and a little more; the quiet one noticed nothing."""
        whole = LIMITS[self._key] * SECONDS
        assert 0.7 * whole < self.noisy.done < 1.4 * whole  # of two windows one is forgotten at a time, as a whole
        assert max(self.noisy.throttles_ms) > 0
        assert not any(self.quiet.throttles_ms)
        assert self.quiet.slowest_s < QUIET_S_MAX
        assert len(self.quiet.values) > SECONDS / 0.2


async def _create(admin: SimClient, name: str, replicas: list[int]) -> None:
    placed = k19.CreateTopicsRequestReplicaAssignment(partition_index=0, broker_ids=replicas)
    topic = k19.CreateTopicsRequestTopic(name=name, num_partitions=-1, replication_factor=-1, assignments=[placed])
    answer = await admin.call(k19.CreateTopicsRequest(topics=[topic]))
    assert not answer.topics[0].error_code, answer


@pytest.fixture(autouse=True)
def requests_take_time(monkeypatch: pytest.MonkeyPatch) -> None:
    spent = ClientQuotas.spent
    monkeypatch.setattr(ClientQuotas, "spent", lambda self, connection, _s: spent(self, connection, REQUEST_S))


@pytest.mark.parametrize("key", LIMITS)
def test_the_noisy_one_is_held_and_the_quiet_one_is_not(key: str) -> None:
    story = Story(key).play()
    story.check()
    if key == "producer_byte_rate":
        again = Story(key).play()
        assert (again.noisy, again.quiet) == (story.noisy, story.quiet)


def _not_held(_self: Connection, _seconds: float) -> None:
    """The client is told, and read from all the same."""


def _own_meter(self: ClientQuotas, *_: Any) -> Meter:
    """A meter of its own for each connection."""
    meter = Meter(self.windows)
    meter.bound = LIMITS["producer_byte_rate"]
    return meter


def _everybodys(self: ClientQuotas, key: str, *_: Any) -> Meter | None:
    """One meter for all clients, whatever their ids."""
    meter = self._meters.setdefault((key, None, None), Meter(self.windows))
    meter.bound = LIMITS["producer_byte_rate"]
    return meter


@pytest.mark.parametrize(
    ("owner", "name", "replacement"),
    [
        (Connection, "throttle", _not_held),
        (ClientQuotas, "_meter", _own_meter),
        (ClientQuotas, "_meter", _everybodys),
    ],
    ids=["muted-channels", "shared-meters", "whose-meter"],
)
def test_without_a_safeguard_the_story_ends_otherwise(
    owner: type, name: str, replacement: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, replacement)
    with pytest.raises(AssertionError):
        Story("producer_byte_rate").play().check()
