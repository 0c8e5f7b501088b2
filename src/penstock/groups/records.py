"""The records of `__consumer_offsets` as this release writes them: in the versions that Apache Kafka 4.3 writes."""

from __future__ import annotations

from penstock.wire.messages.offsets_topic_records import OFFSETS_TOPIC_RECORDS, GroupMetadataValue, OffsetCommitValue
from penstock.wire.state_records import StateCodec


def _version_of_offset(value: OffsetCommitValue) -> int:
    """Only the second version ever could say when to forget an offset."""
    return 1 if value.expire_timestamp >= 0 else 4


OFFSETS_CODEC = StateCodec(OFFSETS_TOPIC_RECORDS, {OffsetCommitValue: _version_of_offset, GroupMetadataValue: 3})
