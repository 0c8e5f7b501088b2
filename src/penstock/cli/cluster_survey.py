"""One look at a whole cluster: who is there, who leads what, how far the copies are, what is being moved.

A `Survey` is what the brokers said, put together; `cluster_health` judges it. The list of brokers and partitions comes
from the first broker that answers; every broker is then asked, all at the same time, what it holds and how far its
copies reach. One that does not answer is noted as such, and the look goes on without it.

How far a copy reaches is asked with ListOffsets. The lag in DescribeLogDirs would not do: it is counted to the high
watermark that a follower knows, which never lies beyond its own end, so it is always zero.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from penstock.base.errors import Error
from penstock.cli.cluster import BrokerAddress, Cluster
from penstock.cli.connection import Connection
from penstock.cli.direct import DirectClient, error_text
from penstock.cli.direct_security import Security, parse_security
from penstock.cli.failure import Failure
from penstock.cli.offsets import ANY_REPLICA, LATEST_TIMESTAMP, ask_offsets
from penstock.cli.places import Place, by_topic
from penstock.cli.reassignments import Reassignment, list_reassignments
from penstock.wire.messages import k03_metadata as k03
from penstock.wire.messages import k32_describe_configs as k32
from penstock.wire.messages import k35_describe_log_dirs as k35
from penstock.wire.messages import k46_list_partition_reassignments as k46
from penstock.wire.messages import k60_describe_cluster as k60

SURVEY_TIMEOUT_S = 3.0
TOPIC_RESOURCE = 2
MIN_ISR = "min.insync.replicas"
THREADS_MAX = 32


@dataclass(frozen=True, slots=True)
class LogFolder:
    """A log directory of a broker. `problem` is why it is offline."""

    path: str
    total_bytes: int | None
    free_bytes: int | None
    problem: str | None = None


@dataclass(slots=True)
class Broker:
    """A broker: where it is, and what it said. `address` is None for one that is not in the cluster now."""

    id: int
    address: BrokerAddress | None
    rack: str | None = None
    silence: str | None = None
    folders: list[LogFolder] = field(default_factory=list)
    sizes: dict[Place, int] = field(default_factory=dict)
    ends: dict[Place, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Partition:
    """Who holds and who leads a partition; `leader` is None if nobody does."""

    leader: int | None
    replicas: tuple[int, ...]
    isr: tuple[int, ...]


@dataclass(slots=True)
class Survey:
    """A cluster at one moment."""

    cluster_id: str
    controller_id: int | None
    brokers: dict[int, Broker]
    partitions: dict[Place, Partition]
    min_isr: dict[str, int]
    reassignments: dict[Place, Reassignment]
    remarks: list[str] = field(default_factory=list)  # what could not be found out


def take_survey(connection: Connection, *, must_be_whole: bool = False) -> Survey:
    """Looks at the cluster behind a connection; fails only if no broker answers at all.

    What could not be found out is in the remarks; it is a failure as well if the survey must be whole.
    """
    with Cluster(connection, SURVEY_TIMEOUT_S) as cluster:
        survey = _overview(cluster)
    if must_be_whole and survey.remarks:
        raise Failure(survey.remarks[0])
    connection.also_try([(address.host, address.port) for _, address in _present(survey)])
    _ask_brokers(survey, parse_security(connection.settings))
    return survey


def _overview(cluster: Cluster) -> Survey:
    known = cluster.anyone.ask(
        k60.API.key, k60.DescribeClusterRequest(include_fenced_brokers=True), k60.DescribeClusterResponse
    )
    partitions = partitions_in(cluster.metadata(None))
    brokers = {
        each.broker_id: Broker(
            each.broker_id,
            None if each.is_fenced else BrokerAddress(each.broker_id, each.host, each.port),
            each.rack,
        )
        for each in known.brokers
    }
    for partition in partitions.values():
        for broker_id in partition.replicas:
            brokers.setdefault(broker_id, Broker(broker_id, None))
    survey = Survey(
        cluster_id=known.cluster_id,
        controller_id=known.controller_id if known.controller_id >= 0 else None,
        brokers=dict(sorted(brokers.items())),
        partitions=partitions,
        min_isr=_min_isr(cluster.anyone, list(by_topic(partitions))),
        reassignments={},
    )
    _add_reassignments(cluster, survey)
    return survey


def _add_reassignments(cluster: Cluster, survey: Survey) -> None:
    """Only the controller knows them: without one the rest is shown all the same. (No more is asked of this broker.)"""
    if k46.API.key not in cluster.anyone.versions:
        return
    try:
        survey.reassignments = list_reassignments(cluster, patience_s=SURVEY_TIMEOUT_S)
    except Failure as failure:
        survey.remarks.append(f"what is being moved is not known: {failure.message}")


def partitions_in(metadata: k03.MetadataResponse) -> dict[Place, Partition]:
    """Every partition of an answer."""
    return {
        (str(topic.name), partition.partition_index): Partition(
            partition.leader_id if partition.leader_id >= 0 else None,
            tuple(partition.replica_nodes),
            tuple(partition.isr_nodes),
        )
        for topic in sorted(metadata.topics, key=lambda topic: str(topic.name))
        for partition in sorted(topic.partitions, key=lambda partition: partition.partition_index)
    }


def _min_isr(client: DirectClient, topics: Collection[str]) -> dict[str, int]:
    if not topics:
        return {}
    resources = [
        k32.DescribeConfigsRequestResource(
            resource_type=TOPIC_RESOURCE, resource_name=topic, configuration_keys=[MIN_ISR]
        )
        for topic in topics
    ]
    answer = client.ask(k32.API.key, k32.DescribeConfigsRequest(resources=resources), k32.DescribeConfigsResponse)
    return {
        result.resource_name: int(config.value)
        for result in answer.results
        for config in result.configs
        if config.name == MIN_ISR and config.value
    }


def _present(survey: Survey) -> list[tuple[Broker, BrokerAddress]]:
    return [(broker, broker.address) for broker in survey.brokers.values() if broker.address is not None]


def _ask_brokers(survey: Survey, security: Security) -> None:
    """Asks all at the same time, so that one that is silent costs its time but once, and ends are of one moment."""
    held: dict[int, list[Place]] = {broker_id: [] for broker_id in survey.brokers}
    for place, partition in survey.partitions.items():
        for broker_id in partition.replicas:
            held[broker_id].append(place)
    present = _present(survey)
    if present:
        with ThreadPoolExecutor(min(len(present), THREADS_MAX)) as threads:
            list(threads.map(lambda one: _ask_broker(one[0], one[1], held[one[0].id], security), present))


def _ask_broker(broker: Broker, address: BrokerAddress, held: Sequence[Place], security: Security) -> None:
    try:
        with DirectClient((address.host, address.port), SURVEY_TIMEOUT_S, security) as client:
            broker.folders, broker.sizes = log_folders(client)
            broker.ends = _ends(client, held) if held else {}
    except Failure as failure:
        broker.silence = failure.message


def log_folders(client: DirectClient) -> tuple[list[LogFolder], dict[Place, int]]:
    """The log directories of a broker, and the bytes of each partition in them."""
    answer = client.ask(k35.API.key, k35.DescribeLogDirsRequest(topics=None), k35.DescribeLogDirsResponse)
    folders = [
        LogFolder(
            each.log_dir,
            each.total_bytes if each.total_bytes >= 0 else None,
            each.usable_bytes if each.usable_bytes >= 0 else None,
            error_text(each.error_code) if each.error_code else None,
        )
        for each in answer.results
    ]
    sizes = {
        (topic.name, partition.partition_index): partition.partition_size
        for each in answer.results
        for topic in each.topics
        for partition in topic.partitions
        if not partition.is_future_key
    }
    return folders, sizes


def _ends(client: DirectClient, held: Sequence[Place]) -> dict[Place, int]:
    answers = ask_offsets(client, held, LATEST_TIMESTAMP, replica_id=ANY_REPLICA)
    return {place: offset for place, (code, offset) in answers.items() if code == Error.NONE and offset >= 0}
