"""A sink that takes each batch once: one file of JSON lines for each batch, written at once, never written again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any


def into_files(folder: Path) -> Callable[[Any, int], None]:
    """For `foreachBatch`."""
    folder.mkdir(parents=True, exist_ok=True)

    def write(frame: Any, batch: int) -> None:
        write_batch(folder, batch, [row[0] for row in frame.selectExpr("to_json(struct(*))").collect()])

    return write


def write_batch(folder: Path, batch: int, lines: list[str]) -> None:
    whole = folder / f"{batch:06}.json"
    if not whole.exists():
        part = folder / f"{batch:06}.part"
        part.write_text("".join(line + "\n" for line in lines))
        part.rename(whole)


def rows_in(folder: Path) -> list[dict[str, Any]]:
    """All rows, in the order of the batches."""
    files = sorted(folder.glob("*.json"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]
