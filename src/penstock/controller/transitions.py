"""What becomes of one partition when its replicas, its ISR or the brokers change: every decision ends here.

`settle` takes the state before and the ISR that is wanted, and returns the state after it:

1. A reassignment whose target replicas are all in sync is completed.
2. A leader is chosen: the present one if it can go on; else the first replica, in the order of the assignment, that is
   in sync; else the first that is *eligible*; else, only where that is allowed, the first that is alive. An unclean
   choice may lose records, and is marked.
3. The eligible replicas are worked out. The high watermark stands still while the ISR is smaller than
   `min.insync.replicas`, so whoever left such an ISR still has every committed record, and may lead (KIP-966). Once the
   ISR is large enough again, that is no longer so, and the list is emptied. Without a leader nothing is committed
   either: then nobody is forgotten.
4. The leader epoch grows with every change of the leader, the partition epoch with every change at all.

The ISR is never empty: if nobody of it is left, it keeps its last members, and the partition waits for one of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

import msgspec

from penstock.controller.plan import PLAN_SIZE_BYTES_MAX, Plan
from penstock.zookeeper.operations import Operation, size_bytes
from penstock.zookeeper.topic_znodes import (
    NO_LEADER,
    PARTITIONS_PER_ZNODE,
    PartitionState,
    Topic,
    topic_path,
    update,
)
from penstock.zookeeper.znodes import Notice

NOBODY: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class TopicRules:
    """A topic's `min.insync.replicas` and `unclean.leader.election.enable`."""

    min_isr: int = 1
    is_unclean_allowed: bool = False


#: The rules of a topic by its name.
RulesOf = Callable[[str], TopicRules]


class Choice(Enum):
    """How a leader is chosen when the present one could go on."""

    KEEP = "the present one"
    PREFERRED = "the first replica, if it is in sync"


@dataclass(frozen=True, slots=True)
class Brokers:
    """The brokers, as far as they matter to one decision."""

    may_stay: frozenset[int]
    """A leader of these goes on; everybody here who is admitted."""
    may_lead: frozenset[int]
    """Can be made leader: here, and not about to stop."""
    returned: frozenset[int] = NOBODY
    """Here in a new registration: what such a one leads, it leads in a new epoch."""
    lost: frozenset[int] = NOBODY
    """Returned, and without what was not synced to disk: in sync and eligible no more."""


class Settled(NamedTuple):
    """The state of a partition after a change, and whether its leader may lack committed records."""

    state: PartitionState
    is_unclean: bool = False


def settle(
    before: PartitionState,
    isr: Collection[int],
    brokers: Brokers,
    rules: TopicRules,
    *,
    assignment: PartitionState | None = None,
    choice: Choice = Choice.KEEP,
) -> Settled:
    """The state after a change. `assignment` has the replicas, if they change; the rest of it is not looked at."""
    wanted = completed(assignment or before, isr, brokers)
    replicas = wanted.replicas
    in_sync = _in_sync(before, replicas, isr, brokers)
    leader, in_sync, is_unclean = _elect(before, replicas, in_sync, brokers, rules, choice)
    assert in_sync
    eligible = () if is_unclean else _eligible(before, replicas, in_sync, leader, brokers, rules)
    is_renewed = leader != before.leader or leader in brokers.returned
    after = PartitionState(
        replicas=replicas,
        isr=tuple(in_sync),
        leader=leader,
        leader_epoch=before.leader_epoch + is_renewed,
        partition_epoch=before.partition_epoch,
        eligible=eligible,
        adding=wanted.adding,
        removing=wanted.removing,
    )
    if after == before:
        return Settled(before)
    return Settled(msgspec.structs.replace(after, partition_epoch=before.partition_epoch + 1), is_unclean)


def completed(state: PartitionState, isr: Collection[int], brokers: Brokers) -> PartitionState:
    """The state with a reassignment completed if it can be: all of its target in sync, and one of it able to lead."""
    if not state.adding and not state.removing:
        return state
    target = tuple(broker_id for broker_id in state.replicas if broker_id not in state.removing)
    can_lead = any(broker_id in brokers.may_lead for broker_id in target)
    if not target or not can_lead or any(broker_id not in isr for broker_id in target):
        return state
    return msgspec.structs.replace(state, replicas=target, adding=(), removing=())


def _in_sync(before: PartitionState, replicas: Sequence[int], isr: Collection[int], brokers: Brokers) -> list[int]:
    """The ISR that is wanted; if it is empty, its last members that came back, or else that may still come.

    Those who came back are in sync with each other: nobody has led in between. Empty: all came back without something.
    """
    wanted = [broker_id for broker_id in replicas if broker_id in isr]
    if wanted:
        return wanted
    last = [broker_id for broker_id in replicas if broker_id in before.isr and broker_id not in brokers.lost]
    return [broker_id for broker_id in last if broker_id in brokers.may_lead] or last


def _elect(
    before: PartitionState,
    replicas: Sequence[int],
    in_sync: list[int],
    brokers: Brokers,
    rules: TopicRules,
    choice: Choice,
) -> tuple[int, list[int], bool]:
    """The leader, the ISR that it leads, and whether the choice was unclean."""
    if choice is Choice.PREFERRED and replicas[0] in in_sync and replicas[0] in brokers.may_lead:
        return replicas[0], in_sync, False
    if before.leader in in_sync and before.leader in brokers.may_stay:
        return before.leader, in_sync, False
    leader = _first(in_sync, brokers.may_lead)
    if leader != NO_LEADER:
        return leader, in_sync, False
    eligible = [broker_id for broker_id in replicas if broker_id in before.eligible and broker_id not in brokers.lost]
    leader = _first(eligible, brokers.may_lead)
    if leader != NO_LEADER:
        return leader, [leader], False
    return _last_resort(before, replicas, in_sync, eligible, brokers, rules)


def _last_resort(
    before: PartitionState,
    replicas: Sequence[int],
    in_sync: list[int],
    eligible: list[int],
    brokers: Brokers,
    rules: TopicRules,
) -> tuple[int, list[int], bool]:
    """Nobody is here who surely has all committed records.

    Where one of those may still come, the partition waits for it, unless the topic may be led by anybody. Where all of
    them have come back without their unsynced records there is nothing to wait for: the last known leader leads.
    """
    here = brokers.may_lead | brokers.lost
    if not in_sync and not eligible:
        last = [broker_id for broker_id in replicas if broker_id in before.isr]
        leader = _first([before.leader] if before.leader in last else last, here)
        if leader != NO_LEADER:
            return leader, [leader], True
    if rules.is_unclean_allowed:
        leader = _first(replicas, here)
        if leader != NO_LEADER:
            return leader, [leader], True
    return NO_LEADER, in_sync or eligible, False


def _first(candidates: Sequence[int], able: frozenset[int]) -> int:
    for broker_id in candidates:
        if broker_id in able:
            return broker_id
    return NO_LEADER


def _eligible(
    before: PartitionState,
    replicas: Sequence[int],
    in_sync: Collection[int],
    leader: int,
    brokers: Brokers,
    rules: TopicRules,
) -> tuple[int, ...]:
    if leader != NO_LEADER and len(in_sync) >= min(rules.min_isr, len(replicas)):
        return ()
    return tuple(
        broker_id
        for broker_id in replicas
        if (broker_id in before.isr or broker_id in before.eligible)
        and broker_id not in in_sync
        and broker_id not in brokers.lost
    )


def topic_plans(topic: Topic, partitions: Sequence[PartitionState], unclean: Collection[int] = ()) -> list[Plan]:
    """Write what differs: nothing, one plan, or, if that would be too large, one for each znode of the topic."""
    after = Topic(topic.name, topic.topic_id, tuple(partitions), topic.versions, topic.internal)
    operations = update(topic, after)
    if not operations:
        return []
    if size_bytes(operations) <= PLAN_SIZE_BYTES_MAX:
        groups = [operations]
    else:
        groups = [[operation] for operation in operations]
    plans: list[Plan] = []
    written = topic
    for group in groups:
        shards = _shards(topic, group)
        written = _written(written, after, shards)
        marked = tuple(index for index in sorted(unclean) if index // PARTITIONS_PER_ZNODE in shards)
        plans.append(Plan(tuple(group), Notice(topics=(topic.name,)), written, marked))
    return plans


def _shards(topic: Topic, operations: Sequence[Operation]) -> set[int]:
    paths = {operation.path for operation in operations}
    return {shard for shard in range(len(topic.versions)) if topic_path(topic.name, shard) in paths}


def _written(before: Topic, after: Topic, shards: Collection[int]) -> Topic:
    """The topic when some of its znodes have been written."""
    partitions = after.partitions
    if len(shards) < len(before.versions):
        changing = list(before.partitions)
        for shard in shards:
            span = slice(shard * PARTITIONS_PER_ZNODE, (shard + 1) * PARTITIONS_PER_ZNODE)
            changing[span] = after.partitions[span]
        partitions = tuple(changing)
    versions = tuple([version + (shard in shards) for shard, version in enumerate(before.versions)])
    return Topic(before.name, before.topic_id, partitions, versions, before.internal)
