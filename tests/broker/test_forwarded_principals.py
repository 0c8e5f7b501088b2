"""What is handed on to the controller is judged there by the rights of whoever asked, and nobody can pretend."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping

import pytest

from penstock.base.errors import Error
from penstock.security.principal import Principal
from penstock.testing.sim_client import SimClient
from penstock.testing.sim_cluster import PORT, SimCluster, SimClusterBroker
from penstock.testing.sim_world import Simulation
from penstock.wire.codec import encode
from penstock.wire.messages.k18_api_versions import ApiVersionsRequest
from penstock.wire.messages.k19_create_topics import CreateTopicsRequest, CreateTopicsRequestTopic
from penstock.wire.messages.k29_describe_acls import DescribeAclsRequest
from penstock.wire.messages.k30_create_acls import CreateAclsRequest, CreateAclsRequestAcl
from penstock.wire.messages.k20007_envelope import EnvelopeRequest

ALICE, ROOT = Principal("User", "alice"), Principal("User", "root")
GUARDED = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS;User:root",  # who the brokers are to each other on plain listeners
}


class Stage:
    """Three brokers with an authorizer."""

    def __init__(self, settings: Mapping[str, str] = GUARDED) -> None:
        self.simulation = Simulation(7, limit_s=100_000)
        self.cluster = SimCluster(self.simulation, 3, settings)
        self.process = self.simulation.machine("client").process("client")

    def run(self, play: Callable[[Stage], Awaitable[None]]) -> None:
        async def main() -> None:
            await self.cluster.start()
            await play(self)

        self.simulation.run(main())

    @property
    def controller(self) -> SimClusterBroker:
        assert self.cluster.controller is not None
        return self.cluster.controller

    @property
    def other(self) -> SimClusterBroker:
        return next(broker for broker in self.cluster.brokers if broker is not self.controller)

    async def connect(self, broker: SimClusterBroker, who: Principal) -> SimClient:
        client_id = f"c-{who.name}"
        connecting = SimClient.connect(self.process.world, broker.machine.name, PORT, client_id)
        client: SimClient = await self.process.start(connecting)
        await client.call(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 3)
        assert broker.running is not None
        (mine,) = [each for each in broker.running._server.connections if each.client_id == client_id]
        mine.principal = who
        return client


@pytest.fixture
def stage() -> Iterator[Stage]:
    made = Stage()
    with made.simulation:
        yield made


def create(name: str) -> CreateTopicsRequest:
    topic = CreateTopicsRequestTopic(name=name, num_partitions=1, replication_factor=3)
    return CreateTopicsRequest(topics=[topic], timeout_ms=30_000)


def test_the_controller_judges_by_who_asked_not_by_who_handed_it_on(stage: Stage) -> None:
    async def play(stage: Stage) -> None:
        alice, root = await stage.connect(stage.other, ALICE), await stage.connect(stage.other, ROOT)
        refused = await alice.call(create("orders"))
        assert refused.topics[0].error_code == Error.TOPIC_AUTHORIZATION_FAILED
        rule = CreateAclsRequestAcl(
            resource_type=2, resource_name="ord", resource_pattern_type=4, principal="User:alice", host="*"
        )
        rule.operation, rule.permission_type = 5, 3
        assert (await alice.call(CreateAclsRequest(creations=[rule]))).results[0].error_code == (
            Error.CLUSTER_AUTHORIZATION_FAILED
        )
        assert (await root.call(CreateAclsRequest(creations=[rule]))).results[0].error_code == Error.NONE
        for broker in stage.cluster.brokers:  # the answer came when all knew it
            assert broker.running is not None
            assert len(list(broker.running.broker.rights.authorizer.patterns)) == 1
        assert (await alice.call(create("orders"))).topics[0].error_code == Error.NONE
        assert (await alice.call(create("other"))).topics[0].error_code == Error.TOPIC_AUTHORIZATION_FAILED
        everything = DescribeAclsRequest(
            resource_type_filter=1, resource_name_filter=None, pattern_type_filter=1, principal_filter=None
        )
        everything.host_filter, everything.operation, everything.permission_type = None, 1, 1
        (found,) = (await root.call(everything)).resources
        assert (found.resource_name, found.pattern_type, found.acls[0].principal) == ("ord", 4, "User:alice")

    stage.run(play)


def test_only_brokers_speak_for_others(stage: Stage) -> None:
    async def play(stage: Stage) -> None:
        alice = await stage.connect(stage.controller, ALICE)
        for principal in ("User:root", None):
            envelope = EnvelopeRequest(api_key=19, api_version=7, request=encode(create("orders"), 7))
            envelope.principal = principal
            answer = await alice.call(envelope)
            assert answer.error_code == Error.CLUSTER_AUTHORIZATION_FAILED
        assert stage.controller.running is not None
        assert not stage.controller.running.broker.view.topics

    stage.run(play)
