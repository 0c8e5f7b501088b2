"""Metadata (0-13): the brokers as this listener's clients reach them, and the topics asked for.

A topic that does not exist is created on the way if both the broker (`auto.create.topics.enable`) and the request allow
it. "All topics" is an empty list in version 0 and null later; an empty list later means none.
"""

from __future__ import annotations

from uuid import UUID

from penstock.base.errors import ApiError, Error
from penstock.base.identifiers import NO_ID, topic_name_problem
from penstock.broker.authorized_operations import CLUSTER_OPERATIONS, NOT_ASKED, TOPIC_OPERATIONS
from penstock.broker.broker import Broker
from penstock.broker.cluster_view import sorted_topics
from penstock.broker.requests import RequestContext
from penstock.wire.messages.k03_metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from penstock.zookeeper.topic_znodes import NO_LEADER, PartitionState, Topic


async def handle(broker: Broker, request: MetadataRequest, context: RequestContext) -> MetadataResponse:
    operations = TOPIC_OPERATIONS if request.include_topic_authorized_operations else NOT_ASKED
    if request.topics is None or (context.version == 0 and not request.topics):
        topics = [_describe(broker, topic, operations) for topic in sorted_topics(broker.view.topics.values())]
    else:
        if any(topic.name is None or topic.topic_id != NO_ID for topic in request.topics) and context.version < 12:
            return MetadataResponse(
                topics=[_refused_with_id(topic) for topic in request.topics], error_code=Error.INVALID_REQUEST
            )
        may_create = request.allow_auto_topic_creation and broker.settings.flag("auto.create.topics.enable")
        topics = await _asked(broker, _without_repeats(request.topics), may_create, operations)
    is_cluster_asked = request.include_cluster_authorized_operations
    return MetadataResponse(
        brokers=[
            MetadataResponseBroker(node_id=node.node_id, host=node.host, port=node.port, rack=node.rack)
            for node in broker.nodes(context.connection.listener_name)
        ],
        cluster_id=broker.view.cluster_id,
        controller_id=broker.view.controller_id,
        topics=topics,
        cluster_authorized_operations=CLUSTER_OPERATIONS if is_cluster_asked else NOT_ASKED,
    )


async def _asked(
    broker: Broker, asked: list[MetadataRequestTopic], may_create: bool, operations: int
) -> list[MetadataResponseTopic]:
    found: list[Topic | ApiError] = []
    missing: list[str] = []
    for topic in asked:
        known = _find(broker, topic.name, topic.topic_id)
        found.append(known)
        if isinstance(known, ApiError) and known.error is Error.UNKNOWN_TOPIC_OR_PARTITION and topic.name:
            missing.append(topic.name)
    if missing and may_create:
        await broker.topics.create_on_demand(missing)
        found = [_find(broker, topic.name, topic.topic_id) for topic in asked]
    answers = [
        _unknown(wanted, known.error, operations)
        if isinstance(known, ApiError)
        else _describe(broker, known, operations)
        for wanted, known in zip(asked, found, strict=True)
    ]
    return list({(answer.name, answer.topic_id): answer for answer in answers}.values())


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


def _describe(broker: Broker, topic: Topic, operations: int) -> MetadataResponseTopic:
    alive = broker.view.brokers
    return MetadataResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.internal,
        partitions=[_partition(index, state, set(alive)) for index, state in enumerate(topic.partitions)],
        topic_authorized_operations=operations,
    )


def _partition(index: int, state: PartitionState, alive: set[int]) -> MetadataResponsePartition:
    has_leader = state.leader != NO_LEADER and state.leader in alive
    return MetadataResponsePartition(
        error_code=Error.NONE if has_leader else Error.LEADER_NOT_AVAILABLE,
        partition_index=index,
        leader_id=state.leader if has_leader else NO_LEADER,
        leader_epoch=state.leader_epoch,
        replica_nodes=list(state.replicas),
        isr_nodes=list(state.isr),
        offline_replicas=[replica for replica in state.replicas if replica not in alive],
    )
