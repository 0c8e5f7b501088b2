"""How long partitions were not writable, by what had happened; shown at the end of the run (`conftest.py`)."""

from __future__ import annotations

_MEASURED: list[tuple[str, float]] = []


def note(what: str, seconds: float) -> None:
    _MEASURED.append((what, seconds))


def lines() -> list[str]:
    """The range of each kind."""
    by_kind: dict[str, list[float]] = {}
    for what, seconds in _MEASURED:
        by_kind.setdefault(what, []).append(seconds)
    return [f"{what}: {min(found):.2f} to {max(found):.2f} s ({len(found)} times)" for what, found in by_kind.items()]
