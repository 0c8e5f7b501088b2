"""Who leads partitions that a request came here for in vain: newer clients learn it with the error (KIP-951).

They need not ask for metadata, and go on where the leader is at once.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.broker.broker import Broker, Node


class KnownLeader(NamedTuple):
    """The leader of a partition."""

    node: Node
    epoch: int


class KnownLeaders:
    """As the clients of one listener reach them."""

    def __init__(self, broker: Broker, listener_name: str) -> None:
        self._broker = broker
        self._nodes = {node.node_id: node for node in broker.nodes(listener_name) if node.node_id != broker.node_id}

    def find(self, topic: str | None, index: int) -> KnownLeader | None:
        """The leader, if it is another broker that can be reached."""
        found = self._broker.view.topics.get(topic or "")
        if found is None or not 0 <= index < len(found.partitions):
            return None
        state = found.partitions[index]
        node = self._nodes.get(state.leader)
        return None if node is None else KnownLeader(node, state.leader_epoch)
