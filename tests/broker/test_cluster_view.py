"""What a broker knows of the cluster: read once, then kept up to date by notices, for every broker on the tree."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from uuid import UUID

import pytest

from penstock.base.errors import ApiError, Error
from penstock.broker.cluster_view import ClusterView, ViewChange
from penstock.broker.controller_role import ControllerRole, ProducerIdAllocator
from penstock.controller.claim import claim_controller
from penstock.controller.configs import set_configs
from penstock.controller.plan import ClusterState, Plan
from penstock.controller.topics import NewTopic, TopicDefaults, create_partitions, create_topics, delete_topic
from penstock.controller.transitions import TopicRules
from penstock.testing.sim_world import Simulation
from penstock.zookeeper.local import LocalCoordination
from penstock.zookeeper.operations import ANY_VERSION, Delete
from penstock.zookeeper.store import Store
from penstock.zookeeper.znodes import (
    NOTICES_MAX,
    BrokerNode,
    Changes,
    ControllerEpoch,
    ControllerNode,
    Endpoint,
    first_znodes,
)


class Tree:
    """A tree with a controller (broker 1) and an onlooker, each with a session and a view of its own."""

    def __init__(self) -> None:
        self.simulation = Simulation(1, limit_s=1000)
        self.process = self.simulation.machine("m").process("p")
        self.told: list[ViewChange] = []

    async def _open(self) -> None:
        world = self.process.world
        self.store = Store.open(world.disk, world.clock, "/keeper")
        self.session = await LocalCoordination.connect(self.store)
        self.other_session = await LocalCoordination.connect(self.store)
        await self.session.multi(first_znodes("the-cluster"))
        for broker_id in (1, 2):
            node = BrokerNode(
                endpoints=(Endpoint(listener="L", host="h", port=broker_id, security_protocol="PLAINTEXT"),)
            )
            await self.session.create(BrokerNode.path(broker_id), node.encode(), ephemeral=True)
        self.view, self.onlooker = ClusterView(self.session), ClusterView(self.other_session)
        for view in (self.view, self.onlooker):
            await view.load()
            view.start_following()
        self.role = self.role_of(1, self.session, self.view)
        self.role.start()
        await until(lambda: self.role.is_controller and self.view.admitted.epochs.keys() == {1, 2})
        self.onlooker.on_change(self._note)

    def role_of(self, broker_id: int, session: LocalCoordination, view: ClusterView) -> ControllerRole:
        return ControllerRole(broker_id, session, view, self.process.world.clock, lambda _topic: TopicRules())

    async def _note(self, change: ViewChange) -> None:
        self.told.append(change)

    async def create(self, *names: str, partitions: int = 2) -> list[Plan | ApiError]:
        def decide(state: ClusterState) -> list[Plan | ApiError]:
            asked = [NewTopic(name, partitions, 1) for name in names]
            ids = [UUID(int=hash_of(name)) for name in names]
            return create_topics(state, asked, ids, TopicDefaults(1, 1), lambda _configs: None, 0)

        return await self.role.decide(decide)

    async def perform(self, plan: Callable[[ClusterState], Plan]) -> None:
        await self.role.decide(lambda state: [plan(state)])

    async def settle(self) -> None:
        await asyncio.sleep(1)

    def run(self, drive: Callable[[], Awaitable[None]]) -> None:
        async def inside() -> None:
            await self._open()
            await drive()

        async def main() -> None:
            await self.process.start(inside())

        self.simulation.run(main())


async def until(condition: Callable[[], bool]) -> None:
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it has not come")


def hash_of(name: str) -> int:
    return int.from_bytes(name.encode().ljust(16, b"\1")[:16], "big")


@pytest.fixture
def tree() -> Iterator[Tree]:
    made = Tree()
    yield made
    made.simulation.close()


def test_the_first_look_finds_everything(tree: Tree) -> None:
    async def drive() -> None:
        assert tree.view.cluster_id == "the-cluster"
        assert sorted(tree.view.brokers) == [1, 2] and tree.view.topics == {}
        await tree.create("a", "b", partitions=3)
        fresh = ClusterView(tree.other_session)
        await fresh.load()
        assert sorted(fresh.topics) == ["a", "b"] and len(fresh.topics["a"].partitions) == 3
        assert fresh.controller_id == 1

    tree.run(drive)


def test_notices_reach_every_broker_and_name_what_changed(tree: Tree) -> None:
    async def drive() -> None:
        await tree.create("a", "b")
        await tree.settle()
        assert sorted(tree.onlooker.topics) == ["a", "b"]
        assert set().union(*(change.topics for change in tree.told)) == {"a", "b"}
        tree.told.clear()
        await tree.perform(lambda state: create_partitions(state, "a", 5, None, 0))
        await tree.settle()
        assert [change.topics for change in tree.told] == [frozenset({"a"})]
        assert len(tree.onlooker.topics["a"].partitions) == 5

    tree.run(drive)


def test_the_view_of_the_controller_has_what_it_decided(tree: Tree) -> None:
    async def drive() -> None:
        await tree.create("a")
        assert "a" in tree.view.topics
        (again,) = await tree.create("a")
        assert isinstance(again, ApiError) and again.error is Error.TOPIC_ALREADY_EXISTS

    tree.run(drive)


def test_topics_are_found_by_id_and_forgotten_with_it(tree: Tree) -> None:
    async def drive() -> None:
        await tree.create("a")
        topic_id = UUID(int=hash_of("a"))
        await tree.settle()
        assert tree.onlooker.topic_by_id(topic_id) is tree.onlooker.topics["a"]
        await tree.perform(lambda state: delete_topic(state, "a", has_config=False))
        await tree.settle()
        for view in (tree.view, tree.onlooker):
            assert view.topics == {} and view.topic_by_id(topic_id) is None

    tree.run(drive)


def test_settings_come_with_their_versions_and_go(tree: Tree) -> None:
    async def drive() -> None:
        await tree.create("a")
        await tree.perform(lambda _state: set_configs("topics", "a", {"retention.ms": "5"}, None))
        await tree.settle()
        assert tree.onlooker.config_values("topics", "a") == {"retention.ms": "5"}
        version = tree.view.config_version("topics", "a")
        await tree.perform(lambda _state: set_configs("topics", "a", {"retention.ms": "6"}, version))
        await tree.settle()
        assert tree.onlooker.config_values("topics", "a") == {"retention.ms": "6"}
        assert tree.told[-1].configs == frozenset({"topics/a"})
        assert tree.onlooker.config_values("topics", "unknown") == {}

    tree.run(drive)


def test_a_decision_that_was_overtaken_is_made_anew(tree: Tree) -> None:
    """Somebody else wrote in between: nothing of the first attempt counts, the second sees what was written."""

    async def drive() -> None:
        attempts = 0

        def decide(state: ClusterState) -> list[Plan | ApiError]:
            nonlocal attempts
            attempts += 1
            asked = [NewTopic(f"t{attempts}", 1, 1)]
            return create_topics(state, asked, [UUID(int=attempts)], TopicDefaults(1, 1), lambda _: None, 0)

        data, _ = await tree.other_session.get(Changes.PATH)
        overtaking = asyncio.ensure_future(tree.other_session.set(Changes.PATH, data, ANY_VERSION))
        await tree.role.decide(decide)
        await overtaking
        assert attempts in (1, 2)
        await tree.settle()
        assert sorted(tree.view.topics) == sorted(tree.onlooker.topics) == [f"t{attempts}"]

    tree.run(drive)


def test_more_notices_than_are_kept_mean_reading_everything(tree: Tree) -> None:
    async def drive() -> None:
        await tree.create("a")
        await tree.settle()
        tree.told.clear()
        data, _ = await tree.session.get(Changes.PATH)
        await tree.onlooker.stop()
        for _ in range(NOTICES_MAX + 5):
            await tree.session.set(Changes.PATH, data, ANY_VERSION)
        tree.onlooker.start_following()
        await tree.settle()
        assert any(change.topics == {"a"} and change.members for change in tree.told)
        assert "a" in tree.onlooker.topics

    tree.run(drive)


def test_two_controllers_cannot_be(tree: Tree) -> None:
    async def drive() -> None:
        second = tree.role_of(2, tree.other_session, tree.onlooker)
        second.start()
        await tree.settle()
        assert tree.role.is_controller and not second.is_controller
        with pytest.raises(ApiError) as refused:
            await second.decide(lambda _state: [])
        assert refused.value.error is Error.NOT_CONTROLLER
        await tree.session.delete(ControllerNode.PATH)
        await until(lambda: second.is_controller or tree.role.epoch > 1)

    tree.run(drive)


def test_a_controller_that_was_replaced_writes_nothing(tree: Tree) -> None:
    async def drive() -> None:
        data, stat = await tree.other_session.get(ControllerEpoch.PATH)
        claim = claim_controller(2, ControllerEpoch.decode(data), stat.version, 0)
        await tree.other_session.multi([Delete(ControllerNode.PATH), *claim.operations])
        with pytest.raises(ApiError) as refused:
            await tree.create("a")
        assert refused.value.error is Error.NOT_CONTROLLER
        await tree.settle()
        assert tree.onlooker.topics == {}

    tree.run(drive)


def test_producer_ids_are_given_once_whoever_gives_them(tree: Tree) -> None:
    async def drive() -> None:
        allocators = [ProducerIdAllocator(1, tree.session), ProducerIdAllocator(2, tree.other_session)]
        given = await asyncio.gather(*(allocators[number % 2].next_id() for number in range(2500)))
        assert len(set(given)) == 2500

    tree.run(drive)
