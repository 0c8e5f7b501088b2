"""One random run of a whole cluster, from one seed: clients go on while everything fails, and the promises are checked.

    result = ClusterRun(seed=7, profile=EVERYTHING).run()
    assert not result.problems, result.story

While it runs, `sim_invariants.py` looks at the cluster after every event. When the faults are over, everything must
heal by itself in the promised time; then the topics are read and the history of the clients is judged. What a run is
made of is its `Profile`; what is left open there is drawn by the seed.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from penstock.base.broker_rows_server import RACK_AWARE_SELECTOR
from penstock.base.errors import ApiError, Error
from penstock.base.identifiers import TopicPartition
from penstock.testing.histories.client_history import ClientHistory
from penstock.testing.histories.facts import Stored, TopicsRead
from penstock.testing.sim_batches import PARTITIONS as SINK_PARTITIONS
from penstock.testing.sim_batches import SINK, SimBatches
from penstock.testing.sim_cluster import DATA, SimCluster
from penstock.testing.sim_cluster_admin import ClusterAdmin
from penstock.testing.sim_cluster_client import ClusterClient
from penstock.testing.sim_cluster_faults import ALL_FAULTS, MEMBER_FAULTS, ClusterFaults, Fault
from penstock.testing.sim_cluster_workload import (
    ALL,
    ClusterReader,
    ClusterWorker,
    EndWatcher,
    IdempotentProducer,
    Knowledge,
    PlainProducer,
    Trimmer,
)
from penstock.testing.sim_committed import read_committed
from penstock.testing.sim_fault_plan import FaultPlan
from penstock.testing.sim_groups import GROUP_SETTINGS, INPUT, OUTPUT, Contents, SimGroups, Sources
from penstock.testing.sim_groups import PARTITIONS as GROUP_PARTITIONS
from penstock.testing.sim_invariants import BrokenPromise, Invariants, PartitionFacts
from penstock.testing.sim_loop import CURRENT_PROCESS, SimulationError
from penstock.testing.sim_world import Process, Simulation
from penstock.wire.batch import CONTROL
from penstock.wire.records import read_records

LIMIT_S = 3000.0
WRITABLE_WITHIN_S = 10.0  # after the last fault, and a session's timeout
READ_WITHIN_S = 30.0
IN_SYNC_WITHIN_S = 60.0
DRAINED_WITHIN_S = 60.0
STORY_LINES_MAX = 80
TRACE_SIZE_MAX = 2000
TRIMMED = TopicPartition("trimmed", 0)
CALLBACKS_PER_INSTANT_MAX = 50_000


@dataclass(frozen=True)
class Profile:
    """What a run is made of. None: the seed decides."""

    name: str = "everything"
    brokers: int | None = None
    topics: int = 1
    partitions: int = 2
    replicas: int = 3
    flush_mode: str | None = None
    min_isr: int = 2
    has_watchers: bool | None = None
    session_timeout_ms: int | None = None
    lag_time_ms: int | None = None
    has_admin: bool = True
    has_groups: bool = False
    has_batches: bool = False
    sources: Sources = Sources.ANY
    is_thin: bool = False
    """Fewer clients: for runs that are about one thing."""
    pause: float = 1.0
    """How long clients rest, compared with the usual."""
    faults: FaultPlan = field(default_factory=lambda: FaultPlan(weights=ALL_FAULTS))
    settings: Mapping[str, str] = field(default_factory=dict)
    topic_configs: Mapping[str, str] = field(default_factory=dict)


RECORDS = Profile("records")
GROUPS = Profile(
    "groups",
    partitions=1,
    has_admin=False,
    has_groups=True,
    has_batches=True,
    is_thin=True,
    faults=FaultPlan(count=6, weights={**ALL_FAULTS, **MEMBER_FAULTS}),
)


def profile_of(seed: int) -> Profile:
    """What a seed is about, if nobody says otherwise: every third is about groups and transactions."""
    return GROUPS if seed % 3 == 2 else RECORDS


@dataclass(slots=True)
class RunResult:
    """What a run came to."""

    seed: int
    problems: list[str]
    story: str
    digest: str
    virtual_s: float
    operations: int
    acknowledged: int
    faults: Counter[str]
    events: int


class ClusterRun:
    """See the head of this file."""

    def __init__(self, seed: int, profile: Profile | None = None) -> None:
        self.seed = seed
        self.profile = profile = profile or profile_of(seed)
        self.simulation = Simulation(seed, shuffle=True, limit_s=LIMIT_S, trace_size_max=TRACE_SIZE_MAX)
        self.simulation.loop.callbacks_per_instant_max = CALLBACKS_PER_INSTANT_MAX
        self.chance = self.simulation.random
        self.flush_mode = profile.flush_mode or ("os", "always")[self.chance.randrange(2)]
        brokers = profile.brokers or (3, 3, 3, 5)[self.chance.randrange(4)]
        has_watchers = bool(self.chance.randrange(2)) if profile.has_watchers is None else profile.has_watchers
        self.cluster = SimCluster(
            self.simulation,
            brokers,
            self._settings(),
            session_timeout_ms=profile.session_timeout_ms or 3000 + self.chance.randrange(4000),
            has_watchers=has_watchers,
        )
        self.invariants = Invariants(self.cluster)
        self.history = ClientHistory(self.simulation.loop.time)
        self.knowledge = Knowledge(self.history, self.invariants.acknowledged)
        self.knowledge.stale_s_max = 2 * self.cluster.session_timeout_ms / 1000
        self.groups = None
        if profile.has_groups:
            self.groups = SimGroups(self.simulation, self.history, self._routes, profile.sources)
        self.faults = ClusterFaults(self.cluster, self.invariants, self._fault_plan(), self._member_faults())
        self.admin: ClusterAdmin | None = None
        self.batches: SimBatches | None = None
        self.trimmer: Trimmer | None = None
        self.rack = f"rack{1 + self.chance.randrange(brokers)}" if self.chance.randrange(2) else ""
        self.topics = ["records", *(f"records{number}" for number in range(2, profile.topics + 1))]
        self.partitions = [TopicPartition(topic, index) for topic in self.topics for index in range(profile.partitions)]
        self.problems: list[str] = []
        self.error: Exception | None = None
        """What ended the run, if that was no broken promise but a failure of the program."""
        self._clients = 0
        self._workers: list[tuple[ClusterWorker, asyncio.Future[None]]] = []

    def _settings(self) -> dict[str, str]:
        lag_ms = self.profile.lag_time_ms or 1500 + self.chance.randrange(6000)
        return {
            "log.dirs": (f"{DATA}/logs", f"{DATA}/logs,{DATA}/more")[self.chance.randrange(2)],
            "log.flush.mode": self.flush_mode,
            "min.insync.replicas": str(self.profile.min_isr),
            "default.replication.factor": str(self.profile.replicas),
            "replica.lag.time.max.ms": str(lag_ms),
            "replica.selector.class": RACK_AWARE_SELECTOR,
            "leader.imbalance.check.interval.seconds": str(5 + self.chance.randrange(20)),
            "log.flush.offset.checkpoint.interval.ms": "1000",
            "replica.high.watermark.checkpoint.interval.ms": str(300 + self.chance.randrange(5000)),
            "offsets.topic.replication.factor": str(self.profile.replicas),
            "transaction.state.log.replication.factor": str(self.profile.replicas),
            "transaction.state.log.min.isr": str(self.profile.min_isr),
            **GROUP_SETTINGS,
            "log.cleaner.enable": "false",  # the invariants compare replicas batch by batch; see test_compaction_*
            "log.index.size.max.bytes": "96",
            "log.index.interval.bytes": "500",
            **self.profile.settings,
        }

    def _fault_plan(self) -> FaultPlan:
        return replace(self.profile.faults, is_any_power_loss_allowed=self.flush_mode == "always")

    def _member_faults(self) -> dict[str, Fault]:
        groups = self.groups
        if groups is None:
            return {}
        return {
            "member_comes": groups.member_comes,
            "member_leaves": groups.member_leaves,
            "member_dies": groups.member_dies,
            "member_pauses": groups.member_pauses,
        }

    # ── the run ──────────────────────────────────────────────────────────────────────────────────────────────────

    def run(self) -> RunResult:
        """Run it to its end."""
        try:
            with self.simulation, self.invariants.watching():
                self.simulation.run(self._drive())
        except BrokenPromise as broken:
            self.problems.append(str(broken))
        except SimulationError as error:
            self._problem(f"the run is stuck: {error}")
        except Exception as error:
            notes = "; ".join(getattr(error, "__notes__", []))
            self._problem(f"{type(error).__name__}: {error} ({notes})")
            self.error = error
        return self._result()

    async def _drive(self) -> None:
        await self.cluster.start()
        self.invariants.tell(f"{len(self.cluster.brokers)} brokers, flush.mode={self.flush_mode}")
        await self._start_clients()
        await self.faults.run()
        healed_s = self.simulation.loop.time()
        await self.faults.heal()
        await self._check_writable(healed_s)
        await self._finish_clients()
        if self.groups is not None:
            await self.groups.finish(self._client("drain"), DRAINED_WITHIN_S)
        if self.batches is not None:
            self.batches.is_finishing = True
            if not await self._until(self._batching.done, DRAINED_WITHIN_S):
                self._problem(f"a batch could not be committed {DRAINED_WITHIN_S} s after the last fault")
        await self._check_in_sync()
        await self._check_history()
        self._check_tasks()

    def _check_tasks(self) -> None:
        """Nothing that a broker does in the background may have ended for a reason that nobody foresaw."""
        for broker in self.cluster.brokers:
            for task in broker.process.state.unseen_failures() if broker.process is not None else ():
                error = task.exception()
                self._problem(f"{broker}: {task.get_name()} has ended: {type(error).__name__}: {error}")
                self.error = error if isinstance(error, Exception) else None

    def _client(self, name: str) -> ClusterClient:
        self._clients += 1
        process = self.simulation.machine(f"client{self._clients % 4}").process(name)
        return self._routes(process, name)

    def _routes(self, process: Process, name: str) -> ClusterClient:
        return ClusterClient(process, self.cluster.addresses, name)

    async def _start_clients(self) -> None:
        driver = self._client("driver")
        for topic in self.topics:
            await driver.process.start(self._create_topic(driver, topic, self.profile.partitions))
        for where in self.partitions:
            self._start(IdempotentProducer, where, 0.3)
            self._start(PlainProducer, where, 0.2, acks=ALL)
            self._start(EndWatcher, where, 0.4)
            if not self.profile.is_thin:
                self._start(IdempotentProducer, where, 0.3)
                self._start(PlainProducer, where, 0.5, acks=1)
                self._start(ClusterReader, where, 0.2, rack=self.rack)
        if not self.profile.is_thin:
            await driver.process.start(self._create_topic(driver, TRIMMED.topic, 1))
            self.trimmer = self._start(Trimmer, TRIMMED, 0.3)
        if self.profile.has_admin:
            client = self._client("administrator")
            brokers = len(self.cluster.brokers)
            self.admin = ClusterAdmin(client, brokers, self.partitions, self.profile.replicas)
            self.admin.min_isr_values = ["1", "2"][self.chance.randrange(2) :]
            self.invariants.is_one_enough = "1" in self.admin.min_isr_values
            self._administrating = client.process.start(self.admin.run())
        if self.groups is not None:
            for topic in (INPUT, OUTPUT):
                await driver.process.start(self._create_topic(driver, topic, GROUP_PARTITIONS))
            await driver.process.start(driver.look())
            self.groups.start(driver.topic_ids[INPUT])
        if self.profile.has_batches:
            await driver.process.start(self._create_topic(driver, SINK, SINK_PARTITIONS))
            client = self._client("batches")
            self.batches = SimBatches(lambda name: self._routes(client.process, name), "batches", self.history)
            self._batching = client.process.start(self.batches.run())

    async def _create_topic(self, client: ClusterClient, name: str, partitions: int) -> None:
        while True:
            try:
                connection = await client.any()
                await connection.create_topic(
                    name, partitions, self.profile.topic_configs, replicas=self.profile.replicas
                )
                return
            except ApiError as error:
                if error.error is Error.TOPIC_ALREADY_EXISTS:
                    return
                if not error.error.retriable:
                    raise
                await client.look()
                await asyncio.sleep(0.1)

    def _start(
        self,
        kind: Callable[..., ClusterWorker],
        where: TopicPartition,
        pause_s_max: float,
        **options: Any,
    ) -> Any:
        name = f"{getattr(kind, '__name__', 'client')}-{len(self._workers)}"
        client = self._client(name)
        worker = kind(client, name, where, self.knowledge, **options)
        worker.pause_s_max = pause_s_max * self.profile.pause
        self._workers.append((worker, client.process.start(worker.run())))
        return worker

    # ── the end ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def _until(self, condition: Callable[[], bool | Awaitable[bool]], within_s: float) -> bool:
        ends_s = self.simulation.loop.time() + within_s
        while True:
            found = condition()
            if found if isinstance(found, bool) else await found:
                return True
            if self.simulation.loop.time() > ends_s:
                return False
            await asyncio.sleep(0.05)

    async def _check_writable(self, healed_s: float) -> None:
        """P6: every partition takes writes again in time."""
        within_s = WRITABLE_WITHIN_S + self.cluster.session_timeout_ms / 1000
        probes = [self._start(PlainProducer, where, 0.2, acks=ALL) for where in self.partitions]

        def is_writable() -> bool:
            return all(probe.acknowledged for probe in probes)

        left_s = healed_s + within_s - self.simulation.loop.time()
        if not await self._until(is_writable, left_s):
            self._problem(f"not every partition is writable {within_s} s after the last fault")

    async def _finish_clients(self) -> None:
        for worker, _ in self._workers:
            worker.is_finishing = True
        if self.admin is not None:
            self.admin.is_finishing = True
            await self._until(self._administrating.done, READ_WITHIN_S)
        if not await self._until(lambda: all(running.done() for _, running in self._workers), READ_WITHIN_S):
            late = [worker.name for worker, running in self._workers if not running.done()]
            self._problem(f"{READ_WITHIN_S} s after the last fault these are not done: {', '.join(late)}")
        for _, running in self._workers:
            if running.done():
                running.result()

    async def _check_in_sync(self) -> None:
        """Everybody catches up."""

        def is_in_sync() -> bool:
            return all(_are_all_equal(facts) for facts in self.invariants.facts.values())

        if not await self._until(is_in_sync, IN_SYNC_WITHIN_S):
            self._problem(f"not all replicas are in sync {IN_SYNC_WITHIN_S} s after the last fault: {self._states()}")

    def _states(self) -> str:
        found = []
        for facts in self.invariants.facts.values():
            if facts.state is not None and not _are_all_equal(facts):
                replicas = [
                    f"{each.broker_id}: {each.high_watermark}/{each.end_offset}" for each in facts.replicas.values()
                ]
                found.append(
                    f"{facts.name} leader {facts.state.leader} ISR {list(facts.state.isr)} ({', '.join(replicas)})"
                )
        return "; ".join(found)

    async def _check_history(self) -> None:
        reader = self._client("final reader")
        everything = await reader.process.start(self._read_all(reader))
        committed = dict(everything)
        if self.groups is not None:
            more, more_committed = await reader.process.start(self._read_groups(self.groups, reader))
            everything.update(more)
            committed.update(more_committed)
            self.problems += self.groups.problems
        if self.batches is not None:
            for where in [TopicPartition(SINK, index) for index in range(SINK_PARTITIONS)]:
                everything[where], committed[where] = await reader.process.start(self._read(reader, where))
            shown = {where: {each.value for each in found} for where, found in committed.items()}
            self.problems += self.batches.problems(shown)
        if self.trimmer is not None:
            if self.faults.happened["lose_all_power"]:
                self.trimmer.start_offset = 0  # followers note at their leisure how much was deleted
            await reader.process.start(self._check_trimmed(self.trimmer))
        if self.admin is not None:
            await reader.process.start(self.admin.check(reader))
            self.problems += self.admin.problems
        self.problems += [str(finding) for finding in self.history.findings(TopicsRead(everything, committed))]
        self.problems += self.knowledge.problems

    async def _read_groups(self, groups: SimGroups, reader: ClusterClient) -> tuple[Contents, Contents]:
        while True:
            try:
                async with asyncio.timeout(READ_WITHIN_S):
                    return await groups.read_all(reader)
            except (OSError, ApiError):
                reader.start_over()
                await asyncio.sleep(0.1)

    async def _check_trimmed(self, trimmer: Trimmer) -> None:
        while True:
            try:
                async with asyncio.timeout(READ_WITHIN_S):
                    return await trimmer.check()
            except (OSError, ApiError):
                trimmer.client.look_again(trimmer.where)
                await asyncio.sleep(0.1)

    async def _read_all(self, client: ClusterClient) -> dict[TopicPartition, list[Stored]]:
        return {where: (await self._read(client, where))[0] for where in self.partitions}

    async def _read(self, client: ClusterClient, where: TopicPartition) -> tuple[list[Stored], list[Stored]]:
        """Everything in a partition, and what is committed of it."""
        while True:
            try:
                async with asyncio.timeout(READ_WITHIN_S):
                    leader = await client.leader(where)
                    batches = await leader.read_all(where.topic, where.partition)
                    committed = await read_committed(leader, where.topic, where.partition)
                break
            except (OSError, ApiError):
                client.look_again(where)
                await asyncio.sleep(0.1)
        everything = [
            Stored(record.offset, record.value)
            for batch in batches
            if not batch.header.attributes & CONTROL
            for record in read_records(memoryview(batch.content))
        ]
        return everything, [Stored(record.offset, record.value) for record in committed]

    def _problem(self, text: str) -> None:
        self.problems.append(text)
        self.invariants.tell(f"BROKEN: {text}")

    # ── what is told of it ───────────────────────────────────────────────────────────────────────────────────────

    def _result(self) -> RunResult:
        loop = self.simulation.loop
        return RunResult(
            seed=self.seed,
            problems=self.problems,
            story=self.story() if self.problems else "",
            digest=loop.trace.digest(),
            virtual_s=loop.time(),
            operations=self.knowledge.operations,
            acknowledged=self.history.acknowledged,
            faults=self.faults.happened,
            events=loop.callbacks_count,
        )

    def story(self, lines_max: int = STORY_LINES_MAX) -> str:
        """What happened, as far as it matters to the partition of the first problem."""
        first = self.problems[0] if self.problems else ""
        about = next((where for where in self.partitions if str(where) in first), None)
        lines = [
            f"{event.time_s:10.4f}  {'' if event.where is None else f'{event.where}: '}{event.text}"
            for event in self.invariants.story
            if event.where is None or about is None or event.where == about
        ]
        return "\n".join(lines[-lines_max:])


def _are_all_equal(facts: PartitionFacts) -> bool:
    """Whether all replicas of a partition have the same, and know it."""
    state = facts.state
    if state is None:
        return True
    replicas = [facts.replica(broker_id) for broker_id in state.replicas]
    marks = {(replica.end_offset, replica.high_watermark) for replica in replicas}
    return set(state.isr) == set(state.replicas) and len(marks) == 1


class StoryHandler(logging.Handler):
    """Puts what brokers log into the story, with the name of the process."""

    def __init__(self, invariants: Invariants) -> None:
        super().__init__()
        self._invariants = invariants

    def emit(self, record: logging.LogRecord) -> None:
        process = CURRENT_PROCESS.get()
        self._invariants.tell(f"    [{process.name if process else '-'}] {self.format(record)}")
