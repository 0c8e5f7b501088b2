"""Creating, growing and deleting topics: the rules, and the plans that carry them out.

Every function either raises `ApiError` with Kafka's code and a sentence that says what to do, or returns a `Plan`.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from uuid import UUID

from penstock.base.errors import ApiError, Error
from penstock.base.identifiers import collision_key, topic_name_problem
from penstock.controller.placement import Candidate, place_replicas
from penstock.controller.plan import ClusterState, Plan
from penstock.zookeeper.operations import Create, Delete, SetData
from penstock.zookeeper.topic_znodes import PartitionState, Topic, creation, deletion, topic_path, update
from penstock.zookeeper.znodes import BrokerNode, ConfigNode, Notice, TopicDeletion

BROKER_DEFAULT = -1
PARTITIONS_PER_REQUEST_MAX = 10_000

#: Raises ApiError(INVALID_CONFIG) if the settings of a topic are wrong.
ConfigCheck = Callable[[Mapping[str, str]], None]


@dataclass(frozen=True, slots=True)
class NewTopic:
    """What CreateTopics asks for. `assignments`, by partition, stand in place of the two numbers."""

    name: str
    partition_count: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    assignments: Sequence[tuple[int, Sequence[int]]] = ()
    configs: Mapping[str, str] = field(default_factory=dict)
    internal: bool = False


@dataclass(frozen=True, slots=True)
class TopicDefaults:
    """`num.partitions` and `default.replication.factor`."""

    partition_count: int = 1
    replication_factor: int = 1


def create_topics(
    state: ClusterState,
    requests: Sequence[NewTopic],
    topic_ids: Sequence[UUID],
    defaults: TopicDefaults,
    check_configs: ConfigCheck,
    start: int = 0,
) -> list[Plan | ApiError]:
    """A plan or an error for each of the topics; the later ones see the earlier ones."""
    planned: dict[str, Topic] = {}
    seen = replace(state, topics=ChainMap(planned, dict(state.topics)))
    outcomes: list[Plan | ApiError] = []
    partitions_left = PARTITIONS_PER_REQUEST_MAX
    for number, (request, topic_id) in enumerate(zip(requests, topic_ids, strict=True)):
        try:
            plan = create_topic(seen, request, topic_id, defaults, check_configs, start + number)
            assert plan.topic is not None
            partitions_left = _partitions_left(partitions_left, len(plan.topic.partitions))
        except ApiError as error:
            outcomes.append(error)
            continue
        planned[request.name] = plan.topic
        outcomes.append(plan)
    return outcomes


def create_topic(
    state: ClusterState,
    request: NewTopic,
    topic_id: UUID,
    defaults: TopicDefaults,
    check_configs: ConfigCheck,
    start: int = 0,
) -> Plan:
    """Create a topic; all replicas are in sync, and the first of each partition leads."""
    _check_new_name(request.name, state.topics)
    brokers = state.living()
    if request.assignments:
        assignments = _manual_assignments(request, brokers)
    else:
        assignments = _placed(request, brokers, defaults, start)
    check_configs(request.configs)
    partitions = tuple(_new_partition(replicas, brokers) for replicas in assignments)
    topic = Topic(request.name, topic_id, partitions, internal=request.internal)
    operations = creation(topic)
    written = replace(topic, versions=(0,) * len(operations))
    configs: tuple[str, ...] = ()
    if request.configs:
        content = ConfigNode(values=dict(request.configs)).encode()
        operations.append(Create(ConfigNode.path("topics", topic.name), content))
        configs = (f"topics/{topic.name}",)
    return Plan(tuple(operations), Notice(topics=(topic.name,), configs=configs), written)


def delete_topic(state: ClusterState, name: str, *, has_config: bool) -> Plan:
    """Delete a topic. What brokers have to remove is kept in a znode until they did (`replicas_removed`)."""
    topic = _existing(state, name)
    brokers = sorted({broker_id for state_ in topic.partitions for broker_id in state_.replicas})
    pending = TopicDeletion(
        name=name, topic_id=topic.topic_id, partition_count=len(topic.partitions), brokers=tuple(brokers)
    )
    operations = [*deletion(topic), Create(TopicDeletion.path(topic.topic_id), pending.encode())]
    if has_config:
        operations.append(Delete(ConfigNode.path("topics", name)))
    configs = (f"topics/{name}",) if has_config else ()
    return Plan(tuple(operations), Notice(topics=(name,), configs=configs), topic)


def replicas_removed(pending: TopicDeletion, version: int, broker_id: int) -> Plan:
    """A broker has removed its replicas of a deleted topic; after the last one the znode goes too."""
    left = tuple(other for other in pending.brokers if other != broker_id)
    path = TopicDeletion.path(pending.topic_id)
    if left:
        content = TopicDeletion(
            name=pending.name, topic_id=pending.topic_id, partition_count=pending.partition_count, brokers=left
        ).encode()
        return Plan((SetData(path, content, version),), Notice())
    return Plan((Delete(path, version),), Notice())


def create_partitions(
    state: ClusterState,
    name: str,
    count: int,
    assignments: Sequence[Sequence[int]] | None = None,
    start: int = 0,
) -> Plan:
    """Let a topic grow to `count` partitions, with the same number of replicas each as it has."""
    topic = _existing(state, name)
    added = _check_growth(topic, count)
    factor = replication_factor(topic)
    brokers = state.living()
    if assignments is None:
        existing = [partition.replicas for partition in topic.partitions]
        placed = place_replicas(_candidates(brokers, factor), added, factor, start=start, existing=existing)
    else:
        placed = _checked_growth_assignments(topic, assignments, added, brokers)
    partitions = topic.partitions + tuple(_new_partition(replicas, brokers) for replicas in placed)
    after = replace(topic, partitions=partitions)
    operations = update(topic, after)
    changed = {operation.path for operation in operations if isinstance(operation, SetData)}
    versions = tuple(v + (topic_path(name, shard) in changed) for shard, v in enumerate(topic.versions))
    new = sum(isinstance(operation, Create) for operation in operations)
    return Plan(tuple(operations), Notice(topics=(name,)), replace(after, versions=versions + (0,) * new))


def replication_factor(topic: Topic) -> int:
    """How many replicas its first partition has, without those that a reassignment is about to remove."""
    first = topic.partitions[0]
    return len(first.replicas) - len(first.removing)


def _existing(state: ClusterState, name: str) -> Topic:
    topic = state.topics.get(name)
    if topic is None:
        raise ApiError(Error.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
    return topic


def _check_new_name(name: str, topics: Mapping[str, Topic]) -> None:
    if (problem := topic_name_problem(name)) is not None:
        raise ApiError(Error.INVALID_TOPIC_EXCEPTION, problem)
    if name in topics:
        raise ApiError(Error.TOPIC_ALREADY_EXISTS, f"topic {name!r} exists already")
    if "." not in name and "_" not in name:
        return
    key = collision_key(name)
    for other in topics:
        if collision_key(other) == key:
            raise ApiError(
                Error.INVALID_TOPIC_EXCEPTION,
                f"topic {name!r} collides with {other!r}: names must differ in more than '.' and '_'",
            )


def _partitions_left(left: int, count: int) -> int:
    if count > left:
        raise ApiError(
            Error.POLICY_VIOLATION, f"one request creates at most {PARTITIONS_PER_REQUEST_MAX} partitions: use several"
        )
    return left - count


def _placed(
    request: NewTopic, brokers: Mapping[int, BrokerNode], defaults: TopicDefaults, start: int
) -> list[tuple[int, ...]]:
    count = defaults.partition_count if request.partition_count == BROKER_DEFAULT else request.partition_count
    factor = defaults.replication_factor if request.replication_factor == BROKER_DEFAULT else request.replication_factor
    if count < 1:
        raise ApiError(Error.INVALID_PARTITIONS, f"a topic has at least one partition, not {count}")
    if factor < 1:
        raise ApiError(Error.INVALID_REPLICATION_FACTOR, f"a partition has at least one replica, not {factor}")
    _partitions_left(PARTITIONS_PER_REQUEST_MAX, count)
    return place_replicas(_candidates(brokers, factor), count, factor, start=start)


def _candidates(brokers: Mapping[int, BrokerNode], factor: int) -> list[Candidate]:
    if factor > len(brokers):
        raise ApiError(
            Error.INVALID_REPLICATION_FACTOR,
            f"{factor} replicas need as many brokers, and {len(brokers)} are there now",
        )
    return [Candidate(broker_id, broker.rack, broker.host or None) for broker_id, broker in brokers.items()]


def _manual_assignments(request: NewTopic, brokers: Mapping[int, BrokerNode]) -> list[tuple[int, ...]]:
    for number, called in (
        (request.partition_count, "number of partitions"),
        (request.replication_factor, "replication factor"),
    ):
        if number != BROKER_DEFAULT:
            raise ApiError(Error.INVALID_REQUEST, f"with replicas assigned by hand the {called} must be -1")
    _partitions_left(PARTITIONS_PER_REQUEST_MAX, len(request.assignments))
    by_partition: dict[int, Sequence[int]] = {}
    for partition, replicas in request.assignments:
        if partition in by_partition:
            raise _bad_assignment(f"partition {partition} is assigned twice")
        by_partition[partition] = replicas
    if sorted(by_partition) != list(range(len(by_partition))):
        raise _bad_assignment("the assigned partitions must be numbered 0, 1, 2, … without a gap")
    factor = len(by_partition[0])
    return [_checked(partition, by_partition[partition], factor, brokers) for partition in range(len(by_partition))]


def _checked(
    partition: int, replicas: Sequence[int], factor: int, brokers: Mapping[int, BrokerNode]
) -> tuple[int, ...]:
    if not replicas:
        raise _bad_assignment(f"partition {partition} is assigned to no broker")
    if len(replicas) != factor:
        raise _bad_assignment(
            f"partition {partition} is assigned {len(replicas)} replicas and others {factor}: all need the same number"
        )
    if len(set(replicas)) != len(replicas):
        raise _bad_assignment(f"partition {partition} is assigned to the same broker more than once")
    for broker_id in replicas:
        if broker_id not in brokers:
            raise _bad_assignment(f"partition {partition} is assigned to broker {broker_id}, which is not there")
    return tuple(replicas)


def _check_growth(topic: Topic, count: int) -> int:
    """How many partitions are to be added."""
    current = len(topic.partitions)
    if count == current:
        raise ApiError(Error.INVALID_PARTITIONS, f"topic {topic.name!r} already has {current} partitions")
    if count < current:
        raise ApiError(
            Error.INVALID_PARTITIONS,
            f"topic {topic.name!r} has {current} partitions; {count} would be fewer, and a topic only grows",
        )
    if count - current > PARTITIONS_PER_REQUEST_MAX:
        raise ApiError(
            Error.INVALID_PARTITIONS, f"one request adds at most {PARTITIONS_PER_REQUEST_MAX} partitions: use several"
        )
    return count - current


def _checked_growth_assignments(
    topic: Topic, assignments: Sequence[Sequence[int]], added: int, brokers: Mapping[int, BrokerNode]
) -> list[tuple[int, ...]]:
    if len(assignments) != added:
        raise _bad_assignment(f"{added} partitions are to be added, but replicas are assigned for {len(assignments)}")
    factor = replication_factor(topic)
    numbered = enumerate(assignments, start=len(topic.partitions))
    return [_checked(partition, replicas, factor, brokers) for partition, replicas in numbered]


def _bad_assignment(message: str) -> ApiError:
    return ApiError(Error.INVALID_REPLICA_ASSIGNMENT, message)


def _new_partition(replicas: Sequence[int], brokers: Mapping[int, BrokerNode]) -> PartitionState:
    in_sync = tuple(broker_id for broker_id in replicas if broker_id in brokers)
    return PartitionState(replicas=tuple(replicas), isr=in_sync, leader=in_sync[0])
