"""Estimates of how large records are."""

from __future__ import annotations

import pytest

from penstock.base.identifiers import TopicPartition
from penstock.spark.planning import Range
from penstock.spark.sizes import BYTES_GUESSED, LOOK_AGAIN_S, LOOKS_MAX, RECORDS_LOOKED_AT, Look, SizeEstimates

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


class Partitions:
    """Records of fixed sizes, a clock, and what was looked at."""

    def __init__(self, sizes_bytes: dict[TopicPartition, int]) -> None:
        self.sizes_bytes = sizes_bytes
        self.now_s = 1000.0
        self.looks: list[Range] = []

    def look_at(self, piece: Range) -> Look:
        self.looks.append(piece)
        return Look(
            self.sizes_bytes.get(piece.where, 0) * piece.size, piece.size if piece.where in self.sizes_bytes else 0
        )

    def estimates(self) -> SizeEstimates:
        return SizeEstimates(self.look_at, lambda: self.now_s)


def test_what_was_seen_is_kept_for_a_while() -> None:
    partitions = Partitions({A0: 100, A1: 300})
    estimates = partitions.estimates()
    assert estimates.bytes_per_offset({A0: 5, A1: 0}, {A0: 10_000, A1: 20}) == {A0: 100, A1: 300}
    assert sorted(partitions.looks) == [Range(A0, 5, 5 + RECORDS_LOOKED_AT), Range(A1, 0, 20)]
    partitions.sizes_bytes[A0] = 7
    assert estimates.bytes_per_offset({A0: 5}, {A0: 10_000}) == {A0: 100}
    partitions.now_s += LOOK_AGAIN_S
    assert estimates.bytes_per_offset({A0: 5}, {A0: 10_000}) == {A0: 7}


def test_unknown_partitions_are_like_the_others() -> None:
    partitions = Partitions({A0: 100})
    assert partitions.estimates().bytes_per_offset({A0: 0, A1: 0}, {A0: 5, A1: 5}) == {A0: 100, A1: 100}
    assert Partitions({}).estimates().bytes_per_offset({A0: 0}, {A0: 5}) == {A0: BYTES_GUESSED}


def test_many_partitions_are_looked_into_in_turn() -> None:
    many = {TopicPartition("a", number): 1 for number in range(3 * LOOKS_MAX)}
    partitions = Partitions(many)
    estimates = partitions.estimates()
    for turn in range(1, 4):
        estimates.bytes_per_offset(dict.fromkeys(many, 0), dict.fromkeys(many, 10))
        assert len({look.where for look in partitions.looks}) == len(partitions.looks) == turn * LOOKS_MAX
        partitions.now_s += 1
    estimates.bytes_per_offset(dict.fromkeys(many, 0), dict.fromkeys(many, 10))
    assert len(partitions.looks) == 3 * LOOKS_MAX


def test_a_record_weighs_something() -> None:
    assert Partitions({A0: 0}).estimates().bytes_per_offset({A0: 0}, {A0: 5}) == {A0: pytest.approx(1.0)}
