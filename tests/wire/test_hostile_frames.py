"""Bytes that are not the message they should be: a ProtocolError, never another exception, a hang or much memory."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.wire.codec import decode, encode
from penstock.wire.headers import decode_request_header, decode_response_header
from penstock.wire.messages.k01_fetch import FetchRequest, FetchRequestForgottenTopic
from penstock.wire.messages.k03_metadata import MetadataRequest
from penstock.wire.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.wire.messages.k32_describe_configs import DescribeConfigsRequest
from penstock.wire.messages.k57_update_features import UpdateFeaturesRequest
from penstock.wire.schema import Message, ProtocolError

HUGE = (b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff\x07", b"\xff\xff\xff\xff\xff", b"\x80\x00\x00\x00", b"\xff\xff\xff\x7f")


def frames(cls: type[Message], samples: Any) -> Iterator[tuple[int, bytes]]:
    for version in samples.versions(cls):
        yield version, encode(samples.populated(cls, version, length=1), version)


def decodes_or_refuses(cls: type[Message], version: int, data: bytes) -> None:
    """Whatever was decoded can be encoded again: decoding lets nothing through that is not a message."""
    try:
        message, position = decode(cls, version, data)
    except ProtocolError:
        return
    assert position <= len(data)
    encode(message, version)


def test_every_truncation_is_refused(message_class: type[Message], samples: Any) -> None:
    for version, frame in frames(message_class, samples):
        view = memoryview(frame)
        for length in range(len(frame)):
            with pytest.raises(ProtocolError):
                decode(message_class, version, view[:length])


def mutations(frame: bytes, chance: random.Random, count: int) -> Iterator[bytes]:
    for _ in range(count):
        data = bytearray(frame)
        for _ in range(chance.choice((1, 1, 2, 8))):
            position = chance.randrange(len(data) + 1)
            match chance.randrange(5):
                case 0:
                    data[position:position] = chance.randbytes(chance.randrange(1, 5))
                case 1:
                    del data[position : position + chance.randrange(1, 5)]
                case 2:
                    huge = chance.choice(HUGE)
                    data[position : position + len(huge)] = huge
                case _ if position < len(data):
                    data[position] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
        yield bytes(data)


def test_some_mutations(message_class: type[Message], samples: Any) -> None:
    chance = random.Random(message_class.__name__)
    for version, frame in frames(message_class, samples):
        if frame:
            for data in mutations(frame, chance, 8):
                decodes_or_refuses(message_class, version, data)


@pytest.mark.fuzz
@pytest.mark.slow
def test_many_mutations(message_class: type[Message], samples: Any) -> None:
    chance = random.Random()
    seed = chance.getrandbits(64)
    chance.seed(seed)
    for version, frame in frames(message_class, samples):
        if frame:
            for data in mutations(frame, chance, 3000):
                try:
                    decodes_or_refuses(message_class, version, data)
                except Exception as error:
                    raise AssertionError(f"version {version}, seed {seed}: {data.hex()}") from error


def test_huge_lengths_allocate_nothing(message_class: type[Message], samples: Any) -> None:
    """Put the largest lengths at every place of a frame, where some of them are lengths."""
    version = samples.versions(message_class)[-1]
    frame = encode(samples.populated(message_class, version, length=1), version)
    decode(message_class, version, frame)
    tracemalloc.start()
    try:
        for position in range(0, len(frame), 1 + len(frame) // 40):
            for huge in HUGE[:2]:
                decodes_or_refuses(message_class, version, frame[:position] + huge + frame[position + len(huge) :])
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak_bytes < 1_000_000


def test_a_million_elements_are_the_limit() -> None:
    topic = FetchRequestForgottenTopic(topic="t", partitions=[1] * 999_999)
    request = FetchRequest(forgotten_topics_data=[topic])
    data = encode(request, 12)
    assert decode(FetchRequest, 12, data) == (request, len(data))
    topic.partitions.append(1)
    data = encode(request, 12)
    with pytest.raises(ProtocolError, match=r"forgotten_topics_data\.partitions: .* more than a million elements"):
        decode(FetchRequest, 12, data)


def test_a_count_is_compared_with_the_smallest_element() -> None:
    """Three resources of at least five bytes do not fit into twelve."""
    with pytest.raises(ProtocolError, match="DescribeConfigsRequest v4: resources: a length of 3 needs more"):
        decode(DescribeConfigsRequest, 4, b"\x04" + bytes(11))


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"\x05abc", "client_software_name: a length of 4 needs more than the 3 bytes"),
        (b"\x80\x80\x80\x80\x80\x01", "client_software_name: .*more than five bytes"),
        (b"\xff\xff\xff\xff\x7f", "client_software_name: .*more than 32 bits"),
        (b"\x00\x01\x00", "client_software_name: null is not allowed"),
        (b"\x02a", "client_software_version: .*end too soon"),
        (b"", "ApiVersionsRequest v3: client_software_name: .*end too soon"),
    ],
)
def test_the_error_names_the_field(data: bytes, complaint: str) -> None:
    with pytest.raises(ProtocolError, match=complaint):
        decode(ApiVersionsRequest, 3, data)


def test_text_must_be_utf_8() -> None:
    with pytest.raises(ProtocolError, match="client_software_name: a string is not valid UTF-8"):
        decode(ApiVersionsRequest, 3, b"\x03\xff\xfe\x01\x00")


def test_text_has_at_most_32767_bytes() -> None:
    longest = "a" * 32767
    request = ApiVersionsRequest(client_software_name=longest)
    assert decode(ApiVersionsRequest, 3, encode(request, 3))[0] == request
    too_long = ApiVersionsRequest(client_software_name=longest + "a")
    with pytest.raises(ProtocolError, match="client_software_name: a string of 32768 bytes is too long"):
        encode(too_long, 3)
    with pytest.raises(ProtocolError, match="client_software_name: a string has 32768 bytes"):
        decode(ApiVersionsRequest, 3, b"\x81\x80\x02" + b"a" * 32768 + b"\x01\x00")


# tagged fields

EMPTY_BODY = (
    b"\x00\x00\x01\x00\x00\x00\x00"  # no error, no API keys, not throttled: all of ApiVersionsResponse but tags
)


def test_unknown_tags_are_skipped() -> None:
    data = EMPTY_BODY + b"\x02\x63\x03abc\x7f\x00"
    assert decode(ApiVersionsResponse, 3, data) == (ApiVersionsResponse(), len(data))
    assert encode(ApiVersionsResponse(), 3) == EMPTY_BODY + b"\x00"
    request = MetadataRequest(topics=None)
    data = encode(request, 12)[:-1] + b"\x01\x05\x02xy"
    assert decode(MetadataRequest, 12, data) == (request, len(data))


def test_tags_in_any_order_and_the_last_of_two_alike() -> None:
    epoch_5, epoch_6 = b"\x01\x08" + (5).to_bytes(8, "big"), b"\x01\x08" + (6).to_bytes(8, "big")
    ready = b"\x03\x01\x01"
    expected = ApiVersionsResponse(finalized_features_epoch=6, zk_migration_ready=True)
    for tags in (ready + epoch_6, epoch_6 + ready):
        assert decode(ApiVersionsResponse, 3, EMPTY_BODY + b"\x02" + tags)[0] == expected
    assert decode(ApiVersionsResponse, 3, EMPTY_BODY + b"\x03" + epoch_5 + ready + epoch_6)[0] == expected


@pytest.mark.parametrize(
    ("tags", "complaint"),
    [
        (b"\x01\x01\x09" + bytes(9), "finalized_features_epoch: the size of a tagged field"),
        (b"\x01\x01\x07" + bytes(8), "finalized_features_epoch: the size of a tagged field"),
        (b"\x01\x01\x08" + bytes(7), "needs more than the 7 bytes"),
        (b"\x01\x63\xff\xff\xff\xff\x0f", "needs more than the 0 bytes"),
        (b"\xff\xff\xff\xff\x0f", "more than a million elements"),
        (b"\x02\x63\x00", "end too soon"),
    ],
)
def test_bad_tagged_fields(tags: bytes, complaint: str) -> None:
    with pytest.raises(ProtocolError, match=complaint):
        decode(ApiVersionsResponse, 3, EMPTY_BODY + tags)


def test_a_flood_of_tags() -> None:
    """They are cheap to send, so their number is bounded like that of elements."""
    flood = b"\x63\x00" * 1_000_001
    with pytest.raises(ProtocolError, match="more than a million elements"):
        decode(ApiVersionsResponse, 3, EMPTY_BODY + b"\xc1\x84\x3d" + flood)
    with pytest.raises(ProtocolError, match="request header: 1000001 tagged fields are more than 10000"):
        decode_request_header(b"\x00\x00\x00\x09\x00\x00\x00\x07\xff\xff\xc1\x84\x3d" + flood)


def test_any_byte_but_zero_is_true() -> None:
    data = bytearray(encode(UpdateFeaturesRequest(validate_only=True), 1))
    assert data[-2] == 1
    data[-2] = 0x80
    assert decode(UpdateFeaturesRequest, 1, data)[0].validate_only is True


# headers


def test_truncated_request_headers() -> None:
    header = b"\x00\x00\x00\x09\x00\x00\x00\x07\x00\x02id\x01\x09\x01x"
    assert decode_request_header(header + b"body")[1] == len(header)
    for length in range(len(header)):
        with pytest.raises(ProtocolError, match="request header"):
            decode_request_header(memoryview(header)[:length])


def test_bad_request_headers() -> None:
    with pytest.raises(ProtocolError, match="client id of 32767 bytes"):
        decode_request_header(b"\x00\x00\x00\x09\x00\x00\x00\x07\x7f\xffid\x00")
    with pytest.raises(ProtocolError, match=r"request header: .*utf-8"):
        decode_request_header(b"\x00\x00\x00\x09\x00\x00\x00\x07\x00\x02\xff\xff\x00")
    with pytest.raises(ProtocolError, match="more than five bytes"):
        decode_request_header(b"\x00\x00\x00\x09\x00\x00\x00\x07\xff\xff" + b"\xff" * 6)


def test_bad_response_headers() -> None:
    header = b"\x00\x00\x00\x07\x01\x09\x01x"
    assert decode_response_header(0, 9, header) == (7, len(header))
    for length in range(len(header)):
        with pytest.raises(ProtocolError, match="response header"):
            decode_response_header(0, 9, header[:length])
