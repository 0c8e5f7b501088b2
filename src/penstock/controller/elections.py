"""Who leads a partition after brokers came or went.

A leader that comes back leads in a new epoch, however short its absence: what it had not made durable may be gone, and
only the epoch tells clients that offsets they know may hold something else now.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec

from penstock.controller.plan import ClusterState, Plan
from penstock.zookeeper.topic_znodes import PartitionState, update
from penstock.zookeeper.znodes import Notice


def lead_again(state: ClusterState, broker_id: int) -> list[Plan]:
    """A broker has come back: it leads what it led before, in a new epoch. One plan for each topic."""
    plans = []
    for topic in state.topics.values():
        after = replace(topic, partitions=tuple(_in_new_epoch(part, broker_id) for part in topic.partitions))
        operations = update(topic, after)
        if operations:
            plans.append(Plan(tuple(operations), Notice(topics=(topic.name,)), after))
    return plans


def _in_new_epoch(partition: PartitionState, broker_id: int) -> PartitionState:
    if partition.leader != broker_id:
        return partition
    return msgspec.structs.replace(
        partition, leader_epoch=partition.leader_epoch + 1, partition_epoch=partition.partition_epoch + 1
    )
