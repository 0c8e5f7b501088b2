"""Numbers of bytes as people write and read them: `10M`, `1.5 GiB`."""

from __future__ import annotations

import re

from penstock.cli.failure import usage

UNITS = ("", "K", "M", "G", "T")
SIZE = re.compile(r"(\d+)\s*([KMGT]?)(i?B)?", re.ASCII | re.IGNORECASE)


def format_bytes(size_bytes: int) -> str:
    """About how much, with at most one decimal: `0 B`, `512 B`, `1.5 GiB`."""
    amount, unit = float(size_bytes), 0
    while amount >= 1024 and unit < len(UNITS) - 1:
        amount, unit = amount / 1024, unit + 1
    if unit == 0:
        return f"{size_bytes} B"
    return f"{amount:.1f} {UNITS[unit]}iB" if amount < 100 else f"{amount:.0f} {UNITS[unit]}iB"


def parse_bytes(text: str, option: str) -> int:
    """`1048576`, `1M`, `1MB` or `1MiB` as a number; a K is 1024 in all of them."""
    found = SIZE.fullmatch(text.strip())
    if found is None:
        raise usage(f"{option} wants a number of bytes, such as 10485760 or 10M; not {text!r}")
    return int(found[1]) << (10 * UNITS.index(found[2].upper()))
