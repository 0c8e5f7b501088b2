"""Walking through the batches of a segment file, header by header or batch by batch, in bounded reads.

Both walks stop with `DamagedLog` at the first place that cannot be a batch; what came before it is good.
"""

from __future__ import annotations

from collections.abc import Iterator

from penstock.base.world import File
from penstock.wire.batch import HEADER_SIZE, LOG_OVERHEAD, MAGIC, BatchHeader, problem_of_batch, read_header

HEADERS_CHUNK_BYTES = 16 << 10
BATCHES_CHUNK_BYTES = 1 << 20


class DamagedLog(Exception):
    """The bytes at a position of a segment file are not a sound batch."""

    def __init__(self, path: str, position: int, problem: str) -> None:
        super().__init__(f"{path} at {position}: {problem}")
        self.path = path
        self.position = position
        self.problem = problem


def header_problem(header: BatchHeader, room_bytes: int) -> str | None:
    """Why these 61 bytes cannot be the header of a whole batch in the room that is left, or None."""
    size_bytes = header.length + LOG_OVERHEAD
    if header.magic != MAGIC:
        return f"magic is {header.magic}, not {MAGIC}"
    if size_bytes < HEADER_SIZE:
        return f"a batch of {size_bytes} bytes is shorter than its header"
    if size_bytes > room_bytes:
        return f"a batch of {size_bytes} bytes where {room_bytes} are left"
    if header.base_offset < 0 or header.last_offset_delta < 0:
        return f"base offset {header.base_offset} and last offset delta {header.last_offset_delta}"
    return None


def walk_headers(
    file: File, position: int, end_position: int, chunk_bytes: int = HEADERS_CHUNK_BYTES
) -> Iterator[tuple[int, BatchHeader]]:
    """The position and the header of every batch in the range."""
    chunk = b""
    chunk_position = position
    while position < end_position:
        in_chunk = position - chunk_position
        if in_chunk + HEADER_SIZE > len(chunk):
            chunk = file.read(min(chunk_bytes, end_position - position), position)
            chunk_position = position
            in_chunk = 0
            if len(chunk) < HEADER_SIZE:
                raise DamagedLog(file.path, position, f"{len(chunk)} bytes are less than a header")
        header = read_header(chunk, in_chunk)
        problem = header_problem(header, end_position - position)
        if problem is not None:
            raise DamagedLog(file.path, position, problem)
        yield position, header
        position += header.length + LOG_OVERHEAD


def walk_batches(
    file: File, position: int, end_position: int, chunk_bytes: int = BATCHES_CHUNK_BYTES
) -> Iterator[tuple[int, BatchHeader, memoryview]]:
    """Position, header and bytes of every batch in the range; each one's checksum has been checked."""
    chunk = memoryview(b"")
    chunk_position = position
    while position < end_position:
        in_chunk = position - chunk_position
        if in_chunk + HEADER_SIZE > len(chunk):
            chunk, chunk_position, in_chunk = (
                _read(file, position, min(chunk_bytes, end_position - position)),
                position,
                0,
            )
            if len(chunk) < HEADER_SIZE:
                raise DamagedLog(file.path, position, f"{len(chunk)} bytes are less than a header")
        header = read_header(chunk, in_chunk)
        problem = header_problem(header, end_position - position)
        if problem is not None:
            raise DamagedLog(file.path, position, problem)
        size_bytes = header.length + LOG_OVERHEAD
        if in_chunk + size_bytes > len(chunk):
            wanted = min(max(chunk_bytes, size_bytes), end_position - position)
            chunk, chunk_position, in_chunk = _read(file, position, wanted), position, 0
        batch = chunk[in_chunk : in_chunk + size_bytes]
        problem = problem_of_batch(batch, header)
        if problem is not None:
            raise DamagedLog(file.path, position, problem)
        yield position, header, batch
        position += size_bytes


def _read(file: File, position: int, count: int) -> memoryview:
    return memoryview(file.read(count, position))
