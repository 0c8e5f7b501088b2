"""Fetchers of followers beside real leaders, in the simulator: what they ask for, and what they do with it."""

from __future__ import annotations

import asyncio
import errno
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from penstock.broker import follower_fetcher
from penstock.broker.follower_link import FollowerLink
from penstock.broker.handlers.fetch_by_follower import COMMITTED_IS_TOLD_AFTER_S, FollowerFetches
from penstock.log.config import LogConfig
from penstock.testing.sim_disk import Operation
from penstock.testing.sim_replicas import SimReplicas
from penstock.testing.sim_world import Simulation
from penstock.wire.fetch_answer import FetchAnswer, read_fetch_answer
from penstock.wire.messages.k01_fetch import FetchRequest
from penstock.wire.schema import Message

PACKET_S = 0.005  # more than one takes


class Wire:
    """What fetchers and leaders say to each other."""

    def __init__(self) -> None:
        self.requests: list[FetchRequest] = []
        self.answers: list[FetchAnswer] = []
        self.others: list[Message] = []

    def clear(self) -> None:
        self.requests.clear()
        self.answers.clear()

    @property
    def named(self) -> Counter[int]:
        return Counter(part.partition for request in self.requests for row in request.topics for part in row.partitions)


@pytest.fixture
def wire(monkeypatch: pytest.MonkeyPatch) -> Wire:
    made = Wire()
    send = FollowerLink.request

    def request(link: FollowerLink, api: Any, version: int, message: Message, take: Any) -> None:
        (made.requests if isinstance(message, FetchRequest) else made.others).append(message)  # type: ignore[arg-type]
        send(link, api, version, message, take)

    def read(frame: memoryview, position: int) -> FetchAnswer:
        made.answers.append(read_fetch_answer(frame, position))
        return made.answers[-1]

    monkeypatch.setattr(FollowerLink, "request", request)
    monkeypatch.setattr(follower_fetcher, "read_fetch_answer", read)
    return made


@pytest.fixture
def simulation() -> Iterator[Simulation]:
    with Simulation(11, limit_s=10_000) as made:
        yield made


def run(replicas: SimReplicas, drive: Callable[[], Awaitable[None]], leader: int = 1) -> None:
    async def main() -> None:
        await replicas.start()
        await replicas.lead(leader)
        await drive()

    replicas.simulation.run(main())


async def until(simulation: Simulation, is_so: Callable[[], bool], within_s: float = 30.0) -> float:
    """Wait for a condition; how long it took."""
    start_s = simulation.loop.time()
    while not is_so():
        assert simulation.loop.time() < start_s + within_s
        await asyncio.sleep(0.001)
    return simulation.loop.time() - start_s


def test_records_reach_the_followers_and_are_committed(simulation: Simulation) -> None:
    replicas = SimReplicas(simulation, 3, partitions=2)

    async def drive() -> None:
        replicas.node(1).append(0, [b"a", b"b"])
        replicas.node(1).append(1, [b"c"])
        replicas.node(1).append(1, [b"d"])
        await replicas.in_step()
        assert [each.value for each in replicas.node(3).stored(1)] == [b"c", b"d"]
        assert replicas.node(2).partition(0).high_watermark == 2

    run(replicas, drive)


def test_a_fetch_costs_by_what_has_news(simulation: Simulation, wire: Wire) -> None:
    replicas = SimReplicas(simulation, 2, partitions=300)

    async def drive() -> None:
        await asyncio.sleep(1)
        assert wire.named == Counter(range(300)), "each is named once"
        wire.clear()
        await asyncio.sleep(10)
        assert len(wire.requests) == pytest.approx(20, abs=1), "one every half second, while nothing happens"
        assert not wire.named and not any(answer.partitions for answer in wire.answers)
        wire.clear()
        replicas.node(1).append(7, [b"a"])
        await asyncio.sleep(0.3)
        assert wire.named == {7: 1}
        assert [[row.partition for row in answer.partitions] for answer in wire.answers] == [[7], [7]]

    run(replicas, drive)


def test_the_last_high_watermark_is_told_soon_and_others_with_the_next_records(
    simulation: Simulation, wire: Wire
) -> None:
    replicas = SimReplicas(simulation, 2)
    leader, follower = replicas.nodes

    async def drive() -> None:
        await asyncio.sleep(1)
        leader.append(0, [b"a"])
        told_s = await until(simulation, lambda: follower.partition().high_watermark == 1)
        assert told_s < COMMITTED_IS_TOLD_AFTER_S + 5 * PACKET_S
        wire.clear()
        for _ in range(100):
            leader.append(0, [b"b"])
            await until(simulation, lambda: leader.partition().high_watermark == leader.partition().log.end_offset)
        assert len(wire.requests) <= 101

    run(replicas, drive)


def test_a_broker_that_was_away_catches_up_in_bounded_steps_and_in_sync_ones_come_first(
    simulation: Simulation, wire: Wire
) -> None:
    limits = {"replica.fetch.max.bytes": "2000", "replica.fetch.response.max.bytes": "5000"}
    replicas = SimReplicas(simulation, 2, partitions=20, settings=limits)
    leader, follower = replicas.nodes

    async def drive() -> None:
        follower.kill()
        for index in range(20):
            replicas.decide(index, 1, isr=(1,) if index else (1, 2))
        await leader.learn()
        for index in range(1, 20):
            for _ in range(20):
                leader.append(index, [b"x" * 500])
        await follower.start()
        await until(simulation, lambda: bool(wire.answers))
        leader.append(0, [b"in sync"])
        await until(simulation, lambda: leader.partition(0).high_watermark == 1)
        assert follower.partition(19).log.end_offset < 20, "it did not wait for those that catch up"
        await replicas.in_step()
        sizes = [sum(len(row.records or b"") for row in answer.partitions) for answer in wire.answers]
        assert max(sizes) <= 5000 and sum(sizes) > 19 * 20 * 500
        most = [len({row.partition for row in answer.partitions if row.records}) for answer in wire.answers]
        assert max(most) > 1

    run(replicas, drive)


def test_all_that_catch_up_get_their_turn(simulation: Simulation) -> None:
    limits = {"replica.fetch.max.bytes": "1000", "replica.fetch.response.max.bytes": "2000"}
    replicas = SimReplicas(simulation, 2, partitions=6, settings=limits)
    leader, follower = replicas.nodes

    async def drive() -> None:
        follower.kill()
        for index in range(6):
            for _ in range(40):
                leader.append(index, [b"x" * 500])
        await follower.start()
        ends = [0] * 6
        while min(ends) < 40:
            await asyncio.sleep(0.001)
            ends = [follower.partition(index).log.end_offset for index in range(6)]
            assert max(ends) - min(ends) <= 4, ends

    run(replicas, drive)


def test_a_follower_of_which_the_leader_has_nothing_left_begins_anew(simulation: Simulation, wire: Wire) -> None:
    replicas = SimReplicas(simulation, 2, partitions=2, config=LogConfig(segment_bytes=300))
    leader, follower = replicas.nodes

    async def drive() -> None:
        leader.append(0, [b"old"])
        await replicas.in_step()
        follower.kill()
        replicas.decide(0, 1, isr=(1,))
        replicas.decide(1, 1, isr=(1,))
        await leader.learn()
        for index in range(2):
            for _ in range(20):
                leader.append(index, [b"x" * 50])
            leader.partition(index).log.advance_start_offset(15)
        await follower.start()
        await replicas.in_step(5)
        assert wire.others
        for index in range(2):
            assert follower.stored(index) == leader.stored(index)
            assert follower.partition(index).log.start_offset == 15

    run(replicas, drive)


def test_a_leader_without_records_of_its_own_tells_where_older_epochs_end(simulation: Simulation) -> None:
    """Node 1 has more of an old epoch, node 2 something of a newer one; node 1 leads again, and nobody writes."""
    replicas = SimReplicas(simulation, 2)
    one, two = replicas.nodes

    async def drive() -> None:
        one.append(0, [b"a"])
        await replicas.in_step()
        two.kill()
        for _ in range(3):
            one.append(0, [b"b", b"b"])
        one.kill()
        replicas.decide(0, 2)
        await two.start()
        two.append(0, [b"c"])
        replicas.decide(0, 1)
        await two.learn()
        await one.start()
        await replicas.in_step(5)
        assert [each.value for each in two.stored()] == [b"a"] + [b"b"] * 6

    run(replicas, drive)


def test_a_spoiled_batch_is_not_appended_and_fetched_again(
    simulation: Simulation, monkeypatch: pytest.MonkeyPatch
) -> None:
    replicas = SimReplicas(simulation, 2, partitions=2)
    spoiled = 0

    def read(frame: memoryview, position: int) -> FetchAnswer:
        nonlocal spoiled
        answer = read_fetch_answer(frame, position)
        for row in answer.partitions:
            if row.partition == 0 and row.records is not None and spoiled < 2:
                spoiled += 1
                row.records[-1] ^= 1
        return answer

    monkeypatch.setattr(follower_fetcher, "read_fetch_answer", read)
    leader, follower = replicas.nodes

    async def drive() -> None:
        leader.append(0, [b"a"])
        leader.append(1, [b"b"])
        await until(simulation, lambda: leader.partition(1).high_watermark == 1, 0.1)
        assert follower.partition(0).log.end_offset == 0
        took_s = await until(simulation, lambda: leader.partition(0).high_watermark == 1)
        assert spoiled == 2 and 1.9 < took_s < 2.5, "after two pauses of replica.fetch.backoff.ms"
        assert follower.stored(0) == leader.stored(0)

    run(replicas, drive)


def test_with_syncs_a_position_is_told_when_it_is_durable_and_others_do_not_wait(simulation: Simulation) -> None:
    replicas = SimReplicas(simulation, 2, partitions=2, config=LogConfig(flush_mode="always"))
    leader, follower = replicas.nodes

    def is_slow(operation: Operation) -> bool:
        return operation.kind == "sync" and "/t-0/" in operation.path and operation.path.endswith(".log")

    async def drive() -> None:
        follower.machine.disk.slow_when(is_slow, 0.3)
        leader.append(0, [b"a"])
        leader.append(1, [b"b"])
        await until(simulation, lambda: leader.partition(1).high_watermark == 1, 0.1)
        assert follower.partition(0).log.end_offset == 1 and leader.partition(0).high_watermark == 0
        leader.append(1, [b"c"])
        await until(simulation, lambda: leader.partition(1).high_watermark == 2, 0.1)
        took_s = await until(simulation, lambda: leader.partition(0).high_watermark == 1, 1.0)
        assert took_s < 0.4
        leader.append(0, [b"d"])
        await replicas.in_step()

    run(replicas, drive)


def test_a_partition_that_is_cut_does_not_hold_up_the_others(simulation: Simulation) -> None:
    replicas = SimReplicas(simulation, 2, partitions=2)
    one, two = replicas.nodes

    async def drive() -> None:
        one.kill()
        replicas.decide(0, 2)
        await two.learn()
        two.append(0, [b"lost"])
        two.kill()
        await one.start()
        replicas.decide(0, 1)
        await one.learn()
        one.append(0, [b"kept"])
        two.machine.disk.slow_when(lambda operation: "truncate" in operation.kind, 0.5)
        await two.start()
        one.append(1, [b"b"])
        await until(simulation, lambda: one.partition(1).high_watermark == 1, 0.2)
        assert two.partition(0).is_reworking
        await replicas.in_step(2)
        assert [each.value for each in two.stored(0)] == [b"kept"]

    run(replicas, drive)


def test_a_full_disk_holds_up_what_is_on_it_until_there_is_room(simulation: Simulation) -> None:
    replicas = SimReplicas(simulation, 2, settings={"replica.fetch.backoff.ms": "300"})
    leader, follower = replicas.nodes

    async def drive() -> None:
        follower.machine.disk.fail_when(
            lambda operation: operation.kind == "write" and operation.path.endswith(".log"),
            OSError(errno.ENOSPC, "full"),
            times=3,
        )
        leader.append(0, [b"a"])
        await asyncio.sleep(0.5)
        assert leader.partition().high_watermark == 0
        await replicas.in_step(2)

    run(replicas, drive)


def test_a_nearly_full_disk_keeps_its_reserve(simulation: Simulation, wire: Wire) -> None:
    replicas = SimReplicas(simulation, 2)
    leader, follower = replicas.nodes

    async def drive() -> None:
        await asyncio.sleep(1)
        follower.partition().takes_writes = False
        leader.append(0, [b"a"])
        await asyncio.sleep(5)
        assert follower.partition().log.end_offset == 0
        assert len([answer for answer in wire.answers if any(row.records for row in answer.partitions)]) == 1
        follower.partition().takes_writes = True
        await replicas.in_step(2)

    run(replicas, drive)


def test_it_fetches_again_after_a_leader_that_was_gone(simulation: Simulation) -> None:
    replicas = SimReplicas(simulation, 3)

    async def drive() -> None:
        replicas.node(1).append(0, [b"a"])
        await replicas.in_step()
        replicas.node(1).kill()
        await asyncio.sleep(2)
        await replicas.node(1).start()
        replicas.node(1).append(0, [b"b"])
        await replicas.in_step(2)

    run(replicas, drive)


def test_a_silent_leader_is_connected_to_again(simulation: Simulation, wire: Wire) -> None:
    replicas = SimReplicas(simulation, 2)
    leader, follower = replicas.nodes
    links = simulation.network.links

    async def drive() -> None:
        leader.append(0, [b"a"])
        await replicas.in_step()
        links.cut_both("node1", "node2")
        await asyncio.sleep(20)
        leader.append(0, [b"b"])
        wire.clear()
        links.heal_all()
        await replicas.in_step(2)
        assert any(request.session_epoch == 0 for request in wire.requests)
        assert follower.stored() == leader.stored()

    run(replicas, drive)


def test_another_life_of_the_follower_begins_another_session(simulation: Simulation, wire: Wire) -> None:
    replicas = SimReplicas(simulation, 2)
    leader, follower = replicas.nodes

    async def drive() -> None:
        await asyncio.sleep(1)
        assert follower.membership is not None
        follower.membership.epoch = 9
        wire.clear()
        await asyncio.sleep(1)
        assert [request.replica_state.replica_epoch for request in wire.requests[:1]] == [9]
        leader.append(0, [b"a"])
        await replicas.in_step(1)
        state = leader.partition().leader
        assert state is not None and state.followers[2].broker_epoch == 9

    run(replicas, drive)


def test_nothing_is_fetched_before_the_follower_is_registered(simulation: Simulation, wire: Wire) -> None:
    replicas = SimReplicas(simulation, 2)
    follower = replicas.node(2)

    async def drive() -> None:
        assert follower.membership is not None
        follower.membership.epoch = -1
        await asyncio.sleep(2)
        wire.clear()
        replicas.node(1).append(0, [b"a"])
        await asyncio.sleep(3)
        assert not wire.requests
        follower.membership.epoch = 7
        await replicas.in_step(3)

    run(replicas, drive)


def test_who_follows_somebody_else_or_leads_is_forgotten(simulation: Simulation, wire: Wire) -> None:
    replicas = SimReplicas(simulation, 3, partitions=2)

    async def drive() -> None:
        await asyncio.sleep(1)
        wire.clear()
        replicas.decide(0, 2)
        await replicas.all_learn()
        await asyncio.sleep(1)
        assert {tuple(row.partitions) for request in wire.requests for row in request.forgotten_topics_data} == {(0,)}
        replicas.node(2).append(0, [b"a"])
        replicas.node(1).append(1, [b"b"])
        await replicas.in_step(2)
        assert not replicas.node(1).partition(0).follower_waits

    run(replicas, drive)


def test_a_follower_that_learns_first_asks_again_soon(simulation: Simulation) -> None:
    replicas = SimReplicas(simulation, 2)

    async def drive() -> None:
        replicas.decide(0, 1)
        await replicas.node(2).learn()
        await asyncio.sleep(0.2)
        await replicas.node(1).learn()
        replicas.node(1).append(0, [b"a"])
        took_s = await until(simulation, lambda: replicas.node(1).partition().high_watermark == 1)
        assert took_s < 0.4

    run(replicas, drive)


def test_a_leader_knows_that_an_idle_follower_still_asks(simulation: Simulation) -> None:
    """Else it would count as lagging when the first record comes after a long time, and its lease on nobody."""
    replicas = SimReplicas(simulation, 2)
    node = replicas.node(1)

    def now_ms() -> int:
        return int(simulation.loop.time() * 1000)

    async def drive() -> None:
        node.append(0, [b"a"])
        await asyncio.sleep(100)
        leader = node.partition().leader
        assert leader is not None
        for wait in node.partition().follower_waits:
            wait.say_when()
        assert leader.is_followed_since(now_ms() - 600)
        await asyncio.sleep(100)
        node.append(0, [b"b"])
        assert leader.isr_change(now_ms(), 30_000, 1, lambda _broker: True) is None
        replicas.node(2).kill()
        await asyncio.sleep(40)
        node.append(0, [b"c"])
        change = leader.isr_change(now_ms(), 30_000, 1, lambda _broker: True)
        assert change is not None and list(change.isr) == [1]

    run(replicas, drive)


def test_a_follower_stops_while_it_appends_and_cuts(simulation: Simulation) -> None:
    replicas = SimReplicas(simulation, 2, partitions=2, config=LogConfig(flush_mode="always"))
    leader, follower = replicas.nodes

    async def drive() -> None:
        follower.machine.disk.slow_when(lambda operation: operation.kind == "sync", 5)
        leader.append(0, [b"a"])
        await asyncio.sleep(0.05)
        assert follower.process is not None and follower.followers is not None
        assert follower.partition(0).is_syncing
        await follower.process.start(follower.followers.stop())
        leader.append(1, [b"b"])
        await asyncio.sleep(10)
        assert follower.partition(1).log.end_offset == 0

    run(replicas, drive)


@pytest.mark.parametrize("side", ["leader", "follower"])
def test_a_replica_that_catches_up_keeps_to_its_rate(simulation: Simulation, side: str) -> None:
    limits = {
        f"{side}.replication.throttled.rate": "10000",
        "replica.fetch.max.bytes": "2000",
        "replica.fetch.response.max.bytes": "2000",
    }
    replicas = SimReplicas(simulation, 2, partitions=2, settings=limits)
    replicas.throttle("*")
    leader, follower = replicas.nodes

    async def drive() -> None:
        follower.kill()
        replicas.decide(0, 1, isr=(1,))
        replicas.decide(1, 1, isr=(1, 2))
        await leader.learn()
        for _ in range(150):
            leader.append(0, [b"x" * 1000])
            leader.append(1, [b"x" * 1000])
        await follower.start()
        in_sync_s = await until(simulation, lambda: follower.partition(1).log.end_offset == 150)
        assert in_sync_s < 5, "in sync: not held back"
        start_s, before = simulation.loop.time(), follower.partition(0).log.end_offset
        await until(simulation, lambda: follower.partition(0).log.end_offset == 150, 60)
        rate = (150 - before) * 1068 / (simulation.loop.time() - start_s)
        assert 4_000 < rate < 16_000

    run(replicas, drive)


def test_a_bug_in_one_answer_does_not_end_the_fetching(simulation: Simulation, monkeypatch: pytest.MonkeyPatch) -> None:
    replicas = SimReplicas(simulation, 2)
    times = 0

    def handle(self: FollowerFetches, *arguments: Any) -> Any:
        nonlocal times
        times += 1
        if times == 3:
            raise AssertionError("a bug")
        return original(self, *arguments)

    original = FollowerFetches.handle
    monkeypatch.setattr(FollowerFetches, "handle", handle)

    async def drive() -> None:
        for number in range(10):
            replicas.node(1).append(0, [b"%d" % number])
            await asyncio.sleep(0.1)
        await replicas.in_step(5)

    run(replicas, drive)
