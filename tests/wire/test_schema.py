"""The notation: what a declaration means, and how its classes behave."""

from __future__ import annotations

import dataclasses
from uuid import UUID

import pytest

from penstock.wire.codec import decode, encode, encode_into, encoder
from penstock.wire.messages.k00_produce import ProduceRequest, ProduceRequestPartition, ProduceRequestTopic
from penstock.wire.schema import (
    NO_VERSIONS,
    Message,
    ProtocolError,
    Records,
    Versions,
    field,
    float64,
    int8,
    int16,
    int32,
    message,
    parse_versions,
    schema_of,
    struct,
    uint16,
    uint32,
)


@struct
class Part:
    number: int32 = field("0+")
    label: str | None = field("1+", nullable="1+", default=None)


@message("0-3", flexible="2+")
class Whole:
    """A message with one of everything."""

    small: int8 = field("0+", default=-1)
    parts: list[Part] | None = field("0+", nullable="1+")
    single: Part = field("1+")
    maybe: Part | None = field("2+", nullable="2+", default=None)
    ports: list[uint16] = field("0+")
    flags: list[bool] = field("1+", ignorable=True)
    checksum: uint32 = field("1-2")
    ratio: float64 = field("3+", ignorable=True)
    data: Records = field("0+")
    extra: Part = field("2+", tag=1)
    name: str = field("2+", tag=0)


def test_versions() -> None:
    assert parse_versions("3-7") == Versions(3, 7)
    assert parse_versions("3") == Versions(3, 3)
    assert 3 in parse_versions("3+") and 1000 in parse_versions("3+") and 2 not in parse_versions("3+")
    assert parse_versions("none") == NO_VERSIONS and not any(version in NO_VERSIONS for version in range(100))
    assert (str(Versions(3, 7)), str(Versions(3, 3))) == ("3-7", "3")


def test_a_message_is_a_dataclass_with_slots_and_defaults() -> None:
    one, other = Whole(), Whole()
    assert (one.small, one.parts, one.single, one.maybe, one.data, one.ratio) == (-1, [], Part(), None, b"", 0.0)
    assert one == other and one.single is not other.single and one.ports is not other.ports
    assert dataclasses.replace(one, small=4).small == 4
    assert not hasattr(one, "__dict__")
    with pytest.raises(TypeError):
        Whole(unknown=1)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        hash(one)
    other.small = 5
    assert one != other and one != object()


def test_repr_shows_what_is_not_default_and_no_bytes() -> None:
    whole = Whole(small=3, parts=[Part(number=7)], data=b"secret")
    assert repr(whole) == "Whole(small=3, parts=[Part(number=7)], data=<6 bytes>)"


def test_bytes_on_the_wire_of_each_version() -> None:
    whole = Whole(small=3, parts=[Part(number=7)], ports=[65535], data=b"xy")
    assert encode(whole, 0) == bytes.fromhex("03 00000001 00000007 00000001 ffff 00000002 7879")
    whole.single, whole.flags, whole.checksum = Part(number=1, label="é"), [True], 0xFFFFFFFF
    assert encode(whole, 1) == bytes.fromhex(
        "03 00000001 00000007 ffff  00000001 0002 c3a9  00000001 ffff  00000001 01  ffffffff  00000002 7879"
    )
    whole.maybe, whole.name, whole.extra = Part(number=2), "n", Part(number=9)
    assert encode(whole, 2) == bytes.fromhex(
        "03  02 00000007 00 00  00000001 03 c3a9 00  01 00000002 00 00  02 ffff  02 01  ffffffff  03 7879"
        "02  00 02 02 6e  01 06 00000009 00 00"
    )
    assert decode(Whole, 2, encode(whole, 2))[0] == whole


def test_a_value_that_the_version_cannot_carry() -> None:
    assert encode(Whole(flags=[True], ratio=1.5), 0) == encode(Whole(), 0)  # these two may be dropped
    for whole, name in (
        (Whole(checksum=1), "checksum"),
        (Whole(single=Part(number=1)), "single"),
        (Whole(maybe=Part()), "maybe"),
        (Whole(name="n"), "name"),
        (Whole(parts=[Part(label="l")]), r"parts\.label"),
    ):
        with pytest.raises(ProtocolError, match=f"Whole v0: {name}: this version has no such field"):
            encode(whole, 0)


def test_null_only_where_the_version_allows_it() -> None:
    assert encode(Whole(parts=None), 1)[1:5] == b"\xff\xff\xff\xff"
    with pytest.raises(ProtocolError, match="Whole v0: parts: null is not allowed"):
        encode(Whole(parts=None), 0)
    with pytest.raises(ProtocolError, match="Whole v0: parts: null is not allowed"):
        decode(Whole, 0, b"\x00\xff\xff\xff\xff")
    with pytest.raises(ProtocolError, match="Whole v2: data: null is not allowed"):
        encode(Whole(data=None), 2)  # type: ignore[arg-type]


def test_values_of_the_wrong_size_or_type() -> None:
    with pytest.raises(ProtocolError, match="Whole v0: small"):
        encode(Whole(small=128), 0)
    with pytest.raises(ProtocolError, match=r"Whole v0: parts\.number"):
        encode(Whole(parts=[Part(number="1")]), 0)  # type: ignore[arg-type]
    with pytest.raises(ProtocolError, match="Whole v0: ports"):
        encode(Whole(ports=[-1]), 0)


def test_nothing_is_appended_when_encoding_fails() -> None:
    out = bytearray(b"before")
    with pytest.raises(ProtocolError):
        encode_into(Whole(ports=[-1]), 0, out)
    assert out == b"before"


def test_versions_that_a_message_does_not_have() -> None:
    for version in (-1, 4):
        with pytest.raises(ProtocolError, match=f"Whole has versions 0-3, not {version}"):
            encode(Whole(), version)
        with pytest.raises(ProtocolError, match=f"Whole has versions 0-3, not {version}"):
            decode(Whole, version, b"")


def test_only_declared_classes() -> None:
    @dataclasses.dataclass
    class Plain:
        number: int = 0

    with pytest.raises(TypeError, match="Plain is not declared"):
        schema_of(Plain)


def test_an_empty_message() -> None:
    @message("0-1", flexible="1+")
    class Empty:
        pass

    assert (encode(Empty(), 0), encode(Empty(), 1)) == (b"", b"\x00")
    assert decode(Empty, 1, b"\x00") == (Empty(), 1)


def test_records_are_slices_and_everything_else_is_copied() -> None:
    partition = ProduceRequestPartition(index=3, records=memoryview(b"batch"))
    request = ProduceRequest(acks=-1, topic_data=[ProduceRequestTopic(name="t", partition_data=[partition])])
    buffer = bytearray(encode(request, 9))
    decoded, _ = decode(ProduceRequest, 9, buffer)
    records = decoded.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview) and records.tobytes() == b"batch"
    buffer[:] = bytes(len(buffer))
    assert records.tobytes() == bytes(5)
    assert decoded.topic_data[0].name == "t"


def test_compiled_functions_are_kept() -> None:
    assert encoder(Whole, 0) is encoder(Whole, 0)


def test_annotations_become_types() -> None:
    fields = {each.name: each for each in schema_of(Whole).fields}
    assert fields["parts"].struct is Part and fields["parts"].is_array
    assert fields["small"].kind.value == "b" and fields["small"].is_fixed_size
    assert fields["extra"].tag == 1 and fields["extra"].default is Part

    @message("0")
    class Ids:
        topic_id: UUID = field("0+")
        error_code: int16 = field("0+")

    declared: type[Message] = Ids
    assert [each.kind.name for each in schema_of(declared).fields] == ["UUID", "INT16"]
