"""The transactions of this broker: the shards of `__transaction_state`, placed by name where an id has one."""

from __future__ import annotations

from collections.abc import Callable

from penstock.base.settings import Settings
from penstock.base.world import World
from penstock.broker.cluster_view import ClusterView
from penstock.broker.markers import Markers
from penstock.broker.partition import Partition
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
    world: World, view: ClusterView, partitions: Partitions, settings: Callable[[], Settings], markers: Markers
) -> StateLogs[TransactionShard]:
    """The transactions of a broker that starts; `settings` gives those of now."""

    def make_machine(partition: Partition) -> TransactionShard:
        return TransactionShard(partition.epoch, TransactionSettings.of(settings()))

    shape = Shape(TRANSACTIONS_CODEC, make_machine, markers.write, Compression.NONE)
    return StateLogs(TRANSACTIONS_TOPIC, shape, world, view, partitions, placed_by)
