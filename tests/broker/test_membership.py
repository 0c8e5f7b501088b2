"""Registrations: one broker for an id, an epoch for each life, admission by the controller, again after an expiry."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.broker.cluster_view import ClusterView
from penstock.broker.controller_role import ControllerRole
from penstock.broker.lease import Lease
from penstock.broker.membership import IdTakenError, Membership
from penstock.controller.transitions import TopicRules
from penstock.testing.sim_keeper import ADDRESS, SimKeeper
from penstock.zookeeper.client import Client
from penstock.zookeeper.errors import ConnectionLossError
from penstock.zookeeper.renewal import RenewedClient
from penstock.zookeeper.znodes import BrokerNode, ControllerNode, first_znodes

NODE = BrokerNode(endpoints=())


class Member:
    """A broker as far as it is a member: a session, a view, a registration, a chance to be the controller."""

    def __init__(self, service: SimKeeper, host: str, broker_id: int) -> None:
        self.service = service
        self.host = host
        self.broker_id = broker_id
        self.has_lost = False

    async def open(self) -> None:
        await self.service.within(self.host, self._open())

    async def _open(self) -> None:
        world = self.service.process(self.host).world
        self.coordination = await RenewedClient.open(
            lambda: Client.connect(world, [ADDRESS], timeout_ms=4000), lambda _session: None
        )
        if await self.coordination.exists("/cluster") is None:
            await self.coordination.multi(first_znodes("c"))
        self.view = ClusterView(self.coordination)
        await self.view.load()
        self.lease = Lease(world.clock, self.coordination)
        self.membership = Membership(self.broker_id, world, self.coordination, self.view, self.lease)
        self.role = ControllerRole(self.broker_id, self.coordination, self.view, world.clock, lambda _: TopicRules())
        self.view.start_following()

    async def join(self) -> None:
        async def inside() -> None:
            await self.membership.register(NODE, lambda: self.has_lost)
            self.role.start()
            await self.membership.admitted()

        await self.service.within(self.host, inside())


@pytest.fixture
def service() -> Iterator[SimKeeper]:
    with SimKeeper() as made:
        yield made


def test_brokers_are_admitted_by_the_controller_and_see_each_other(service: SimKeeper) -> None:
    async def script() -> None:
        members = [Member(service, f"m{number}", number) for number in range(3)]
        for member in members:
            await member.open()
            await member.join()
        assert [member.role.is_controller for member in members] == [True, False, False]
        epochs = {member.broker_id: member.membership.epoch for member in members}
        assert len(set(epochs.values())) == 3
        await service.until(lambda: all(member.view.admitted.epochs == epochs for member in members))
        assert all(member.view.broker_epochs == epochs and member.view.controller_id == 0 for member in members)

    service.run(script())


def test_an_id_that_a_living_broker_has_is_refused(service: SimKeeper) -> None:
    async def script() -> None:
        first, second = Member(service, "m0", 7), Member(service, "m1", 7)
        await first.open()
        await first.join()
        await second.open()
        with pytest.raises(IdTakenError, match="7 is running already"):
            await second.join()
        assert first.membership.is_admitted

    service.run(script())


def test_the_role_goes_to_another_when_the_controller_dies(service: SimKeeper) -> None:
    async def script() -> None:
        members = [Member(service, f"m{number}", number) for number in range(3)]
        for member in members:
            await member.open()
            await member.join()
        service.process("m0").kill()
        await service.until(lambda: any(member.role.is_controller for member in members[1:]))
        assert sum(member.role.is_controller for member in members[1:]) == 1
        await service.until(lambda: all(member.view.admitted.epochs.keys() == {1, 2} for member in members[1:]))
        assert members[1].view.admitted.away == (0,)

    service.run(script())


def test_after_an_expiry_the_broker_is_a_member_again_in_another_epoch(service: SimKeeper) -> None:
    async def script() -> None:
        one, two = Member(service, "m0", 0), Member(service, "m1", 1)
        for member in (one, two):
            await member.open()
            await member.join()
        before = two.membership.epoch
        service.simulation.network.links.cut_both("m1", "keeper")
        await service.until(lambda: not two.lease.holds())
        await service.until(lambda: 1 not in one.view.admitted.epochs)
        service.simulation.network.links.heal("m1", "keeper")
        await service.until(lambda: two.membership.epoch > before and two.membership.is_admitted)
        assert not two.lease.holds()  # what was read in the new session has not been taken over
        two.lease.acts_on(two.view.session_id)
        assert two.lease.holds()
        await service.until(lambda: one.view.admitted.epochs.get(1) == two.membership.epoch)

    service.run(script())


def test_a_loss_is_told_with_the_registration(service: SimKeeper) -> None:
    async def script() -> None:
        one = Member(service, "m0", 0)
        one.has_lost = True
        await one.open()
        await one.join()
        assert not one.view.brokers[0].clean_start

    service.run(script())


def test_a_claim_whose_answer_was_lost_is_taken_up(service: SimKeeper) -> None:
    """The role is ours in the tree, and we were not told."""

    async def script() -> None:
        one = Member(service, "m0", 0)
        await one.open()
        claimed = one.coordination.multi

        async def losing(operations: object) -> object:
            result = await claimed(operations)  # type: ignore[arg-type]
            if any(getattr(operation, "path", "") == ControllerNode.PATH for operation in operations):  # type: ignore[attr-defined]
                raise ConnectionLossError("lost")
            return result

        one.coordination.multi = losing  # type: ignore[method-assign, assignment]
        await one.join()
        assert one.role.is_controller

    service.run(script())
