"""Where --from begins."""

from __future__ import annotations

from datetime import datetime

import pytest

from penstock.cli.failure import ExitCode, Failure
from penstock.cli.starting_point import Kind, StartingPoint, parse_start, resolve_start
from penstock.cli.timestamps import format_timestamp, parse_timestamp_ms


@pytest.mark.parametrize(
    ("text", "point"),
    [
        ("beginning", StartingPoint(Kind.BEGINNING)),
        ("end", StartingPoint(Kind.END)),
        ("0", StartingPoint(Kind.OFFSET, 0)),
        ("42", StartingPoint(Kind.OFFSET, 42)),
        ("-10", StartingPoint(Kind.LAST, 10)),
        ("2026-01-01T00:00:00Z", StartingPoint(Kind.TIME, 1767225600000)),
        ("2026-01-01T01:00:00.5+01:00", StartingPoint(Kind.TIME, 1767225600500)),
        ("15m", StartingPoint(Kind.TIME, 1_000_000)),
        ("1900s", StartingPoint(Kind.TIME, 0)),
        ("1ms", StartingPoint(Kind.TIME, 1_899_999)),
    ],
)
def test_parse(text: str, point: StartingPoint) -> None:
    assert parse_start(text, now_ms=1_900_000) == point


@pytest.mark.parametrize("text", ["", "start", "-", "--5", "1.5", "2026-13-01", "5 m", "٣"])
def test_nonsense_is_wrong_usage(text: str) -> None:
    with pytest.raises(Failure, match="--from wants") as raised:
        parse_start(text)
    assert raised.value.code == ExitCode.USAGE


@pytest.mark.parametrize(
    ("point", "offset"),
    [
        (StartingPoint(Kind.BEGINNING), 10),
        (StartingPoint(Kind.END), 20),
        (StartingPoint(Kind.OFFSET, 15), 15),
        (StartingPoint(Kind.OFFSET, 3), 10),
        (StartingPoint(Kind.OFFSET, 99), 20),
        (StartingPoint(Kind.LAST, 4), 16),
        (StartingPoint(Kind.LAST, 400), 10),
        (StartingPoint(Kind.LAST, 0), 20),
    ],
)
def test_offsets_stay_within_the_partition(point: StartingPoint, offset: int) -> None:
    assert resolve_start(point, 10, 20, None) == offset


def test_a_time_after_the_last_message_is_the_end() -> None:
    assert resolve_start(StartingPoint(Kind.TIME, 5), 10, 20, 13) == 13
    assert resolve_start(StartingPoint(Kind.TIME, 5), 10, 20, -1) == 20


def test_a_time_without_zone_is_local() -> None:
    assert parse_timestamp_ms("2026-06-01T12:00") == datetime(2026, 6, 1, 12).timestamp() * 1000


@pytest.mark.parametrize(
    ("timestamp_ms", "shown"),
    [(0, "1970-01-01T00:00:00.000Z"), (1767225600007, "2026-01-01T00:00:00.007Z"), (-1, "-"), (2**62, str(2**62))],
)
def test_times_are_shown_in_utc(timestamp_ms: int, shown: str) -> None:
    assert format_timestamp(timestamp_ms) == shown
