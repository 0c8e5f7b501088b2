"""What is encoded is decoded again: every message, in every version."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from penstock.wire.codec import decode, encode, encode_into
from penstock.wire.messages.offsets_topic_records import ConsumerGroupMemberMetadataValue
from penstock.wire.schema import Message

QUICK = settings(
    max_examples=3, deadline=None, database=None, suppress_health_check=list(HealthCheck), phases=[Phase.generate]
)
THOROUGH = settings(max_examples=200, deadline=None, suppress_health_check=list(HealthCheck))


def check_round_trip(instance: Any, version: int) -> None:
    data = encode(instance, version)
    decoded, position = decode(type(instance), version, data)
    assert decoded == instance
    assert position == len(data)
    assert encode(decoded, version) == data


def test_defaults_and_full_messages(message_class: type[Message], samples: Any) -> None:
    for version in samples.versions(message_class):
        check_round_trip(message_class(), version)
        check_round_trip(samples.populated(message_class, version), version)
        check_round_trip(samples.populated(message_class, version, nulls=True), version)


def random_round_trips(message_class: type[Message], samples: Any, how: settings) -> None:
    strategies = {version: samples.random(message_class, version) for version in samples.versions(message_class)}

    @how
    @given(st.data())
    def run(data: st.DataObject) -> None:
        for version, strategy in strategies.items():
            check_round_trip(data.draw(strategy), version)

    run()


def test_random_messages(message_class: type[Message], samples: Any) -> None:
    random_round_trips(message_class, samples, QUICK)


@pytest.mark.slow
def test_many_random_messages(message_class: type[Message], samples: Any) -> None:
    random_round_trips(message_class, samples, THOROUGH)


def test_a_message_between_other_bytes(message_class: type[Message], samples: Any) -> None:
    """The position is honoured and returned, in bytes, bytearrays and memoryviews."""
    version = samples.versions(message_class)[-1]
    instance = samples.populated(message_class, version)
    frame = bytearray(b"before")
    encode_into(instance, version, frame)
    end = len(frame)
    frame += b"after"
    for buffer in (bytes(frame), frame, memoryview(frame)):
        assert decode(message_class, version, buffer, 6) == (instance, end)


def test_a_null_structure_in_a_tagged_field() -> None:
    """It is written, because left out it would be an empty structure to Kafka: a member of the classic protocol."""
    member = ConsumerGroupMemberMetadataValue(classic_member_metadata=None)
    encoded = bytes.fromhex("010101010101ffffffff01 01000100")
    assert encode(member, 0) == encoded
    assert decode(ConsumerGroupMemberMetadataValue, 0, memoryview(encoded))[0] == member
    assert ConsumerGroupMemberMetadataValue().classic_member_metadata is not None
