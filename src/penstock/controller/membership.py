"""Which brokers belong to the cluster: their admission, and forgetting one that will not come back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from penstock.base.errors import ApiError, Error
from penstock.controller.configs import set_configs
from penstock.controller.plan import ClusterState, Plan
from penstock.controller.topics import replicas_removed
from penstock.zookeeper.operations import Create, Operation, SetData
from penstock.zookeeper.znodes import AdmittedBrokers, Notice, TopicDeletion


class PendingDeletion(NamedTuple):
    """A deleted topic whose replicas are not all removed yet, and the version of its znode."""

    deletion: TopicDeletion
    version: int


def admission(state: ClusterState, after: AdmittedBrokers) -> Plan:
    """Write who is admitted."""
    content = after.encode()
    operation: Operation
    if state.admitted_version is None:
        operation = Create(AdmittedBrokers.PATH, content)
    else:
        operation = SetData(AdmittedBrokers.PATH, content, state.admitted_version)
    return Plan((operation,), Notice())


def replica_counts(state: ClusterState) -> dict[int, int]:
    """How many replicas each broker holds or is to hold, by broker id."""
    counts: dict[int, int] = {}
    for topic in state.topics.values():
        for partition in topic.partitions:
            for broker_id in partition.replicas:
                counts[broker_id] = counts.get(broker_id, 0) + 1
    return counts


def unregister(
    state: ClusterState, broker_id: int, deletions: Sequence[PendingDeletion], config_version: int | None
) -> list[Plan]:
    """Forget a broker that is gone for good; its settings (if any, in this version) are forgotten too.

    Deleted topics no longer wait for it. It must be gone, and hold no replicas: those would never be in sync again.
    """
    if broker_id in state.brokers:
        raise ApiError(Error.INVALID_REQUEST, f"broker {broker_id} is running: stop it before it is unregistered")
    if held := replica_counts(state).get(broker_id, 0):
        raise ApiError(
            Error.INVALID_REQUEST,
            f"broker {broker_id} is assigned {held} replicas: decommission it, so that others hold them",
        )
    known = {*state.admitted.away, *state.admitted.epochs}
    waiting = [pending for pending in deletions if broker_id in pending.deletion.brokers]
    if broker_id not in known and not waiting and config_version is None:
        raise ApiError(Error.BROKER_ID_NOT_REGISTERED, f"there is no broker {broker_id}")
    plans = [replicas_removed(pending.deletion, pending.version, broker_id) for pending in waiting]
    if config_version is not None:
        plans.append(set_configs("brokers", str(broker_id), {}, config_version))
    return [*plans, *_forgotten(state, broker_id)]


def _forgotten(state: ClusterState, broker_id: int) -> list[Plan]:
    before = state.admitted
    after = msgspec.structs.replace(
        before,
        epochs={other: epoch for other, epoch in before.epochs.items() if other != broker_id},
        leaving=tuple(other for other in before.leaving if other != broker_id),
        away=tuple(other for other in before.away if other != broker_id),
    )
    return [admission(state, after)] if after != before else []
