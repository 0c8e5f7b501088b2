"""`penstock log` on folders made here; tests of the log engine run it on those of Apache Kafka."""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.wire.control import ControlType, build_control_batch
from penstock.wire.records import Record, build_batch

Command = Callable[..., Any]
SEGMENT = "00000000000000000000.log"
TIME_MS = 1767225600000


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    """A log directory with one partition: a batch of two records, one of one, and a marker."""
    folder = tmp_path / "data" / "logs" / "orders-0"
    folder.mkdir(parents=True)
    first = build_batch([Record(0, TIME_MS, b"k", b"v", [("h", b"1")]), Record(1, TIME_MS, None, b"\xff")])
    second = build_batch([Record(2, TIME_MS + 1, None, None)], base_offset=2)
    marker = build_control_batch(
        ControlType.COMMIT, timestamp=TIME_MS, producer_id=7, producer_epoch=1, coordinator_epoch=3, base_offset=3
    )
    (folder / SEGMENT).write_bytes(first + second + marker)
    (folder / SEGMENT.replace(".log", ".index")).write_bytes(struct.pack(">ii", 2, len(first)))
    (folder / SEGMENT.replace(".log", ".timeindex")).write_bytes(struct.pack(">qi", TIME_MS + 1, 2))
    return folder


def damage(folder: Path) -> None:
    content = bytearray((folder / SEGMENT).read_bytes())
    content[65] ^= 1
    (folder / SEGMENT).write_bytes(content)


@pytest.mark.parametrize("levels_up", [0, 1, 2], ids=["partition", "log directory", "data folder"])
def test_dump_finds_the_files(command: Command, partition: Path, levels_up: int) -> None:
    path = [partition, *partition.parents][levels_up]
    outcome = command("log", "dump", str(path))
    assert outcome.code == 0
    assert outcome.lines[0] == str(partition / SEGMENT)
    assert [line.split()[0] for line in outcome.lines[1:]] == ["offset=0..1", "offset=2..2", "offset=3..3"]
    assert "codec=none" in outcome.lines[1] and "time=2026-01-01T00:00:00.000Z" in outcome.lines[1]
    assert "producer=7/1" in outcome.lines[3] and "control" in outcome.lines[3]


def test_a_folder_of_several_brokers_is_taken_whole(command: Command, partition: Path) -> None:
    data = partition.parents[1]
    other = data / "broker-1" / "logs" / partition.name
    other.parent.mkdir(parents=True)
    partition.rename(other)
    partition.mkdir()
    (partition / SEGMENT).write_bytes((other / SEGMENT).read_bytes())
    outcome = command("log", "dump", str(data))
    assert outcome.code == 0
    assert [line for line in outcome.lines if line.endswith(SEGMENT)] == [
        str(partition / SEGMENT),
        str(other / SEGMENT),
    ]
    assert command("log", "verify", str(data)).code == 0
    damage(other)
    assert command("log", "verify", str(data)).code == 1


def test_dump_with_records(command: Command, partition: Path) -> None:
    lines = command("log", "dump", str(partition / SEGMENT), "--records").lines
    time = "time=2026-01-01T00:00:00.000Z"
    assert f"  offset=0 {time} key=k value=v headers=h=1" in lines
    assert f"  offset=1 {time} key=null value=\\xff" in lines
    assert any("key=null value=null" in line for line in lines)
    assert lines[-1].endswith("marker=commit coordinator-epoch=3")


def test_dump_as_json(command: Command, partition: Path) -> None:
    first, second, marker = map(json.loads, command("log", "dump", str(partition), "--records", "--json").lines)
    assert (first["base_offset"], first["last_offset"], first["record_count"], first["problem"]) == (0, 1, 2, None)
    assert first["records"][0] == {
        "offset": 0,
        "timestamp": TIME_MS,
        "key": "k",
        "value": "v",
        "headers": [["h", "1"]],
    }
    assert (first["records"][1]["value"], first["records"][1]["value_encoding"]) == ("/w==", "base64")
    assert second["position"] == first["size_bytes"]
    assert (marker["control"], marker["marker"], marker["coordinator_epoch"]) == (True, "commit", 3)


def test_dump_of_indexes(command: Command, partition: Path) -> None:
    offsets = command("log", "dump", str(partition / SEGMENT.replace(".log", ".index"))).lines
    assert offsets[1].startswith("offset=2 position=")
    times = command("log", "dump", str(partition / SEGMENT.replace(".log", ".timeindex")), "--json").lines
    assert json.loads(times[0])["timestamp"] == TIME_MS + 1


def test_dump_of_a_wrong_name(command: Command, tmp_path: Path) -> None:
    file = tmp_path / "some.index"
    file.touch()
    outcome = command("log", "dump", str(file))
    assert (outcome.code, "not called after an offset" in outcome.err) == (1, True)


def test_verify_of_a_sound_folder(command: Command, partition: Path) -> None:
    for path in (partition, partition.parent, partition.parent.parent):
        outcome = command("log", "verify", str(path), "--records")
        assert (outcome.code, outcome.err) == (0, "")
        assert "1 segment, 3 batches" in outcome.out and "offsets 0 to 4" in outcome.out
    assert command("log", "verify", str(partition / SEGMENT)).code == 0
    [summary] = map(json.loads, command("log", "verify", str(partition), "--json").lines)
    assert (summary["batches"], summary["end_offset"]) == (3, 4)


def test_damage_is_found(command: Command, partition: Path) -> None:
    damage(partition)
    outcome = command("log", "verify", str(partition))
    assert outcome.code == 1
    assert outcome.lines[0].startswith(f"PROBLEM: {partition / SEGMENT} at 0: ")
    assert outcome.err == "penstock: 1 problem found\n"
    assert command("log", "verify", str(partition / SEGMENT)).code == 1
    problem = json.loads(command("log", "verify", str(partition), "--json").lines[0])
    assert (problem["file"], problem["position"]) == (str(partition / SEGMENT), 0)
    shown = command("log", "dump", str(partition), "--records")
    assert shown.code == 1
    assert "PROBLEM: " in shown.lines[1] and len(shown.lines) == 5


def test_a_torn_tail_is_found(command: Command, partition: Path) -> None:
    with (partition / SEGMENT).open("ab") as file:
        file.write(b"torn")
    for action in ("dump", "verify"):
        outcome = command("log", action, str(partition))
        assert outcome.code == 1
        assert "PROBLEM: " in outcome.out


def test_an_empty_partition_is_fine(command: Command, partition: Path) -> None:
    (partition.parent / "orders-1").mkdir()
    outcome = command("log", "verify", str(partition.parent))
    assert outcome.code == 0
    assert outcome.lines[1] == f"{partition.parent / 'orders-1'}: empty"


@pytest.mark.parametrize("action", ["dump", "verify"])
def test_nothing_to_look_at(command: Command, tmp_path: Path, action: str) -> None:
    empty = command("log", action, str(tmp_path))
    assert (empty.code, "holds no segment files" in empty.err) == (4, True)
    missing = command("log", action, str(tmp_path / "missing"))
    assert (missing.code, "there is no file or folder" in missing.err) == (4, True)
