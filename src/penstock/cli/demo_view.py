"""How `penstock demo` looks: a picture on a terminal, a line every few seconds in a pipe."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Group, RenderableType
from rich.text import Text

from penstock.cli.byte_sizes import format_bytes
from penstock.cli.demo_orders import Kind
from penstock.cli.demo_pipeline import DATABASE, DEAD_TOPIC, ORDERS_TOPIC, PARQUET_FOLDER, PIPELINE_FILE, REVENUE_TOPIC
from penstock.cli.output import rich_table
from penstock.cli.pipeline_view import STATE_STYLES, report
from penstock.pipelines.status import PipelineStatus

SHOWN_CHARS_MAX = 100
#: The program sqlite3 is a package of its own on most systems.
WITHOUT_SQLITE3 = 'import sqlite3, sys; print(*sqlite3.connect(sys.argv[1]).execute(sys.argv[2]), sep="\\n")'


@dataclass(frozen=True, slots=True)
class Sight:
    """Everything there is to see at one moment."""

    bootstrap: str
    folder: Path
    sent: Mapping[Kind, int]
    status: PipelineStatus | None = None
    revenue: list[tuple[object, ...]] = field(default_factory=list)
    counts: Mapping[str, int] = field(default_factory=dict)
    last: Mapping[str, str] = field(default_factory=dict)
    files: int = 0
    file_bytes: int = 0

    @property
    def moves(self) -> bool:
        """Results have come out at every end."""
        return bool(self.revenue and self.counts.get(REVENUE_TOPIC) and self.counts.get(DEAD_TOPIC) and self.files)


def sent_text(sight: Sight) -> str:
    """What was fed."""
    kinds = ", ".join(f"{sight.sent.get(kind, 0):,} {kind.value}" for kind in Kind)
    return f"{sum(sight.sent.values()):,} orders sent: {kinds}"


def line(sight: Sight) -> str:
    """For a pipe."""
    status = sight.status
    fields: dict[str, object] = {
        "pipeline": status.state.value if status else "starting",
        "sent": sum(sight.sent.values()),
        "rows_per_s": f"{status.rows_per_s:.0f}" if status else 0,
        "lag": status.lag_rows if status and status.lag_rows is not None else "-",
        "topic_records": sight.counts.get(REVENUE_TOPIC, 0),
        "table_rows_shown": len(sight.revenue),
        "parquet_files": sight.files,
        "bad_records": sight.counts.get(DEAD_TOPIC, 0),
    }
    return " ".join(f"{name}={value}" for name, value in fields.items())


def picture(sight: Sight, ends: str) -> RenderableType:
    """For a terminal."""
    state = sight.status.state if sight.status else None
    parts: list[RenderableType] = [
        Text(f"A shop on Penstock: three brokers at {sight.bootstrap}", style="bold"),
        Text(sent_text(sight)),
        Text(""),
        Text(
            f"pipeline {PIPELINE_FILE}: {state.value if state else 'Spark is starting, this takes some seconds'}",
            style=STATE_STYLES[state] if state else "yellow",
        ),
    ]
    if sight.status is not None and sight.status.queries:
        parts.append(rich_table(*report(sight.status)))
    parts += [
        Text(""),
        *_results(sight),
        Text(""),
        *(Text(text, style="dim") for text in next_steps(sight)),
        Text(ends),
    ]
    return Group(*parts)


def _results(sight: Sight) -> list[RenderableType]:
    dead, topic = sight.counts.get(DEAD_TOPIC, 0), sight.counts.get(REVENUE_TOPIC, 0)
    parts: list[RenderableType] = [
        Text(f"topic {REVENUE_TOPIC}: {topic:,} records, last {_short(sight.last.get(REVENUE_TOPIC))}"),
        Text(f"topic {DEAD_TOPIC}: {dead:,} broken orders, last {_short(sight.last.get(DEAD_TOPIC))}", style="yellow"),
        Text(f"Parquet in {PARQUET_FOLDER}: {sight.files:,} files, {format_bytes(sight.file_bytes)}"),
        Text(f"table revenue in {DATABASE}:"),
    ]
    if sight.revenue:
        parts.append(rich_table(["SINCE", "CATEGORY", "ORDERS", "REVENUE"], sight.revenue))
    return parts


def _short(text: str | None) -> str:
    return "-" if text is None else text[:SHOWN_CHARS_MAX]


def next_steps(sight: Sight) -> list[str]:
    """What to try in another terminal while it runs."""
    path = [] if shutil.which("penstock") else [f"  export PATH={Path(sys.executable).parent}:$PATH"]
    look = "sqlite3" if shutil.which("sqlite3") else f"{sys.executable} -c '{WITHOUT_SQLITE3}'"
    return [
        "To try in another terminal:",
        *path,
        f"  export PENSTOCK_BOOTSTRAP={sight.bootstrap}",
        f"  penstock consume {REVENUE_TOPIC} --follow        penstock consume {DEAD_TOPIC} --format '%h %v'",
        f"  echo '{{\"oops\"' | penstock produce {ORDERS_TOPIC}   and see it among the broken ones",
        f"  penstock pipeline status --state {sight.folder}/.penstock        penstock cluster status --watch",
        f"  {look} {sight.folder}/{DATABASE} 'select * from revenue'",
        f"  your editor on {sight.folder}/{PIPELINE_FILE}, then penstock pipeline check on it",
    ]
