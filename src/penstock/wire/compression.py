"""The four codecs of record batches, written as the Java client writes them and read as anyone writes them.

What is read comes from strangers, so inflation has a ceiling: a codec only ever writes into a buffer that we made, and
stops in mid-stream when the buffer is full. A declared size is believed only where it makes that buffer smaller, or
after it was compared with the ceiling.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from functools import cache
from mmap import mmap
from struct import Struct
from typing import Any

from penstock.base.world import Buffer


class Compression(IntEnum):
    """The lowest three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


class CompressionError(ValueError):
    """Compressed bytes that are damaged, or that inflate to more than they may."""


# Snappy has no streaming form of its own; Kafka uses the framing of the xerial (snappy-java) library:
# magic 8 | version 4 | lowest compatible version 4 | blocks, each with its length before it in 4 bytes.
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK_SIZE = 32 * 1024
_XERIAL_LENGTH = Struct(">i")
_SNAPPY_RATIO_MAX = 22  # three bytes copy at most 64

_LZ4_FAST = 1

# Inflating a small input first into a small buffer spares the page faults of a large fresh one.
_FIRST_TRY_INPUT_SIZE_MAX = 64 * 1024
_FIRST_TRY_RATIO = 8
_FIRST_TRY_SIZE_MIN = 4 * 1024


@cache
def _codecs() -> Any:
    """The library of the codecs, loaded for the first batch that is looked into: many brokers never see one."""
    import cramjam

    return cramjam


def compress(codec: Compression, data: Buffer, level: int | None = None) -> bytes:
    """The data as this codec stores it inside a batch; without a level, the codec's own default."""
    if codec is Compression.NONE:
        return bytes(data)
    if codec is Compression.GZIP:
        return bytes(_codecs().gzip.compress(data, level=6 if level is None else level))
    if codec is Compression.SNAPPY:
        return _compress_xerial(memoryview(data))
    if codec is Compression.LZ4:
        return _compress_lz4(data, level)
    return bytes(_codecs().zstd.compress(data, level=3 if level is None else level))


def decompress(codec: Compression, data: Buffer, *, size_bytes_max: int) -> bytes:
    """The data before compression. CompressionError if it is damaged or larger than `size_bytes_max`."""
    if codec is Compression.NONE:
        return bytes(data)
    if codec is Compression.SNAPPY:
        return _decompress_snappy(memoryview(data), size_bytes_max)
    return _inflate(codec, data, size_bytes_max)


class Inflater:
    """Inflates one input after the other into the same memory, which spares the page faults of fresh memory.

    What it returns is good until the next call.
    """

    def __init__(self, *, size_bytes_max: int, kept_bytes_max: int) -> None:
        self._size_bytes_max = size_bytes_max
        self._kept_bytes_max = min(kept_bytes_max, size_bytes_max)
        self._memory = bytearray()

    def decompress(self, codec: Compression, data: Buffer) -> Buffer:
        if codec in (Compression.NONE, Compression.SNAPPY):
            return decompress(codec, data, size_bytes_max=self._size_bytes_max)
        if self._memory:
            inflate_into = _inflate_into(codec)
            try:
                return memoryview(self._memory)[: inflate_into(data, self._memory)]
            except _codecs().DecompressionError:
                pass  # too small, or the data is damaged: the next attempt tells
        inflated = decompress(codec, data, size_bytes_max=self._size_bytes_max)
        room = min(2 * len(inflated), self._kept_bytes_max)
        if room > len(self._memory):
            self._memory = bytearray(room)
        return inflated


def _compress_lz4(data: Buffer, level: int | None) -> bytes:
    # The Java client refuses frames whose blocks refer to earlier blocks. Its own default is the fast compressor; the
    # library's would be one that takes six times as long.
    fast_unless = _LZ4_FAST if level is None else level
    compressor = _codecs().lz4.Compressor(level=fast_unless, content_checksum=False, block_linked=False)
    compressor.compress(bytes(data))
    return bytes(compressor.finish())


def _compress_xerial(data: memoryview) -> bytes:
    parts = [_XERIAL_HEADER]
    for start in range(0, len(data), _XERIAL_BLOCK_SIZE):
        block = bytes(_codecs().snappy.compress_raw(data[start : start + _XERIAL_BLOCK_SIZE]))
        parts += (_XERIAL_LENGTH.pack(len(block)), block)
    return b"".join(parts)


def _decompress_snappy(data: memoryview, size_bytes_max: int) -> bytes:
    if data[: len(_XERIAL_MAGIC)] == _XERIAL_MAGIC:
        return _decompress_xerial(data, size_bytes_max)
    return bytes(_decompress_snappy_block(data, size_bytes_max))


def _decompress_xerial(data: memoryview, size_bytes_max: int) -> bytes:
    position = len(_XERIAL_HEADER)
    if len(data) < position:
        raise CompressionError("snappy: the stream ends inside its header")
    blocks: list[bytearray] = []
    room = size_bytes_max
    while position < len(data):
        if len(data) - position < _XERIAL_LENGTH.size:
            raise CompressionError("snappy: the stream ends inside the length of a block")
        (length,) = _XERIAL_LENGTH.unpack_from(data, position)
        position += _XERIAL_LENGTH.size
        if not 0 <= length <= len(data) - position:
            raise CompressionError(f"snappy: a block of {length} bytes, {len(data) - position} are left")
        block = _decompress_snappy_block(data[position : position + length], room)
        room -= len(block)
        blocks.append(block)
        position += length
    return b"".join(blocks)


def _decompress_snappy_block(data: memoryview, size_bytes_max: int) -> bytearray:
    """One block; its first bytes say how large it becomes, and the codec holds it to that."""
    try:
        size_bytes = _codecs().snappy.decompress_raw_len(data)
        if size_bytes > size_bytes_max:
            raise CompressionError(f"snappy: inflates to more than the {size_bytes_max} bytes that are allowed")
        if size_bytes > _SNAPPY_RATIO_MAX * len(data):
            raise CompressionError(f"snappy: {len(data)} bytes cannot hold {size_bytes}")
        block = bytearray(size_bytes)
        if _codecs().snappy.decompress_raw_into(data, block) != size_bytes:
            raise CompressionError("snappy: a block is shorter than it says")
        return block
    except _codecs().DecompressionError as error:
        raise CompressionError(f"snappy: {error}") from None


@cache
def _inflate_into(codec: Compression) -> Callable[[Buffer, bytearray | mmap], int]:
    into: Callable[[Buffer, bytearray | mmap], int] = getattr(_codecs(), codec.name.lower()).decompress_into
    return into


def _inflate(codec: Compression, data: Buffer, size_bytes_max: int) -> bytes:
    """Inflate into a buffer as large as the ceiling, of which only the pages that are written to cost memory."""
    inflate_into = _inflate_into(codec)
    first_size = max(_FIRST_TRY_SIZE_MIN, _FIRST_TRY_RATIO * len(data))
    if len(data) <= _FIRST_TRY_INPUT_SIZE_MAX and first_size <= size_bytes_max:
        first = bytearray(first_size)
        try:
            return bytes(memoryview(first)[: inflate_into(data, first)])
        except _codecs().DecompressionError:
            del first  # too small, or the data is damaged: the next attempt tells
    with mmap(-1, max(1, size_bytes_max)) as scratch:
        try:
            size_bytes = inflate_into(data, scratch)
        except _codecs().DecompressionError as error:
            raise CompressionError(
                f"{codec.name.lower()}: damaged, or more than the {size_bytes_max} bytes that are allowed ({error})"
            ) from None
        if size_bytes > size_bytes_max:
            raise CompressionError(f"{codec.name.lower()}: inflates to something where nothing is allowed")
        return scratch[:size_bytes]
