"""The settings of groups and committed offsets, read once from all settings."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.base.settings import Settings

MS_PER_MINUTE = 60_000


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSettings:
    """What one broker's owner has decided about groups; the defaults are those of the settings' tables."""

    initial_rebalance_delay_ms: int = 3000
    session_timeout_ms_min: int = 6000
    session_timeout_ms_max: int = 1_800_000
    size_max: int = 5000
    offset_metadata_bytes_max: int = 4096
    offsets_retention_ms: int = 10_080 * MS_PER_MINUTE
    offsets_retention_check_interval_ms: int = 600_000

    @classmethod
    def of(cls, settings: Settings) -> GroupSettings:
        return cls(
            initial_rebalance_delay_ms=settings.integer("group.initial.rebalance.delay.ms"),
            session_timeout_ms_min=settings.integer("group.min.session.timeout.ms"),
            session_timeout_ms_max=settings.integer("group.max.session.timeout.ms"),
            size_max=settings.integer("group.max.size"),
            offset_metadata_bytes_max=settings.integer("offset.metadata.max.bytes"),
            offsets_retention_ms=settings.integer("offsets.retention.minutes") * MS_PER_MINUTE,
            offsets_retention_check_interval_ms=settings.integer("offsets.retention.check.interval.ms"),
        )
