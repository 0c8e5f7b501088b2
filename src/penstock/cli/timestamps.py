"""Times as people write them on a command line, and as Kafka counts them: milliseconds since 1970."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from penstock.cli.failure import usage

DURATION = re.compile(r"(\d+)(ms|s|m|h|d)", re.ASCII)
UNIT_MS = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_duration_ms(text: str) -> int | None:
    """`15m` or `200ms` in milliseconds; None if the text is no such thing."""
    found = DURATION.fullmatch(text)
    return int(found[1]) * UNIT_MS[found[2]] if found else None


def format_duration(duration_ms: int) -> str:
    """About how long, in the largest unit that gives a number above one: `250ms`, `90s`, `15m`."""
    for unit in ("d", "h", "m", "s"):
        if duration_ms >= 2 * UNIT_MS[unit]:
            return f"{duration_ms // UNIT_MS[unit]}{unit}"
    return f"{duration_ms}ms"


def parse_timestamp_ms(text: str) -> int:
    """An ISO 8601 time or a number of milliseconds since 1970; a time without a zone is local time."""
    if text.isascii() and text.isdigit():
        return int(text)
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        raise usage(f"{text!r} is not a time: write 2026-01-31, 2026-01-31T12:30:00Z or milliseconds") from None


def format_timestamp(timestamp_ms: int) -> str:
    """A time as ISO 8601 in UTC, with milliseconds; Kafka's -1 (none) is "-"."""
    if timestamp_ms < 0:
        return "-"
    try:
        moment = datetime.fromtimestamp(timestamp_ms // 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(timestamp_ms)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{timestamp_ms % 1000:03d}Z"
