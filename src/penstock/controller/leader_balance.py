"""Elections on request (ElectLeaders), and giving leadership back to the preferred leaders.

The preferred leader is the first replica of the assignment; placement spreads those evenly, so the cluster is balanced
when each of them leads. After a broker was away others lead what it should lead, until it is given back here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

from penstock.base.errors import ApiError, Error
from penstock.controller.elections import brokers_of, replaced
from penstock.controller.plan import ClusterState, Plan
from penstock.controller.transitions import Brokers, Choice, RulesOf, Settled, TopicRules, settle
from penstock.zookeeper.topic_znodes import NO_LEADER, PartitionState, Topic

#: How many leaders are moved in one step of balancing, so that clients do not all have to look for new ones at once.
MOVES_MAX = 1000


class ElectionKind(IntEnum):
    """The kinds of ElectLeaders, by their number in the protocol."""

    PREFERRED = 0
    UNCLEAN = 1


@dataclass(frozen=True, slots=True)
class ElectionOutcome:
    """The plans, and for each partition (topic, index) None or why it got no other leader."""

    plans: list[Plan]
    results: dict[tuple[str, int], ApiError | None]


def elect(
    state: ClusterState, rules_of: RulesOf, kind: ElectionKind, asked: Mapping[str, Sequence[int]] | None
) -> ElectionOutcome:
    """Elect leaders of some partitions, by topic, or of all; then those that need none are not in the results.

    An unclean election is made because an operator asks for it, whatever the topic's settings say.
    """
    brokers = brokers_of(state)
    outcome = ElectionOutcome([], {})
    for name, indexes in _asked_or_all(state, asked):
        topic = state.topics.get(name)
        if topic is None:
            missing = ApiError(Error.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
            outcome.results.update({(name, index): missing for index in indexes})
            continue
        rules = rules_of(name)
        settled: dict[int, Settled] = {}
        for index in dict.fromkeys(indexes):
            result = _election(topic, index, kind, brokers, rules)
            if isinstance(result, Settled):
                settled[index] = result
                outcome.results[name, index] = None
            elif asked is not None or result.error is not Error.ELECTION_NOT_NEEDED:
                outcome.results[name, index] = result
        outcome.plans.extend(replaced(topic, settled))
    return outcome


def _asked_or_all(
    state: ClusterState, asked: Mapping[str, Sequence[int]] | None
) -> Iterable[tuple[str, Sequence[int]]]:
    if asked is not None:
        return asked.items()
    return [(name, range(len(topic.partitions))) for name, topic in state.topics.items()]


def _election(topic: Topic, index: int, kind: ElectionKind, brokers: Brokers, rules: TopicRules) -> Settled | ApiError:
    if not 0 <= index < len(topic.partitions):
        return ApiError(Error.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic.name!r} has no partition {index}")
    before = topic.partitions[index]
    if kind is ElectionKind.PREFERRED:
        return _preferred(before, brokers, rules)
    if before.leader != NO_LEADER:
        return ApiError(Error.ELECTION_NOT_NEEDED)
    after = settle(before, before.isr, brokers, replace(rules, is_unclean_allowed=True))
    return ApiError(Error.ELIGIBLE_LEADERS_NOT_AVAILABLE) if after.state.leader == NO_LEADER else after


def _preferred(before: PartitionState, brokers: Brokers, rules: TopicRules) -> Settled | ApiError:
    wanted = before.replicas[0]
    if before.leader == wanted:
        return ApiError(Error.ELECTION_NOT_NEEDED)
    if wanted not in before.isr or wanted not in brokers.may_lead:
        return ApiError(Error.PREFERRED_LEADER_NOT_AVAILABLE)
    return settle(before, before.isr, brokers, rules, choice=Choice.PREFERRED)


def balance(
    state: ClusterState, rules_of: RulesOf, *, imbalance_percentage_max: int = 0, moves_max: int = MOVES_MAX
) -> list[Plan]:
    """Give leadership back to each broker that leads too few of the partitions it is the preferred leader of.

    Too few: more than this percentage of them are led by others. Like Kafka since 4.0, the default is none at all.
    """
    unbalanced = _unbalanced(state, imbalance_percentage_max)
    asked: dict[str, list[int]] = {}
    moves_left = moves_max
    may_lead = brokers_of(state).may_lead
    for name, topic in state.topics.items():
        for index, partition in enumerate(topic.partitions):
            wanted = partition.replicas[0]
            is_wrong = partition.leader != wanted and wanted in unbalanced
            if moves_left and is_wrong and wanted in partition.isr and wanted in may_lead:
                asked.setdefault(name, []).append(index)
                moves_left -= 1
    return elect(state, rules_of, ElectionKind.PREFERRED, asked).plans


def _unbalanced(state: ClusterState, imbalance_percentage_max: int) -> set[int]:
    preferred: dict[int, int] = {}
    elsewhere: dict[int, int] = {}
    for topic in state.topics.values():
        for partition in topic.partitions:
            wanted = partition.replicas[0]
            preferred[wanted] = preferred.get(wanted, 0) + 1
            elsewhere[wanted] = elsewhere.get(wanted, 0) + (partition.leader != wanted)
    return {
        broker_id
        for broker_id, count in elsewhere.items()
        if count * 100 > imbalance_percentage_max * preferred[broker_id]
    }
