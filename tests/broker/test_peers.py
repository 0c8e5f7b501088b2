"""Asking other brokers: real servers on simulated machines, which come, go, fall silent and come back."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, cast

import pytest

from penstock.base.world import SocketOptions, World
from penstock.broker.cluster_view import ClusterView
from penstock.broker.connection import Intake
from penstock.broker.handlers.k18_api_versions import ApiVersions
from penstock.broker.peer_log import PeerLog
from penstock.broker.peers import LINKS_MAX, LinkLimits, PeerError, Peers
from penstock.broker.requests import Dispatcher, RequestContext
from penstock.broker.server import ConnectionLimits, Server
from penstock.testing.sim_world import Process, Simulation
from penstock.wire.messages.k03_metadata import API as METADATA
from penstock.wire.messages.k03_metadata import MetadataRequest
from penstock.wire.messages.k18_api_versions import API as API_VERSIONS
from penstock.wire.messages.k60_describe_cluster import API as DESCRIBE_CLUSTER
from penstock.wire.messages.k60_describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeClusterResponseBroker,
)
from penstock.wire.messages.k20004_await_changes import API as AWAIT_CHANGES
from penstock.wire.messages.k20004_await_changes import AwaitChangesRequest, AwaitChangesResponse
from penstock.zookeeper.znodes import BrokerNode, Endpoint

PORT = 9092
LISTENER = "BETWEEN"


class Other:
    """A broker that serves three APIs, and what it was asked. AwaitChanges waits until `let_go` is set."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self.asked: list[tuple[str, int, str]] = []
        self.let_go = asyncio.Event()
        self.padding: list[str] = []

    async def serve(self) -> None:
        await self.process.start(self._serve(self.process.world))

    async def _serve(self, world: World) -> None:
        peer_log = PeerLog(world.clock)
        dispatcher = Dispatcher(peer_log, world.clock)
        dispatcher.serve(API_VERSIONS, self._noted(ApiVersions(dispatcher)))
        dispatcher.serve(DESCRIBE_CLUSTER, self._noted(self._describe))
        dispatcher.serve_async(AWAIT_CHANGES, self._await)
        limits = ConnectionLimits(1000, 1000, {}, 1e9, 1e9)
        server = Server(world.network, world.clock, Intake(1 << 30, 1 << 20), limits, dispatcher, peer_log)
        await server.listen(LISTENER, "0.0.0.0", PORT, SocketOptions())
        server.open()

    def _noted(self, handler: Callable[[Any, RequestContext], Any]) -> Callable[[Any, RequestContext], Any]:
        def handle(request: Any, context: RequestContext) -> Any:
            self.asked.append((type(request).__name__, context.version, context.client_id))
            return handler(request, context)

        return handle

    def _describe(self, _request: Any, _context: RequestContext) -> DescribeClusterResponse:
        padding = [DescribeClusterResponseBroker(host=text, rack=None) for text in self.padding]
        return DescribeClusterResponse(cluster_id=self.process.name, error_message=None, brokers=padding)

    async def _await(self, request: AwaitChangesRequest, _context: RequestContext) -> AwaitChangesResponse:
        await self.let_go.wait()
        return AwaitChangesResponse(throttle_time_ms=request.changes_version)

    @property
    def greetings(self) -> int:
        return sum(name == "ApiVersionsRequest" for name, _, _ in self.asked)


class KnownBrokers:
    """As much of a view as peers look at."""

    def __init__(self) -> None:
        self.brokers: dict[int, BrokerNode] = {}
        self.broker_epochs: dict[int, int] = {}
        self._listeners: list[Callable[[Any], Awaitable[None]]] = []

    def on_change(self, listener: Callable[[Any], Awaitable[None]]) -> None:
        self._listeners.append(listener)

    async def register(self, node_id: int, host: str, epoch: int, port: int = PORT) -> None:
        outside = Endpoint(listener="OUTSIDE", host="nowhere", port=1)
        between = Endpoint(listener=LISTENER, host=host, port=port)
        self.brokers[node_id] = BrokerNode(endpoints=(outside, between))
        self.broker_epochs[node_id] = epoch
        await self.tell()

    async def unregister(self, node_id: int) -> None:
        del self.brokers[node_id], self.broker_epochs[node_id]
        await self.tell()

    async def tell(self) -> None:
        for listener in self._listeners:
            await listener(None)


class Stage:
    """This broker, and another one on its own machine."""

    def __init__(self) -> None:
        self.simulation = Simulation(3, limit_s=100_000)
        self.network = self.simulation.network
        self.here = self.simulation.machine("here").process("broker")
        self.view = KnownBrokers()
        self.limits = LinkLimits()

    def new_other(self, name: str = "there") -> Other:
        return Other(self.simulation.machine(name).process("broker"))

    def run(self, play: Callable[[Stage, Peers, Other], Awaitable[None]]) -> None:
        async def main() -> None:
            self.peers = Peers(self.here.world, cast(ClusterView, self.view), 1, LISTENER, self.limits)
            other = self.new_other()
            await other.serve()
            await self.view.register(2, "there", epoch=10)
            await self.here.start(_main(play(self, self.peers, other)))
            await self.here.start(self.peers.close())

        self.simulation.run(main())

    async def describe(self, timeout_s: float = 5.0, node_id: int = 2, version: int | None = None) -> str:
        request = DescribeClusterRequest()
        answer = await self.peers.ask(node_id, DESCRIBE_CLUSTER, request, version=version, timeout_s=timeout_s)
        cluster_id: str = answer.cluster_id
        return cluster_id

    def wait_there(self, number: int, timeout_s: float = 5.0) -> asyncio.Task[Any]:
        request = AwaitChangesRequest(changes_version=number, timeout_ms=0)
        return asyncio.ensure_future(self.peers.ask(2, AWAIT_CHANGES, request, timeout_s=timeout_s))

    @property
    def now(self) -> float:
        return self.here.world.clock.monotonic()


async def _main(play: Awaitable[None]) -> None:
    await play


@pytest.fixture
def stage() -> Iterator[Stage]:
    made = Stage()
    with made.simulation:
        yield made


def test_the_highest_common_version_is_taken_and_the_connection_is_used_again(stage: Stage) -> None:
    async def play(stage: Stage, _peers: Peers, other: Other) -> None:
        for _ in range(3):
            assert await stage.describe() == "there/broker"
        assert await stage.describe(version=0) == "there/broker"
        assert other.asked == [
            ("ApiVersionsRequest", 3, "penstock-peer-1"),
            *[("DescribeClusterRequest", DESCRIBE_CLUSTER.max_version, "penstock-peer-1")] * 3,
            ("DescribeClusterRequest", 0, "penstock-peer-1"),
        ]

    stage.run(play)


def test_what_the_other_does_not_serve_is_an_error(stage: Stage) -> None:
    async def play(stage: Stage, peers: Peers, _other: Other) -> None:
        with pytest.raises(PeerError, match="broker 2 does not serve Metadata"):
            await peers.ask(2, METADATA, MetadataRequest(topics=None), timeout_s=5)
        with pytest.raises(PeerError, match="does not serve DescribeCluster"):
            await stage.describe(version=DESCRIBE_CLUSTER.max_version + 1)
        assert await stage.describe() == "there/broker"

    stage.run(play)


def test_a_request_that_waits_holds_up_nobody(stage: Stage) -> None:
    async def play(stage: Stage, _peers: Peers, other: Other) -> None:
        waiting = [stage.wait_there(number) for number in range(3)]
        await asyncio.sleep(1)
        assert await stage.describe() == "there/broker"
        assert not any(task.done() for task in waiting)
        other.let_go.set()
        assert [(await task).throttle_time_ms for task in waiting] == [0, 1, 2]
        assert other.greetings == 4

    stage.run(play)


def test_many_requests_share_a_few_connections(stage: Stage) -> None:
    async def play(stage: Stage, _peers: Peers, other: Other) -> None:
        waiting = [stage.wait_there(number) for number in range(100)]
        await asyncio.sleep(1)
        assert other.greetings == LINKS_MAX
        other.let_go.set()
        assert [(await task).throttle_time_ms for task in waiting] == list(range(100))

    stage.run(play)


def test_more_than_the_connections_can_carry_is_refused(stage: Stage) -> None:
    async def play(stage: Stage, _peers: Peers, other: Other) -> None:
        waiting = [stage.wait_there(number) for number in range(LINKS_MAX * 100)]
        await asyncio.sleep(1)
        with pytest.raises(PeerError, match="too many requests"):
            await stage.describe()
        other.let_go.set()
        assert len(await asyncio.gather(*waiting)) == LINKS_MAX * 100
        assert await stage.describe() == "there/broker"

    stage.run(play)


def test_answers_of_all_sizes_come_whole(stage: Stage) -> None:
    async def play(_stage: Stage, peers: Peers, other: Other) -> None:
        request = DescribeClusterRequest()
        for size in (0, *range(65_400, 65_560, 7), 300_000, 1, 5_000_000):
            other.padding = ["x" * min(30_000, size - start) for start in range(0, size, 30_000)]
            asking = [peers.ask(2, DESCRIBE_CLUSTER, request, timeout_s=60) for _ in range(12)]
            for answer in await asyncio.gather(*asking):
                assert [broker.host for broker in answer.brokers] == other.padding

    stage.run(play)


def test_an_answer_beyond_the_limit_ends_the_connection(stage: Stage) -> None:
    async def play(stage: Stage, _peers: Peers, other: Other) -> None:
        other.padding = ["x" * 2000]
        with pytest.raises(PeerError, match="at most 1000 are taken"):
            await stage.describe()
        other.padding = []
        assert await stage.describe() == "there/broker"
        assert other.greetings == 2

    stage.limits = LinkLimits(answer_bytes=1000)
    stage.run(play)


def test_a_request_without_an_answer_times_out_and_its_connection_is_not_used_again(stage: Stage) -> None:
    async def play(stage: Stage, _peers: Peers, other: Other) -> None:
        began = stage.now
        with pytest.raises(PeerError, match=r"broker 2 did not answer AwaitChanges within 3 s"):
            await stage.wait_there(1, timeout_s=3)
        assert stage.now - began == pytest.approx(3)
        assert await stage.describe() == "there/broker"
        assert other.greetings == 2

    stage.run(play)


def test_the_others_on_a_connection_that_was_given_up_get_their_answers(stage: Stage) -> None:
    async def play(stage: Stage, _peers: Peers, other: Other) -> None:
        waiting = [stage.wait_there(number, timeout_s=60) for number in range(2 * LINKS_MAX)]
        await asyncio.sleep(1)
        for task in waiting[::2]:
            task.cancel()
        await asyncio.wait(waiting, timeout=1)
        other.let_go.set()
        assert [(await task).throttle_time_ms for task in waiting[1::2]] == list(range(1, 2 * LINKS_MAX, 2))
        assert await stage.describe() == "there/broker"

    stage.run(play)


def test_a_broken_connection_fails_what_waits_and_the_next_request_makes_a_new_one(stage: Stage) -> None:
    async def play(stage: Stage, _peers: Peers, other: Other) -> None:
        waiting = stage.wait_there(1)
        await asyncio.sleep(0.5)
        stage.network.reset("here", "there")
        with pytest.raises(PeerError, match="did not answer AwaitChanges: the connection broke"):
            await waiting
        assert await stage.describe() == "there/broker"
        assert other.greetings == 2

    stage.run(play)


def test_connecting_backs_off_while_it_is_refused(stage: Stage) -> None:
    async def play(stage: Stage, _peers: Peers, other: Other) -> None:
        stage.network.refuse("there", PORT)
        began, attempts = stage.now, 0
        while stage.now - began < 10:
            with pytest.raises(PeerError, match="broker 2 cannot be reached: no connection to there:9092"):
                await stage.describe()
            attempts += 1
        assert 10 <= attempts <= 16
        stage.network.refused.clear()
        assert await stage.describe() == "there/broker"

    stage.run(play)


def test_a_new_registration_ends_the_back_off(stage: Stage) -> None:
    async def play(stage: Stage, _peers: Peers, _other: Other) -> None:
        stage.network.refuse("there", PORT)
        for _ in range(8):
            with pytest.raises(PeerError):
                await stage.describe()
        stage.network.refused.clear()
        began = stage.now
        asking = asyncio.ensure_future(stage.describe())
        await asyncio.sleep(0.1)
        assert not asking.done()
        await stage.view.register(2, "there", epoch=11)
        assert await asking == "there/broker"
        assert stage.now - began < 0.5

    stage.run(play)


def test_whoever_waits_hears_at_once_that_the_broker_is_gone(stage: Stage) -> None:
    async def play(stage: Stage, _peers: Peers, _other: Other) -> None:
        waiting = stage.wait_there(1)
        await asyncio.sleep(0.5)
        stage.simulation.machine("there").lose_power()
        await stage.view.unregister(2)
        with pytest.raises(PeerError, match="its registration is gone"):
            await waiting
        with pytest.raises(PeerError, match="broker 2 is not there"):
            await stage.describe()

    stage.run(play)


def test_a_broker_that_returns_elsewhere_is_asked_there(stage: Stage) -> None:
    async def play(stage: Stage, _peers: Peers, other: Other) -> None:
        assert await stage.describe() == "there/broker"
        elsewhere = stage.new_other("elsewhere")
        await elsewhere.serve()
        stage.view.brokers[2] = BrokerNode(endpoints=(Endpoint(listener=LISTENER, host="elsewhere", port=PORT),))
        assert await stage.describe() == "elsewhere/broker"  # even before the news of it
        await stage.view.register(2, "there", epoch=10)
        assert await stage.describe() == "there/broker"
        assert other.greetings == 2

    stage.run(play)


def test_a_request_that_connects_to_a_silent_machine_goes_to_the_new_registration(stage: Stage) -> None:
    async def play(stage: Stage, _peers: Peers, _other: Other) -> None:
        stage.network.black_hole("there", PORT)
        asking = asyncio.ensure_future(stage.describe(timeout_s=8))
        behind = asyncio.ensure_future(stage.describe(timeout_s=8))
        await asyncio.sleep(1)
        elsewhere = stage.new_other("elsewhere")
        await elsewhere.serve()
        await stage.view.register(2, "elsewhere", epoch=11)
        assert await asking == await behind == "elsewhere/broker"

    stage.run(play)


def test_a_connection_that_cannot_be_made_is_given_up(stage: Stage) -> None:
    async def play(stage: Stage, _peers: Peers, _other: Other) -> None:
        stage.network.black_hole("there", PORT)
        began = stage.now
        with pytest.raises(PeerError, match="no connection to there:9092 in time"):
            await stage.describe(timeout_s=60)
        assert stage.now - began == pytest.approx(2)
        with pytest.raises(PeerError, match="did not answer DescribeCluster within 1 s"):
            await stage.describe(timeout_s=1)
        stage.network.black_holes.clear()
        assert await stage.describe() == "there/broker"

    stage.limits = LinkLimits(connect_s=2)
    stage.run(play)


def test_without_the_listener_between_brokers_nobody_is_asked(stage: Stage) -> None:
    async def play(stage: Stage, _peers: Peers, _other: Other) -> None:
        stage.view.brokers[3] = BrokerNode(endpoints=(Endpoint(listener="OUTSIDE", host="there", port=PORT),))
        with pytest.raises(PeerError, match=f"broker 3 is not there, or has no listener {LISTENER}"):
            await stage.describe(node_id=3)

    stage.run(play)


def test_closing_fails_what_waits_and_what_comes(stage: Stage) -> None:
    async def play(stage: Stage, peers: Peers, _other: Other) -> None:
        waiting = stage.wait_there(1)
        await asyncio.sleep(0.5)
        await peers.close()
        with pytest.raises(PeerError, match="this broker stops"):
            await waiting
        with pytest.raises(PeerError, match="this broker stops"):
            await stage.describe()
        assert not stage.here.network.streams()

    stage.run(play)


def test_a_garbled_answer_ends_the_connection(stage: Stage) -> None:
    async def play(stage: Stage, _peers: Peers, _other: Other) -> None:
        def garble(stream: Any) -> None:
            stream.watch_read(lambda: (stream.watch_read(None), stream.send(b"\0\0\0\6\0\0\0\1\0\1")))

        await stage.simulation.machine("liar").process("liar").network.listen("0.0.0.0", PORT, garble)
        await stage.view.register(3, "liar", epoch=12)
        with pytest.raises(PeerError, match="broker 3 cannot be reached: an answer that cannot be read"):
            await stage.describe(node_id=3)

    stage.run(play)
