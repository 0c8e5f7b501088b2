"""Every setting of groups reaches them, and what is written as a default here is the default of the table."""

from __future__ import annotations

import dataclasses

import pytest

from penstock.base.broker_settings import load_broker_settings
from penstock.groups.settings import GroupSettings

REACHES = [
    ("group.initial.rebalance.delay.ms", "7", "initial_rebalance_delay_ms", 7),
    ("group.min.session.timeout.ms", "7", "session_timeout_ms_min", 7),
    ("group.max.session.timeout.ms", "7000000", "session_timeout_ms_max", 7_000_000),
    ("group.max.size", "7", "size_max", 7),
    ("offset.metadata.max.bytes", "7", "offset_metadata_bytes_max", 7),
    ("offsets.retention.minutes", "7", "offsets_retention_ms", 420_000),
    ("offsets.retention.check.interval.ms", "7", "offsets_retention_check_interval_ms", 7),
    ("group.consumer.session.timeout.ms", "50000", "consumer_session_timeout_ms", 50_000),
    ("group.consumer.heartbeat.interval.ms", "6000", "consumer_heartbeat_interval_ms", 6000),
    ("group.consumer.max.size", "7", "consumer_size_max", 7),
    ("group.consumer.assignors", "range", "consumer_assignors", ("range",)),
    ("group.consumer.assignment.interval.ms", "7", "consumer_assignment_interval_ms", 7),
    ("group.consumer.migration.policy", "Upgrade", "consumer_migration_policy", "upgrade"),
]


@pytest.mark.parametrize(("name", "value", "field", "expected"), REACHES)
def test_a_setting_reaches_the_groups(name: str, value: str, field: str, expected: object) -> None:
    settings = GroupSettings.of(load_broker_settings({name: value}))
    assert getattr(settings, field) == expected


def test_all_of_them_are_in_the_table() -> None:
    assert {field for _, _, field, _ in REACHES} == {field.name for field in dataclasses.fields(GroupSettings)}


def test_defaults() -> None:
    assert GroupSettings.of(load_broker_settings({})) == GroupSettings()
