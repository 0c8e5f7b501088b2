"""The second half of deleting a topic: when this broker's replicas are gone, it takes itself off the topic's list.

Until then the list stays in a znode, so that a deletion that a crash interrupted is completed after the restart, and
one for which the coordination service could not be reached a while later.
"""

from __future__ import annotations

import logging

from penstock.broker.broker import Broker
from penstock.controller.topics import replicas_removed
from penstock.zookeeper.coordination import Coordination
from penstock.zookeeper.errors import BadVersionError, CoordinationError, NoNodeError, StorageFullError
from penstock.zookeeper.znodes import TOPIC_DELETIONS_PATH, TopicDeletion

logger = logging.getLogger(__name__)


async def finish_deletions(broker: Broker, coordination: Coordination) -> None:
    """Remove what is left of deleted topics on this broker, and note that it is done; and what was moved away."""
    await broker.partitions.remove_strays()
    try:
        await _finish_noted(broker, coordination)
    except CoordinationError as error:
        logger.info("deletions are finished later: %s", error)


async def _finish_noted(broker: Broker, coordination: Coordination) -> None:
    pending, _ = await coordination.children(TOPIC_DELETIONS_PATH)
    for name in pending:
        try:
            data, stat = await coordination.get(f"{TOPIC_DELETIONS_PATH}/{name}")
            deletion = TopicDeletion.decode(data)
            if broker.node_id not in deletion.brokers:
                continue
            if await broker.partitions.remove_leftovers(deletion.name, deletion.topic_id):
                await coordination.multi(replicas_removed(deletion, stat.version, broker.node_id).operations)
        except (NoNodeError, BadVersionError, StorageFullError):
            continue  # another was faster, or there is no room; what is left is done next time
