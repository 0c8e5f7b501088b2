"""How commands speak: results on stdout, notes and errors on stderr.

On a terminal a table has a header in bold and aligned columns; in a pipe the same rows are separated by tabs, one per
line, so that `cut` and `awk` need no tricks. With `--json` a command prints one JSON document instead.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from typing import Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from penstock.cli.failure import Failure

STATUS = "STATUS"
STYLED_COLUMNS = {STATUS, "STATE"}
UNDER_WAY = (
    *("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"),
    *("Ongoing", "PrepareCommit", "PrepareAbort"),
)
STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red", "Stable": "green", "Empty": "dim"}
STYLES.update(dict.fromkeys(UNDER_WAY, "yellow"))
STYLES.update(dict.fromkeys(("silent", "away", "disk failed"), "bold red"))


def can_draw() -> bool:
    """Whether stdout is a terminal on which a picture can be drawn anew; otherwise lines are printed."""
    return sys.stdout.isatty() and os.environ.get("TERM", "dumb") != "dumb"


def print_json(document: Any) -> None:
    """One JSON document, readable by people and programs."""
    sys.stdout.write(json.dumps(document, indent=2, ensure_ascii=False) + "\n")


def print_line(text: str) -> None:
    """One line of the result."""
    sys.stdout.write(text + "\n")


def print_heading(text: str) -> None:
    """A heading between tables."""
    typer.echo(typer.style(text, bold=True) if sys.stdout.isatty() else text)


def note(text: str) -> None:
    """Something worth knowing that is not part of the result."""
    sys.stderr.write(text + "\n")


def confirm(question: str, yes: bool, otherwise: str) -> None:
    """Asks on a terminal, unless `yes` was given; a no is a failure that says what was not done."""
    if not yes and sys.stdin.isatty() and not typer.confirm(question, err=True):
        raise Failure(otherwise)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """Rows under a header. Columns of numbers are aligned to the right on a terminal."""
    if sys.stdout.isatty():
        _print_rich(columns, rows)
        return
    lines = ["\t".join(columns), *("\t".join(_cell(cell) for cell in row) for row in rows)]
    sys.stdout.write("\n".join(lines) + "\n")


def _print_rich(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    Console(highlight=False).print(rich_table(columns, rows))


def rich_table(columns: Sequence[str], rows: Sequence[Sequence[object]]) -> Table:
    """The table as a terminal shows it."""
    table = Table(box=None, header_style="bold cyan", pad_edge=False, padding=(0, 2, 0, 0))
    for index, column in enumerate(columns):
        cells = [row[index] for row in rows if row[index] is not None]
        numeric = bool(cells) and all(isinstance(cell, int) for cell in cells)
        table.add_column(column, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        styles = [
            STYLES.get(str(cell), "") if column in STYLED_COLUMNS else ""
            for column, cell in zip(columns, row, strict=True)
        ]
        table.add_row(*(Text(_cell(cell), style=style) for cell, style in zip(row, styles, strict=True)))
    return table


def _cell(cell: object) -> str:
    if cell is None:
        return "-"
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, (list, tuple)):
        return ",".join(str(part) for part in cell) or "-"
    return str(cell).replace("\t", " ").replace("\n", " ")
