"""Any broker takes what only the controller decides, whoever that is, and whatever happens to it meanwhile."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from penstock.base.errors import Error
from penstock.broker.cluster_view import ClusterView
from penstock.testing.sim_client import SimClient
from penstock.testing.sim_cluster import PORT, SESSION_TIMEOUT_MS, SimCluster, SimClusterBroker
from penstock.testing.sim_world import Simulation
from penstock.wire.api_declaration import Api
from penstock.wire.codec import decode, encode
from penstock.wire.messages.k03_metadata import MetadataRequest, MetadataRequestTopic
from penstock.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.k19_create_topics import API as CREATE_TOPICS
from penstock.wire.messages.k19_create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestReplicaAssignment,
    CreateTopicsRequestTopic,
    CreateTopicsResponse,
)
from penstock.wire.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicsRequestTopic
from penstock.wire.messages.k33_alter_configs import (
    AlterConfigsRequest,
    AlterConfigsRequestConfig,
    AlterConfigsRequestResource,
)
from penstock.wire.messages.k37_create_partitions import CreatePartitionsRequest, CreatePartitionsRequestTopic
from penstock.wire.messages.k44_incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestConfig,
    IncrementalAlterConfigsRequestResource,
)
from penstock.wire.messages.k20004_await_changes import AwaitChangesRequest
from penstock.wire.messages.k20005_leave_cluster import LeaveClusterRequest
from penstock.wire.messages.k20007_envelope import EnvelopeRequest

TOPIC, BROKER = 2, 4


class Stage:
    """A cluster of three, and a client of each of them."""

    def __init__(self) -> None:
        self.simulation = Simulation(11, limit_s=100_000)
        self.cluster = SimCluster(self.simulation, 3, has_watchers=True)
        self.client_process = self.simulation.machine("client").process("client")

    def run(self, play: Callable[[Stage], Awaitable[None]]) -> None:
        async def main() -> None:
            await self.cluster.start()
            await play(self)

        self.simulation.run(main())

    @property
    def controller(self) -> SimClusterBroker:
        found = self.cluster.controller
        assert found is not None
        return found

    @property
    def others(self) -> list[SimClusterBroker]:
        return [broker for broker in self.cluster.brokers if broker is not self.controller]

    async def client(self, broker: SimClusterBroker, client_id: str = "c") -> SimClient:
        connecting = SimClient.connect(self.client_process.world, broker.machine.name, PORT, client_id)
        client: SimClient = await self.client_process.start(connecting)
        return client

    async def ask(self, broker: SimClusterBroker, request: Any, version: int | None = None) -> Any:
        client = await self.client(broker)
        return await client.call(request, version)

    def hears_late(self, broker: SimClusterBroker, delay_s: float) -> None:
        """What the keeper says to it takes so long."""
        self.simulation.network.links.set_delay("keeper", broker.machine.name, delay_s, delay_s)

    @property
    def now(self) -> float:
        return self.client_process.world.clock.monotonic()


@pytest.fixture
def stage() -> Iterator[Stage]:
    made = Stage()
    with made.simulation:
        yield made


def view(broker: SimClusterBroker) -> ClusterView:
    assert broker.running is not None
    return broker.running.broker.view


def create(*names: str, factor: int = 3, timeout_ms: int = 30_000, trial: bool = False) -> CreateTopicsRequest:
    topics = [CreateTopicsRequestTopic(name=name, num_partitions=2, replication_factor=factor) for name in names]
    return CreateTopicsRequest(topics=topics, timeout_ms=timeout_ms, validate_only=trial)


def alter(kind: int, name: str, **values: str) -> IncrementalAlterConfigsRequest:
    configs = [
        IncrementalAlterConfigsRequestConfig(name=key.replace("_", "."), config_operation=0, value=value)
        for key, value in values.items()
    ]
    resource = IncrementalAlterConfigsRequestResource(resource_type=kind, resource_name=name, configs=configs)
    return IncrementalAlterConfigsRequest(resources=[resource])


def replace(kind: int, name: str, **values: str) -> AlterConfigsRequest:
    configs = [AlterConfigsRequestConfig(name=key.replace("_", "."), value=value) for key, value in values.items()]
    resource = AlterConfigsRequestResource(resource_type=kind, resource_name=name, configs=configs)
    return AlterConfigsRequest(resources=[resource])


def errors(rows: list[Any]) -> list[Error]:
    return [Error(row.error_code) for row in rows]


# ── what is asked of any broker ──────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("at_controller", [True, False])
def test_topics_are_managed_at_any_broker_and_known_where_their_replicas_are(stage: Stage, at_controller: bool) -> None:
    async def play(stage: Stage) -> None:
        asked = stage.controller if at_controller else stage.others[0]
        created = await stage.ask(asked, create("a", "b", "c"))
        assert errors(created.topics) == [Error.NONE] * 3
        assert [topic.num_partitions for topic in created.topics] == [2, 2, 2]
        for broker in stage.cluster.brokers:
            assert [view(broker).topics[row.name].topic_id for row in created.topics] == [
                row.topic_id for row in created.topics
            ]

        grown = [CreatePartitionsRequestTopic(name="a", count=5, assignments=None)]
        answer = await stage.ask(asked, CreatePartitionsRequest(topics=grown, timeout_ms=1000))
        assert errors(answer.results) == [Error.NONE]
        assert {len(view(broker).topics["a"].partitions) for broker in stage.cluster.brokers} == {5}

        assert errors((await stage.ask(asked, alter(TOPIC, "b", retention_ms="5"))).responses) == [Error.NONE]
        for broker in stage.cluster.brokers:
            assert view(broker).config_values("topics", "b") == {"retention.ms": "5"}
        assert errors((await stage.ask(asked, replace(TOPIC, "b", segment_ms="7"))).responses) == [Error.NONE]
        for broker in stage.cluster.brokers:
            assert view(broker).config_values("topics", "b") == {"segment.ms": "7"}

        by_name = DeleteTopicsRequest(topic_names=["a"], timeout_ms=1000)
        assert errors((await stage.ask(asked, by_name, 5)).responses) == [Error.NONE]
        by_id = [DeleteTopicsRequestTopic(topic_id=created.topics[1].topic_id)]
        assert errors((await stage.ask(asked, DeleteTopicsRequest(topics=by_id, timeout_ms=1000))).responses) == [
            Error.NONE
        ]
        assert [sorted(view(broker).topics) for broker in stage.cluster.brokers] == [["c"]] * 3

    stage.run(play)


def test_what_is_wrong_is_told_as_the_controller_tells_it(stage: Stage) -> None:
    async def play(stage: Stage) -> None:
        answers = []
        for asked in (stage.others[0], stage.controller):
            answers.append((await stage.ask(asked, create("../x", "twice", "twice", "y", factor=4))).topics)
        assert answers[0] == answers[1]
        assert errors(answers[0]) == [
            Error.INVALID_TOPIC_EXCEPTION,
            Error.INVALID_REQUEST,
            Error.INVALID_REPLICATION_FACTOR,
        ]
        assert errors((await stage.ask(stage.others[0], create("y", trial=True))).topics) == [Error.NONE]
        assert not view(stage.controller).topics

    stage.run(play)


def test_topics_are_made_on_demand_from_any_broker(stage: Stage) -> None:
    async def play(stage: Stage) -> None:
        for number, broker in enumerate(stage.cluster.brokers):
            asked = MetadataRequest(topics=[MetadataRequestTopic(name=f"t{number}")], allow_auto_topic_creation=True)
            (row,) = (await stage.ask(broker, asked)).topics
            assert (row.name, row.error_code) == (f"t{number}", Error.NONE)

    stage.run(play)


@pytest.mark.parametrize("kind", [0, 1])
def test_internal_topics_are_made_from_any_broker(stage: Stage, kind: int) -> None:
    async def play(stage: Stage) -> None:
        asked = FindCoordinatorRequest(key_type=kind, coordinator_keys=["k"])
        answers = [await stage.ask(broker, asked) for broker in reversed(stage.others)]
        assert [errors(answer.coordinators) for answer in answers] == [[Error.NONE]] * 2
        assert answers[0] == answers[1]
        (topic,) = view(stage.controller).topics.values()
        assert topic.internal
        assert {len(partition.replicas) for partition in topic.partitions} == {3}
        assert view(stage.controller).config_values("topics", topic.name)["cleanup.policy"] == "compact"

    stage.run(play)


def test_an_internal_topic_waits_for_enough_brokers(stage: Stage) -> None:
    async def play(stage: Stage) -> None:
        stage.others[0].kill()
        asked = FindCoordinatorRequest(key_type=0, coordinator_keys=["k"])
        await _until(lambda: len(view(stage.controller).brokers) == 2)
        (row,) = (await stage.ask(stage.controller, asked)).coordinators
        assert row.error_code == Error.COORDINATOR_NOT_AVAILABLE
        assert "3 replicas need as many brokers" in row.error_message

    stage.run(play)


def test_an_answer_waits_for_a_replica_that_hears_late(stage: Stage) -> None:
    async def play(stage: Stage) -> None:
        late = stage.others[0]
        stage.hears_late(late, 1.0)
        for asked in (stage.controller, stage.others[1]):
            name = f"by{asked.broker_id}"
            assert errors((await stage.ask(asked, create(name))).topics) == [Error.NONE]
            assert name in view(late).topics
            grown = [CreatePartitionsRequestTopic(name=name, count=3, assignments=None)]
            await stage.ask(asked, CreatePartitionsRequest(topics=grown, timeout_ms=10_000))
            assert len(view(late).topics[name].partitions) == 3
            await stage.ask(asked, alter(TOPIC, name, retention_ms="5"))
            assert view(late).config_values("topics", name) == {"retention.ms": "5"}
            await stage.ask(asked, DeleteTopicsRequest(topic_names=[name], timeout_ms=10_000), 5)
            assert name not in view(late).topics

    stage.run(play)


def test_who_was_asked_knows_what_was_decided(stage: Stage) -> None:
    async def play(stage: Stage) -> None:
        asked = stage.others[0]
        stage.hears_late(asked, 1.0)
        elsewhere = CreateTopicsRequestReplicaAssignment(partition_index=0, broker_ids=[stage.controller.broker_id])
        topic = CreateTopicsRequestTopic(name="t", num_partitions=-1, replication_factor=-1, assignments=[elsewhere])
        assert errors((await stage.ask(asked, CreateTopicsRequest(topics=[topic]))).topics) == [Error.NONE]
        assert "t" in view(asked).topics

    stage.run(play)


# ── when the controller goes ─────────────────────────────────────────────────────────────────────────────────────


def test_requests_outlive_the_controller(stage: Stage) -> None:
    async def play(stage: Stage) -> None:
        first, asked = stage.controller, stage.others[0]
        client = await stage.client(asked)
        answers = [client.send(create(f"before{number}", factor=2)) for number in range(5)]
        await asyncio.sleep(0.001)
        first.kill()
        answers += [client.send(create(f"after{number}", factor=2)) for number in range(5)]
        for answer in await asyncio.gather(*answers):
            # one that was carried out, but not answered, says so when it is made again
            assert set(errors(answer.topics)) <= {Error.NONE, Error.TOPIC_ALREADY_EXISTS}
        assert len(view(asked).topics) == 10

    stage.run(play)


def test_a_controller_that_has_lost_the_role_hands_on(stage: Stage) -> None:
    async def play(stage: Stage) -> None:
        first = stage.controller
        client = await stage.client(first)
        stage.cluster.keeper.expire(first.session_id)
        assert errors((await client.call(create("a", factor=2))).topics) == [Error.NONE]
        assert "a" in view(first).topics

    stage.run(play)


def test_a_silent_controller_is_given_up_with_its_session(stage: Stage) -> None:
    async def play(stage: Stage) -> None:
        first, asked = stage.controller, stage.others[0]
        assert first.process is not None
        client = await stage.client(asked)
        first.process.pause()
        began = stage.now
        assert errors((await client.call(create("a", factor=2))).topics) == [Error.NONE]
        assert stage.now - began < 2 * SESSION_TIMEOUT_MS / 1000
        first.process.resume()

    stage.run(play)


def test_without_any_controller_each_part_is_refused_when_its_time_is_over(stage: Stage) -> None:
    async def play(stage: Stage) -> None:
        asked = stage.others[0]
        client = await stage.client(asked)
        stage.cluster.keeper.kill()
        for broker in stage.cluster.brokers:
            if broker is not asked:
                broker.kill()
        began = stage.now
        refused = await client.call(create("a", "b", timeout_ms=7000))
        assert errors(refused.topics) == [Error.REQUEST_TIMED_OUT] * 2
        assert stage.now - began == pytest.approx(7, abs=1)
        assert all("not decided in time" in row.error_message for row in refused.topics)
        deleted = await client.call(DeleteTopicsRequest(topic_names=["a", "b"], timeout_ms=1), 5)
        assert [(row.name, Error(row.error_code)) for row in deleted.responses] == [
            ("a", Error.REQUEST_TIMED_OUT),
            ("b", Error.REQUEST_TIMED_OUT),
        ]
        began = stage.now
        altered = await client.call(alter(TOPIC, "a", retention_ms="1"))
        assert errors(altered.responses) == [Error.REQUEST_TIMED_OUT]
        assert stage.now - began == pytest.approx(30, abs=1)
        grown = CreatePartitionsRequest(topics=[CreatePartitionsRequestTopic(name="a", count=2)], timeout_ms=1000)
        assert errors((await client.call(grown)).results) == [Error.REQUEST_TIMED_OUT]

    stage.run(play)


def enveloped(request: Any, api: Api, principal: str | None = None) -> EnvelopeRequest:
    version = api.max_version
    envelope = EnvelopeRequest(api_key=api.key, api_version=version, request=encode(request, version))
    envelope.principal = principal
    return envelope


def test_a_forwarded_request_is_not_handed_on_again(stage: Stage) -> None:
    async def play(stage: Stage) -> None:
        client = await stage.client(stage.others[0])
        answer = await client.call(enveloped(create("a", "b"), CREATE_TOPICS))
        assert answer.error_code == Error.NOT_CONTROLLER and answer.response is None
        client = await stage.client(stage.controller)
        answer = await client.call(enveloped(create("a", "b"), CREATE_TOPICS, "User:x"))
        inside, _ = decode(CreateTopicsResponse, CREATE_TOPICS.max_version, answer.response)
        assert errors(inside.topics) == [Error.NONE] * 2

    stage.run(play)


def test_an_envelope_with_something_else_inside_is_refused(stage: Stage) -> None:
    async def play(stage: Stage) -> None:
        client = await stage.client(stage.controller)
        for wrong in (
            EnvelopeRequest(api_key=3, api_version=12, request=b""),
            EnvelopeRequest(api_key=19, api_version=99, request=b""),
            EnvelopeRequest(api_key=19, api_version=7, request=b"\xff\xff"),
            enveloped(create("a"), CREATE_TOPICS, "nobody"),
        ):
            answer = await client.call(wrong)
            assert answer.error_code in (Error.INVALID_REQUEST, Error.UNSUPPORTED_VERSION), wrong
        assert not view(stage.controller).topics

    stage.run(play)


# ── settings of brokers ──────────────────────────────────────────────────────────────────────────────────────────


def test_settings_of_any_broker_are_altered_at_any_broker(stage: Stage) -> None:
    async def play(stage: Stage) -> None:
        for asked in stage.cluster.brokers:
            for named in stage.cluster.brokers:
                number = str(10 * asked.broker_id + named.broker_id)
                request = alter(BROKER, str(named.broker_id), max_connections=number)
                assert errors((await stage.ask(asked, request)).responses) == [Error.NONE]
                assert named.running is not None
                assert named.running.broker.settings.integer("max.connections") == int(number)
            assert errors((await stage.ask(asked, alter(BROKER, "", log_retention_ms=number))).responses) == [
                Error.NONE
            ]
            for broker in stage.cluster.brokers:
                assert broker.running is not None
                assert broker.running.broker.settings.integer("log.retention.ms") == int(number)
        named = stage.others[1]
        assert named.running is not None
        replaced = replace(BROKER, str(named.broker_id), max_connections_per_ip="77")
        assert errors((await stage.ask(stage.others[0], replaced)).responses) == [Error.NONE]
        assert view(named).config_values("brokers", str(named.broker_id)) == {"max.connections.per.ip": "77"}

    stage.run(play)


def test_a_broker_judges_its_own_settings_before_they_are_handed_on(stage: Stage) -> None:
    async def play(stage: Stage) -> None:
        named = stage.others[0]
        own = str(named.broker_id)
        assert (await stage.ask(named, create("t"))).topics[0].error_code == Error.NONE
        wrong = alter(BROKER, own, cordoned_log_dirs="/elsewhere")
        wrong.resources += alter(TOPIC, "t", retention_ms="5").resources
        wrong.resources += alter(BROKER, own, cordoned_log_dirs="/elsewhere").resources
        answer = (await stage.ask(named, wrong)).responses
        assert errors(answer) == [Error.INVALID_REQUEST, Error.NONE, Error.INVALID_REQUEST]
        assert [row.resource_name for row in answer] == [own, "t", own]
        assert "is not in log.dirs" in answer[0].error_message
        assert view(named).config_values("topics", "t") == {"retention.ms": "5"}
        assert not view(named).config_values("brokers", own)
        right = alter(BROKER, own, cordoned_log_dirs="/data/logs")
        assert errors((await stage.ask(named, right)).responses) == [Error.NONE]

    stage.run(play)


def test_settings_of_a_broker_that_does_not_exist_or_cannot_be_altered_are_refused(stage: Stage) -> None:
    async def play(stage: Stage) -> None:
        for asked in stage.cluster.brokers:
            for request in (
                alter(BROKER, "9", max_connections="5"),
                alter(BROKER, str(stage.others[1].broker_id), node_id="5"),
                alter(BROKER, "one", max_connections="5"),
                replace(BROKER, "9", max_connections="5"),
            ):
                assert errors((await stage.ask(asked, request)).responses) == [Error.INVALID_REQUEST]

    stage.run(play)


# ── spreading, and leaving ───────────────────────────────────────────────────────────────────────────────────────


def test_a_silent_broker_does_not_hold_up_an_answer_for_long(stage: Stage) -> None:
    async def play(stage: Stage) -> None:
        silent = stage.others[1]
        assert silent.process is not None
        controller = await stage.client(stage.controller)
        silent.process.pause()
        for timeout_ms, limit_s in ((500, 1.0), (30_000, 5.5)):
            began = stage.now
            assert errors((await controller.call(create(f"t{timeout_ms}", timeout_ms=timeout_ms))).topics) == [
                Error.NONE
            ]
            assert stage.now - began < limit_s
        silent.process.resume()
        await _until(lambda: "t30000" in view(silent).topics)

    stage.run(play)


def test_changes_are_awaited(stage: Stage) -> None:
    async def play(stage: Stage) -> None:
        at, other = await stage.client(stage.others[0]), stage.others[1]
        version = view(stage.controller).changes_version
        reached = AwaitChangesRequest(changes_version=version, timeout_ms=5000)
        assert (await at.call(reached)).error_code == Error.NONE
        began = stage.now
        not_reached = AwaitChangesRequest(changes_version=version + 1, timeout_ms=2000)
        assert (await at.call(not_reached)).error_code == Error.REQUEST_TIMED_OUT
        assert stage.now - began == pytest.approx(2, abs=0.1)
        waiting = at.send(AwaitChangesRequest(changes_version=version + 1, timeout_ms=20_000))
        await stage.ask(other, create("t", factor=1))
        assert (await waiting).error_code == Error.NONE
        assert "t" in view(stage.others[0]).topics

    stage.run(play)


def test_a_broker_that_leaves_hands_over_what_others_can_lead(stage: Stage) -> None:
    async def play(stage: Stage) -> None:
        leaving = stage.others[0]
        own = leaving.broker_id
        await stage.ask(leaving, create("shared", factor=3))
        alone = CreateTopicsRequestTopic(name="alone", num_partitions=6, replication_factor=1)
        await stage.ask(leaving, CreateTopicsRequest(topics=[alone]))
        left = sum(partition.leader == own for partition in view(leaving).topics["alone"].partitions)
        assert left
        epoch = view(leaving).broker_epochs[own]
        request = LeaveClusterRequest(broker_id=own, broker_epoch=epoch)

        refused = await stage.ask(leaving, request)
        assert refused.error_code == Error.NOT_CONTROLLER
        stale = LeaveClusterRequest(broker_id=own, broker_epoch=epoch - 1)
        assert (await stage.ask(stage.controller, stale)).error_code == Error.STALE_BROKER_EPOCH

        answer = await stage.ask(stage.controller, request)
        assert (answer.error_code, answer.led_partitions) == (Error.NONE, left)
        for broker in stage.cluster.brokers:
            assert all(own not in state.isr for state in view(broker).topics["shared"].partitions)
        assert (await stage.ask(stage.controller, request)).led_partitions == left

    stage.run(play)


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)
