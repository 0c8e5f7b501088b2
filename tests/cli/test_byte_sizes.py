"""Numbers of bytes, read and written."""

from __future__ import annotations

import pytest

from penstock.cli.byte_sizes import format_bytes, parse_bytes
from penstock.cli.failure import Failure


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1536, "1.5 KiB"),
        (100 << 20, "100 MiB"),
        (5 << 40, "5.0 TiB"),
        (5 << 50, "5120 TiB"),
    ],
)
def test_format(size_bytes: int, text: str) -> None:
    assert format_bytes(size_bytes) == text


@pytest.mark.parametrize(
    ("text", "size_bytes"), [("10", 10), ("2k", 2048), ("1 MB", 1 << 20), ("3MiB", 3 << 20), ("1G", 1 << 30)]
)
def test_parse(text: str, size_bytes: int) -> None:
    assert parse_bytes(text, "--throttle") == size_bytes


@pytest.mark.parametrize("text", ["", "many", "-1", "1.5M", "10X"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(Failure, match="--throttle wants a number of bytes"):
        parse_bytes(text, "--throttle")
