"""What the lag of a group is, and what is said beside the numbers, without a broker."""

from __future__ import annotations

from typing import Any

from penstock.cli.group_lag import lag, remarks
from penstock.cli.groups import assigned_places
from penstock.cli.timestamps import format_duration, parse_duration_ms
from penstock.wire.codec import encode
from penstock.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
)


def document(**changes: Any) -> dict[str, Any]:
    row = {
        "topic": "orders",
        "partition": 0,
        "committed_offset": 5,
        "start_offset": 0,
        "end_offset": 9,
        "stable_end_offset": 9,
        "lag": 4,
        "stable_lag": 4,
        "pending_in_transaction": False,
    }
    return {"partitions": [row | changes], "members": []}


def test_lag() -> None:
    assert (lag(5, 9), lag(9, 9), lag(12, 9), lag(None, 9), lag(5, None)) == (4, 0, 0, None, None)


def test_plain_numbers_need_no_remark() -> None:
    assert remarks(document()) == []


def test_remarks() -> None:
    assert "does not exist any more" in remarks(document(end_offset=None))[0]
    assert "up to offset 7, 2 of the lag" in remarks(document(stable_end_offset=7, stable_lag=2))[0]
    assert "pending" in remarks(document(pending_in_transaction=True))[0]
    assert "begins at 7; 2 offsets of the lag are deleted" in remarks(document(start_offset=7))[0]
    assert "behind the end" in remarks(document(committed_offset=10))[0]


def test_members_on_their_way() -> None:
    member = {"member_id": "m", "assignment": {"orders": [0, 1]}, "target_assignment": {"orders": [0]}}
    assert remarks({"partitions": [], "members": [member]}) == ["m: on its way to orders:0"]
    settled = member | {"target_assignment": member["assignment"]}
    assert remarks({"partitions": [], "members": [settled, member | {"target_assignment": None}]}) == []


def test_assignments_of_classic_groups() -> None:
    assignment = ConsumerProtocolAssignment(
        assigned_partitions=[ConsumerProtocolAssignmentTopicPartition(topic="orders", partitions=[1, 0])]
    )
    for version, written in ((0, 0), (3, 3), (3, 7)):
        body = written.to_bytes(2, "big") + bytes(encode(assignment, version))
        assert assigned_places(body) == [("orders", 0), ("orders", 1)]
    for nonsense in (b"", b"\0", b"\0\0", b"\0\0\x7f\xff\xff\xff"):
        assert assigned_places(nonsense) == []


def test_durations() -> None:
    assert [parse_duration_ms(text) for text in ("5ms", "90s", "15m", "2h", "1d")] == [
        5,
        90_000,
        900_000,
        7_200_000,
        86_400_000,
    ]
    assert [parse_duration_ms(text) for text in ("", "5", "m", "-5m", "5 m", "٥m")] == [None] * 6
    assert [format_duration(ms) for ms in (0, 999, 2_000, 90_000, 900_000, 200_000_000)] == [
        "0ms",
        "999ms",
        "2s",
        "90s",
        "15m",
        "2d",
    ]
