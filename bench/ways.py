"""One table of several ways to do the same work: figures over the rounds, and ours beside each of the others."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rich.console import Console
from rich.table import Table


class Row(NamedTuple):
    """A figure of an item, what it is divided by to be shown, and the ratio that ours should have to the others."""

    item: str
    figure: str
    label: str
    scale: float = 1.0
    at_least: float | None = None
    at_most: float | None = None


class Ways:
    """What was measured, by item, way and figure, one number a round."""

    def __init__(self, ours: str) -> None:
        self._ours = ours
        self._found: dict[tuple[str, str, str], dict[int, float]] = defaultdict(dict)

    def add(self, item: str, way: str, number: int, figures: dict[str, float]) -> None:
        for figure, value in figures.items():
            self._found[item, way, figure][number] = value

    def ratio(self, row: Row, other: str) -> float | None:
        """The median of the rounds' own ratios."""
        ours, theirs = (self._found[row.item, way, row.figure] for way in (self._ours, other))
        ratios = [ours[number] / theirs[number] for number in ours if theirs.get(number)]
        return statistics.median(ratios) if ratios else None

    def show(self, title: str, rows: Sequence[Row], others: Sequence[str], console: Console) -> None:
        table = Table(title=title, title_justify="left")
        for heading in ("work", "figure", self._ours, *others, *(f"beside {other}" for other in others), "aim"):
            table.add_column(heading, justify="left" if heading in ("work", "figure") else "right")
        for row in rows:
            figures = [as_range(self._found[row.item, way, row.figure], row.scale) for way in (self._ours, *others)]
            ratios = [self.ratio(row, other) for other in others]
            shown = ["" if ratio is None else f"{ratio:.2f}×" for ratio in ratios]
            table.add_row(row.item, row.label, *figures, *shown, _aim(row, ratios))
        console.print(table)


def as_range(by_round: Mapping[int, float], scale: float) -> str:
    """The lowest and the highest of the rounds."""
    values = sorted(value * scale for value in by_round.values())
    if not values:
        return ""
    low, high = (f"{value:,.2f}" if value < 10 else f"{value:,.0f}" for value in (values[0], values[-1]))
    return low if low == high else f"{low} – {high}"


def _aim(row: Row, ratios: Sequence[float | None]) -> str:
    known = [ratio for ratio in ratios if ratio is not None]
    if row.at_least is None and row.at_most is None:
        return ""
    text = f"≥ {row.at_least:g}×" if row.at_least is not None else f"≤ {row.at_most:g}×"
    if not known:
        return text
    is_met = all(
        (row.at_least is None or ratio >= row.at_least) and (row.at_most is None or ratio <= row.at_most)
        for ratio in known
    )
    return f"{text} {'yes' if is_met else 'no'}"
