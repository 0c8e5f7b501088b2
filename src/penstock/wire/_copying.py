"""Copying a few bytes, which the loops over records do twice for each record.

Compiled modules get the same from `_copying.pxd`, where it is the copy of the C library: a slice of Python would cost
an object, and a loop over the bytes several times the copy.
"""

from __future__ import annotations

from penstock.base.world import Buffer


def copy(out: bytearray | memoryview, position: int, data: Buffer, start: int, length: int) -> int:
    """Copy bytes to where there is room for them; the position after them. The caller has looked at both buffers."""
    out[position : position + length] = data[start : start + length]
    return position + length
