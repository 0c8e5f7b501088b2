"""Random histories of a cluster, with a dumb model of what every replica holds.

The model knows how many records of a partition are committed and how many of these each replica has. A leader commits
when its ISR is large enough and all of it is there. Brokers die and come back, with or without their latest records;
the controller reacts late, and its writes may be cut short. Whatever happens: whoever leads has every committed
record, or its election was put on record as unclean.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from penstock.base.errors import ApiError, Error
from penstock.controller import elections, isr, transitions
from penstock.controller.elections import controlled_shutdown, members_changed, min_isr_changed, replicas_failed
from penstock.controller.isr import IsrRequest, alter_partition
from penstock.controller.leader_balance import ElectionKind, balance, elect
from penstock.controller.plan import ClusterState, Plan
from penstock.controller.reassignments import alter_reassignments, decommission, ongoing, target_replicas
from penstock.controller.transitions import Brokers, TopicRules
from penstock.zookeeper.operations import Create, SetData
from penstock.zookeeper.topic_znodes import NO_LEADER, PartitionState, Topic
from penstock.zookeeper.znodes import AdmittedBrokers, BrokerNode, Changes

BROKERS = range(1, 6)
PARTITIONS = 3
Place = tuple[str, int]


class Cluster:
    """The controller's decisions on one side, what the replicas hold on the other."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.zxid = 100
        self.rules = {"safe": TopicRules(min_isr=2), "single": TopicRules(min_isr=1), "risky": TopicRules(2, True)}
        self.held: dict[Place, dict[int, int]] = {}
        self.committed: dict[Place, int] = {}
        self.seen_epoch: dict[tuple[Place, int], int] = {}
        self.last_life: dict[int, BrokerNode] = {}
        self.last_epoch: dict[int, int] = {}
        self.ever_admitted: set[int] = set()
        topics = {name: self._new_topic(name, number) for number, name in enumerate(self.rules)}
        self.state = ClusterState(0, Changes(), 0, {}, topics)
        for broker_id in BROKERS:
            self.start(broker_id, clean=True)
        self.state = replace(self.state, admitted=AdmittedBrokers(epochs=dict(self.state.broker_epochs)))

    def _new_topic(self, name: str, number: int) -> Topic:
        partitions = []
        for index in range(PARTITIONS):
            replicas = tuple(self.chance.sample(BROKERS, self.chance.choice((1, 2, 3, 3, 3))))
            partitions.append(PartitionState(replicas, replicas, replicas[0]))
            self.held[name, index] = dict.fromkeys(replicas, 0)
            self.committed[name, index] = 0
        return Topic(name, UUID(int=number + 1), tuple(partitions), (0,))

    def rules_of(self, name: str) -> TopicRules:
        return self.rules[name]

    def partition(self, place: Place) -> PartitionState:
        return self.state.topics[place[0]].partitions[place[1]]

    # ── what happens to brokers ──────────────────────────────────────────────────────────────────────────────────

    def die(self, broker_id: int) -> None:
        brokers = {other: node for other, node in self.state.brokers.items() if other != broker_id}
        epochs = {other: epoch for other, epoch in self.state.broker_epochs.items() if other != broker_id}
        self.state = replace(self.state, brokers=brokers, broker_epochs=epochs)

    def start(self, broker_id: int, *, clean: bool) -> None:
        self.zxid += 1
        last = self.last_life.get(broker_id)
        is_known = last is None or last.clean_start or self.last_epoch[broker_id] in self.ever_admitted
        node = BrokerNode(endpoints=(), clean_start=clean and is_known)  # it says so until it was admitted as such
        self.last_life[broker_id], self.last_epoch[broker_id] = node, self.zxid
        brokers = {**self.state.brokers, broker_id: node}
        epochs = {**self.state.broker_epochs, broker_id: self.zxid}
        self.state = replace(self.state, brokers=brokers, broker_epochs=epochs)
        if not clean:
            for held in self.held.values():
                if broker_id in held:
                    held[broker_id] = self.chance.randint(0, held[broker_id])

    # ── what the controller decides ──────────────────────────────────────────────────────────────────────────────

    def apply(self, plans: list[Plan], *, may_be_cut: bool = True, vouched: tuple[int, ...] = ()) -> None:
        """Perform plans, perhaps only the first of them: the controller may die in between."""
        count = self.chance.randint(0, len(plans)) if may_be_cut and self.chance.random() < 0.2 else len(plans)
        names = [plan.topic.name for plan in plans if plan.topic is not None]
        assert len(names) == len(set(names))
        for plan in plans[:count]:
            if plan.topic is not None:
                self._take(plan.topic, plan.unclean, vouched)
            else:
                (operation,) = plan.operations
                assert isinstance(operation, Create | SetData)
                version = (self.state.admitted_version or 0) + 1
                admitted = AdmittedBrokers.decode(operation.data)
                self.ever_admitted.update(admitted.epochs.values())
                self.state = replace(self.state, admitted=admitted, admitted_version=version)

    def _take(self, after: Topic, unclean: tuple[int, ...], vouched: tuple[int, ...]) -> None:
        before = self.state.topics[after.name]
        assert after.versions == tuple(version + 1 for version in before.versions)
        for index, (old, new) in enumerate(zip(before.partitions, after.partitions, strict=True)):
            check_transition(old, new, vouched, is_unclean=index in unclean)
            place = (after.name, index)
            held = self.held[place]
            self.held[place] = {broker_id: held.get(broker_id, 0) for broker_id in new.replicas}
            if index in unclean:
                self.committed[place] = min(self.committed[place], self.held[place][new.leader])
        self.state = replace(self.state, topics={**self.state.topics, after.name: after})

    # ── what leaders do ──────────────────────────────────────────────────────────────────────────────────────────

    def acting_leader(self, place: Place) -> int | None:
        leader = self.partition(place).leader
        return leader if leader != NO_LEADER and self.state.is_admitted(leader) else None

    def commit(self, place: Place) -> None:
        partition = self.partition(place)
        if self.acting_leader(place) is None or any(member not in self.state.brokers for member in partition.isr):
            return
        if len(partition.isr) >= min(self.rules_of(place[0]).min_isr, len(partition.replicas)):
            self.committed[place] += 1
            self.held[place].update(dict.fromkeys(partition.isr, self.committed[place]))

    def follow(self, place: Place) -> None:
        """Some followers fetch all that is committed."""
        if self.acting_leader(place) is not None:
            for broker_id in self.partition(place).replicas:
                if broker_id in self.state.brokers and self.chance.random() < 0.7:
                    self.held[place][broker_id] = self.committed[place]
                    self.seen_epoch[place, broker_id] = self.state.broker_epochs[broker_id]

    def ask(self, place: Place, wanted: list[int]) -> Error | None:
        """The leader asks for an ISR, with the epochs in which it last saw the others."""
        leader = self.acting_leader(place)
        if leader is None:
            return None
        partition, topic = self.partition(place), self.state.topics[place[0]]
        epochs = {member: self.seen_epoch.get((place, member), -1) for member in wanted}
        epochs[leader] = self.state.broker_epochs[leader]
        request = IsrRequest(place[1], partition.leader_epoch, partition.partition_epoch, epochs)
        requests = {topic.topic_id: [request]}
        outcome = alter_partition(self.state, self.rules_of, leader, epochs[leader], requests)
        ((result,),) = outcome.results.values()
        if result.error is Error.NONE or result.error is Error.NEW_LEADER_ELECTED:
            self.apply(outcome.plans, may_be_cut=False, vouched=tuple(wanted))
            assert result.state == self.partition(place)
        else:
            assert outcome.plans == []
        return result.error

    def change_isr(self, place: Place) -> None:
        partition = self.partition(place)
        committed, held = self.committed[place], self.held[place]
        leaving = {member for member in partition.isr if self.chance.random() < 0.3}
        joining = {member for member in partition.replicas if (place, member) in self.seen_epoch}
        late = {member for member in joining if held[member] < committed and member in self.state.brokers}
        stale = {member for member in joining if self.seen_epoch[place, member] != self.epoch_of(member)}
        error = self.ask(place, sorted((set(partition.isr) | joining) - leaving - (late - stale)))
        if error is Error.NONE and self.chance.random() < 0.2:
            assert self.ask(place, [partition.leader]) in (Error.NONE, Error.NEW_LEADER_ELECTED)

    def epoch_of(self, broker_id: int) -> int:
        return self.state.broker_epochs.get(broker_id, -1)

    # ── what must hold ───────────────────────────────────────────────────────────────────────────────────────────

    def check(self) -> None:
        for place, committed in self.committed.items():
            partition = self.partition(place)
            check_partition(partition)
            leader = self.acting_leader(place)
            if leader is not None:
                assert self.held[place][leader] >= committed, (place, partition, self.held[place], committed)


def check_partition(partition: PartitionState) -> None:
    replicas = set(partition.replicas)
    assert partition.isr
    assert replicas.issuperset(partition.isr)
    assert replicas.issuperset(partition.eligible)
    assert not set(partition.isr) & set(partition.eligible)
    assert partition.leader == NO_LEADER or partition.leader in partition.isr
    assert replicas.issuperset(partition.adding)
    assert replicas.issuperset(partition.removing)
    for members in (partition.replicas, partition.isr, partition.eligible):
        assert len(set(members)) == len(members)


def check_transition(old: PartitionState, new: PartitionState, vouched: tuple[int, ...], *, is_unclean: bool) -> None:
    """`vouched` are those whom the leader says to be in sync."""
    if new == old:
        assert not is_unclean
        return
    check_partition(new)
    assert new.partition_epoch == old.partition_epoch + 1
    assert new.leader_epoch - old.leader_epoch in (0, 1)
    if new.leader != old.leader:
        assert new.leader_epoch == old.leader_epoch + 1
    if new.leader not in (NO_LEADER, *old.isr, *old.eligible, *vouched):
        assert is_unclean
    if is_unclean:
        assert new.isr == (new.leader,)
        assert new.eligible == ()


def any_event(cluster: Cluster) -> str:
    """Let one thing happen; what it was."""
    chance = cluster.chance
    broker_id = chance.choice(BROKERS)
    place = (chance.choice(list(cluster.rules)), chance.randrange(PARTITIONS))
    events: dict[str, tuple[int, Callable[[], object]]] = {
        "die": (4, lambda: cluster.die(broker_id)),
        "start": (4, lambda: cluster.start(broker_id, clean=True)),
        "start unclean": (3, lambda: cluster.start(broker_id, clean=False)),
        "decide": (12, lambda: cluster.apply(members_changed(cluster.state, cluster.rules_of))),
        "commit": (12, lambda: cluster.commit(place)),
        "follow": (12, lambda: cluster.follow(place)),
        "change isr": (14, lambda: cluster.change_isr(place)),
        "stop": (2, lambda: _stop(cluster, broker_id)),
        "fail": (1, lambda: _fail_directory(cluster, broker_id, place)),
        "elect": (2, lambda: _elect(cluster, place)),
        "balance": (2, lambda: cluster.apply(balance(cluster.state, cluster.rules_of))),
        "reassign": (4, lambda: _reassign(cluster, place)),
        "decommission": (1, lambda: _decommission(cluster, broker_id)),
        "min isr": (2, lambda: _change_min_isr(cluster, place[0])),
    }
    (name,) = chance.choices(list(events), [weight for weight, _ in events.values()])
    events[name][1]()
    return f"{name} {broker_id} {place}"


def _stop(cluster: Cluster, broker_id: int) -> None:
    if cluster.state.is_admitted(broker_id):
        cluster.apply(controlled_shutdown(cluster.state, cluster.rules_of, broker_id))


def _fail_directory(cluster: Cluster, broker_id: int, place: Place) -> None:
    cluster.apply(replicas_failed(cluster.state, cluster.rules_of, broker_id, {place[0]: [place[1]]}))


def _elect(cluster: Cluster, place: Place) -> None:
    kind = cluster.chance.choice(list(ElectionKind))
    outcome = elect(cluster.state, cluster.rules_of, kind, cluster.chance.choice((None, {place[0]: [place[1]]})))
    cluster.apply(outcome.plans)


def _reassign(cluster: Cluster, place: Place) -> None:
    target = cluster.chance.sample(BROKERS, cluster.chance.randint(1, 4))
    asked = {place[0]: {place[1]: cluster.chance.choice((None, target, target))}}
    cluster.apply(alter_reassignments(cluster.state, cluster.rules_of, asked).plans)


def _decommission(cluster: Cluster, broker_id: int) -> None:
    try:
        moves = decommission(cluster.state, broker_id)
    except ApiError as error:
        assert error.error is Error.INVALID_REPLICATION_FACTOR
        return
    cluster.apply(alter_reassignments(cluster.state, cluster.rules_of, moves).plans)


def _change_min_isr(cluster: Cluster, name: str) -> None:
    after = replace(cluster.rules[name], min_isr=cluster.chance.randint(1, 4))
    cluster.apply(min_isr_changed(cluster.state, lambda _name: after, [name]), may_be_cut=False)
    cluster.rules[name] = after


def heal(cluster: Cluster) -> None:
    """All faults end: everybody comes back, and everything is decided, fetched and asked for."""
    for broker_id in BROKERS:
        if broker_id not in cluster.state.brokers or broker_id in cluster.state.admitted.leaving:
            cluster.start(broker_id, clean=True)
    cluster.apply(members_changed(cluster.state, cluster.rules_of), may_be_cut=False)
    assert members_changed(cluster.state, cluster.rules_of) == []
    assert cluster.state.admitted.epochs == cluster.state.broker_epochs
    for place, committed in cluster.committed.items():
        partition = cluster.partition(place)
        assert partition.leader != NO_LEADER
        target = target_replicas(partition)
        for broker_id in partition.replicas:
            cluster.held[place][broker_id] = committed
            cluster.seen_epoch[place, broker_id] = cluster.epoch_of(broker_id)
        cluster.check()
        assert cluster.ask(place, list(partition.replicas)) in (Error.NONE, Error.NEW_LEADER_ELECTED)
        healed = cluster.partition(place)
        assert healed.replicas == target
        assert set(healed.isr) == set(target)
        assert (healed.eligible, healed.adding, healed.removing) == ((), (), ())
    assert ongoing(cluster.state.topics) == []
    cluster.check()


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32), st.integers(10, 120))
def test_whoever_leads_has_every_committed_record(seed: int, length: int) -> None:
    cluster = Cluster(random.Random(seed))
    for _ in range(length):
        note(any_event(cluster))
        cluster.check()
    heal(cluster)


def _all_who_left(
    before: PartitionState, replicas: Sequence[int], in_sync: Collection[int], *_: object
) -> Sequence[int]:
    return tuple(each for each in replicas if each in {*before.isr, *before.eligible} and each not in in_sync)


def _trusting(state: ClusterState) -> Brokers:
    brokers = WITH_RETURNED(state)
    return Brokers(brokers.may_stay, brokers.may_lead | brokers.lost, brokers.returned)


WITH_RETURNED = elections._brokers_with_returned


@pytest.mark.parametrize(
    ("where", "safeguard", "instead"),
    [
        (transitions, "_eligible", _all_who_left),
        (isr._Asking, "_may_be_in", lambda _self, _before, _member, _epoch: True),
        (elections, "_brokers_with_returned", _trusting),
        (
            elections,
            "_brokers_with_returned",
            lambda state: Brokers(frozenset(state.brokers), frozenset(state.brokers)),
        ),
    ],
    ids=["who left is eligible for ever", "no broker epoch", "a start is always clean", "no death without absence"],
)
def test_a_missing_safeguard_is_noticed(
    monkeypatch: pytest.MonkeyPatch, where: object, safeguard: str, instead: object
) -> None:
    monkeypatch.setattr(where, safeguard, instead)
    with pytest.raises(AssertionError):
        for seed in range(2_000):
            cluster = Cluster(random.Random(seed))
            for _ in range(150):
                any_event(cluster)
                cluster.check()
