"""Codecs: what others write is read, we write what the Java client writes, and nothing inflates past its ceiling."""

from __future__ import annotations

import gzip
import resource
import tracemalloc
from pathlib import Path

import cramjam
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.wire.compression import Compression, CompressionError, Inflater, compress, decompress

CODECS = [codec for codec in Compression if codec is not Compression.NONE]
MIB = 1024 * 1024
PAYLOAD = b"".join(b"line %d of a payload that is worth compressing\n" % number for number in range(5_000))

codecs = pytest.mark.parametrize("codec", CODECS, ids=lambda codec: codec.name.lower())


@given(codec=st.sampled_from(Compression), data=st.binary(max_size=2000), times=st.integers(1, 100))
def test_round_trip(codec: Compression, data: bytes, times: int) -> None:
    data *= times
    assert decompress(codec, compress(codec, data), size_bytes_max=len(data)) == data


@codecs
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_is_taken(codec: Compression, kind: type) -> None:
    assert decompress(codec, kind(compress(codec, kind(PAYLOAD))), size_bytes_max=MIB) == PAYLOAD


@codecs
def test_exactly_the_ceiling_is_allowed_and_one_byte_more_is_not(codec: Compression) -> None:
    packed = compress(codec, PAYLOAD)
    assert decompress(codec, packed, size_bytes_max=len(PAYLOAD)) == PAYLOAD
    with pytest.raises(CompressionError):
        decompress(codec, packed, size_bytes_max=len(PAYLOAD) - 1)


@codecs
def test_a_ceiling_of_nothing_lets_only_nothing_through(codec: Compression) -> None:
    assert decompress(codec, compress(codec, b""), size_bytes_max=0) == b""
    with pytest.raises(CompressionError):
        decompress(codec, compress(codec, b"x"), size_bytes_max=0)


@codecs
def test_every_truncation_is_an_error(codec: Compression) -> None:
    packed = compress(codec, PAYLOAD[:300])
    block_ends = (
        {16} if codec is Compression.SNAPPY else set()
    )  # a xerial stream has no end mark: no blocks are a stream
    for size in range(len(packed)):
        if size not in block_ends:
            with pytest.raises(CompressionError):
                decompress(codec, packed[:size], size_bytes_max=MIB)


@settings(max_examples=200)
@given(codec=st.sampled_from(CODECS), data=st.data())
def test_damage_gives_an_error_or_bytes_below_the_ceiling(codec: Compression, data: st.DataObject) -> None:
    packed = bytearray(compress(codec, PAYLOAD[:500]))
    for _ in range(data.draw(st.integers(1, 3))):
        packed[data.draw(st.integers(0, len(packed) - 1))] = data.draw(st.integers(0, 255))
    try:
        assert len(decompress(codec, packed, size_bytes_max=2000)) <= 2000
    except CompressionError:
        pass


@given(codec=st.sampled_from(CODECS), data=st.binary(max_size=300))
def test_garbage_gives_an_error_or_bytes_below_the_ceiling(codec: Compression, data: bytes) -> None:
    try:
        assert len(decompress(codec, data, size_bytes_max=1000)) <= 1000
    except CompressionError:
        pass


def gzip_bomb() -> bytes:
    return bytes(cramjam.gzip.compress(bytes(64 * MIB))) * 16


def zstd_bomb() -> bytes:
    """Blocks that each say: 128 KiB of one byte. No content size; a window of 128 KiB."""
    run = ((128 * 1024 << 3) | 1 << 1).to_bytes(3, "little") + b"\0"
    last = (1 << 3 | 1 << 1 | 1).to_bytes(3, "little") + b"\0"
    return b"\x28\xb5\x2f\xfd\x00\x38" + run * 8192 + last


def lz4_bomb() -> bytes:
    packer = cramjam.lz4.Compressor(content_checksum=False, block_linked=False)
    zeros = bytes(4 * MIB)
    for _ in range(256):
        packer.compress(zeros)
    return bytes(packer.finish())


def xerial_bomb() -> bytes:
    block = bytes(cramjam.snappy.compress_raw(bytes(16 * MIB)))
    framed = len(block).to_bytes(4, "big") + block
    return b"\x82SNAPPY\x00\0\0\0\1\0\0\0\1" + framed * 64


BOMBS = [
    (Compression.GZIP, gzip_bomb),
    (Compression.SNAPPY, xerial_bomb),
    (Compression.SNAPPY, lambda: bytes(cramjam.snappy.compress_raw(bytes(64 * MIB)))),
    (Compression.LZ4, lz4_bomb),
    (Compression.ZSTD, zstd_bomb),
]


def resident_peak_bytes() -> int:
    """The most memory this process has held (since `forget_resident_peak`)."""
    status = Path("/proc/self/status")
    if not status.exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(status.read_text().split("VmHWM:")[1].split()[0]) * 1024


def forget_resident_peak() -> None:
    peak = Path("/proc/self/clear_refs")
    if peak.exists():
        peak.write_text("5")


@pytest.mark.parametrize(("codec", "make"), BOMBS, ids=["gzip", "xerial", "snappy", "lz4", "zstd"])
def test_a_bomb_stops_at_the_ceiling(codec: Compression, make: object) -> None:
    bomb = make()  # type: ignore[operator]
    ceiling = 32 * MIB
    forget_resident_peak()
    before = resident_peak_bytes()
    tracemalloc.start()
    try:
        with pytest.raises(CompressionError):
            decompress(codec, bomb, size_bytes_max=ceiling)
        _, python_peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert resident_peak_bytes() - before <= ceiling + 8 * MIB
    assert python_peak <= ceiling + MIB


@pytest.mark.parametrize("size", [b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\x3f"], ids=["4 GiB", "128 MiB"])
def test_a_snappy_block_that_lies_about_its_size_takes_no_memory(size: bytes) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(CompressionError):
            decompress(Compression.SNAPPY, size + b"\0x", size_bytes_max=1024 * MIB)
        assert tracemalloc.get_traced_memory()[1] < MIB
    finally:
        tracemalloc.stop()


def test_a_zstd_frame_that_lies_about_its_content_size_takes_no_memory() -> None:
    # A single segment that declares 2^40 bytes and holds one raw byte.
    frame = b"\x28\xb5\x2f\xfd\xe0" + (1 << 40).to_bytes(8, "little") + (1 << 3 | 1).to_bytes(3, "little") + b"x"
    with pytest.raises(CompressionError):
        decompress(Compression.ZSTD, frame, size_bytes_max=MIB)


def test_snappy_is_written_in_xerial_blocks_of_32_kib() -> None:
    packed = compress(Compression.SNAPPY, PAYLOAD)
    assert packed.startswith(b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01")
    first = int.from_bytes(packed[16:20], "big")
    assert cramjam.snappy.decompress_raw_len(packed[20 : 20 + first]) == 32 * 1024


def test_raw_snappy_is_read() -> None:
    packed = bytes(cramjam.snappy.compress_raw(PAYLOAD))
    assert decompress(Compression.SNAPPY, packed, size_bytes_max=MIB) == PAYLOAD


@pytest.mark.parametrize("length", [-1, 2**31 - 1, 5])
def test_a_xerial_block_longer_than_the_stream_is_an_error(length: int) -> None:
    packed = b"\x82SNAPPY\x00\0\0\0\1\0\0\0\1" + length.to_bytes(4, "big", signed=True) + b"\x01\x00a"
    with pytest.raises(CompressionError):
        decompress(Compression.SNAPPY, packed, size_bytes_max=MIB)


def test_lz4_is_written_in_blocks_that_stand_alone() -> None:
    packed = compress(Compression.LZ4, PAYLOAD)
    assert packed[:4] == b"\x04\x22\x4d\x18"
    assert packed[4] & 0x20, "the Java client refuses blocks that depend on earlier ones"


# Frames with the flags of the Java client (0x60: version 1, independent blocks, no checksums, no content size), made by
# hand: descriptor, its checksum, one block, end mark.
LZ4_STORED = bytes.fromhex("04224d18 60 40 82 05000080 68656c6c6f 00000000")
LZ4_MATCH = bytes.fromhex("04224d18 60 40 82 0b000000 1f61010000 50 6161616161 00000000")


def test_lz4_frames_without_content_size_are_read() -> None:
    assert decompress(Compression.LZ4, LZ4_STORED, size_bytes_max=100) == b"hello"
    assert decompress(Compression.LZ4, LZ4_MATCH, size_bytes_max=100) == b"a" * 25


def test_lz4_frames_with_dependent_blocks_are_read() -> None:
    packer = cramjam.lz4.Compressor(block_linked=True)
    packer.compress(PAYLOAD)
    packed = bytes(packer.finish())
    assert not packed[4] & 0x20
    assert decompress(Compression.LZ4, packed, size_bytes_max=MIB) == PAYLOAD


def test_gzip_of_several_members_is_read() -> None:
    packed = gzip.compress(b"first ") + gzip.compress(b"second")
    assert decompress(Compression.GZIP, packed, size_bytes_max=100) == b"first second"


def test_zstd_without_content_size_is_read() -> None:
    packer = cramjam.zstd.Compressor()
    packer.compress(PAYLOAD)
    assert decompress(Compression.ZSTD, bytes(packer.finish()), size_bytes_max=MIB) == PAYLOAD


# An inflater, which uses its memory again


@given(
    inputs=st.lists(st.tuples(st.sampled_from(CODECS), st.binary(max_size=300), st.integers(1, 50)), max_size=6),
    kept=st.integers(0, 5000),
)
def test_an_inflater_gives_what_decompressing_gives(inputs: list[tuple[Compression, bytes, int]], kept: int) -> None:
    inflater = Inflater(size_bytes_max=100_000, kept_bytes_max=kept)
    for codec, data, times in inputs:
        assert inflater.decompress(codec, compress(codec, data * times)) == data * times


@codecs
def test_an_inflater_has_a_ceiling_and_gets_over_damage(codec: Compression) -> None:
    inflater = Inflater(size_bytes_max=len(PAYLOAD), kept_bytes_max=MIB)
    packed = compress(codec, PAYLOAD)
    for _ in range(2):
        assert inflater.decompress(codec, packed) == PAYLOAD
        for bad in (compress(codec, PAYLOAD + b"x"), packed[: len(packed) // 2], b""):
            with pytest.raises(CompressionError):
                inflater.decompress(codec, bad)
