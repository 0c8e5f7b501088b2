"""Limits on what moving replicas may take of the network: set before a move, removed when it is done.

Two kinds of settings work together, as in Kafka: topics name the replicas that are limited, on the side of the leader
and on the side of the follower, and brokers have a rate for all of these together. A broker takes its own settings
only from a client that talks to it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from enum import IntEnum

from penstock.base.errors import Error
from penstock.cli.cluster import Cluster
from penstock.cli.cluster_survey import Survey
from penstock.cli.direct import DirectClient, check_error
from penstock.cli.places import Place
from penstock.cli.reassignments import Assignment
from penstock.wire.messages import k32_describe_configs as k32
from penstock.wire.messages import k44_incremental_alter_configs as k44

TOPIC_RESOURCE = 2
BROKER_RESOURCE = 4
LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"
LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
SET_ON_TOPIC = 1
SET_ON_BROKER = 2

Changes = Mapping[str, str | None]


class Operation(IntEnum):
    """What to do with a setting; the numbers are those of IncrementalAlterConfigs."""

    SET = 0
    DELETE = 1
    APPEND = 2


def throttled_replicas(survey: Survey, assignment: Assignment) -> dict[str, dict[str, str]]:
    """The settings of each topic: whoever may send a copy now, and whoever is to get one."""
    leaders: dict[str, list[str]] = {}
    followers: dict[str, list[str]] = {}
    for place, target in sorted(assignment.items()):
        topic, partition = place
        before = replicas_before(survey, place)
        leaders.setdefault(topic, []).extend(f"{partition}:{broker_id}" for broker_id in before)
        followers.setdefault(topic, []).extend(
            f"{partition}:{broker_id}" for broker_id in target if broker_id not in before
        )
    return {
        topic: {LEADER_REPLICAS: ",".join(leaders[topic]), FOLLOWER_REPLICAS: ",".join(followers[topic])}
        for topic in leaders
        if followers[topic]
    }


def replicas_before(survey: Survey, place: Place) -> tuple[int, ...]:
    """The replicas of a partition without those that a move is only bringing."""
    move = survey.reassignments.get(place)
    return survey.partitions[place].replicas if move is None else move.original


def set_throttle(cluster: Cluster, survey: Survey, assignment: Assignment, rate_bytes: int) -> None:
    """Limits the moves of these partitions to so many bytes a second, at every broker that has to do with them."""
    involved = {
        broker_id for place, target in assignment.items() for broker_id in (*replicas_before(survey, place), *target)
    }
    rates = {LEADER_RATE: str(rate_bytes), FOLLOWER_RATE: str(rate_bytes)}
    for client, broker_id in _clients(cluster, survey, involved):
        _alter(client, BROKER_RESOURCE, str(broker_id), Operation.SET, rates)
    for topic, settings in throttled_replicas(survey, assignment).items():
        _alter(cluster.anyone, TOPIC_RESOURCE, topic, Operation.APPEND, settings)


def remove_throttle(cluster: Cluster, survey: Survey, topics: Collection[str]) -> bool:
    """Removes the limits of topics, and those of the brokers if no move is left; whether there were any."""
    found = _own_settings(cluster.anyone, TOPIC_RESOURCE, sorted(topics), (LEADER_REPLICAS, FOLLOWER_REPLICAS))
    for topic, names in found.items():
        _alter(cluster.anyone, TOPIC_RESOURCE, topic, Operation.DELETE, dict.fromkeys(names))
    has_any = bool(found)
    if not survey.reassignments:
        for client, broker_id in _clients(cluster, survey, survey.brokers):
            set_there = _own_settings(client, BROKER_RESOURCE, [str(broker_id)], (LEADER_RATE, FOLLOWER_RATE))
            for name, names in set_there.items():
                _alter(client, BROKER_RESOURCE, name, Operation.DELETE, dict.fromkeys(names))
                has_any = True
    return has_any


def _clients(cluster: Cluster, survey: Survey, broker_ids: Iterable[int]) -> Iterable[tuple[DirectClient, int]]:
    """Connections to those of the brokers that answer."""
    for broker_id in sorted(broker_ids):
        broker = survey.brokers[broker_id]
        if broker.address is not None and broker.silence is None:
            yield cluster.on(broker.address), broker_id


def _own_settings(
    client: DirectClient, kind: int, resources: Collection[str], names: Collection[str]
) -> dict[str, list[str]]:
    """Which of these settings were given to each resource itself."""
    if not resources:
        return {}
    wanted = [
        k32.DescribeConfigsRequestResource(resource_type=kind, resource_name=name, configuration_keys=list(names))
        for name in resources
    ]
    answer = client.ask(k32.API.key, k32.DescribeConfigsRequest(resources=wanted), k32.DescribeConfigsResponse)
    own = SET_ON_TOPIC if kind == TOPIC_RESOURCE else SET_ON_BROKER
    found = {
        result.resource_name: [config.name for config in result.configs if config.config_source == own and config.value]
        for result in answer.results
        if result.error_code == Error.NONE
    }
    return {name: settings for name, settings in found.items() if settings}


def _alter(client: DirectClient, kind: int, name: str, operation: Operation, changes: Changes) -> None:
    configs = [
        k44.IncrementalAlterConfigsRequestConfig(name=key, config_operation=int(operation), value=value)
        for key, value in changes.items()
    ]
    resource = k44.IncrementalAlterConfigsRequestResource(resource_type=kind, resource_name=name, configs=configs)
    request = k44.IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    answer = client.ask(k44.API.key, request, k44.IncrementalAlterConfigsResponse)
    for response in answer.responses:
        subject = f"topic '{name}'" if kind == TOPIC_RESOURCE else f"broker {name}"
        check_error(response.error_code, response.error_message, subject)
