"""The transactions of this broker: the shards of `__transaction_state`, placed by name where an id has one.

The epoch of a transaction's coordinator, by which partitions know a new one from an old one, is the leader epoch of the
shard's partition.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.base.settings import Settings
from penstock.base.world import World
from penstock.broker.cluster_view import ClusterView
from penstock.broker.lease import Lease
from penstock.broker.markers import Markers
from penstock.broker.partitions import Partitions
from penstock.broker.state_log import Shape
from penstock.broker.state_logs import StateLogs
from penstock.broker.topics import TRANSACTIONS_TOPIC
from penstock.transactions.names import placed_by
from penstock.transactions.records import TRANSACTIONS_CODEC
from penstock.transactions.settings import TransactionSettings
from penstock.transactions.shard import TransactionShard
from penstock.wire.compression import Compression


def transaction_shards(
    world: World,
    view: ClusterView,
    partitions: Partitions,
    lease: Lease,
    settings: Callable[[], Settings],
    markers: Markers,
) -> StateLogs[TransactionShard]:
    """The transactions of a broker that starts; `settings` gives those of now."""

    def make_machine(epoch: int) -> TransactionShard:
        return TransactionShard(epoch, TransactionSettings.of(settings()))

    shape = Shape(TRANSACTIONS_CODEC, make_machine, markers.write, Compression.NONE)
    return StateLogs(TRANSACTIONS_TOPIC, shape, world, view, partitions, lease, placed_by)
