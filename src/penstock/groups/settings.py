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
    consumer_session_timeout_ms: int = 45_000
    consumer_heartbeat_interval_ms: int = 5000
    consumer_size_max: int = 5000
    consumer_assignors: tuple[str, ...] = ("uniform", "range")
    """the first is taken where members do not ask for one"""
    consumer_assignment_interval_ms: int = 1000
    consumer_migration_policy: str = "bidirectional"

    @property
    def may_upgrade(self) -> bool:
        """Whether a classic group with members may become a consumer group."""
        return self.consumer_migration_policy in ("bidirectional", "upgrade")

    @property
    def may_downgrade(self) -> bool:
        """Whether a consumer group with members may become a classic group."""
        return self.consumer_migration_policy in ("bidirectional", "downgrade")

    @property
    def may_mix(self) -> bool:
        """Whether members of the classic protocol may join a consumer group that has members."""
        return self.consumer_migration_policy != "disabled"

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
            consumer_session_timeout_ms=settings.integer("group.consumer.session.timeout.ms"),
            consumer_heartbeat_interval_ms=settings.integer("group.consumer.heartbeat.interval.ms"),
            consumer_size_max=settings.integer("group.consumer.max.size"),
            consumer_assignors=tuple(_assignor_name(name) for name in settings.list("group.consumer.assignors")),
            consumer_assignment_interval_ms=settings.integer("group.consumer.assignment.interval.ms"),
            consumer_migration_policy=settings.text("group.consumer.migration.policy").lower(),
        )


def _assignor_name(name: str) -> str:
    """Kafka takes the classes of its own assignors by their full names as well."""
    return name.rpartition(".")[2].removesuffix("Assignor").lower()
