"""How a running pipeline looks: a picture that is drawn anew on a terminal, lines in a pipe, JSON lines for scripts.

`open_view` gives a function that takes each new status. What is shown of a status is decided by plain functions
(`report`, `lines_of`), which `penstock pipeline status` and the demo use as well.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import NamedTuple

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from penstock.cli.byte_sizes import format_bytes
from penstock.cli.output import can_draw, print_line, rich_table
from penstock.pipelines.status import PipelineStatus, QueryStatus, SourceStatus, State

Show = Callable[[PipelineStatus], None]

STATE_STYLES = {
    State.STARTING: "yellow",
    State.RUNNING: "bold green",
    State.FINISHED: "green",
    State.FAILED: "bold red",
    State.STOPPED: "dim",
    State.LOST: "bold red",
}
QUERY_COLUMNS = ("SINK", "SOURCE", "ROWS/S", "LAG", "HELD BACK", "BATCH", "TOOK", "STATE ROWS", "BAD")


class Rows(NamedTuple):
    """A table: its header and its rows."""

    columns: tuple[str, ...]
    rows: list[list[object]]


# What is shown


def headline(status: PipelineStatus, now_s: float) -> str:
    """The pipeline in one sentence."""
    since = f", for {format_duration(now_s - status.since_s)}" if status.is_alive and status.since_s else ""
    return f"{status.name}: {status.state.value}{since}, process {status.pid}"


def report(status: PipelineStatus) -> Rows:
    """One row for each source of each query, with what is known of both."""
    return Rows(QUERY_COLUMNS, [row for query in status.queries for row in _query_rows(query)])


def _query_rows(query: QueryStatus) -> Iterator[list[object]]:
    name = query.name if query.kind == "sink" else f"{query.name} ({query.kind})"
    batch: list[object] = [query.batch_id if query.batch_id >= 0 else None, f"{query.batch_ms} ms", query.state_rows]
    for index, source in enumerate(query.sources or (SourceStatus("-", query.rows_per_s),)):
        lag = [format_count(source.lag_rows), format_held_back(source)]
        first = index == 0  # what concerns the whole query is said once
        yield [
            name if first else "",
            source.name,
            format_rate(source.rows_per_s),
            *lag,
            *(batch if first else ["", "", ""]),
            query.bad_records if first else "",
        ]


def errors(status: PipelineStatus) -> list[str]:
    """What went wrong last, of the whole and of single queries."""
    found = [status.last_error] if status.last_error else []
    for query in status.queries:
        told = f"{query.name}: {query.last_error}"
        if query.last_error and query.last_error not in found and told not in found:
            found.append(told)
    return found


def format_count(count: int | None) -> str | None:
    """1234567 as "1,234,567"."""
    return None if count is None else f"{count:,}"


def format_rate(rows_per_s: float) -> str:
    """Rates people can compare: no digits behind the point where there are some before it."""
    return f"{rows_per_s:,.0f}" if rows_per_s >= 10 or rows_per_s == 0 else f"{rows_per_s:.1f}"


def format_held_back(source: SourceStatus) -> str | None:
    """What the database keeps for the slot of this source."""
    return None if source.held_back_bytes is None else format_bytes(source.held_back_bytes)


def format_duration(seconds: float) -> str:
    """Seconds as "3 d 4 h", "2 h 5 min", "4 min 10 s" or "7 s"."""
    left = max(0, int(seconds))
    days, left = divmod(left, 86400)
    hours, left = divmod(left, 3600)
    minutes, left = divmod(left, 60)
    units = ((days, "d"), (hours, "h"), (minutes, "min"), (left, "s"))
    first = next((index for index, (count, _) in enumerate(units) if count), len(units) - 1)
    return " ".join(f"{count} {unit}" for count, unit in units[first : first + 2] if count or unit == "s")


# Lines


def lines_of(status: PipelineStatus, before: PipelineStatus | None) -> list[str]:
    """What is new since the status before: one line for the state, and one for each query that finished a batch."""
    taken = f"{datetime.fromtimestamp(status.changed_s, UTC):%Y-%m-%dT%H:%M:%SZ} {status.name}"
    state = []
    if before is None or before.state is not status.state:
        state.append(f"{taken} state={status.state.value} pid={status.pid}")
    lines = state if status.is_alive else []
    batches = {query.name: query.batch_id for query in before.queries} if before else {}
    lines += [
        f"{taken} {_query_line(query)}"
        for query in status.queries
        if query.batch_id >= 0 and query.batch_id != batches.get(query.name)
    ]
    told = set(errors(before)) if before else set()
    lines += [] if status.is_alive else state  # an end comes behind the batches before it
    return lines + [
        f"{taken} error={json.dumps(error, ensure_ascii=False)}" for error in errors(status) if error not in told
    ]


def _query_line(query: QueryStatus) -> str:
    fields: dict[str, object] = {
        "query": query.name,
        "batch": query.batch_id,
        "rows_per_s": f"{query.rows_per_s:.1f}",
        "batch_ms": query.batch_ms,
        "state_rows": query.state_rows,
        "bad_records": query.bad_records,
    }
    for source in query.sources:
        if source.lag_rows is not None:
            fields[f"lag.{source.name}"] = source.lag_rows
        if source.held_back_bytes is not None:
            fields[f"held_back_bytes.{source.name}"] = source.held_back_bytes
    return " ".join(f"{name}={value}" for name, value in fields.items())


# Views


@contextmanager
def open_view(*, as_json: bool = False) -> Iterator[Show]:
    """Where to give each new status to, for as long as the pipeline runs."""
    if as_json:
        yield _json_lines()
    elif can_draw():
        with Live(console=Console(highlight=False), auto_refresh=False) as live:
            yield lambda status: live.update(picture(status), refresh=True)
    else:
        yield _plain_lines()


def picture(status: PipelineStatus) -> RenderableType:
    """The whole status for a terminal."""
    now_s = time.time()
    parts: list[RenderableType] = [Text(headline(status, now_s), style=STATE_STYLES[status.state])]
    if status.queries:
        parts.append(rich_table(*report(status)))
    parts += [Text(error, style="red") for error in errors(status)]
    if status.is_alive:
        parts.append(Text("Ctrl-C stops it; it goes on from there when it is started again", style="dim"))
    return Group(*parts)


def _plain_lines() -> Show:
    before: PipelineStatus | None = None

    def show(status: PipelineStatus) -> None:
        nonlocal before
        for line in lines_of(status, before):
            print_line(line)
        sys.stdout.flush()
        before = status

    return show


def _json_lines() -> Show:
    before: PipelineStatus | None = None

    def show(status: PipelineStatus) -> None:
        nonlocal before
        if status != before:
            print_line(json.dumps(status.to_document(), ensure_ascii=False))
            sys.stdout.flush()
        before = status

    return show
