"""Which replica a consumer should read from: one in its own rack, where the broker is set up so.

As Kafka's `RackAwareReplicaSelector`: the leader itself if it is in the consumer's rack; otherwise, of the in-sync
followers there that have what the consumer asks for, the one that has the most.
"""

from __future__ import annotations

from collections.abc import Mapping

from penstock.replication.leader import Leader
from penstock.zookeeper.znodes import BrokerNode

THE_LEADER = -1


def preferred_read_replica(leader: Leader, brokers: Mapping[int, BrokerNode], rack_id: str, fetch_offset: int) -> int:
    """The broker to read from instead of the leader, or -1."""
    in_rack = {broker_id for broker_id, broker in brokers.items() if broker.rack == rack_id}
    if leader.broker_id in in_rack:
        return THE_LEADER
    candidates = [
        (follower.end_offset, follower.caught_up_ms, broker_id)
        for broker_id, follower in leader.followers.items()
        if broker_id in in_rack
        and broker_id in leader.membership.isr
        and follower.log_start_offset <= fetch_offset <= follower.end_offset
    ]
    return max(candidates)[2] if candidates else THE_LEADER
