"""A topic's settings, as its partitions want them: for the log, the inside of batches and replication."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, cast

from penstock.base.settings import Settings
from penstock.base.topic_settings import TopicSettings
from penstock.broker.replica_throttle import NO_PARTITIONS, ThrottledPartitions
from penstock.log.config import LogConfig
from penstock.wire.compression import Compression
from penstock.wire.conform import InsideRules

_CODECS = {
    "producer": None,
    "uncompressed": Compression.NONE,
    "gzip": Compression.GZIP,
    "snappy": Compression.SNAPPY,
    "lz4": Compression.LZ4,
    "zstd": Compression.ZSTD,
}


@dataclass(frozen=True, slots=True)
class PartitionConfig:
    """What the settings of its topic mean to one partition."""

    log: LogConfig
    inside: InsideRules
    min_isr: int = 1
    throttled_as_leader: ThrottledPartitions = NO_PARTITIONS
    throttled_as_follower: ThrottledPartitions = NO_PARTITIONS


def partition_config(topic: TopicSettings, broker: Settings) -> PartitionConfig:
    """The config of a topic's partitions."""
    codec = _CODECS[topic.text("compression.type")]
    own_id = broker.integer("node.id")
    return PartitionConfig(
        log=_log_config(topic, broker),
        inside=InsideRules(codec, _compression_level(topic), needs_keys="compact" in topic.list("cleanup.policy")),
        min_isr=topic.integer("min.insync.replicas"),
        throttled_as_leader=ThrottledPartitions.of(topic.list("leader.replication.throttled.replicas"), own_id),
        throttled_as_follower=ThrottledPartitions.of(topic.list("follower.replication.throttled.replicas"), own_id),
    )


def _log_config(topic: TopicSettings, broker: Settings) -> LogConfig:
    segment_ms = topic.integer("segment.ms")
    if "compact" in topic.list("cleanup.policy"):  # only closed segments are compacted
        segment_ms = min(segment_ms, topic.integer("max.compaction.lag.ms"))
    return LogConfig(
        segment_bytes=topic.integer("segment.bytes"),
        segment_ms=segment_ms,
        segment_jitter_ms=topic.integer("segment.jitter.ms"),
        index_interval_bytes=topic.integer("index.interval.bytes"),
        index_size_bytes_max=topic.integer("segment.index.bytes"),
        retention_ms=topic.integer("retention.ms"),
        retention_bytes=topic.integer("retention.bytes"),
        max_message_bytes=topic.integer("max.message.bytes"),
        message_timestamp_type=cast('Literal["CreateTime", "LogAppendTime"]', topic.text("message.timestamp.type")),
        timestamp_before_max_ms=topic.integer("message.timestamp.before.max.ms"),
        timestamp_after_max_ms=topic.integer("message.timestamp.after.max.ms"),
        flush_messages=topic.integer("flush.messages"),
        flush_ms=topic.integer("flush.ms"),
        flush_mode=cast('Literal["os", "always"]', topic.text("flush.mode")),
        cleanup_policy=frozenset(topic.list("cleanup.policy")),
        file_delete_delay_ms=topic.integer("file.delete.delay.ms"),
        min_compaction_lag_ms=topic.integer("min.compaction.lag.ms"),
        max_compaction_lag_ms=topic.integer("max.compaction.lag.ms"),
        min_cleanable_dirty_ratio=topic.number("min.cleanable.dirty.ratio"),
        delete_retention_ms=topic.integer("delete.retention.ms"),
        producer_id_expiration_ms=broker.integer("producer.id.expiration.ms"),
    )


def _compression_level(topic: TopicSettings) -> int | None:
    """The level for the codec that the topic asks for; None where there is none, or it is the codec's own default."""
    codec = topic.text("compression.type")
    if codec not in ("gzip", "lz4", "zstd"):
        return None
    level = topic.integer(f"compression.{codec}.level")
    return None if codec == "gzip" and level == -1 else level
