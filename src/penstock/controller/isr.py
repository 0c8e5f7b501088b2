"""AlterPartition: a leader asks for another ISR.

Refused is whatever does not come from the present leader in its present epoch and on the present state, and whoever is
to join without being a living replica in the registration that the leader has seen fetching (KIP-903): one that was
restarted since may have lost what it was counted for. The leader need not know the epoch of those that are in sync
already: they were put there, and would have been taken out when they registered again.

A leader that asks for the ISR that there is wants to be sure of it: the partition epoch grows, and so nothing that it
asked for before and that is still on its way can be granted any more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple
from uuid import UUID

import msgspec

from penstock.base.errors import ApiError, Error
from penstock.controller.elections import brokers_of, replaced
from penstock.controller.plan import ClusterState, Plan
from penstock.controller.transitions import Brokers, RulesOf, Settled, TopicRules, settle
from penstock.zookeeper.topic_znodes import PartitionState, Topic

UNKNOWN_BROKER_EPOCH = -1


class IsrRequest(NamedTuple):
    """What the leader of a partition asks for; `isr` has the broker epoch of each member."""

    partition: int
    leader_epoch: int
    partition_epoch: int
    isr: Mapping[int, int]


class IsrResult(NamedTuple):
    """What one request came to. `state` is the state of the partition from now on, if there is such a partition."""

    partition: int
    error: Error
    state: PartitionState | None = None


@dataclass(frozen=True, slots=True)
class AlterPartitionOutcome:
    """The plans, and the results by topic id in the order of the requests. They hold once the plans are written."""

    plans: list[Plan]
    results: dict[UUID, list[IsrResult]]


def alter_partition(
    state: ClusterState,
    rules_of: RulesOf,
    broker_id: int,
    broker_epoch: int,
    requests: Mapping[UUID, Sequence[IsrRequest]],
) -> AlterPartitionOutcome:
    """Requests of one leader, by topic id; ApiError(STALE_BROKER_EPOCH) if it is not (any more) a broker of ours."""
    if not state.is_admitted(broker_id) or state.broker_epochs.get(broker_id, broker_epoch) != broker_epoch:
        raise ApiError(Error.STALE_BROKER_EPOCH)
    topics = {topic.topic_id: topic for topic in state.topics.values() if topic.topic_id in requests}
    brokers = brokers_of(state)
    outcome = AlterPartitionOutcome([], {})
    for topic_id, asked in requests.items():
        topic = topics.get(topic_id)
        if topic is None:
            outcome.results[topic_id] = [IsrResult(request.partition, Error.UNKNOWN_TOPIC_ID) for request in asked]
            continue
        asking = _Asking(state, brokers, rules_of(topic.name), topic, broker_id)
        outcome.results[topic_id] = [asking.result(request) for request in asked]
        outcome.plans.extend(replaced(topic, asking.settled))
    return outcome


class _Asking:
    """The requests of one leader for one topic; a second one for the same partition sees the first."""

    def __init__(self, state: ClusterState, brokers: Brokers, rules: TopicRules, topic: Topic, broker_id: int) -> None:
        self._state = state
        self._brokers = brokers
        self._rules = rules
        self._topic = topic
        self._broker_id = broker_id
        self.settled: dict[int, Settled] = {}

    def result(self, request: IsrRequest) -> IsrResult:
        index = request.partition
        if not 0 <= index < len(self._topic.partitions):
            return IsrResult(index, Error.UNKNOWN_TOPIC_OR_PARTITION)
        seen = self.settled.get(index)
        before = self._topic.partitions[index] if seen is None else seen.state
        error = self._problem(before, request)
        if error is not None:
            return IsrResult(index, error, before)
        after = settle(before, list(request.isr), self._brokers, self._rules)
        if after.state is before:
            after = Settled(msgspec.structs.replace(before, partition_epoch=before.partition_epoch + 1))
        self.settled[index] = after
        is_same_leader = after.state.leader == self._broker_id
        return IsrResult(index, Error.NONE if is_same_leader else Error.NEW_LEADER_ELECTED, after.state)

    def _problem(self, before: PartitionState, request: IsrRequest) -> Error | None:
        if request.leader_epoch > before.leader_epoch or request.partition_epoch > before.partition_epoch:
            return Error.NOT_CONTROLLER  # the leader knows more than we do: another is the controller now
        if request.leader_epoch < before.leader_epoch:
            return Error.FENCED_LEADER_EPOCH
        if before.leader != self._broker_id:
            return Error.INVALID_REQUEST
        if request.partition_epoch < before.partition_epoch:
            return Error.INVALID_UPDATE_VERSION
        if self._broker_id not in request.isr or any(member not in before.replicas for member in request.isr):
            return Error.INVALID_REQUEST
        if not all(self._may_be_in(before, member, epoch) for member, epoch in request.isr.items()):
            return Error.INELIGIBLE_REPLICA
        return None

    def _may_be_in(self, before: PartitionState, member: int, epoch: int) -> bool:
        if member not in self._brokers.may_stay:
            return False
        if epoch == UNKNOWN_BROKER_EPOCH:
            return member in before.isr
        is_epoch_right = self._state.broker_epochs.get(member, epoch) == epoch
        return is_epoch_right and (member in before.isr or member in self._brokers.may_lead)
