"""Where `penstock group reset` moves a group: the targets it knows, and the new offset of each partition.

Everything here is a calculation. The command asks the cluster for the offsets, has a plan made of them, shows it, and
commits it unless it is a dry run. A new offset never lies outside the log: where the wish does, it is moved to the
nearest end and the row says so.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

from penstock.cli.failure import usage
from penstock.cli.places import Place
from penstock.cli.timestamps import parse_duration_ms, parse_timestamp_ms


class Kind(Enum):
    """What a target is relative to."""

    EARLIEST = "earliest"
    LATEST = "latest"
    CURRENT = "current"
    OFFSET = "offset"
    TIME = "time"
    SHIFT = "shift"
    FILE = "file"


@dataclass(frozen=True, slots=True)
class Target:
    """Where to: the number is an offset, a time in milliseconds or a number of messages."""

    kind: Kind
    number: int = 0
    offsets: Mapping[Place, int] | None = None


class Position(NamedTuple):
    """What is known of a partition: what the group has committed, the ends of the log, and the offset of the time."""

    committed: int | None
    start: int
    end: int
    at_time: int | None = None


@dataclass(frozen=True, slots=True)
class Move:
    """One row of the plan; without a new offset the partition is left alone, and the note says why."""

    place: Place
    old: int | None
    new: int | None
    end: int | None
    note: str = ""

    @property
    def lag(self) -> int | None:
        """The lag that the group will have."""
        return None if self.new is None or self.end is None else self.end - self.new


def parse_time_target(text: str, now_ms: int | None = None) -> Target:
    """An ISO 8601 time, milliseconds since 1970, or a while ago such as `15m`."""
    ago_ms = parse_duration_ms(text)
    if ago_ms is None:
        return Target(Kind.TIME, parse_timestamp_ms(text))
    now_ms = round(time.time() * 1000) if now_ms is None else now_ms
    return Target(Kind.TIME, max(0, now_ms - ago_ms))


def make_plan(target: Target, places: Iterable[Place], positions: Mapping[Place, Position]) -> list[Move]:
    """A row for each partition, in order. Partitions that are not there any more are left alone."""
    return [_move(target, place, positions.get(place)) for place in sorted(places)]


def _move(target: Target, place: Place, position: Position | None) -> Move:
    if position is None:
        return Move(place, None, None, None, "left alone: it does not exist any more")
    wish, note = _wish(target, place, position)
    if wish is None:
        return Move(place, position.committed, None, position.end, note)
    new = min(max(wish, position.start), position.end)
    if new != wish:
        edge = "start" if wish < position.start else "end"
        note = f"{wish} lies outside the log: moved to its {edge}"
    return Move(place, position.committed, new, position.end, note)


def _wish(target: Target, place: Place, position: Position) -> tuple[int | None, str]:
    match target.kind:
        case Kind.EARLIEST:
            return position.start, ""
        case Kind.LATEST:
            return position.end, ""
        case Kind.OFFSET:
            return target.number, ""
        case Kind.FILE:
            assert target.offsets is not None
            return target.offsets[place], ""
        case Kind.TIME:
            if position.at_time is None or position.at_time < 0:
                return position.end, "no message of that time or later: moved to the end"
            return position.at_time, ""
        case Kind.CURRENT | Kind.SHIFT:
            if position.committed is None:
                return None, "left alone: nothing is committed"
            return position.committed + target.number, ""


# Files with offsets


def read_offsets(path: Path, group: str) -> dict[Place, int]:
    """Offsets from a file: what `group describe` or `group reset` printed as JSON, or lines topic,partition,offset."""
    try:
        text = path.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise usage(f"cannot read the offsets in {path}: {error}") from error
    is_json = text.lstrip().startswith(("[", "{"))
    parse: Callable[[str, str], dict[Place, int]] = _from_json if is_json else _from_lines
    try:
        offsets = parse(text, group)
    except (ValueError, KeyError, TypeError) as error:
        raise usage(f"cannot read the offsets in {path}: {error!r}") from error
    if not offsets or min(offsets.values()) < 0:
        raise usage(f"there are no offsets for group '{group}' in {path}")
    return offsets


def _from_lines(text: str, _group: str) -> dict[Place, int]:
    rows = [line.split(",") for line in text.splitlines() if line.strip()]
    return {(topic.strip(' "'), int(partition)): int(offset) for topic, partition, offset in rows}


def _from_json(text: str, group: str) -> dict[Place, int]:
    loaded: Any = json.loads(text)
    documents = loaded if isinstance(loaded, list) else [loaded]
    rows = [row for document in documents if document["name"] == group for row in document["partitions"]]
    offsets = ((row, row.get("new_offset", row.get("committed_offset"))) for row in rows)
    return {(str(row["topic"]), int(row["partition"])): int(offset) for row, offset in offsets if offset is not None}
