"""The records of `__consumer_offsets` as this release writes them: in the versions that Apache Kafka 4.3 writes."""

from __future__ import annotations

from penstock.wire.messages.offsets_topic_records import OFFSETS_TOPIC_RECORDS, GroupMetadataValue, OffsetCommitValue
from penstock.wire.state_records import StateCodec

OFFSETS_CODEC = StateCodec(OFFSETS_TOPIC_RECORDS, {OffsetCommitValue: 3, GroupMetadataValue: 3})
