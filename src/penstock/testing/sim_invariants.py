"""What must hold in a simulated cluster at every moment, looked at after every event.

Facts are gathered from outside, from the objects of every broker and from the keeper's tree:

- one leader in each leader epoch of a partition, and nobody leads in an epoch that was never written;
- on every broker's life leader epochs, high watermarks and starts of logs only move forward;
- what any high watermark has passed (*committed*) is one history: the same batches at the same offsets everywhere;
- **whoever may lead next has all of it**: every member of the ISR and every eligible replica, as the keeper has them;
- it is on as many replicas as `min.insync.replicas` asked for when it was committed;
- an acknowledged batch is committed;
- in the keeper, partition epochs and leader epochs only grow, and only the controller's own session writes them.

A machine without power has perhaps lost what was not synced. Until the controller has admitted its broker again it is
not looked at, except for topics that sync before they count anything: they must have everything after that, too.

The first problem ends the run: what comes after it would only be its consequences.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple
from unittest.mock import patch
from uuid import UUID

from penstock.base.identifiers import TopicPartition
from penstock.broker.partition import Partition
from penstock.broker.partitions import Partitions
from penstock.testing.sim_cluster import SimCluster, SimClusterBroker
from penstock.testing.sim_loop import CURRENT_PROCESS, ProcessState
from penstock.testing.sim_stored_logs import Replica, StoredBatch
from penstock.zookeeper.operations import Transaction, Write
from penstock.zookeeper.store import Store
from penstock.zookeeper.topic_znodes import PartitionState, TopicNode
from penstock.zookeeper.tree import Tree
from penstock.zookeeper.znodes import TOPICS_PATH, AdmittedBrokers, Changes, ControllerNode

STORY_SIZE_MAX = 4000


class BrokenPromise(AssertionError):
    """An invariant does not hold."""


class Event(NamedTuple):
    """A line of the story: of one partition, or of all (None)."""

    time_s: float
    where: TopicPartition | None
    text: str


class PartitionFacts:
    """All that is known of one partition of one topic id."""

    def __init__(self, name: TopicPartition) -> None:
        self.name = name
        self.state: PartitionState | None = None
        self.committed: list[StoredBatch] = []
        self.leaders: dict[int, int] = {}
        self.replicas: dict[int, Replica] = {}
        self.may_lose = False

    @property
    def committed_end(self) -> int:
        return self.committed[-1].next_offset if self.committed else 0

    def replica(self, broker_id: int) -> Replica:
        return self.replicas.setdefault(broker_id, Replica(broker_id))

    def next_leaders(self) -> list[Replica]:
        """Everybody who may be made leader now, and can be looked at."""
        state = self.state
        if state is None:
            return []
        found = [self.replicas.get(broker_id) for broker_id in (*state.isr, *state.eligible)]
        return [replica for replica in found if replica is not None and not replica.is_lossy]

    def can_lose(self, broker_id: int, *, is_one_enough: bool) -> bool:
        """Whether what is committed survives the loss of what one replica has not synced.

        It may have been committed by one replica alone if at times `is_one_enough`.
        """
        if self.state is None:
            return False
        others = [
            self.replicas[other] for other in self.state.replicas if other in self.replicas and other != broker_id
        ]
        if not self.committed:
            return True
        if is_one_enough:
            return any(replica.broker_id != broker_id for replica in self.next_leaders())
        return not any(replica.has_lost for replica in others)


class _Life:
    """One process of a broker, and what it had when last looked at."""

    def __init__(self, broker: SimClusterBroker) -> None:
        self.broker = broker
        self.partitions: Partitions | None = None
        self.seen: dict[Partition, tuple[Any, ...]] = {}


class Invariants:
    """See the head of this file. `problems` has at most one entry."""

    def __init__(self, cluster: SimCluster) -> None:
        self.cluster = cluster
        self.problems: list[str] = []
        self.story: deque[Event] = deque(maxlen=STORY_SIZE_MAX)
        self.facts: dict[tuple[UUID, int], PartitionFacts] = {}
        self.is_one_enough = False  # whether somebody sets `min.insync.replicas` to 1
        self.looks = 0
        self.states_written = 0
        self._now = cluster.simulation.loop.time
        self._lives: dict[ProcessState, _Life] = {}
        self._by_name: dict[TopicPartition, PartitionFacts] = {}
        self._tree: Tree | None = None
        self._zxid = -1
        self._znode_zxids: dict[str, int] = {}
        self._topics: set[str] = set()
        self._admitted: dict[int, int] = {}
        for broker in cluster.brokers:
            broker.on_power_lost = lambda broker=broker: self._power_lost(broker)  # type: ignore[misc]

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Look after every event while this lasts."""
        invariants = self
        begin = Partitions.__init__

        def begin_watched(self: Partitions, *arguments: Any, **options: Any) -> None:
            begin(self, *arguments, **options)
            invariants._partitions_opened(self)

        submit = Store.submit

        def submit_watched(self: Store, transaction: Transaction) -> Any:
            zxid = self.tree.last_zxid
            answer = submit(self, transaction)
            if self.tree.last_zxid != zxid and isinstance(transaction, Write):
                invariants._check_writer(self.tree, transaction)
            return answer

        loop = self.cluster.simulation.loop
        with patch.object(Partitions, "__init__", begin_watched), patch.object(Store, "submit", submit_watched):
            loop.on_ran = self._ran
            try:
                yield
            finally:
                loop.on_ran = None

    def _partitions_opened(self, partitions: Partitions) -> None:
        state = CURRENT_PROCESS.get()
        for broker in self.cluster.brokers:
            if broker.process is not None and broker.process.state is state:
                self._lives = {known: life for known, life in self._lives.items() if life.broker is not broker}
                assert state is not None
                self._lives[state] = life = _Life(broker)
                life.partitions = partitions

    def tell(self, text: str, where: TopicPartition | None = None) -> None:
        """Add a line to the story."""
        self.story.append(Event(self._now(), where, text))

    def _broken(self, text: str, where: TopicPartition | None = None) -> None:
        self.tell(f"BROKEN: {text}", where)
        self.problems.append(text if where is None else f"{where}: {text}")
        raise BrokenPromise(self.problems[-1])

    def of(self, where: TopicPartition) -> PartitionFacts | None:
        """What is known of the newest partition of a name."""
        return self._by_name.get(where)

    # ── after every event ────────────────────────────────────────────────────────────────────────────────────────

    def _ran(self, process: ProcessState | None) -> None:
        if self.problems:
            raise BrokenPromise(self.problems[0])  # found by somebody whose exception went elsewhere
        if process is None:
            return
        life = self._lives.get(process)
        if life is not None:
            self._look_at_broker(life)
        elif process is self._keeper_state():
            self._look_at_keeper()

    def _keeper_state(self) -> ProcessState | None:
        process = self.cluster.keeper.process
        return None if process is None else process.state

    def _look_at_broker(self, life: _Life) -> None:
        assert life.partitions is not None
        seen = life.seen
        for partition in life.partitions:
            leader, log = partition.leader, partition.log
            now = (
                partition.epoch,
                leader is not None,
                partition.high_watermark,
                log.end_offset,
                log.start_offset,
            )
            before = seen.get(partition)
            if before != now and not partition.is_reworking:
                seen[partition] = now
                self._partition_changed(life, partition, before)

    def _partition_changed(self, life: _Life, partition: Partition, before: tuple[Any, ...] | None) -> None:
        self.looks += 1
        facts = self._facts_of(partition)
        replica = facts.replica(life.broker.broker_id)
        self._look_at_log(facts, replica, partition, life)
        if before is not None:
            self._check_moves(facts, replica, partition, before)
        if partition.leader is not None and not replica.is_leading:
            self._check_leader(facts, replica, partition)
        if (partition.epoch, partition.leader is not None) != (replica.epoch, replica.is_leading):
            role = "leads" if partition.leader is not None else f"follows {partition.leader_id}"
            self.tell(
                f"{life.broker} {role} in epoch {partition.epoch}, high watermark {partition.high_watermark}, "
                f"log {partition.log.start_offset}..{partition.log.end_offset}",
                facts.name,
            )
        replica.epoch, replica.is_leading = partition.epoch, partition.leader is not None
        replica.high_watermark, replica.start_offset = partition.high_watermark, partition.log.start_offset
        self._check_committed(facts, replica, partition)

    def _facts_of(self, partition: Partition) -> PartitionFacts:
        key = partition.topic_id, partition.name.partition
        facts = self.facts.get(key)
        if facts is None:
            facts = self.facts[key] = self._by_name[partition.name] = PartitionFacts(partition.name)
        return facts

    # ── replicas ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _look_at_log(self, facts: PartitionFacts, replica: Replica, partition: Partition, life: _Life) -> None:
        log = partition.log
        if not replica.is_news(log):
            return
        end_offset = replica.end_offset
        if replica.look(log, life.broker.machine.disk) and replica.end_offset < end_offset:
            self.tell(f"{life.broker} cut its log from {end_offset} to {replica.end_offset}", facts.name)
            self._check_next_leaders(facts)
        if partition.config.log.flush_mode == "always":
            replica.is_lossy = replica.has_lost = False  # it has what it promised, whatever happened to the machine
            if facts.state is not None and replica in facts.next_leaders():
                self._check_has_all(facts, replica)

    def _check_moves(
        self, facts: PartitionFacts, replica: Replica, partition: Partition, before: tuple[Any, ...]
    ) -> None:
        epoch, _, high_watermark, _, start_offset = before
        who = f"broker {replica.broker_id}"
        if partition.epoch < epoch:
            self._broken(f"{who}: leader epoch went back from {epoch} to {partition.epoch}", facts.name)
        if partition.high_watermark < high_watermark and not facts.may_lose:
            self._broken(
                f"{who}: high watermark went back from {high_watermark} to {partition.high_watermark}", facts.name
            )
        if partition.log.start_offset < start_offset and not facts.may_lose:
            self._broken(
                f"{who}: start of the log went back from {start_offset} to {partition.log.start_offset}", facts.name
            )

    def _check_leader(self, facts: PartitionFacts, replica: Replica, partition: Partition) -> None:
        epoch = partition.epoch
        first = facts.leaders.setdefault(epoch, replica.broker_id)
        if first != replica.broker_id:
            self._broken(f"brokers {first} and {replica.broker_id} both lead in epoch {epoch}", facts.name)
        if facts.state is not None and epoch > facts.state.leader_epoch:
            self._broken(f"broker {replica.broker_id} leads in epoch {epoch}, which was never written", facts.name)

    # ── what is committed ────────────────────────────────────────────────────────────────────────────────────────

    def _check_committed(self, facts: PartitionFacts, replica: Replica, partition: Partition) -> None:
        """Compare what this replica takes for committed with what others did, or be the first to know of it."""
        if replica.high_watermark > replica.end_offset:
            self._broken(
                f"broker {replica.broker_id}: high watermark {replica.high_watermark} is beyond the end of the log "
                f"{replica.end_offset}",
                facts.name,
            )
        if replica.high_watermark <= facts.committed_end:
            self._compare(facts, replica, replica.high_watermark)
            return
        self._compare(facts, replica, facts.committed_end)
        news = [
            batch
            for batch in _from_offset(replica.batches, facts.committed_end)
            if batch.next_offset <= replica.high_watermark
        ]
        if not news:
            return
        facts.committed += news
        replica.same_until = facts.committed_end
        self._check_next_leaders(facts)
        if partition.leader is not None:
            self._check_copies(facts, partition)

    def _compare(self, facts: PartitionFacts, replica: Replica, end_offset: int) -> None:
        """Below an offset this replica must have what is committed."""
        start = max(replica.same_until, replica.start_offset)
        if end_offset <= start or facts.may_lose:
            return
        ours = _between(replica.batches, start, end_offset)
        theirs = _between(facts.committed, start, end_offset)
        for own, committed in zip(ours, theirs, strict=False):
            if not own.is_same(committed):
                self._broken(
                    f"broker {replica.broker_id} has {own} where {committed} is committed; its high watermark is "
                    f"{replica.high_watermark}",
                    facts.name,
                )
        if len(ours) < len(theirs):
            self._broken(
                f"broker {replica.broker_id}, whose log ends at {replica.end_offset}, lacks {theirs[len(ours)]}, which "
                "is committed",
                facts.name,
            )
        replica.same_until = end_offset

    def _check_next_leaders(self, facts: PartitionFacts) -> None:
        for replica in facts.next_leaders():
            self._check_has_all(facts, replica)

    def _check_has_all(self, facts: PartitionFacts, replica: Replica) -> None:
        if replica.same_until < facts.committed_end:
            self._compare(facts, replica, facts.committed_end)

    def _check_copies(self, facts: PartitionFacts, partition: Partition) -> None:
        wanted = min(partition.config.min_isr, len(partition.state.replicas))
        holders = [
            replica.broker_id for replica in facts.replicas.values() if replica.end_offset >= facts.committed_end
        ]
        if len(holders) < wanted:
            self._broken(
                f"what ends at {facts.committed_end} is committed and only on {holders}, not on {wanted} replicas",
                facts.name,
            )

    def acknowledged(self, where: TopicPartition, next_offset: int) -> None:
        """A client was told that everything before this offset is there for good."""
        facts = self._by_name.get(where)
        if not self.problems and (facts is None or next_offset > facts.committed_end):
            end = None if facts is None else facts.committed_end
            self._broken(f"acknowledged up to {next_offset}, but committed is only what ends at {end}", where)

    # ── power ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _power_lost(self, broker: SimClusterBroker) -> None:
        for facts in self.facts.values():
            replica = facts.replicas.get(broker.broker_id)
            if replica is not None:
                replica.is_lossy = replica.has_lost = True
                replica.same_until = 0
                replica.forget()

    def can_lose_power(self, broker: SimClusterBroker) -> bool:
        """Whether the promises hold if this machine loses what it has not synced.

        They do for one replica at a time: until it is in sync again no other may lose anything. Where one replica is
        enough to commit, another one that may lead must have everything.
        """
        return all(
            facts.can_lose(broker.broker_id, is_one_enough=self.is_one_enough)
            for facts in self.facts.values()
            if facts.state is None or broker.broker_id in facts.state.replicas
        )

    # ── the keeper ───────────────────────────────────────────────────────────────────────────────────────────────

    def _look_at_keeper(self) -> None:
        keeper = self.cluster.keeper.keeper
        if keeper is None:
            return
        tree = keeper.store.tree
        if tree is not self._tree:
            self._tree, self._zxid, self._znode_zxids = tree, -1, {}
            for facts in self.facts.values():
                facts.state = None  # what was not durable is gone, and nobody has seen it
        if tree.last_zxid == self._zxid:
            return
        self._zxid = tree.last_zxid
        names = tree.nodes[TOPICS_PATH].children if TOPICS_PATH in tree.nodes else set()
        if self._topics - names:
            self._forget_topics(self._topics - names)
        self._topics = set(names)
        for name in sorted(names):
            node = tree.nodes[f"{TOPICS_PATH}/{name}"]
            if node.mzxid != self._znode_zxids.get(name):
                self._znode_zxids[name] = node.mzxid
                self._look_at_topic(name, node.data)
        self._look_at_admitted(tree)

    def _forget_topics(self, names: set[str]) -> None:
        """Topics that were deleted."""
        for key in [key for key, facts in self.facts.items() if facts.name.topic in names]:
            facts = self.facts.pop(key)
            self._by_name.pop(facts.name, None)
            self.tell("deleted", facts.name)

    def _look_at_topic(self, name: str, data: bytes) -> None:
        node = TopicNode.decode(data)
        for index, state in enumerate(node.partitions):
            key = node.topic_id, index
            facts = self.facts.get(key)
            if facts is None:
                where = TopicPartition(name, index)
                facts = self.facts[key] = self._by_name[where] = PartitionFacts(where)
            if state != facts.state:
                self._state_changed(facts, state)

    def _state_changed(self, facts: PartitionFacts, state: PartitionState) -> None:
        before, facts.state = facts.state, state
        self.states_written += 1
        eligible = f", eligible {list(state.eligible)}" if state.eligible else ""
        self.tell(
            f"written: leader {state.leader} in epoch {state.leader_epoch}, ISR {list(state.isr)}{eligible} "
            f"(partition epoch {state.partition_epoch})",
            facts.name,
        )
        if before is not None and (
            state.partition_epoch <= before.partition_epoch or state.leader_epoch < before.leader_epoch
        ):
            self._broken(f"{state} was written after {before}", facts.name)
        for replica in facts.next_leaders():
            replica.has_lost = False
        self._check_next_leaders(facts)

    def _look_at_admitted(self, tree: Tree) -> None:
        node = tree.nodes.get(AdmittedBrokers.PATH)
        if node is None or node.mzxid == self._znode_zxids.get(AdmittedBrokers.PATH):
            return
        self._znode_zxids[AdmittedBrokers.PATH] = node.mzxid
        epochs = AdmittedBrokers.decode(node.data).epochs
        for broker_id, epoch in epochs.items():
            if self._admitted.get(broker_id) != epoch:
                self._admitted[broker_id] = epoch
                self.tell(f"broker {broker_id} is admitted in epoch {epoch}")
                self._returned(broker_id)

    def _returned(self, broker_id: int) -> None:
        """The controller knows of this life of a broker: from here on it counts as anybody else."""
        for facts in self.facts.values():
            replica = facts.replicas.get(broker_id)
            if replica is not None and replica.is_lossy:
                replica.is_lossy = False
                self._check_next_leaders(facts)

    def _check_writer(self, tree: Tree, written: Write) -> None:
        """Only the controller may write what it decides; between two of them the last one may still."""
        owner = tree.nodes[ControllerNode.PATH].ephemeral_owner if ControllerNode.PATH in tree.nodes else None
        if owner in (None, written.session_id) or all(each.path != Changes.PATH for each in written.operations):
            return
        self._broken(f"session {written.session_id:#x} wrote as the controller, which is {owner:#x}")


def _from_offset(batches: list[StoredBatch], offset: int) -> list[StoredBatch]:
    """The batches from an offset on; there are few, and they are at the end."""
    at = len(batches)
    while at and batches[at - 1].base_offset >= offset:
        at -= 1
    return batches[at:]


def _between(batches: list[StoredBatch], start: int, end: int) -> list[StoredBatch]:
    found = _from_offset(batches, start)
    while found and found[-1].next_offset > end:
        found.pop()
    return found
