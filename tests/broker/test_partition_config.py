"""What the settings of a topic mean to its partitions."""

from __future__ import annotations

import pytest

from penstock.base.broker_settings import load_broker_settings
from penstock.base.topic_settings import TopicSettings
from penstock.broker.partition_config import partition_config

DAY_MS = 86_400_000


@pytest.mark.parametrize(
    ("policy", "segment_ms"), [("compact", 5000), ("compact,delete", 5000), ("delete", 7 * DAY_MS)]
)
def test_segments_are_closed_in_time_to_be_compacted(policy: str, segment_ms: int) -> None:
    broker = load_broker_settings({"node.id": "0"})
    topic = TopicSettings(broker, {"cleanup.policy": policy, "max.compaction.lag.ms": "5000"})
    config = partition_config(topic, broker)
    assert config.log.segment_ms == segment_ms
    assert config.log.compacts == ("compact" in policy) == config.inside.needs_keys
    assert config.log.deletes == ("delete" in policy)
