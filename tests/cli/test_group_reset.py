"""Where a reset moves a group to: plans, topics with partitions, and files with offsets, without a broker."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.cli.failure import Failure
from penstock.cli.group_reset import Kind, Move, Position, Target, make_plan, parse_time_target, read_offsets
from penstock.cli.places import chosen_places, parse_topics, places_text

PLACE = ("orders", 0)


def moved(target: Target, position: Position) -> Move:
    [move] = make_plan(target, [PLACE], {PLACE: position})
    return move


@pytest.mark.parametrize(
    ("target", "new", "note"),
    [
        (Target(Kind.EARLIEST), 10, ""),
        (Target(Kind.LATEST), 50, ""),
        (Target(Kind.CURRENT), 30, ""),
        (Target(Kind.OFFSET, 10), 10, ""),
        (Target(Kind.OFFSET, 50), 50, ""),
        (Target(Kind.OFFSET, 9), 10, "9 lies outside the log: moved to its start"),
        (Target(Kind.OFFSET, 51), 50, "51 lies outside the log: moved to its end"),
        (Target(Kind.SHIFT, -5), 25, ""),
        (Target(Kind.SHIFT, 5), 35, ""),
        (Target(Kind.SHIFT, -25), 10, "5 lies outside the log: moved to its start"),
        (Target(Kind.SHIFT, 25), 50, "55 lies outside the log: moved to its end"),
        (Target(Kind.TIME, 1_000), 42, ""),
        (Target(Kind.FILE, offsets={PLACE: 20}), 20, ""),
    ],
    ids=str,
)
def test_targets(target: Target, new: int, note: str) -> None:
    move = moved(target, Position(committed=30, start=10, end=50, at_time=42))
    assert (move.old, move.new, move.lag, move.note) == (30, new, 50 - new, note)


@pytest.mark.parametrize("kind", [Kind.CURRENT, Kind.SHIFT])
def test_what_is_not_committed_cannot_be_moved_by_steps(kind: Kind) -> None:
    move = moved(Target(kind, 3), Position(None, 10, 50))
    assert (move.new, move.lag, move.note) == (None, None, "left alone: nothing is committed")


def test_a_time_after_the_last_message_is_the_end() -> None:
    move = moved(Target(Kind.TIME, 1), Position(30, 10, 50, at_time=-1))
    assert (move.new, move.note) == (50, "no message of that time or later: moved to the end")


def test_a_partition_that_is_gone_is_left_alone() -> None:
    [move] = make_plan(Target(Kind.EARLIEST), [PLACE], {})
    assert (move.new, move.note) == (None, "left alone: it does not exist any more")


positions = st.builds(
    lambda start, length, committed, at: Position(committed, start, start + length, at),
    st.integers(0, 100),
    st.integers(0, 100),
    st.none() | st.integers(0, 300),
    st.none() | st.integers(-1, 200),
)
targets = st.builds(
    Target, st.sampled_from([kind for kind in Kind if kind != Kind.FILE]), st.integers(-300, 300)
) | st.builds(lambda offset: Target(Kind.FILE, offsets={PLACE: offset}), st.integers(0, 300))


@given(targets, positions)
def test_a_new_offset_lies_in_the_log(target: Target, position: Position) -> None:
    move = moved(target, position)
    assert move.new is None or position.start <= move.new <= position.end
    assert (move.new is None) <= (position.committed is None)


def test_times_for_a_reset() -> None:
    assert parse_time_target("15m", now_ms=1_000_000) == Target(Kind.TIME, 100_000)
    assert parse_time_target("1767225600000") == Target(Kind.TIME, 1_767_225_600_000)
    assert parse_time_target("2026-01-01T00:00:00Z") == Target(Kind.TIME, 1_767_225_600_000)
    with pytest.raises(Failure, match="is not a time"):
        parse_time_target("yesterday")


def test_topics_with_partitions() -> None:
    assert parse_topics(["a", "b:0,2", "b:1"], "--topic") == {"a": None, "b": [0, 1, 2]}
    assert parse_topics(["a:1", "a"], "--topic") == {"a": None} == parse_topics(["a", "a:1"], "--topic")
    for wrong in ("", ":1", "a:", "a:x", "a:1,", "a:-1", "a:1:2"):
        with pytest.raises(Failure, match="--topic wants TOPIC or TOPIC:0,1"):
            parse_topics([wrong], "--topic")


def test_chosen_places() -> None:
    assert chosen_places({"a": None, "b": [1]}, {"a": [0, 1], "b": [0, 1]}) == [("a", 0), ("a", 1), ("b", 1)]
    with pytest.raises(Failure, match="topic 'a' has no partition 2: it has 2, from 0 to 1"):
        chosen_places({"a": [2]}, {"a": [0, 1]})
    assert places_text([("b", 1), ("a", 1), ("a", 0)]) == "a:0,1 b:1"


def written(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "offsets"
    path.write_text(text)
    return path


def test_offsets_from_lines(tmp_path: Path) -> None:
    path = written(tmp_path, 'orders,0,5\n"orders",1,7\n\n')
    assert read_offsets(path, "any") == {("orders", 0): 5, ("orders", 1): 7}


def test_offsets_from_what_the_commands_print(tmp_path: Path) -> None:
    described = [
        {"name": "other", "partitions": [{"topic": "orders", "partition": 0, "committed_offset": 1}]},
        {
            "name": "mine",
            "partitions": [
                {"topic": "orders", "partition": 0, "committed_offset": 5},
                {"topic": "orders", "partition": 1, "committed_offset": None},
            ],
        },
    ]
    assert read_offsets(written(tmp_path, json.dumps(described)), "mine") == {("orders", 0): 5}
    plan = {"name": "mine", "partitions": [{"topic": "orders", "partition": 0, "old_offset": 5, "new_offset": 9}]}
    assert read_offsets(written(tmp_path, json.dumps(plan)), "mine") == {("orders", 0): 9}


@pytest.mark.parametrize(
    "text",
    ["", "orders,0\n", "orders,0,x\n", "orders,0,-1\n", "{", "[]", "[1]", '{"name": "other", "partitions": []}', "{}"],
)
def test_a_file_without_offsets_is_wrong_usage(tmp_path: Path, text: str) -> None:
    with pytest.raises(Failure, match="offsets") as raised:
        read_offsets(written(tmp_path, text), "mine")
    assert raised.value.code == 2


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(Failure, match="cannot read the offsets"):
        read_offsets(tmp_path / "none", "mine")
