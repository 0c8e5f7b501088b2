"""Random runs of consumer groups and transactions: members of both protocols read, transform and commit while the
broker fails under them and they themselves are killed, paused and cut off; the history checker judges at the end.

Input is written by transactional producers that commit and abort. One group only reads it. Another transforms it:
what a read_committed reader finds in the output must be each committed input once.

A seed that fails is run again with `python tests/sim/test_groups_random.py SEED`, which prints the trace.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from uuid import UUID

import pytest

from penstock.base.errors import ApiError
from penstock.base.identifiers import TopicPartition
from penstock.base.steps import ProducerEpoch
from penstock.broker.partition import Partition
from penstock.groups.classic_group import ClassicGroup
from penstock.groups.consumer_group import ConsumerGroup
from penstock.groups.shard import GroupShard
from penstock.testing.histories.client_history import ClientHistory
from penstock.testing.histories.facts import Stored, TopicsRead
from penstock.testing.histories.group_history import GroupHistory
from penstock.testing.sim_broker import PORT
from penstock.testing.sim_client import SimClient
from penstock.testing.sim_committed import read_committed
from penstock.testing.sim_faults import BrokerFaults
from penstock.testing.sim_members import Place, SimClassicMember, SimConsumerMember, SimMember
from penstock.testing.sim_routes import OneBroker
from penstock.testing.sim_transactions import SimTransactions, Transforming, Unanswered
from penstock.testing.sim_world import Process, Simulation
from penstock.wire.batch import CONTROL
from penstock.wire.records import read_records

pytestmark = pytest.mark.sim

SEEDS = 10
LONG_SEEDS = 300
PARTITIONS = 3
PRODUCERS = 2
MEMBERS_MAX = 3
FAULTS = 5
DRAINED_WITHIN_S = 120.0
INPUT, OUTPUT = "input", "output"
SETTINGS = {
    "log.flush.mode": "always",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.heartbeat.interval.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "1000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}


class Source:
    """A transactional producer of input, until it is told to finish."""

    def __init__(self, run: Run, process: Process, name: str, *, is_new: bool) -> None:
        routes = OneBroker(process.world, "broker", PORT, name)
        self.transactions = SimTransactions(routes, name, run.history, is_new=is_new)
        self.is_finishing = False
        self._random = process.world.random

    async def run(self) -> None:
        while not self.is_finishing:
            try:
                await self.transactions.begin()
                for _ in range(1 + self._random.randrange(4)):
                    await self.transactions.send(TopicPartition(INPUT, self._random.randrange(PARTITIONS)))
                await self.transactions.end(is_commit=self._random.random() < 0.7)
            except (ApiError, Unanswered):
                self.transactions.give_up()
            await asyncio.sleep(self._random.random() * 0.8)


class Run(BrokerFaults):
    """One random run."""

    def __init__(self, seed: int) -> None:
        super().__init__(Simulation(seed, shuffle=True, limit_s=5000, trace_size_max=3000), SETTINGS)
        self.synced_folder = "input-0"
        self.history = ClientHistory(self.simulation.loop.time)
        self.sources: list[Source] = []
        self.members: dict[str, tuple[SimMember, Process, asyncio.Future[None]]] = {}
        self.transforming: list[Transforming] = []
        self.groups = {name: self.history.group(name, committed_only=True) for name in ("readers", "transformers")}
        self.is_consumer = {name: bool(self.chance.randrange(2)) for name in self.groups}
        self._numbers = 0

    # Members come and go

    def _join(self, group: str) -> None:
        self._numbers += 1
        name = f"{group}-{self._numbers}"
        process = self.simulation.machine(f"{group}-machine").process(name)
        place = Place(group, INPUT, self.topic_id, PARTITIONS)
        kind = SimConsumerMember if self.is_consumer[group] else SimClassicMember
        work = None
        if group == "transformers":
            transactional_id = f"transformer-{self.chance.randrange(MEMBERS_MAX)}"  # zombies included
            is_new = bool(self.chance.randrange(2))
            routes = OneBroker(process.world, "broker", PORT, transactional_id)
            transactions = SimTransactions(routes, transactional_id, self.history, is_new=is_new)
            work = Transforming(transactions, OUTPUT, PARTITIONS, process.world.random.random)
            self.transforming.append(work)
        member = kind(OneBroker(process.world, "broker", PORT, name), place, name, self.groups[group], work)
        self.members[name] = member, process, process.start(member.run())

    def _some_member(self, group: str) -> str | None:
        names = [name for name in self.members if name.startswith(f"{group}-")]
        return names[self.chance.randrange(len(names))] if names else None

    async def member_comes(self) -> None:
        group = self._some_group()
        if sum(name.startswith(f"{group}-") for name in self.members) < MEMBERS_MAX:
            self._join(group)

    async def member_leaves(self) -> None:
        name = self._some_member(self._some_group())
        if name is not None:
            member, _, running = self.members.pop(name)
            member.is_leaving = True
            await self.until(running.done, 30)

    async def member_dies(self) -> None:
        name = self._some_member(self._some_group())
        if name is not None:
            _, process, _ = self.members.pop(name)
            process.kill()
            self._group_of(name).died(name)

    async def member_pauses(self) -> None:
        name = self._some_member(self._some_group())
        if name is not None:
            _, process, _ = self.members[name]
            process.pause()
            await self.rest(12)
            process.resume()

    def _some_group(self) -> str:
        return sorted(self.groups)[self.chance.randrange(2)]

    def _group_of(self, member: str) -> GroupHistory:
        return self.groups[member.rpartition("-")[0]]

    # The run

    async def drive(self) -> None:
        await self.broker.start()
        driver = self.simulation.machine("driver").process("driver").world
        client = await SimClient.connect(driver, "broker", PORT)
        self.topic_id: UUID = await client.create_topic(INPUT, PARTITIONS)
        await client.create_topic(OUTPUT, PARTITIONS)
        client.close()
        producing = []
        for number in range(PRODUCERS):
            process = self.simulation.machine("sources").process(f"source-{number}")
            source = Source(self, process, f"source-{number}", is_new=bool(self.chance.randrange(2)))
            self.sources.append(source)
            producing.append(process.start(source.run()))
        watching = asyncio.ensure_future(self.watch())
        for group in self.groups:
            self._join(group)
        for _ in range(FAULTS):
            await self.rest(2)
            await self._fault()
        self.heal()
        for source in self.sources:
            source.is_finishing = True
        for group in self.groups:
            if self._some_member(group) is None:
                self._join(group)
        if not await self.until(lambda: all(work.done() for work in producing), 60):
            self.problems.append("not all was produced 60 s after the last fault")
        client = await SimClient.connect(driver, "broker", PORT)
        await self._drain(client)
        for name, (member, _, running) in list(self.members.items()):
            member.is_leaving = True
            if not await self.until(running.done, 60):
                self.problems.append(f"{name} could not leave")
        await self._check(client)
        watching.cancel()

    async def _fault(self) -> None:
        faults: list[Callable[[], Awaitable[None]]] = [
            self.kill,
            self.kill_at_an_operation,
            self.lose_power,
            self.lose_power_in_a_sync,
            self.stop_cleanly,
            self.fill_disk,
            self.fail_a_sync,
            self.pause,
            self.reset_connections,
            self.cut,
            self.slow_down,
            self.member_comes,
            self.member_comes,
            self.member_comes,
            self.member_leaves,
            self.member_dies,
            self.member_pauses,
        ]
        await self.one_of(faults)

    async def _drain(self, client: SimClient) -> None:
        """Wait until every transaction has ended and both groups have read all of the input."""
        wanted: set[bytes | None] = set()

        async def is_drained() -> bool:
            for index in range(PARTITIONS):
                if await client.list_offset(INPUT, index, -1) != await self._stable_offset(client, INPUT, index):
                    return False
            for index in range(PARTITIONS):
                wanted.update(record.value for record in await self._committed(client, index))
            if not all(self.groups["readers"].given(value or b"") for value in wanted):
                return False
            return len(await self._outputs(client)) >= len(wanted)

        ends_s = self.simulation.loop.time() + DRAINED_WITHIN_S
        while not await is_drained():
            if self.simulation.loop.time() > ends_s:
                self.problems.append(f"not drained {DRAINED_WITHIN_S} s after the last fault")
                return
            await asyncio.sleep(0.5)
        for group in self.groups.values():
            group.drained([TopicPartition(INPUT, index) for index in range(PARTITIONS)])

    async def _stable_offset(self, client: SimClient, topic: str, index: int) -> int:
        answer = await client.fetch(topic, index, 0, max_bytes=1)
        return answer.last_stable_offset

    async def _committed(self, client: SimClient, index: int) -> list[Stored]:
        return [Stored(record.offset, record.value) for record in await read_committed(client, INPUT, index)]

    async def _outputs(self, client: SimClient) -> list[bytes]:
        """The input of which each committed output was made."""
        outputs = [record for index in range(PARTITIONS) for record in await read_committed(client, OUTPUT, index)]
        sources = {value: source for each in self.transforming for value, source in each.sources.items()}
        return [sources[record.value or b""] for record in outputs]

    async def _check(self, client: SimClient) -> None:
        everything, committed = {}, {}
        for topic in (INPUT, OUTPUT):
            for index in range(PARTITIONS):
                where = TopicPartition(topic, index)
                everything[where] = [
                    Stored(record.offset, record.value)
                    for batch in await client.read_all(topic, index)
                    if not batch.header.attributes & CONTROL
                    for record in read_records(memoryview(batch.content))
                ]
                found = await read_committed(client, topic, index)
                committed[where] = [Stored(record.offset, record.value) for record in found]
        self.problems += map(str, self.history.findings(TopicsRead(everything, committed)))
        doubled = [value for value, times in Counter(await self._outputs(client)).items() if times > 1]
        if doubled:
            self.problems.append(f"{len(doubled)} inputs were transformed more than once: {doubled[:3]}")

    def run(self) -> str:
        """Run it to its end; the digest of its trace."""
        with self.simulation:
            self.simulation.run(self.drive())
            return self.simulation.loop.trace.digest()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seed" in metafunc.fixturenames:
        count = LONG_SEEDS if metafunc.config.getoption("--long") else SEEDS
        metafunc.parametrize("seed", range(count))


def test_groups_and_transactions_keep_their_promises(seed: int) -> None:
    run = Run(seed)
    run.run()
    assert not run.problems, f"after {run.happened}: {run.problems[:10]}"
    assert run.history.acknowledged > 5


def test_a_random_run_of_groups_is_the_same_every_time() -> None:
    assert Run(1000).run() == Run(1000).run()


# Removing a safeguard must be found: otherwise these runs would prove nothing


def _seed_that_finds_a_problem(seeds: int = 60) -> int | None:
    for seed in range(seeds):
        run = Run(seed)
        run.run()
        if run.problems:
            return seed
    return None


@pytest.mark.slow
def test_taking_commits_of_members_that_were_thrown_out_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ClassicGroup, "check_commit", lambda _self, *_arguments, **_options: None)
    monkeypatch.setattr(ConsumerGroup, "check_commit", lambda _self, *_arguments, **_options: None)
    assert _seed_that_finds_a_problem() is not None


def test_showing_open_transactions_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Partition, "stable_below", lambda _self, high_watermark: high_watermark)
    assert _seed_that_finds_a_problem() is not None


@pytest.mark.slow
def test_taking_offsets_of_aborted_transactions_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    replay_marker = GroupShard.replay_marker

    def commit_anyway(self: GroupShard, producer: ProducerEpoch, *, is_commit: bool) -> None:
        replay_marker(self, producer, is_commit=True)

    monkeypatch.setattr(GroupShard, "replay_marker", commit_anyway)
    assert _seed_that_finds_a_problem() is not None


if __name__ == "__main__":
    again = Run(int(sys.argv[1]))
    try:
        again.run()
    finally:
        print(again.simulation.loop.trace)
        print(again.happened, *again.problems, sep="\n")
