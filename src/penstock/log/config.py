"""What a topic's settings mean to its log: the values, with Kafka's defaults, and no names of settings.

A `LogConfig` never changes; a running log is given another one. Sizes are bytes, times are milliseconds, and -1 means
"no limit" where Kafka says so (retention).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

MINUTE_MS = 60_000
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
FOREVER = 2**63 - 1
UNLIMITED = -1


@dataclass(frozen=True, slots=True)
class LogConfig:
    """The settings of one partition's log."""

    segment_bytes: int = 1 << 30
    segment_ms: int = 7 * DAY_MS
    segment_jitter_ms: int = 0
    index_interval_bytes: int = 4096
    index_size_bytes_max: int = 10 << 20
    retention_ms: int = 7 * DAY_MS
    retention_bytes: int = UNLIMITED
    max_message_bytes: int = (1 << 20) + 12
    message_timestamp_type: Literal["CreateTime", "LogAppendTime"] = "CreateTime"
    timestamp_before_max_ms: int = FOREVER
    timestamp_after_max_ms: int = HOUR_MS
    flush_messages: int = FOREVER
    flush_ms: int = FOREVER
    flush_mode: Literal["os", "always"] = "os"
    cleanup_policy: frozenset[str] = frozenset({"delete"})
    file_delete_delay_ms: int = MINUTE_MS
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = FOREVER
    min_cleanable_dirty_ratio: float = 0.5
    delete_retention_ms: int = DAY_MS
    producer_id_expiration_ms: int = DAY_MS

    @property
    def deletes(self) -> bool:
        return "delete" in self.cleanup_policy

    @property
    def compacts(self) -> bool:
        return "compact" in self.cleanup_policy
