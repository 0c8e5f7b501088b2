"""Unsigned variable-length integers of at most 32 bits: seven bits a byte, least first, the high bit says "more".

Lengths and tags of the flexible versions are written so. Nearly all of them are below 128 and take one byte, which
callers on a hot path read and write themselves; what is longer comes here.
"""

from __future__ import annotations

from penstock.base.world import Buffer

TAGGED_FIELDS_MAX = 10_000  # in one place; Kafka itself has no message with more than a handful

_SHIFT_LAST = 28  # of the fifth byte, which may carry four bits


class Malformed(Exception):
    """What is wrong with some bytes; the one who knows which message they are turns it into a ProtocolError."""


def read_varint(buffer: Buffer, position: int) -> tuple[int, int]:
    """The value and the position after it. IndexError if the buffer ends too soon."""
    first = buffer[position]
    if first < 0x80:
        return first, position + 1
    return read_rest(buffer, position + 1, first)


def read_rest(buffer: Buffer, position: int, first: int) -> tuple[int, int]:
    """The value whose first byte, which says "more", lies before the position."""
    value = first & 0x7F
    shift = 7
    while True:
        byte = buffer[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > _SHIFT_LAST:
            raise Malformed("a variable-length integer has more than five bytes")
    if value > 0xFFFFFFFF:
        raise Malformed("a variable-length integer has more than 32 bits")
    return value, position


def too_long(length: int, remaining: int) -> Malformed:
    return Malformed(f"a length of {length} needs more than the {remaining} bytes that remain")


def skip_tagged_fields(buffer: Buffer, position: int, count: int, end: int) -> int:
    """The position after `count` tagged fields that nobody here knows."""
    if count > TAGGED_FIELDS_MAX:
        raise Malformed(f"{count} tagged fields are more than {TAGGED_FIELDS_MAX}")
    for _ in range(count):
        _, position = read_varint(buffer, position)
        size, position = read_varint(buffer, position)
        if size > end - position:
            raise too_long(size, end - position)
        position += size
    return position


def write_varint(out: bytearray, value: int) -> None:
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
