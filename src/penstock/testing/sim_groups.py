"""Groups and transactions at work, for a simulation: who writes, who reads, who transforms, and the check at the end.

Input is written by transactional producers that commit and abort. One group (`readers`) only reads it. Another
(`transformers`) makes one output of each input, in transactions with its offsets: what a read_committed reader finds in
the output at the end must be each committed input once. Members come, leave, die and stand still.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from enum import Enum
from typing import NamedTuple
from uuid import UUID

from penstock.base.errors import ApiError, Error
from penstock.base.identifiers import TopicPartition
from penstock.base.world import Random
from penstock.testing.histories.client_history import ClientHistory
from penstock.testing.histories.facts import Stored
from penstock.testing.histories.group_history import GroupHistory
from penstock.testing.sim_committed import read_committed
from penstock.testing.sim_members import Place, SimClassicMember, SimConsumerMember, SimMember
from penstock.testing.sim_routes import GROUP, MOVED, Routes
from penstock.testing.sim_transactions import SimTransactions, Transforming, Unanswered
from penstock.testing.sim_world import Process, Simulation
from penstock.wire.batch import CONTROL
from penstock.wire.messages.k09_offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestGroupTopic,
)
from penstock.wire.records import read_records

PARTITIONS = 3
PRODUCERS = 2
MEMBERS_MAX = 3
INPUT, OUTPUT = "input", "output"
LEFT_WITHIN_S = 60.0
ASKED_WITHIN_S = 3.0

#: What is in partitions.
Contents = dict[TopicPartition, list[Stored]]

#: The routes of a client of that name in a process.
NewRoutes = Callable[[Process, str], Routes]

#: What groups need to be quick enough for a simulation.
GROUP_SETTINGS = {
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.session.timeout.ms": "6000",
    "group.consumer.min.session.timeout.ms": "6000",
    "group.consumer.heartbeat.interval.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "1000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
}


class Sources(Enum):
    """What the producers of input are like."""

    ANY = "of both protocols, with or without patience"
    SLOW = "of the older protocol, nearly always in a transaction"
    HASTY = "the same, and soon giving it up"


class Source:
    """A transactional producer of input, until it is told to finish."""

    def __init__(self, routes: Routes, name: str, history: ClientHistory, *, is_new: bool, is_patient: bool) -> None:
        self.transactions = SimTransactions(routes, name, history, is_new=is_new, is_patient=is_patient)
        self.is_finishing = False
        self.pause_within_s_max = 0.0  # a transaction
        self._random = routes.world.random

    async def run(self) -> None:
        while not self.is_finishing:
            try:
                await self.transactions.begin()
                for _ in range(1 + self._random.randrange(4)):
                    await self.transactions.send(TopicPartition(INPUT, self._random.randrange(PARTITIONS)))
                    await asyncio.sleep(self._random.random() * self.pause_within_s_max)
                await self.transactions.end(is_commit=self._random.random() < 0.7)
            except (ApiError, Unanswered):
                await self.transactions.abandon()
            await asyncio.sleep(self._random.random() * (0.05 if self.pause_within_s_max else 0.8))


class OffsetWatcher:
    """Asks, again and again, how far a group has committed: what was answered before must not be forgotten."""

    def __init__(self, routes: Routes, group: str, history: GroupHistory) -> None:
        self.is_finishing = False
        self._routes = routes
        self._group = group
        self._history = history

    async def run(self) -> None:
        world = self._routes.world
        while not self.is_finishing:
            await asyncio.sleep(world.random.random())
            try:
                async with asyncio.timeout(ASKED_WITHIN_S):
                    await self._ask(world.clock.monotonic())
            except OSError:
                self._routes.start_over()
            except ApiError as error:
                if error.error in MOVED:
                    self._routes.start_over()

    async def _ask(self, asked_s: float) -> None:
        client = await self._routes.coordinator(self._group, GROUP)
        topic = OffsetFetchRequestGroupTopic(name=INPUT, partition_indexes=list(range(PARTITIONS)))
        group = OffsetFetchRequestGroup(group_id=self._group, topics=[topic])
        answer = (await client.call(OffsetFetchRequest(groups=[group], require_stable=True), 9)).groups[0]
        if answer.error_code:
            raise ApiError(Error(answer.error_code))
        for row in answer.topics[0].partitions:
            if not row.error_code:
                offset = None if row.committed_offset < 0 else row.committed_offset
                self._history.saw_committed(TopicPartition(INPUT, row.partition_index), offset, asked_s)


class _Running(NamedTuple):
    member: SimMember
    process: Process
    done: asyncio.Future[None]


class SimGroups:
    """See the head of this file."""

    def __init__(
        self, simulation: Simulation, history: ClientHistory, new_routes: NewRoutes, sources: Sources = Sources.ANY
    ) -> None:
        self._kind = sources
        self.problems: list[str] = []
        self.history = history
        self.groups = {name: history.group(name, committed_only=True) for name in ("readers", "transformers")}
        self._simulation = simulation
        self._chance: Random = simulation.random
        self._new_routes = new_routes
        self._is_consumer = {name: bool(self._chance.randrange(2)) for name in self.groups}
        self._topic_id = UUID(int=0)
        self._sources: list[Source] = []
        self._producing: list[asyncio.Future[None]] = []
        self._watchers: list[OffsetWatcher] = []
        self._watching: list[asyncio.Future[None]] = []
        self._members: dict[str, _Running] = {}
        self._transforming: list[Transforming] = []
        self._numbers = 0

    def start(self, input_id: UUID) -> None:
        """Producers and one member of each group; the topics are there."""
        self._topic_id = input_id
        for number in range(PRODUCERS):
            name = f"source-{number}"
            process = self._simulation.machine("sources").process(name)
            is_new, is_patient = bool(self._chance.randrange(2)), bool(self._chance.randrange(2))
            if self._kind is not Sources.ANY:
                is_new, is_patient = False, self._kind is Sources.SLOW
            routes = self._new_routes(process, name)
            self._sources.append(Source(routes, name, self.history, is_new=is_new, is_patient=is_patient))
            self._sources[-1].pause_within_s_max = 0.0 if self._kind is Sources.ANY else 0.3
            self._producing.append(process.start(self._sources[-1].run()))
        for group, history in self.groups.items():
            name = f"watcher of {group}"
            process = self._simulation.machine("sources").process(name)
            self._watchers.append(OffsetWatcher(self._new_routes(process, name), group, history))
            self._watching.append(process.start(self._watchers[-1].run()))
            self._join(group)

    # ── members come and go ──────────────────────────────────────────────────────────────────────────────────────

    def _join(self, group: str) -> None:
        self._numbers += 1
        name = f"{group}-{self._numbers}"
        process = self._simulation.machine(f"{group}-machine").process(name)
        place = Place(group, INPUT, self._topic_id, PARTITIONS)
        kind = SimConsumerMember if self._is_consumer[group] else SimClassicMember
        work = None
        if group == "transformers":
            transactional_id = f"transformer-{self._chance.randrange(MEMBERS_MAX)}"  # zombies included
            is_new = bool(self._chance.randrange(2))
            routes = self._new_routes(process, transactional_id)
            transactions = SimTransactions(routes, transactional_id, self.history, is_new=is_new)
            work = Transforming(transactions, OUTPUT, PARTITIONS, process.world.random.random)
            self._transforming.append(work)
        member = kind(self._new_routes(process, name), place, name, self.groups[group], work)
        self._members[name] = _Running(member, process, process.start(member.run()))

    def _some_member(self, group: str) -> str | None:
        names = [name for name in self._members if name.startswith(f"{group}-")]
        return names[self._chance.randrange(len(names))] if names else None

    def _some_group(self) -> str:
        return sorted(self.groups)[self._chance.randrange(len(self.groups))]

    def _group_of(self, member: str) -> GroupHistory:
        return self.groups[member.rpartition("-")[0]]

    async def member_comes(self) -> None:
        group = self._some_group()
        if sum(name.startswith(f"{group}-") for name in self._members) < MEMBERS_MAX:
            self._join(group)

    async def member_leaves(self) -> None:
        name = self._some_member(self._some_group())
        if name is not None:
            running = self._members.pop(name)
            running.member.is_leaving = True
            await self._until(running.done.done, LEFT_WITHIN_S / 2)

    async def member_dies(self) -> None:
        name = self._some_member(self._some_group())
        if name is not None:
            self._members.pop(name).process.kill()
            self._group_of(name).died(name)

    async def member_pauses(self) -> None:
        name = self._some_member(self._some_group())
        if name is not None:
            process = self._members[name].process
            process.pause()
            await asyncio.sleep(self._chance.random() * 12)
            process.resume()

    # ── the end ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def finish(self, reader: Routes, drained_within_s: float) -> None:
        """No more faults: no more input either; all of it must be read and transformed, and everybody can leave."""
        for source in self._sources:
            source.is_finishing = True
        for group in self.groups:
            if self._some_member(group) is None:
                self._join(group)
        if not await self._until(lambda: all(work.done() for work in self._producing), 60):
            self.problems.append("not all was produced 60 s after the last fault")
        await self._drain(reader, drained_within_s)
        for name, running in list(self._members.items()):
            running.member.is_leaving = True
            if not await self._until(running.done.done, LEFT_WITHIN_S):
                self.problems.append(f"{name} could not leave")
        for watcher in self._watchers:
            watcher.is_finishing = True
        if not await self._until(lambda: all(each.done() for each in self._watching), LEFT_WITHIN_S):
            self.problems.append("the committed offsets cannot be asked for")

    async def _drain(self, reader: Routes, within_s: float) -> None:
        """Wait until every transaction has ended and both groups have read all of the input."""
        ends_s = self._simulation.loop.time() + within_s
        while not await self._is_drained(reader):
            if self._simulation.loop.time() > ends_s:
                self.problems.append(f"not drained {within_s} s after the last fault")
                return
            await asyncio.sleep(0.5)
        for group in self.groups.values():
            group.drained([TopicPartition(INPUT, index) for index in range(PARTITIONS)])

    async def _is_drained(self, reader: Routes) -> bool:
        try:
            for topic in (INPUT, OUTPUT):
                for index in range(PARTITIONS):
                    client = await reader.leader(TopicPartition(topic, index))
                    found = await client.fetch(topic, index, 0, max_bytes=1)
                    if found.error_code:
                        raise ApiError(Error(found.error_code))
                    if found.last_stable_offset != await client.list_offset(topic, index, -1):
                        return False
            wanted = {record.value for index in range(PARTITIONS) for record in await self._read(reader, INPUT, index)}
            if not all(self.groups["readers"].given(value or b"") for value in wanted):
                return False
            return len(await self._outputs(reader)) >= len(wanted)
        except (OSError, ApiError):
            reader.start_over()
            return False

    async def _read(self, reader: Routes, topic: str, index: int) -> list[Stored]:
        client = await reader.leader(TopicPartition(topic, index))
        return [Stored(record.offset, record.value) for record in await read_committed(client, topic, index)]

    async def _outputs(self, reader: Routes) -> list[bytes]:
        """The input of which each committed output was made."""
        outputs = [record for index in range(PARTITIONS) for record in await self._read(reader, OUTPUT, index)]
        sources = {value: source for each in self._transforming for value, source in each.sources.items()}
        return [sources[record.value or b""] for record in outputs]

    async def read_all(self, reader: Routes) -> tuple[Contents, Contents]:
        """Everything in both topics, and what is committed of it; what was transformed twice is a problem."""
        everything: Contents = {}
        committed: Contents = {}
        for topic in (INPUT, OUTPUT):
            for index in range(PARTITIONS):
                where = TopicPartition(topic, index)
                client = await reader.leader(where)
                everything[where] = [
                    Stored(record.offset, record.value)
                    for batch in await client.read_all(topic, index)
                    if not batch.header.attributes & CONTROL
                    for record in read_records(memoryview(batch.content))
                ]
                committed[where] = await self._read(reader, topic, index)
        doubled = [value for value, times in Counter(await self._outputs(reader)).items() if times > 1]
        if doubled:
            self.problems.append(f"{len(doubled)} inputs were transformed more than once: {doubled[:3]}")
        return everything, committed

    async def _until(self, condition: Callable[[], bool], within_s: float) -> bool:
        ends_s = self._simulation.loop.time() + within_s
        while not condition():
            if self._simulation.loop.time() > ends_s:
                return False
            await asyncio.sleep(0.02)
        return True
