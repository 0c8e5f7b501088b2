"""Times as people write them on a command line, and as Kafka counts them: milliseconds since 1970."""

from __future__ import annotations

from datetime import UTC, datetime

from penstock.cli.failure import usage


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
