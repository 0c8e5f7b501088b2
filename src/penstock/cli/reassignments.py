"""Giving partitions other replicas, as the wire has it: start, take back, list; and Kafka's files with such orders.

A reassignment is under way while the new replicas are not in sync: the partition then has the replicas of both sides.
The file format is that of `kafka-reassign-partitions`, so plans of other tools work here and ours work there.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from penstock.base.errors import Error
from penstock.cli.cluster import Cluster
from penstock.cli.connection import ANSWER_TIMEOUT_S
from penstock.cli.direct import check_error, error_text
from penstock.cli.failure import Failure, usage
from penstock.cli.places import Place, by_topic, place_text
from penstock.wire.messages import k45_alter_partition_reassignments as k45
from penstock.wire.messages import k46_list_partition_reassignments as k46

FILE_VERSION = 1
ANY_FOLDER = "any"
SHOWN_MAX = 10

#: The replicas that partitions are to have, the preferred leader first.
Assignment = Mapping[Place, Sequence[int]]


@dataclass(frozen=True, slots=True)
class Reassignment:
    """A reassignment that is under way. `replicas` are those of both sides."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]

    @property
    def target(self) -> tuple[int, ...]:
        """The replicas when it is done."""
        return tuple(broker_id for broker_id in self.replicas if broker_id not in self.removing)

    @property
    def original(self) -> tuple[int, ...]:
        """The replicas if it is taken back."""
        return tuple(broker_id for broker_id in self.replicas if broker_id not in self.adding)


def list_reassignments(
    cluster: Cluster, places: Iterable[Place] | None = None, *, patience_s: float = ANSWER_TIMEOUT_S
) -> dict[Place, Reassignment]:
    """The reassignments that are under way, of some partitions or of all. `patience_s` is for finding a controller."""
    wanted = None
    if places is not None:
        wanted = [
            k46.ListPartitionReassignmentsRequestTopic(name=topic, partition_indexes=partitions)
            for topic, partitions in by_topic(places).items()
        ]
    request = k46.ListPartitionReassignmentsRequest(topics=wanted)
    answer = cluster.ask_controller(
        lambda client: client.ask(k46.API.key, request, k46.ListPartitionReassignmentsResponse),
        lambda answer: answer.error_code,
        patience_s=patience_s,
    )
    check_error(answer.error_code, answer.error_message, "the reassignments")
    return {
        (topic.name, partition.partition_index): Reassignment(
            tuple(partition.replicas), tuple(partition.adding_replicas), tuple(partition.removing_replicas)
        )
        for topic in sorted(answer.topics, key=lambda topic: topic.name)
        for partition in sorted(topic.partitions, key=lambda partition: partition.partition_index)
    }


def alter_reassignments(cluster: Cluster, wanted: Mapping[Place, Sequence[int] | None]) -> dict[Place, tuple[int, str]]:
    """Starts reassignments, or takes them back where None is wanted: (code, message) of what was refused."""
    topics = [
        k45.AlterPartitionReassignmentsRequestTopic(
            name=topic,
            partitions=[
                k45.AlterPartitionReassignmentsRequestPartition(
                    partition_index=partition, replicas=_listed(wanted[topic, partition])
                )
                for partition in partitions
            ],
        )
        for topic, partitions in by_topic(wanted).items()
    ]
    request = k45.AlterPartitionReassignmentsRequest(topics=topics)
    answer = cluster.ask_controller(
        lambda client: client.ask(k45.API.key, request, k45.AlterPartitionReassignmentsResponse),
        lambda answer: answer.error_code,
    )
    check_error(answer.error_code, answer.error_message, "the reassignment")
    return {
        (topic.name, partition.partition_index): (
            partition.error_code,
            error_text(partition.error_code, partition.error_message),
        )
        for topic in answer.responses
        for partition in topic.partitions
        if partition.error_code != Error.NONE
    }


def _listed(replicas: Sequence[int] | None) -> list[int] | None:
    return None if replicas is None else list(replicas)


def start(cluster: Cluster, assignment: Assignment) -> None:
    """Starts reassignments; fails, naming each, if some are refused: the others are started nevertheless."""
    refused = alter_reassignments(cluster, assignment)
    if not refused:
        return
    shown = [f"{place_text(place)}: {text}" for place, (_, text) in sorted(refused.items())]
    others = len(assignment) - len(refused)
    rest = [f"the other {others} are on their way"] if others else []
    raise Failure(
        "\n  ".join([shown[0], *shown[1:10], *([f"… and {len(shown) - 10} more"] if len(shown) > 10 else []), *rest])
    )


# Kafka's file format


def read_assignment(path: Path) -> dict[Place, tuple[int, ...]]:
    """The assignment in a file; fails with what is wrong with it."""
    try:
        document = json.loads(path.read_text("utf-8"))
    except (OSError, UnicodeDecodeError, json.JSONDecodeError) as error:
        raise usage(f"cannot read the reassignment in {path}: {error}") from error
    return parse_assignment(document, str(path))


def parse_assignment(document: Any, name: str) -> dict[Place, tuple[int, ...]]:
    """`{"version": 1, "partitions": [{"topic": "orders", "partition": 0, "replicas": [1, 2, 3]}]}`."""
    if not isinstance(document, dict) or not isinstance(document.get("partitions"), list):
        raise usage(f'{name} is no reassignment: it should be {{"version": 1, "partitions": […]}}')
    if document.get("version", FILE_VERSION) != FILE_VERSION:
        raise usage(f"{name} has version {document['version']}: only version {FILE_VERSION} is known")
    assignment: dict[Place, tuple[int, ...]] = {}
    for row in document["partitions"]:
        place, replicas = _parse_row(row, name)
        if place in assignment:
            raise usage(f"{name} has {place_text(place)} twice")
        assignment[place] = replicas
    if not assignment:
        raise usage(f"{name} has no partitions")
    return assignment


def _parse_row(row: Any, name: str) -> tuple[Place, tuple[int, ...]]:
    match row:
        case {"topic": str(topic), "partition": int(partition), "replicas": [int(), *_] as replicas} if all(
            isinstance(broker_id, int) for broker_id in replicas
        ):
            if any(folder != ANY_FOLDER for folder in row.get("log_dirs") or ()):
                raise usage(
                    f'{name} names log directories of {topic} {partition}: only "{ANY_FOLDER}" is possible here'
                )
            return (topic, partition), tuple(replicas)
    raise usage(f"{name}: a row needs a topic, a partition and a list of replicas; not {json.dumps(row)}")


def assignment_document(assignment: Assignment) -> dict[str, Any]:
    """An assignment in that format."""
    return {
        "version": FILE_VERSION,
        "partitions": [
            {"topic": topic, "partition": partition, "replicas": list(replicas)}
            for (topic, partition), replicas in sorted(assignment.items())
        ],
    }
