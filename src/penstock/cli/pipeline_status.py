"""`penstock pipeline status`: what every pipeline is doing, from the files that they and their service write.

Nobody is asked, so this works while a pipeline is busy, and tells of those that have ended or were killed.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from penstock.cli.byte_sizes import format_bytes
from penstock.cli.failure import ExitCode, Failure, did_you_mean
from penstock.cli.output import can_draw, note, print_heading, print_json, print_line, print_table, rich_table
from penstock.cli.pipeline_view import (
    STATE_STYLES,
    Rows,
    errors,
    format_count,
    format_duration,
    format_rate,
    headline,
    report,
)
from penstock.pipelines.service import Doing, Report
from penstock.pipelines.service_status import living_services
from penstock.pipelines.status import STATE_FOLDER, PipelineStatus, State, all_statuses

NEAR_MAX = 3
COLUMNS = ("PIPELINE", "STATE", "FOR", "ROWS/S", "LAG", "HELD BACK", "BATCH", "STATE ROWS", "BAD", "SERVICE", "FILE")


@dataclass(frozen=True, slots=True)
class Line:
    """One pipeline: what its process tells, what its service does with it; one of them is there."""

    name: str
    status: PipelineStatus | None
    report: Report | None

    @property
    def is_bad(self) -> bool:
        failed = self.status is not None and self.status.state in (State.FAILED, State.LOST)
        return failed or (self.report is not None and self.report.doing is Doing.BROKEN) or bool(self.problems)

    @property
    def problems(self) -> list[str]:
        """What went wrong last, as the pipeline and its service tell it."""
        told = errors(self.status) if self.status is not None else []
        if self.status is not None and self.status.state is State.LOST:
            told.append(f"process {self.status.pid} is gone without a word: it was killed, or the machine went down")
        if self.report is not None and self.report.problem is not None and self.report.problem not in told:
            told.append(self.report.problem)
        return told

    def to_document(self) -> dict[str, Any]:
        """For scripts."""
        return {
            "name": self.name,
            "status": self.status.to_document() if self.status else None,
            "service": asdict(self.report) if self.report else None,
            "problems": self.problems,
        }


def gather(state_folder: Path) -> list[Line]:
    """Every pipeline that ever ran with this state folder, and those that a service holds but could not start."""
    statuses = {status.name: status for status in all_statuses(state_folder)}
    by_file = {status.file: status.name for status in statuses.values() if status.file is not None}
    reports: dict[str, Report] = {}
    for service in living_services(state_folder):
        for each in service.reports:  # a file that cannot be read has no name of its own any more
            known = each.name if each.name in statuses else by_file.get(f"{service.folder}/{each.file}", each.name)
            reports[known] = each
    return [Line(name, statuses.get(name), reports.get(name)) for name in sorted({*reports, *statuses})]


def chosen(lines: Sequence[Line], names: Collection[str], state_folder: Path) -> list[Line]:
    """Those that were asked for; a failure that names the first one that is not there."""
    known = {line.name for line in lines}
    for name in names:
        if name not in known:
            hint = did_you_mean(name, known)
            raise Failure(f"no pipeline '{name}' in {state_folder}{hint}", ExitCode.NOT_FOUND)
    return [line for line in lines if not names or line.name in names]


def show(state_folder: Path, names: Collection[str], *, as_json: bool) -> ExitCode:
    """Once; the exit code tells whether all is well."""
    lines = chosen(gather(state_folder), names, state_folder)
    if as_json:
        print_json([line.to_document() for line in lines])
    elif not lines:
        note(f"no pipeline has run with the state folder {state_folder}: {_advice(state_folder)}")
    else:
        print_table(*overview(lines, time.time()))
        for line in lines:
            _print_details(line, in_full=bool(names))
    return ExitCode.DEGRADED if any(line.is_bad for line in lines) else ExitCode.OK


def _advice(state_folder: Path) -> str:
    """Where others have run, if that is one step away: who runs a folder as a service is often beside it."""
    near = sorted(place for place in state_folder.parent.glob(f"*/{STATE_FOLDER}") if all_statuses(place))
    if near and state_folder.name == STATE_FOLDER:
        return "try " + " or ".join(f"--state {place}" for place in near[:NEAR_MAX])
    return "start one with 'penstock pipeline run FILE'"


def watch(state_folder: Path, names: Collection[str], interval_s: float, *, as_json: bool) -> None:
    """Again and again, until Ctrl-C."""
    if as_json or not can_draw():
        while True:
            for line in chosen(gather(state_folder), names, state_folder):
                print_line(json.dumps(line.to_document()) if as_json else _short(line))
            sys.stdout.flush()
            time.sleep(interval_s)
    with Live(console=Console(highlight=False), screen=True, auto_refresh=False) as live:
        while True:
            live.update(_picture(chosen(gather(state_folder), names, state_folder), interval_s), refresh=True)
            time.sleep(interval_s)


def overview(lines: Iterable[Line], now_s: float) -> Rows:
    """One row for each pipeline."""
    return Rows(COLUMNS, [_row(line, now_s) for line in lines])


def _row(line: Line, now_s: float) -> list[object]:
    status, its_service = line.status, line.report
    doing = None if its_service is None else _doing(its_service)
    if status is None:
        return [line.name, "-", *[None] * 7, doing, its_service.file if its_service else None]
    is_alive = status.is_alive
    return [
        line.name,
        status.state.value,
        format_duration(now_s - (status.since_s if is_alive else status.changed_s)),
        format_rate(status.rows_per_s) if is_alive else None,
        format_count(status.lag_rows),
        _held_back(status),
        f"{max((query.batch_ms for query in status.queries), default=0)} ms" if is_alive else None,
        sum(query.state_rows for query in status.queries),
        status.bad_records,
        doing,
        status.file,
    ]


def _doing(report: Report) -> str:
    if report.doing is Doing.WAITING and report.starts_again_in_s is not None:
        return f"starts again in {report.starts_again_in_s} s (failed {report.failures} times)"
    return report.doing.value


def _held_back(status: PipelineStatus) -> str | None:
    """What databases keep for the slots of this pipeline, each slot once."""
    held = {
        source.name: source.held_back_bytes
        for query in status.queries
        for source in query.sources
        if source.held_back_bytes is not None
    }
    return format_bytes(sum(held.values())) if held else None


def _print_details(line: Line, *, in_full: bool) -> None:
    if in_full and line.status is not None and line.status.queries:
        print_line("")
        print_heading(headline(line.status, time.time()))
        print_table(*report(line.status))
    for problem in line.problems:
        print_line(f"{line.name}: {problem}")


def _short(line: Line) -> str:
    status = line.status
    fields: dict[str, object] = {"pipeline": line.name, "state": status.state.value if status else "-"}
    if status is not None:
        lag = "-" if status.lag_rows is None else status.lag_rows
        fields |= {"rows_per_s": f"{status.rows_per_s:.1f}", "lag": lag, "bad_records": status.bad_records}
    if line.report is not None:
        fields["service"] = line.report.doing.value
    return " ".join(f"{name}={value}" for name, value in fields.items())


def _picture(lines: Sequence[Line], interval_s: float) -> RenderableType:
    parts: list[RenderableType] = [
        Text(f"{time.strftime('%H:%M:%S')}, every {interval_s:g} s, Ctrl-C ends", style="dim"),
        rich_table(*overview(lines, time.time())),
    ]
    for line in lines:
        if line.status is not None and line.status.is_alive and line.status.queries:
            parts += [
                Text(""),
                Text(headline(line.status, time.time()), style=STATE_STYLES[line.status.state]),
                rich_table(*report(line.status)),
            ]
        parts += [Text(f"{line.name}: {problem}", style="red") for problem in line.problems]
    return Group(*parts)
