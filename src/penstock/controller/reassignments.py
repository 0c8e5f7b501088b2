"""Giving partitions other replicas: start, replace, cancel, list; and emptying a broker.

While a reassignment is under way the partition has the replicas of both sides: the target first, in its order, then the
ones to be removed. `adding` are new, `removing` are to go. It is completed by the change of the ISR that brings the
last replica of the target in sync (`transitions.completed`); nothing has to drive it.

The replicas without `adding` are the original ones. Cancelling goes back to them at once, and a new target starts from
them: what the old one was adding goes, except for replicas without which nobody in sync would be left.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from penstock.base.errors import ApiError, Error
from penstock.controller.elections import brokers_of, changed_topics, replaced
from penstock.controller.placement import Candidate, place_instead
from penstock.controller.plan import ClusterState, Plan
from penstock.controller.transitions import Brokers, RulesOf, Settled, TopicRules, completed, settle
from penstock.zookeeper.topic_znodes import PartitionState, Topic

#: The replicas wanted, by topic and partition; None takes a reassignment back.
Reassignments = Mapping[str, Mapping[int, Sequence[int] | None]]


class Ongoing(NamedTuple):
    """A reassignment that is under way."""

    topic: str
    partition: int
    state: PartitionState


@dataclass(frozen=True, slots=True)
class ReassignmentOutcome:
    """The plans, and for each partition (topic, index) None or what was wrong."""

    plans: list[Plan]
    results: dict[tuple[str, int], ApiError | None]


def ongoing(topics: Mapping[str, Topic], asked: Mapping[str, Sequence[int]] | None = None) -> list[Ongoing]:
    """The reassignments that are under way, of some partitions by topic or of all."""
    found = []
    for name in topics if asked is None else asked:
        topic = topics.get(name)
        for index, partition in enumerate(topic.partitions if topic else ()):
            is_asked = asked is None or index in asked[name]
            if is_asked and (partition.adding or partition.removing):
                found.append(Ongoing(name, index, partition))
    return found


def alter_reassignments(
    state: ClusterState, rules_of: RulesOf, asked: Reassignments, *, is_factor_change_allowed: bool = True
) -> ReassignmentOutcome:
    """Start, replace or cancel reassignments; what is wrong with one does not stop the others."""
    brokers = brokers_of(state)
    outcome = ReassignmentOutcome([], {})
    for name, targets in asked.items():
        topic = state.topics.get(name)
        settled: dict[int, Settled] = {}
        for index, target in targets.items():
            try:
                before = _partition(topic, name, index)
                settled[index] = _reassigned(before, target, brokers, rules_of(name), is_factor_change_allowed)
                outcome.results[name, index] = None
            except ApiError as error:
                outcome.results[name, index] = error
        if topic is not None:
            outcome.plans.extend(replaced(topic, settled))
    return outcome


def finish_possible(state: ClusterState, rules_of: RulesOf) -> list[Plan]:
    """Complete the reassignments of which everybody is in sync already, and only nobody could lead until now."""
    brokers = brokers_of(state)

    def transition(partition: PartitionState, rules: TopicRules) -> Settled:
        can_finish = completed(partition, partition.isr, brokers) is not partition
        if not can_finish or partition.leader not in brokers.may_stay:
            return Settled(partition)
        return settle(partition, partition.isr, brokers, rules)

    return changed_topics(state.topics.values(), rules_of, transition)


def _partition(topic: Topic | None, name: str, index: int) -> PartitionState:
    if topic is None:
        raise ApiError(Error.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
    if not 0 <= index < len(topic.partitions):
        raise ApiError(Error.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name!r} has no partition {index}")
    return topic.partitions[index]


def _reassigned(
    before: PartitionState, target: Sequence[int] | None, brokers: Brokers, rules: TopicRules, may_change_factor: bool
) -> Settled:
    if target is None:
        return _cancelled(before, brokers, rules)
    _check_target(before, target, brokers)
    original = original_replicas(before)
    if not may_change_factor and len(target) != len(original):
        raise ApiError(
            Error.INVALID_REPLICATION_FACTOR,
            f"the partition has {len(original)} replicas and is to have {len(target)}, which this request forbids",
        )
    if not (set(original) & set(before.isr)) and not set(target) & set(before.isr):
        original = (*original, *(broker_id for broker_id in before.adding if broker_id in before.isr))
    return _towards(before, original, target, brokers, rules)


def _towards(
    before: PartitionState, original: Sequence[int], target: Sequence[int], brokers: Brokers, rules: TopicRules
) -> Settled:
    removing = tuple(broker_id for broker_id in original if broker_id not in target)
    assignment = msgspec.structs.replace(
        before,
        replicas=(*target, *removing),
        adding=tuple(broker_id for broker_id in target if broker_id not in original),
        removing=removing,
    )
    isr = [broker_id for broker_id in before.isr if broker_id in assignment.replicas]
    return settle(before, isr, brokers, rules, assignment=assignment)


def _cancelled(before: PartitionState, brokers: Brokers, rules: TopicRules) -> Settled:
    if not before.adding and not before.removing:
        raise ApiError(Error.NO_REASSIGNMENT_IN_PROGRESS)
    original = original_replicas(before)
    here = brokers.may_lead.intersection(original)
    is_clean = not set(before.isr).isdisjoint(original) or not here.isdisjoint(before.eligible)
    if not is_clean and not (rules.is_unclean_allowed and here):
        raise ApiError(
            Error.INVALID_REPLICA_ASSIGNMENT,
            "none of the replicas to go back to is in sync: committed records would be lost. Wait for one of them",
        )
    return _towards(before, original, original, brokers, rules)


def original_replicas(partition: PartitionState) -> tuple[int, ...]:
    """The replicas without those that a reassignment is adding."""
    return tuple(broker_id for broker_id in partition.replicas if broker_id not in partition.adding)


def target_replicas(partition: PartitionState) -> tuple[int, ...]:
    """The replicas without those that a reassignment is removing."""
    return tuple(broker_id for broker_id in partition.replicas if broker_id not in partition.removing)


def _check_target(before: PartitionState, target: Sequence[int], brokers: Brokers) -> None:
    if not target:
        raise _bad_target("the partition is assigned to no broker")
    if len(set(target)) != len(target):
        raise _bad_target("the partition is assigned to the same broker more than once")
    for broker_id in target:
        if broker_id not in before.replicas and broker_id not in brokers.may_lead:
            raise _bad_target(f"the partition is assigned to broker {broker_id}, which is not there or about to stop")


def _bad_target(message: str) -> ApiError:
    return ApiError(Error.INVALID_REPLICA_ASSIGNMENT, message)


def decommission(state: ClusterState, broker_id: int) -> dict[str, dict[int, tuple[int, ...]]]:
    """The reassignments after which a broker, running or gone, holds nothing: as `alter_reassignments` takes them.

    Others take its places: on other racks and hosts while there is a choice, and evenly over the whole cluster.
    """
    candidates = [
        Candidate(other, node.rack, node.host or None) for other, node in state.living().items() if other != broker_id
    ]
    places = [
        (name, index, target_replicas(partition))
        for name, topic in state.topics.items()
        for index, partition in enumerate(topic.partitions)
    ]
    placed = place_instead(candidates, [replicas for _, _, replicas in places], broker_id)
    moved: dict[str, dict[int, tuple[int, ...]]] = {}
    for (name, index, before), after in zip(places, placed, strict=True):
        if after is None:
            raise ApiError(
                Error.INVALID_REPLICATION_FACTOR,
                f"partition {index} of topic {name!r} has a replica on every other broker: add a broker first",
            )
        if after != before:
            moved.setdefault(name, {})[index] = after
    return moved
