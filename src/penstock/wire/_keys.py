"""The loops of compaction: the last offset of every key, which records are still wanted, and a copy of those.

`KeyMap` holds for each key sixteen bytes of a keyed hash and the largest offset at which the key was seen: 24 bytes an
entry, however long the keys are, in memory that is taken once. With 128 bits two keys of one log never meet by chance,
and nobody can choose keys that do without knowing the seed, which is drawn anew for every round.

Records come as the columns that `_records.scan` fills. This file is plain Python. With a C compiler, Cython builds the
same file with the types of `_keys.pxd`; indexes are then not checked by the language, and the columns are those that
`scan` has found good. While C is at work the interpreter's lock is let go: these loops run in a thread beside the event
loop, which must not wait for them.
"""

from __future__ import annotations

from hashlib import blake2b

from penstock.base.world import Buffer
from penstock.wire._records import Column

try:
    import cython
except ImportError:
    from penstock.wire import no_cython as cython

ENTRY_BYTES = 24

_COMPILED = __file__.endswith((".so", ".pyd"))
_WORD_MAX = 2**64 - 1
_SIP_0, _SIP_1, _SIP_2, _SIP_3 = 0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573
_WORDS = 3  # of a slot: the hash in two, and the offset plus one; 0 there says that the slot is free


def _sip_hash(data: Buffer, start: int, length: int, seed_low: int, seed_high: int, digest: memoryview) -> None:
    """SipHash-2-4 with 128 bits of `length` bytes, into two words. A C compiler does it in some twenty nanoseconds."""
    v0 = seed_low ^ _SIP_0
    v1 = seed_high ^ _SIP_1 ^ 0xEE
    v2 = seed_low ^ _SIP_2
    v3 = seed_high ^ _SIP_3
    blocks = length // 8
    for step in range(blocks + 3):
        word = 0
        rounds = 2
        if step < blocks:
            for at in range(8):
                byte = data[start + 8 * step + at]
                word |= byte << (8 * at)
        elif step == blocks:
            byte = length & 0xFF
            word = byte << 56
            for at in range(length - 8 * blocks):
                byte = data[start + 8 * blocks + at]
                word |= byte << (8 * at)
        elif step == blocks + 1:
            v2 ^= 0xEE
            rounds = 4
        else:
            digest[0] = v0 ^ v1 ^ v2 ^ v3
            v1 ^= 0xDD
            rounds = 4
        v3 ^= word
        for _ in range(rounds):
            v0 = (v0 + v1) & _WORD_MAX
            v1 = ((v1 << 13) | (v1 >> 51)) & _WORD_MAX
            v1 ^= v0
            v0 = ((v0 << 32) | (v0 >> 32)) & _WORD_MAX
            v2 = (v2 + v3) & _WORD_MAX
            v3 = ((v3 << 16) | (v3 >> 48)) & _WORD_MAX
            v3 ^= v2
            v0 = (v0 + v3) & _WORD_MAX
            v3 = ((v3 << 21) | (v3 >> 43)) & _WORD_MAX
            v3 ^= v0
            v2 = (v2 + v1) & _WORD_MAX
            v1 = ((v1 << 17) | (v1 >> 47)) & _WORD_MAX
            v1 ^= v2
            v2 = ((v2 << 32) | (v2 >> 32)) & _WORD_MAX
        v0 ^= word
    digest[1] = v0 ^ v1 ^ v2 ^ v3


def sip_hash(data: Buffer, seed_low: int, seed_high: int) -> tuple[int, int]:
    """The two words of a key's hash."""
    digest = memoryview(bytearray(16)).cast("Q")
    _sip_hash(data, 0, len(data), seed_low, seed_high, digest)
    return digest[0], digest[1]


def _hash(data: Buffer, start: int, length: int, seed_low: int, seed_high: int, digest: memoryview) -> None:
    """The hash of a key; where there is no compiler one that Python has compiled in."""
    if _COMPILED:
        _sip_hash(data, start, length, seed_low, seed_high, digest)
    else:
        with cython.gil:
            seed = seed_low.to_bytes(8, "big") + seed_high.to_bytes(8, "big")
            words = blake2b(data[start : start + length], digest_size=16, key=seed).digest()
            digest[0] = int.from_bytes(words[:8], "big")
            digest[1] = int.from_bytes(words[8:], "big")


class KeyMap:
    """The last offset of each key. `latest_offset` is up to where the log has been looked at."""

    __slots__ = (
        "_digest",
        "_seed_high",
        "_seed_low",
        "_slots",
        "entries",
        "entries_max",
        "latest_offset",
        "slot_count",
    )

    def __init__(self, slot_count: int, entries_max: int, seed_low: int, seed_high: int) -> None:
        """It takes `entries_max` different keys, fewer than it has slots."""
        if not 0 < entries_max < slot_count:
            raise ValueError(f"{entries_max} entries do not fit {slot_count} slots")
        self.slot_count = slot_count
        self.entries_max = entries_max
        self.entries = 0
        self.latest_offset = -1
        self._seed_low = seed_low
        self._seed_high = seed_high
        self._slots = memoryview(bytearray(ENTRY_BYTES * slot_count)).cast("Q")
        self._digest = memoryview(bytearray(16)).cast("Q")

    def put(
        self,
        area: Buffer,
        count: int,
        key_start: Column,
        key_length: Column,
        offset_delta: Column,
        base_offset: int,
        from_offset: int,
    ) -> int:
        """Take note of the keys of records from an offset on; of how many records, fewer than all if it is full."""
        if len(key_start) < count or len(key_length) < count or len(offset_delta) < count:
            raise ValueError(f"a column is shorter than {count} records")
        with cython.nogil:
            for index in range(count):
                length = key_length[index]
                offset = base_offset + offset_delta[index]
                if length < 0 or offset < from_offset:
                    continue
                at = self._find(area, key_start[index], length)
                if self._slots[at + 2] == 0:
                    if self.entries >= self.entries_max:
                        count = index
                        break
                    self.entries += 1
                    self._slots[at] = self._digest[0]
                    self._slots[at + 1] = self._digest[1]
                self._slots[at + 2] = offset + 1
        return count

    def _find(self, area: Buffer, start: int, length: int) -> int:
        """Where a key is in the slots, or would be."""
        _hash(area, start, length, self._seed_low, self._seed_high, self._digest)
        low = self._digest[0]
        high = self._digest[1]
        end = _WORDS * self.slot_count
        at = _WORDS * (low % self.slot_count)
        while self._slots[at + 2] != 0 and (self._slots[at] != low or self._slots[at + 1] != high):
            at += _WORDS
            if at == end:
                at = 0
        return at

    def select(
        self,
        area: Buffer,
        count: int,
        key_start: Column,
        key_length: Column,
        value_length: Column,
        offset_delta: Column,
        base_offset: int,
        keeps_tombstones: bool,
        kept: bytearray,
        counts: Column,
    ) -> None:
        """Mark the records that stay with 1 in `kept`, and the others with 0.

        What lies beyond the map stays. Of the rest a record without a key goes, one whose key was seen later too, and
        a tombstone when its time is over. Added to `counts`: how many stay, how many of those are tombstones, how many
        go as superseded, as tombstones, and without a key.
        """
        if len(kept) < count or len(counts) < 5 or len(key_start) < count or len(value_length) < count:
            raise ValueError(f"no room for {count} records")
        with cython.nogil:
            for index in range(count):
                offset = base_offset + offset_delta[index]
                is_tombstone = value_length[index] < 0
                stays = 1
                if offset <= self.latest_offset:
                    if key_length[index] < 0:
                        stays = 0
                        counts[4] += 1
                    else:
                        last = self._slots[self._find(area, key_start[index], key_length[index]) + 2]
                        if offset + 1 < last:
                            stays = 0
                            counts[2] += 1
                        elif is_tombstone and not keeps_tombstones:
                            stays = 0
                            counts[3] += 1
                kept[index] = stays
                if stays:
                    counts[0] += 1
                    if is_tombstone:
                        counts[1] += 1


def copy_kept(out: bytearray, area: Buffer, count: int, kept: bytearray, record_end: Column) -> int:
    """Copy the records that are marked in `kept`, as they are, one behind the other; how many bytes they are."""
    if len(out) < len(area) or len(kept) < count or len(record_end) < count:
        raise ValueError(f"no room for {count} records")
    start = 0
    position = 0
    with cython.nogil:
        for index in range(count):
            end = record_end[index]
            if kept[index]:
                if _COMPILED:  # a C compiler makes a block copy of this loop
                    for at in range(end - start):
                        out[position + at] = area[start + at]
                else:
                    with cython.gil:
                        out[position : position + end - start] = area[start:end]
                position += end - start
            start = end
    return position


def largest_kept(count: int, kept: bytearray, timestamp_delta: Column) -> int:
    """The largest of the timestamp deltas that are marked in `kept`, of which there is at least one."""
    if len(kept) < count or len(timestamp_delta) < count:
        raise ValueError(f"a column is shorter than {count} records")
    is_found = False
    largest = 0
    for index in range(count):
        if kept[index] and (not is_found or timestamp_delta[index] > largest):
            largest = timestamp_delta[index]
            is_found = True
    return largest
