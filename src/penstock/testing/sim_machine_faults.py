"""Faults of processes, machines and disks in a simulated cluster, and of the keeper.

Power is only taken from a machine when the promises still hold without what it has not synced: when no other replica
has lost anything that it has not got back (`Invariants.can_lose_power`). In topics that sync before they count anything
that is no matter, and `is_any_power_loss_allowed` lets all machines lose power at once.
"""

from __future__ import annotations

import asyncio
import errno
import os

from penstock.testing.sim_cluster import SimClusterBroker
from penstock.testing.sim_disk import CAPACITY_BYTES
from penstock.testing.sim_fault_tools import CALM_DELAY_S, FaultTools
from penstock.zookeeper.operations import Delete, Write
from penstock.zookeeper.znodes import ControllerNode


class MachineFaults(FaultTools):
    """See the head of this file."""

    async def kill(self) -> None:
        """kill -9, and back after a while."""
        await self._kill(self._pick())

    async def kill_at_an_operation(self) -> None:
        """Killed in the middle of something that it does to its disk."""
        broker = self._pick()
        if not broker.is_running:
            return
        broker.machine.kill_at(broker.machine.disk.operations_count + 1 + self._chance.randrange(40))
        await asyncio.sleep(self._chance.random() * 3)
        broker.machine.disk.device.stop_number = None
        if not broker.is_running and broker.has_power:
            self.invariants.tell(f"{broker} was killed in the middle of something")
            await self._start(broker)

    async def kill_controller_in_the_act(self) -> None:
        """A broker dies, and the controller just after it has written who leads in its place."""
        controller, victim = self.cluster.controller, self._pick()
        if controller is None or victim is controller:
            return
        killing = asyncio.ensure_future(self._kill(victim))
        written = self.invariants.states_written
        for _ in range(int(2000 * self._session_s)):
            await asyncio.sleep(0.0005)
            if self.invariants.states_written != written:
                await self._kill(controller)
                break
        await killing

    async def kill_leader_after_follower(self) -> None:
        """A follower dies, what it lacks is committed by the others, and then the leader dies; the follower returns.

        Whoever leads now has all of it, but has not heard yet how much of it is committed.
        """
        facts = self._some_partition(isr_min=3)
        if facts is None or facts.state is None:
            return
        leader, (follower, survivor) = facts.state.leader, self._two_others(facts)
        names = {broker.broker_id: broker.machine.name for broker in self.cluster.brokers}
        broker = self.cluster.broker(follower)
        self.invariants.tell(f"{broker} is killed, and {names[survivor]} hears slowly", facts.name)
        self._links.set_delay(names[leader], names[survivor], 0.05, 0.1)
        broker.kill()
        for _ in range(int(1000 * self._session_s)):
            await asyncio.sleep(0.001)
            if facts.state is None or follower not in facts.state.isr:
                break
        end_offset = facts.replica(follower).end_offset
        for _ in range(500):
            await asyncio.sleep(0.0005)
            if facts.replica(leader).high_watermark > end_offset:
                break
        killing = asyncio.ensure_future(self._kill(self.cluster.broker(leader)))
        await self._rest(0.02)
        self._links.set_delay(names[leader], names[survivor], *CALM_DELAY_S)
        if not broker.is_running:
            await self._start(broker)
        await killing

    async def kill_many(self) -> None:
        """Several brokers die at nearly the same time."""
        for broker in self.cluster.brokers:
            if self._chance.randrange(3):
                self.invariants.tell(f"{broker} is killed")
                broker.kill()
                await self._rest(0.3)
        await self._rest(self._long_s())
        await asyncio.gather(*(self._start(each) for each in self.cluster.brokers if not each.is_running))

    async def stop_cleanly(self) -> None:
        """A planned restart."""
        broker = self._pick()
        if not broker.is_running or broker.running is None:
            return
        self.invariants.tell(f"{broker} is stopped")
        await broker.stop()
        await self._rest(2.0)
        if not broker.is_running:
            await self._start(broker)

    async def lose_power(self) -> None:
        """A machine loses power, and with it some of what was not synced."""
        broker = self._pick()
        if not self._may_lose_power(broker):
            await self._kill(broker)
            return
        self._lose_power(broker)
        await self._rest(self._long_s())
        await self._start(broker)

    async def lose_power_behind_a_cut(self) -> None:
        """A machine that has lost power comes back quickly, but the other brokers do not hear of it for a while."""
        broker = self._pick()
        if not self._may_lose_power(broker):
            return
        others = [each.machine.name for each in self.cluster.brokers if each is not broker]
        self.invariants.tell(f"{broker} and {', '.join(others)}: cut")
        for other in others:
            self._links.cut_both(broker.machine.name, other)
        self._lose_power(broker)
        starting = asyncio.ensure_future(self._start(broker))
        await self._rest(self._long_s())
        self.invariants.tell(f"{broker} and {', '.join(others)}: mended")
        for other in others:
            self._links.heal(broker.machine.name, other)
        await starting

    def _lose_power(self, broker: SimClusterBroker) -> None:
        if not broker.has_power:
            return
        self.invariants.tell(f"{broker} loses power")
        pending = [change.number for change in broker.machine.disk.pending()]
        kind = self._chance.randrange(3)
        if kind == 0:
            broker.lose_power("all")
        elif kind == 1:
            share = self._chance.random()
            broker.lose_power([number for number in pending if self._chance.random() < share])
        else:
            broker.lose_power(
                [number for number in pending if self._chance.randrange(4)],
                torn=self._chance.randrange(500),
                lost_pages=lambda _write, _page: self._chance.randrange(4) == 0,
            )

    async def lose_all_power(self) -> None:
        """The whole room goes dark, the keeper with it."""
        if not self.plan.is_any_power_loss_allowed:
            await self.kill_many()
            return
        for broker in self.cluster.brokers:
            self._lose_power(broker)
        self.cluster.keeper.lose_power()
        await self._rest(2.0)
        self.cluster.keeper.start()
        for broker in self.cluster.brokers:
            await self._rest(1.0)
            if not broker.is_running:
                await asyncio.wait([asyncio.ensure_future(self._start(broker))], timeout=self._chance.random() * 3)
        await asyncio.gather(*(self._start(each) for each in self.cluster.brokers if not each.is_running))

    async def pause(self) -> None:
        """A process stands still, perhaps for longer than its session."""
        broker = self._pick()
        process = broker.process
        if process is None or process.ended:
            return
        self.invariants.tell(f"{broker} stands still")
        process.pause()
        await asyncio.sleep(self._long_s())
        if not process.ended:
            self.invariants.tell(f"{broker} goes on")
            process.resume()

    async def fail_sync(self) -> None:
        """A sync fails, and with it a log directory; later the broker is started again, perhaps the whole machine."""
        broker = self._pick()
        if not broker.is_running:
            return
        folders = broker.settings.list("log.dirs")
        folder = folders[self._chance.randrange(len(folders))]
        self.invariants.tell(f"{broker}: a sync in {folder} fails")
        broker.machine.disk.fail_when(
            lambda operation: operation.kind in ("sync", "sync_dir") and operation.path.startswith(f"{folder}/"),
            OSError(errno.EIO, os.strerror(errno.EIO)),
        )
        await self._rest(5.0)
        broker.machine.disk.heal()
        if self._chance.randrange(2) and self._may_lose_power(broker):
            self._lose_power(broker)
        else:
            self.invariants.tell(f"{broker} is killed")
            broker.kill()
        await self._rest(2.0)
        if not broker.is_running:
            await self._start(broker)

    async def fill_disk(self) -> None:
        """There is hardly any room on a disk for a while."""
        broker = self._pick()
        disk = broker.machine.disk
        self.invariants.tell(f"the disk of {broker} is full")
        disk.set_capacity(disk.device.used_bytes + self._chance.randrange(1 << self._chance.randrange(16)))
        await self._rest(5.0)
        self.invariants.tell(f"the disk of {broker} has room")
        disk.set_capacity(CAPACITY_BYTES)

    def _may_lose_power(self, broker: SimClusterBroker) -> bool:
        return self.plan.is_any_power_loss_allowed or self.invariants.can_lose_power(broker)

    async def slow_disk(self) -> None:
        """Syncs take long."""
        broker = self._pick()
        broker.machine.disk.slow_when(lambda operation: operation.kind == "sync", 0.05 + self._chance.random())
        await self._rest(3.0)
        broker.machine.disk.heal()

    async def jump_clock(self) -> None:
        """The wall clock of a machine is set."""
        self._pick().machine.clock.jump(self._chance.randrange(7_200_000) - 3_600_000)


class KeeperFaults(FaultTools):
    """The keeper stops, and sessions and the role of controller end."""

    async def crash_keeper(self) -> None:
        """The keeper is killed, or its machine loses power."""
        keeper = self.cluster.keeper
        if keeper.process is None or keeper.process.ended:
            return
        if self._chance.randrange(2):
            self.invariants.tell("the keeper is killed")
            keeper.kill()
        else:
            self.invariants.tell("the keeper loses power")
            keeper.lose_power()
        await self._rest(self._long_s())
        if keeper.process is None or keeper.process.ended:
            self.invariants.tell("the keeper is started")
            keeper.start()

    async def pause_keeper(self) -> None:
        process = self.cluster.keeper.process
        if process is None or process.ended:
            return
        self.invariants.tell("the keeper stands still")
        process.pause()
        await self._rest(self._long_s())
        if not process.ended:
            self.invariants.tell("the keeper goes on")
            process.resume()

    async def take_role_away(self) -> None:
        """An operator removes `/controller`: another broker takes over while the first one does not know yet."""
        keeper, process = self.cluster.keeper.keeper, self.cluster.keeper.process
        controller = self.cluster.controller
        if keeper is None or process is None or process.ended or controller is None:
            return
        self.invariants.tell(f"{controller} is not the controller any more, by order")
        if self._chance.randrange(2):
            self._links.cut(self.cluster.keeper.machine.name, controller.machine.name)
        removal = Write(controller.session_id, (Delete(ControllerNode.PATH),))
        process.call(lambda: keeper.store.submit(removal).add_done_callback(lambda done: done.exception()))
        await self._rest(self._session_s * 0.6)
        self._links.heal(self.cluster.keeper.machine.name, controller.machine.name)

    async def lose_session(self) -> None:
        """A broker's session is over although the broker lives."""
        broker = self._pick()
        self.invariants.tell(f"the session of {broker} is ended")
        self.cluster.keeper.expire(broker.session_id)
