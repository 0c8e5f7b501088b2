"""Who leads a partition after brokers came, went, or are about to go.

The registrations in `/brokers/ids` say who is here; `/admitted_brokers` says which of them the controller has taken
into account. `members_changed` evens out the difference, whatever has happened in between and whoever was the
controller: a broker that is here with another epoch than the admitted one has been away, even if nobody saw it. It
leaves every ISR that has other members, loses its leaderships, and what it leads again it leads in a new epoch: what it
had not made durable may be gone, and only the epoch tells clients that offsets they know may hold something else now.

A broker that was not stopped cleanly may have lost records that others count on: it also leaves the eligible lists.
Where all of a partition's ISR and eligible replicas have come back like that, the last known leader leads (as in Kafka
since KIP-966, even if unclean elections are off: nothing better will ever come), and it is marked as unclean. Where one
of them is still away, it is waited for.

The admission is the last write. Until it is made the broker counts as not there, so nobody relies on it half-way.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import msgspec

from penstock.base.errors import ApiError, Error
from penstock.controller.membership import admission
from penstock.controller.plan import ClusterState, Plan
from penstock.controller.transitions import Brokers, RulesOf, Settled, TopicRules, settle, topic_plans
from penstock.zookeeper.topic_znodes import NO_LEADER, PartitionState, Topic
from penstock.zookeeper.znodes import AdmittedBrokers

#: What becomes of a partition, by its topic's rules.
Transition = Callable[[PartitionState, TopicRules], Settled]


def lead_again(state: ClusterState, broker_id: int) -> list[Plan]:
    """The only broker has come back: it leads what it led before, in a new epoch. One plan for each topic."""
    plans = []
    for topic in state.topics.values():
        plans += topic_plans(topic, [_in_new_epoch(part, broker_id) for part in topic.partitions])
    return plans


def _in_new_epoch(partition: PartitionState, broker_id: int) -> PartitionState:
    if partition.leader != broker_id:
        return partition
    return msgspec.structs.replace(
        partition, leader_epoch=partition.leader_epoch + 1, partition_epoch=partition.partition_epoch + 1
    )


def brokers_of(state: ClusterState, *, without: int | None = None) -> Brokers:
    """The brokers that count now, perhaps all but one."""
    may_stay = frozenset(broker_id for broker_id in state.brokers if state.is_admitted(broker_id))
    may_lead = may_stay.difference(state.admitted.leaving)
    return Brokers(may_stay - {without}, may_lead - {without})


# ── brokers came and went ────────────────────────────────────────────────────────────────────────────────────────


def members_changed(state: ClusterState, rules_of: RulesOf) -> list[Plan]:
    """Take into account who is here now: leaders for all partitions that can have one, and the admission at the end."""
    admitted = _admitted_now(state)
    brokers = _brokers_with_returned(state)

    def transition(partition: PartitionState, rules: TopicRules) -> Settled:
        stays = brokers.may_stay
        if (
            partition.leader in stays
            and stays.issuperset(partition.isr)
            and brokers.lost.isdisjoint(partition.eligible)
        ):
            return Settled(partition)
        return settle(partition, stays.intersection(partition.isr), brokers, rules)

    plans = changed_topics(state.topics.values(), rules_of, transition)
    if admitted != state.admitted:
        plans.append(admission(state, admitted))
    return plans


def _admitted_now(state: ClusterState) -> AdmittedBrokers:
    before = state.admitted
    known = {*before.epochs, *before.away, *state.brokers}
    return AdmittedBrokers(
        epochs=dict(sorted(state.broker_epochs.items())),
        leaving=tuple(broker_id for broker_id in before.leaving if state.is_admitted(broker_id)),
        away=tuple(sorted(known.difference(state.brokers))),
    )


def _brokers_with_returned(state: ClusterState) -> Brokers:
    present = brokers_of(state)
    returned = frozenset(state.brokers).difference(present.may_stay)
    lost = frozenset(broker_id for broker_id in returned if not state.brokers[broker_id].clean_start)
    return Brokers(present.may_stay, present.may_lead | (returned - lost), returned, lost)


def changed_topics(topics: Collection[Topic], rules_of: RulesOf, transition: Transition) -> list[Plan]:
    """Put every partition through a transition; plans for the topics that it changes."""
    plans: list[Plan] = []
    for topic in topics:
        rules = rules_of(topic.name)
        settled = [transition(partition, rules) for partition in topic.partitions]
        if any(after.state is not before for after, before in zip(settled, topic.partitions, strict=True)):
            unclean = [index for index, after in enumerate(settled) if after.is_unclean]
            plans += topic_plans(topic, [after.state for after in settled], unclean)
    return plans


# ── a broker is about to stop, or a part of it has failed ────────────────────────────────────────────────────────


def controlled_shutdown(state: ClusterState, rules_of: RulesOf, broker_id: int) -> list[Plan]:
    """A broker is about to stop: others lead what they can, and it leaves their ISRs.

    What nobody else in sync can lead, it leads until it is gone. Asked again, this moves what has become possible.
    """
    if not state.is_admitted(broker_id):
        raise ApiError(Error.STALE_BROKER_EPOCH)
    brokers = brokers_of(state, without=broker_id)

    def transition(partition: PartitionState, rules: TopicRules) -> Settled:
        others = [member for member in partition.isr if member != broker_id]
        can_go_on = partition.leader in others or not brokers.may_lead.isdisjoint(others)
        if len(others) == len(partition.isr) or not can_go_on:
            return Settled(partition)
        return settle(partition, others, brokers, rules)

    plans = []
    if broker_id not in state.admitted.leaving:
        leaving = tuple(sorted({*state.admitted.leaving, broker_id}))
        plans.append(admission(state, msgspec.structs.replace(state.admitted, leaving=leaving)))
    return plans + changed_topics(state.topics.values(), rules_of, transition)


def led_by(state: ClusterState, broker_id: int) -> int:
    """How many partitions a broker leads."""
    partitions = (partition for topic in state.topics.values() for partition in topic.partitions)
    return sum(partition.leader == broker_id for partition in partitions)


def replicas_failed(
    state: ClusterState, rules_of: RulesOf, broker_id: int, failed: Mapping[str, Collection[int]]
) -> list[Plan]:
    """A log directory of a living broker has failed: the replicas in it (partitions by topic) cannot go on.

    They leave the ISRs as if their broker had gone; in an ISR of its own such a replica stays, without a leader.
    """
    brokers = brokers_of(state, without=broker_id)
    plans = []
    for name, indexes in failed.items():
        topic = state.topics.get(name)
        if topic is None:
            continue
        rules = rules_of(name)
        settled = {
            index: _without(topic.partitions[index], broker_id, brokers, rules)
            for index in indexes
            if 0 <= index < len(topic.partitions)
        }
        plans += replaced(topic, settled)
    return plans


def _without(partition: PartitionState, broker_id: int, brokers: Brokers, rules: TopicRules) -> Settled:
    if broker_id not in partition.isr:
        return Settled(partition)
    return settle(partition, [member for member in partition.isr if member != broker_id], brokers, rules)


def replaced(topic: Topic, settled: Mapping[int, Settled]) -> list[Plan]:
    """Plans for a topic of which some partitions, by index, change."""
    if all(after.state is topic.partitions[index] for index, after in settled.items()):
        return []
    partitions = list(topic.partitions)
    for index, after in settled.items():
        partitions[index] = after.state
    return topic_plans(topic, partitions, [index for index, after in settled.items() if after.is_unclean])


# ── settings ─────────────────────────────────────────────────────────────────────────────────────────────────────


def min_isr_changed(state: ClusterState, rules_of: RulesOf, names: Collection[str]) -> list[Plan]:
    """Before `min.insync.replicas` of topics is lowered: empty the eligible lists that will no longer be true.

    `rules_of` has the rules to come. These plans go before the one that writes the setting: a leader that has read it
    may commit records alone, which the eligible ones then lack.
    """
    brokers = brokers_of(state)

    def transition(partition: PartitionState, rules: TopicRules) -> Settled:
        if not partition.eligible or partition.leader == NO_LEADER or partition.leader not in brokers.may_stay:
            return Settled(partition)
        return settle(partition, partition.isr, brokers, rules)

    return changed_topics([state.topics[name] for name in names if name in state.topics], rules_of, transition)
