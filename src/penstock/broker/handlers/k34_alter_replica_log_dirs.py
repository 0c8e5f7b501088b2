"""AlterReplicaLogDirs (1-2): move replicas to other log directories of this broker. The answer says that it has begun.

A replica that is not here yet is refused, and will be made where it was asked for.
"""

from __future__ import annotations

from penstock.base.errors import ApiError, Error
from penstock.base.identifiers import TopicPartition
from penstock.broker.broker import Broker
from penstock.broker.requests import RequestContext
from penstock.security.acls import Operation, ResourceType
from penstock.wire.messages.k34_alter_replica_log_dirs import (
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirsResponsePartition,
    AlterReplicaLogDirsResponseTopic,
)


async def handle(
    broker: Broker, request: AlterReplicaLogDirsRequest, context: RequestContext
) -> AlterReplicaLogDirsResponse:
    wanted = {
        TopicPartition(topic.name, index): directory.path
        for directory in request.dirs
        for topic in directory.topics
        for index in topic.partitions
    }
    may_alter = broker.rights.allows(context, Operation.ALTER, ResourceType.CLUSTER)
    topics: dict[str, AlterReplicaLogDirsResponseTopic] = {}
    for name, path in wanted.items():
        topic = topics.setdefault(name.topic, AlterReplicaLogDirsResponseTopic(topic_name=name.topic))
        error = Error.NONE
        try:
            if not may_alter:
                raise ApiError(Error.CLUSTER_AUTHORIZATION_FAILED)
            broker.replica_moves.begin(name, path)
        except ApiError as refused:
            error = refused.error
        else:
            broker.audit.record(
                "replica_move_asked", partition=name, directory=path, principal=context.principal, host=context.host
            )
        topic.partitions.append(AlterReplicaLogDirsResponsePartition(partition_index=name.partition, error_code=error))
    return AlterReplicaLogDirsResponse(results=list(topics.values()))
