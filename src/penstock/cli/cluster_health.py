"""What is well and what is not in a cluster: a judgement of a `Survey`, and the document that `status --json` prints.

| state | meaning |
|---|---|
| healthy | every partition has a leader and all its copies in sync; there is a controller, every broker answers |
| degraded | everything is served, but something is missing: a copy, a broker, one of its disks, the controller |
| offline | some partition has no leader: it can be neither read nor written |

While a partition is being moved the copies that are only coming do not count as missing. That another broker than the
preferred one leads is not bad in itself; many such partitions are an uneven load.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from penstock.cli.cluster_survey import Broker, Partition, Survey
from penstock.cli.places import Place
from penstock.cli.reassignments import Reassignment


class State(StrEnum):
    """How a cluster is, in one word."""

    HEALTHY = "healthy"
    DEGRADED = "degraded"
    OFFLINE = "offline"


class BrokerState(StrEnum):
    """How a broker is: it answers, is in the cluster but does not, is not in the cluster, or has lost a disk."""

    OK = "ok"
    SILENT = "silent"
    AWAY = "away"
    DISK = "disk failed"


@dataclass(frozen=True, slots=True)
class Behind:
    """A copy that is not in sync. `lag` is in messages, None if it cannot be told."""

    place: Place
    broker_id: int
    lag: int | None


@dataclass(frozen=True, slots=True)
class BrokerHealth:
    """What there is to say of one broker."""

    broker: Broker
    state: BrokerState
    leaders: int
    preferred: int
    replicas: int
    out_of_sync: int
    lag_max: int | None
    used_bytes: int
    free_bytes: int | None  # of the log directory that has least


@dataclass(frozen=True, slots=True)
class Health:
    """The judgement. Lists of partitions are in order."""

    survey: Survey
    state: State
    brokers: list[BrokerHealth]
    offline: list[Place]
    under_replicated: list[Place]
    under_min_isr: list[Place]
    not_preferred: list[Place]
    behind: list[Behind]

    @property
    def lag_max(self) -> int:
        """The largest lag of any copy."""
        return max((broker.lag_max or 0 for broker in self.brokers), default=0)

    @property
    def answering(self) -> int:
        """How many brokers answered."""
        return sum(broker.state in (BrokerState.OK, BrokerState.DISK) for broker in self.brokers)


def judge(survey: Survey) -> Health:
    """Looks for everything that is not as it should be."""
    partitions = survey.partitions.items()
    brokers = [_judge_broker(broker, survey) for broker in survey.brokers.values()]
    offline = [place for place, partition in partitions if partition.leader is None]
    under_replicated = [
        place for place, partition in partitions if len(partition.isr) < len(_wanted(survey, place, partition))
    ]
    under_min_isr = [
        place
        for place, partition in partitions
        if len(partition.isr) < min(survey.min_isr.get(place[0], 1), len(_wanted(survey, place, partition)))
    ]
    is_degraded = bool(
        under_replicated
        or survey.controller_id is None
        or survey.remarks
        or any(_is_missed(broker) for broker in brokers)
    )
    state = State.OFFLINE if offline else State.DEGRADED if is_degraded else State.HEALTHY
    return Health(
        survey=survey,
        state=state,
        brokers=brokers,
        offline=offline,
        under_replicated=under_replicated,
        under_min_isr=under_min_isr,
        not_preferred=[
            place
            for place, partition in partitions
            if partition.leader is not None and partition.leader != preferred_leader(partition)
        ],
        behind=sorted(_behind(survey), key=lambda each: (-(each.lag or 0), each.place, each.broker_id)),
    )


def preferred_leader(partition: Partition) -> int | None:
    """The broker that should lead: the first of the replicas."""
    return partition.replicas[0] if partition.replicas else None


def _wanted(survey: Survey, place: Place, partition: Partition) -> Sequence[int]:
    """The copies that must be there: without those that a reassignment is only bringing."""
    move = survey.reassignments.get(place)
    return partition.replicas if move is None else move.original


def _behind(survey: Survey) -> list[Behind]:
    return [
        Behind(place, broker_id, lag_of(survey, place, broker_id))
        for place, partition in survey.partitions.items()
        for broker_id in partition.replicas
        if broker_id not in partition.isr
    ]


def lag_of(survey: Survey, place: Place, broker_id: int) -> int | None:
    """How many messages a copy lacks that the leader has; None if one of the two did not say."""
    leader = survey.partitions[place].leader
    if leader is None or leader not in survey.brokers:
        return None
    end = survey.brokers[leader].ends.get(place)
    copied = survey.brokers[broker_id].ends.get(place)
    return None if end is None or copied is None else max(0, end - copied)


def _judge_broker(broker: Broker, survey: Survey) -> BrokerHealth:
    held = [(place, partition) for place, partition in survey.partitions.items() if broker.id in partition.replicas]
    lags = [lag_of(survey, place, broker.id) for place, _ in held]
    return BrokerHealth(
        broker=broker,
        state=_broker_state(broker),
        leaders=sum(partition.leader == broker.id for _, partition in held),
        preferred=sum(preferred_leader(partition) == broker.id for _, partition in held),
        replicas=len(held),
        out_of_sync=sum(broker.id not in partition.isr for _, partition in held),
        lag_max=max((lag for lag in lags if lag is not None), default=None),
        used_bytes=sum(broker.sizes.values()),
        free_bytes=min((folder.free_bytes for folder in broker.folders if folder.free_bytes is not None), default=None),
    )


def _broker_state(broker: Broker) -> BrokerState:
    if broker.address is None:
        return BrokerState.AWAY
    if broker.silence is not None:
        return BrokerState.SILENT
    return BrokerState.DISK if any(folder.problem for folder in broker.folders) else BrokerState.OK


def _is_missed(broker: BrokerHealth) -> bool:
    """One that is away and holds nothing has been decommissioned; nobody misses it."""
    return broker.state != BrokerState.OK and (broker.state != BrokerState.AWAY or broker.replicas > 0)


def progress_of(survey: Survey, place: Place, move: Reassignment) -> tuple[int, int]:
    """(bytes there, bytes wanted) of the copies that a reassignment is bringing, counted by what the leader has."""
    partition = survey.partitions.get(place)
    leader = survey.brokers.get(partition.leader) if partition and partition.leader is not None else None
    size_bytes = leader.sizes.get(place, 0) if leader else 0
    isr = partition.isr if partition else ()
    there = [
        size_bytes if broker_id in isr else min(size_bytes, survey.brokers[broker_id].sizes.get(place, 0))
        for broker_id in move.adding
        if broker_id in survey.brokers
    ]
    return sum(there), size_bytes * len(move.adding)


# As JSON


def health_document(health: Health) -> dict[str, Any]:
    """Everything, for programs."""
    survey = health.survey
    return {
        "cluster_id": survey.cluster_id,
        "state": health.state.value,
        "controller": survey.controller_id,
        "brokers": [_broker_document(broker, survey.controller_id) for broker in health.brokers],
        "topics": len({topic for topic, _ in survey.partitions}),
        "partitions": len(survey.partitions),
        "lag_max": health.lag_max,
        "offline": places_document(health.offline),
        "under_replicated": places_document(health.under_replicated),
        "under_min_isr": places_document(health.under_min_isr),
        "not_preferred": [
            {
                "topic": place[0],
                "partition": place[1],
                "leader": survey.partitions[place].leader,
                "preferred": preferred_leader(survey.partitions[place]),
            }
            for place in health.not_preferred
        ],
        "out_of_sync": [
            {"topic": each.place[0], "partition": each.place[1], "broker": each.broker_id, "lag": each.lag}
            for each in health.behind
        ],
        "reassignments": reassignments_document(survey),
        "remarks": survey.remarks,
    }


def places_document(places: Sequence[Place]) -> list[dict[str, Any]]:
    """Partitions as JSON."""
    return [{"topic": topic, "partition": partition} for topic, partition in places]


def reassignments_document(survey: Survey) -> list[dict[str, Any]]:
    """What is being moved, and how far it is."""
    rows = []
    for place, move in survey.reassignments.items():
        there, wanted = progress_of(survey, place, move)
        rows.append(
            {
                "topic": place[0],
                "partition": place[1],
                "target": list(move.target),
                "adding": list(move.adding),
                "removing": list(move.removing),
                "bytes_copied": there,
                "bytes_to_copy": wanted,
            }
        )
    return rows


def _broker_document(health: BrokerHealth, controller_id: int | None) -> dict[str, Any]:
    broker = health.broker
    return {
        "id": broker.id,
        "host": broker.address.host if broker.address else None,
        "port": broker.address.port if broker.address else None,
        "rack": broker.rack,
        "status": health.state.value,
        "problem": broker.silence,
        "controller": broker.id == controller_id,
        "leaders": health.leaders,
        "preferred": health.preferred,
        "replicas": health.replicas,
        "out_of_sync": health.out_of_sync,
        "lag_max": health.lag_max,
        "used_bytes": health.used_bytes,
        "free_bytes": health.free_bytes,
        "log_dirs": [
            {
                "path": folder.path,
                "free_bytes": folder.free_bytes,
                "total_bytes": folder.total_bytes,
                "problem": folder.problem,
            }
            for folder in broker.folders
        ],
    }
