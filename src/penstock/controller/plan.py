"""What the controller knows, and how a decision becomes a write.

Decisions are functions from `ClusterState` to a `Plan`: the operations on the znodes that would carry it out, and a
notice of what they change. Nothing here performs them. `fenced_writes` turns plans into multis that are safe to send:
each checks that this controller is still the controller, and adds the notice to `/changes` on the version it read.
A multi that fails with BadVersionError changed nothing: read again, and decide anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from penstock.base.errors import ApiError, Error
from penstock.zookeeper.coordination import MULTI_SIZE_BYTES_MAX
from penstock.zookeeper.operations import Check, Operation, SetData, size_bytes
from penstock.zookeeper.topic_znodes import Topic
from penstock.zookeeper.znodes import (
    NOTICES_SIZE_BYTES_MAX,
    AdmittedBrokers,
    BrokerNode,
    Changes,
    ControllerEpoch,
    Notice,
)

#: Leaves room for the notices and for the check of the epoch.
PLAN_SIZE_BYTES_MAX = MULTI_SIZE_BYTES_MAX - NOTICES_SIZE_BYTES_MAX - 4096


@dataclass(frozen=True, slots=True)
class ClusterState:
    """The znodes as the controller last read or wrote them.

    `broker_epochs` are those of the registrations in `brokers`. `admitted_version` is None while there is no znode. A
    state with neither epochs nor admissions takes all brokers for admitted.
    """

    controller_epoch_version: int
    changes: Changes
    changes_version: int
    brokers: Mapping[int, BrokerNode] = field(default_factory=dict)
    topics: Mapping[str, Topic] = field(default_factory=dict)
    broker_epochs: Mapping[int, int] = field(default_factory=dict)
    admitted: AdmittedBrokers = field(default_factory=AdmittedBrokers)
    admitted_version: int | None = None

    def is_admitted(self, broker_id: int) -> bool:
        """Whether a broker is here, in a registration that was taken into account."""
        admitted = self.admitted.epochs.get(broker_id)
        return broker_id in self.brokers and self.broker_epochs.get(broker_id) == admitted

    def living(self) -> dict[int, BrokerNode]:
        """The brokers that may be given replicas and leaderships: admitted, and not about to stop."""
        leaving = self.admitted.leaving
        return {
            broker_id: broker
            for broker_id, broker in self.brokers.items()
            if self.is_admitted(broker_id) and broker_id not in leaving
        }


@dataclass(frozen=True, slots=True)
class Plan:
    """Operations that carry out one decision together. `topic` is how the topic it is about will be, or was.

    `unclean` are the partitions of it that get a leader which may lack committed records: to be put on record.
    """

    operations: tuple[Operation, ...]
    notice: Notice
    topic: Topic | None = None
    unclean: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if size_bytes(self.operations) > PLAN_SIZE_BYTES_MAX:
            raise ApiError(Error.POLICY_VIOLATION, "this is too large for one step: do it in several smaller ones")


@dataclass(frozen=True, slots=True)
class FencedWrite:
    """One multi, the plans it carries out, and `/changes` as it will be afterwards."""

    operations: tuple[Operation, ...]
    plans: tuple[Plan, ...]
    changes: Changes
    changes_version: int


def fenced_writes(state: ClusterState, plans: Sequence[Plan]) -> list[FencedWrite]:
    """The plans as few multis, to be performed in order; each relies on the success of the one before."""
    writes: list[FencedWrite] = []
    changes, changes_version = state.changes, state.changes_version
    for group in _groups([plan for plan in plans if plan.operations]):
        before, changes = changes_version, changes.with_notice(_merged(group))
        changes_version = before + 1
        operations = (
            Check(ControllerEpoch.PATH, state.controller_epoch_version),
            *chain.from_iterable(plan.operations for plan in group),
            SetData(Changes.PATH, changes.encode(), before),
        )
        writes.append(FencedWrite(operations, tuple(group), changes, changes_version))
    return writes


def _groups(plans: Sequence[Plan]) -> list[list[Plan]]:
    groups: list[list[Plan]] = []
    room_bytes = 0
    for plan in plans:
        size = size_bytes(plan.operations)
        if size > room_bytes:
            groups.append([])
            room_bytes = PLAN_SIZE_BYTES_MAX
        groups[-1].append(plan)
        room_bytes -= size
    return groups


def _merged(plans: Sequence[Plan]) -> Notice:
    """One notice for all; each topic and setting once, in order."""
    topics = dict.fromkeys(chain.from_iterable(plan.notice.topics or () for plan in plans))
    configs = dict.fromkeys(chain.from_iterable(plan.notice.configs for plan in plans))
    if any(plan.notice.topics is None for plan in plans):
        return Notice(topics=None, configs=tuple(configs))
    return Notice(topics=tuple(topics), configs=tuple(configs))
