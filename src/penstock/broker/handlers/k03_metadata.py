"""Metadata (0-13): the brokers as this listener's clients reach them, and the topics asked for.

A topic that does not exist is created on the way if both the broker (`auto.create.topics.enable`) and the request allow
it. "All topics" is an empty list in version 0 and null later; an empty list later means none.

A broker that is away, or that has no address on this listener, is no leader that a client could use: the partition has
none then, and the error says why. In version 0 such brokers are left out of the replicas, too.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from uuid import UUID

from penstock.base.errors import ApiError, Error
from penstock.base.identifiers import NO_ID, topic_name_problem
from penstock.broker.authorized_operations import NOT_ASKED
from penstock.broker.broker import Broker
from penstock.broker.cluster_view import sorted_topics
from penstock.broker.requests import RequestContext
from penstock.security.acls import Operation, ResourceType
from penstock.wire.messages.k03_metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from penstock.zookeeper.topic_znodes import NO_LEADER, PartitionState, Topic

LISTENER_NOT_FOUND_SINCE = 6


@dataclass(frozen=True, slots=True)
class _Asked:
    """What is the same for all topics of a request."""

    context: RequestContext
    has_operations: bool
    listener_name: str
    connected_s: float

    @property
    def version(self) -> int:
        return self.context.version

    def operations(self, broker: Broker, name: str) -> int:
        """What is allowed with a topic, if that is asked for."""
        return broker.rights.operations(self.context, ResourceType.TOPIC, name) if self.has_operations else NOT_ASKED


async def handle(broker: Broker, request: MetadataRequest, context: RequestContext) -> MetadataResponse:
    connection = context.connection
    how = _Asked(context, request.include_topic_authorized_operations, connection.listener_name, connection.began_s)
    if request.topics is None or (context.version == 0 and not request.topics):
        await broker.doubts.settled(broker.view.topics.keys(), how.connected_s)
        shown, _ = broker.rights.sorted_out(
            context,
            Operation.DESCRIBE,
            ResourceType.TOPIC,
            sorted_topics(broker.view.topics.values()),
            lambda topic: topic.name,
            is_told=False,
        )
        topics = _describe(broker, shown, how)
    else:
        if any(topic.name is None or topic.topic_id != NO_ID for topic in request.topics) and context.version < 12:
            return MetadataResponse(
                topics=[_refused_with_id(topic) for topic in request.topics], error_code=Error.INVALID_REQUEST
            )
        may_create = request.allow_auto_topic_creation and broker.settings.flag("auto.create.topics.enable")
        topics = await _asked(broker, _without_repeats(request.topics), may_create, how)
    is_cluster_asked = request.include_cluster_authorized_operations
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=node.node_id, host=node.host, port=node.port, rack=node.rack)
            for node in broker.nodes(context.connection.listener_name, with_just_died=True)
        ],
        cluster_id=broker.view.cluster_id,
        controller_id=broker.view.controller_id,
        topics=topics,
        cluster_authorized_operations=(
            broker.rights.describe_cluster_operations(context) if is_cluster_asked else NOT_ASKED
        ),
    )


async def _asked(
    broker: Broker, asked: list[MetadataRequestTopic], may_create: bool, how: _Asked
) -> list[MetadataResponseTopic]:
    found: list[Topic | ApiError] = []
    missing: list[str] = []
    for topic in asked:
        known = _find_for(broker, topic, how)
        found.append(known)
        if isinstance(known, ApiError) and known.error is Error.UNKNOWN_TOPIC_OR_PARTITION and topic.name:
            missing.append(topic.name)
    not_created: list[str] = []
    if missing and may_create:
        missing, not_created = _may_create(broker, missing, how)
        await broker.topics.create_on_demand(missing, how.context)
        found = [_find_for(broker, topic, how) for topic in asked]
    await broker.doubts.settled([topic.name for topic in found if isinstance(topic, Topic)], how.connected_s)
    found = [
        ApiError(Error.TOPIC_AUTHORIZATION_FAILED) if topic.name in not_created else _find_for(broker, topic, how)
        for topic in asked
    ]
    described = iter(_describe(broker, [topic for topic in found if isinstance(topic, Topic)], how))
    answers = [
        _unknown(wanted, known.error, how.operations(broker, wanted.name or ""))
        if isinstance(known, ApiError)
        else next(described)
        for wanted, known in zip(asked, found, strict=True)
    ]
    return list({(answer.name, answer.topic_id): answer for answer in answers}.values())


def _find_for(broker: Broker, asked: MetadataRequestTopic, how: _Asked) -> Topic | ApiError:
    """What is there, or looks like it, for whoever asks: a topic that may not be described is told by no other sign."""
    known = _find(broker, asked.name, asked.topic_id)
    name = known.name if isinstance(known, Topic) else asked.name
    if asked.topic_id != NO_ID and not isinstance(known, Topic):
        return known
    if name and not broker.rights.allows(how.context, Operation.DESCRIBE, ResourceType.TOPIC, name):
        return ApiError(Error.TOPIC_AUTHORIZATION_FAILED)
    return known


def _may_create(broker: Broker, names: list[str], how: _Asked) -> tuple[list[str], list[str]]:
    """Those that may be made on demand, and the others."""
    if broker.rights.allows(how.context, Operation.CREATE, ResourceType.CLUSTER, is_told=False):
        return names, []
    return broker.rights.sorted_out(how.context, Operation.CREATE, ResourceType.TOPIC, names, lambda name: name)


def _without_repeats(asked: list[MetadataRequestTopic]) -> list[MetadataRequestTopic]:
    return list({(topic.name, topic.topic_id): topic for topic in asked}.values())


def _find(broker: Broker, name: str | None, topic_id: UUID) -> Topic | ApiError:
    if topic_id != NO_ID:
        return broker.view.topic_by_id(topic_id) or ApiError(Error.UNKNOWN_TOPIC_ID)
    if name is None or topic_name_problem(name) is not None:
        return ApiError(Error.INVALID_TOPIC_EXCEPTION)
    return broker.view.topics.get(name) or ApiError(Error.UNKNOWN_TOPIC_OR_PARTITION)


def _unknown(asked: MetadataRequestTopic, error: Error, operations: int) -> MetadataResponseTopic:
    name = None if asked.topic_id != NO_ID else asked.name or ""
    return MetadataResponseTopic(
        error_code=error, name=name, topic_id=asked.topic_id, topic_authorized_operations=operations
    )


def _refused_with_id(asked: MetadataRequestTopic) -> MetadataResponseTopic:
    """For versions that have ids in the request, and yet do not serve them; their answer must have a name."""
    return MetadataResponseTopic(error_code=Error.INVALID_REQUEST, name=asked.name or "", topic_id=asked.topic_id)


def _describe(broker: Broker, topics: list[Topic], how: _Asked) -> list[MetadataResponseTopic]:
    reachable = {node.node_id for node in broker.nodes(how.listener_name)}
    registered = broker.view.brokers.keys()
    return [
        MetadataResponseTopic(
            name=topic.name,
            topic_id=topic.topic_id,
            is_internal=topic.internal,
            partitions=[
                _partition(index, state, reachable, registered, how.version)
                for index, state in enumerate(topic.partitions)
            ],
            topic_authorized_operations=how.operations(broker, topic.name),
        )
        for topic in topics
    ]


def _partition(
    index: int, state: PartitionState, reachable: Set[int], registered: Set[int], version: int
) -> MetadataResponsePartition:
    replicas, isr = list(state.replicas), list(state.isr)
    offline = [replica for replica in replicas if replica not in reachable]
    has_leader = state.leader in reachable
    error = Error.NONE
    if version == 0 and offline:
        error = Error.REPLICA_NOT_AVAILABLE
        replicas = [replica for replica in replicas if replica in reachable]
        isr = [replica for replica in isr if replica in reachable]
    if not has_leader:
        lacks_listener = state.leader in registered and version >= LISTENER_NOT_FOUND_SINCE
        error = Error.LISTENER_NOT_FOUND if lacks_listener else Error.LEADER_NOT_AVAILABLE
    return MetadataResponsePartition(
        error_code=error,
        partition_index=index,
        leader_id=state.leader if has_leader else NO_LEADER,
        leader_epoch=state.leader_epoch,
        replica_nodes=replicas,
        isr_nodes=isr,
        offline_replicas=offline,
    )
