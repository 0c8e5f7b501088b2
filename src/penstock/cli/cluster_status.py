"""How `penstock cluster status` looks: tables once, a picture that is drawn anew, or one line per look in a pipe."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import NamedTuple

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from penstock.cli.byte_sizes import format_bytes
from penstock.cli.cluster_health import Health, State, health_document, judge, progress_of
from penstock.cli.cluster_survey import take_survey
from penstock.cli.connection import Connection, format_address
from penstock.cli.failure import ExitCode, Failure
from penstock.cli.output import STATUS, note, print_heading, print_line, print_table, rich_table
from penstock.cli.places import Place, places_text

SHOWN_MAX = 10
STATE_STYLES = {State.HEALTHY: "bold green", State.DEGRADED: "bold yellow", State.OFFLINE: "bold red"}
EXIT_CODES = {State.HEALTHY: ExitCode.OK, State.DEGRADED: ExitCode.DEGRADED, State.OFFLINE: ExitCode.OFFLINE}


class Rows(NamedTuple):
    """A table of the report."""

    columns: Sequence[str]
    rows: Sequence[Sequence[object]]


def print_status(health: Health) -> None:
    """The whole report, once."""
    print_heading(headline(health))
    for part in report(health):
        if isinstance(part, Rows):
            print_table(part.columns, part.rows)
        else:
            print_line(part)


def headline(health: Health) -> str:
    """The cluster in one sentence."""
    survey = health.survey
    topics = len({topic for topic, _ in survey.partitions})
    controller = "no controller" if survey.controller_id is None else f"controller {survey.controller_id}"
    return (
        f"cluster {survey.cluster_id}: {health.state}, {_count(health.answering, 'broker')}, {controller}, "
        f"{_count(len(survey.partitions), 'partition')} in {_count(topics, 'topic')}"
    )


def report(health: Health) -> list[str | Rows]:
    """Everything below the headline."""
    parts: list[str | Rows] = [_brokers(health), "", _counts(health)]
    parts += [part for lines in (_problems(health), _behind(health), _moves(health)) if lines for part in ("", *lines)]
    return parts


def _brokers(health: Health) -> Rows:
    columns = ["BROKER", "ADDRESS", "RACK", STATUS, "LEADERS", "PREFERRED", "REPLICAS", "OUT OF SYNC", "LAG"]
    rows: list[list[object]] = []
    for each in health.brokers:
        address = each.broker.address
        says = address is not None and each.broker.silence is None
        rows.append(
            [
                each.broker.id,
                format_address(address.host, address.port) if address else None,
                each.broker.rack,
                each.state.value,
                each.leaders,
                each.preferred,
                each.replicas,
                each.out_of_sync,
                each.lag_max,
                format_bytes(each.used_bytes) if says else None,
                format_bytes(each.free_bytes) if each.free_bytes is not None else None,
            ]
        )
    return Rows([*columns, "USED", "FREE"], rows)


def _counts(health: Health) -> Rows:
    counts = {
        "PARTITIONS": len(health.survey.partitions),
        "OFFLINE": len(health.offline),
        "UNDER-REPLICATED": len(health.under_replicated),
        "UNDER MIN ISR": len(health.under_min_isr),
        "NOT PREFERRED": len(health.not_preferred),
        "REASSIGNING": len(health.survey.reassignments),
    }
    return Rows(list(counts), [list(counts.values())])


def _problems(health: Health) -> list[str | Rows]:
    lines: list[str | Rows] = [*health.survey.remarks]
    lines += [f"broker {each.broker.id}: {each.broker.silence}" for each in health.brokers if each.broker.silence]
    lines += [
        f"broker {each.broker.id}: {folder.path}: {folder.problem}"
        for each in health.brokers
        for folder in each.broker.folders
        if folder.problem
    ]
    kinds = {
        "offline": health.offline,
        "under min ISR": health.under_min_isr,
        "under-replicated": health.under_replicated,
        "not on the preferred leader": health.not_preferred,
    }
    return lines + [f"{kind}: {_shortened(places)}" for kind, places in kinds.items() if places]


def _shortened(places: Sequence[Place]) -> str:
    more = f" … and {len(places) - SHOWN_MAX} more" if len(places) > SHOWN_MAX else ""
    return places_text(places[:SHOWN_MAX]) + more


def _behind(health: Health) -> list[str | Rows]:
    """Those that are catching up; that a broker which is away is behind with everything goes without saying."""
    there = [each for each in health.behind if health.survey.brokers[each.broker_id].address is not None]
    rows = [[*each.place, each.broker_id, each.lag] for each in there[:SHOWN_MAX]]
    return [Rows(["OUT OF SYNC", "PARTITION", "BROKER", "LAG"], rows)] if rows else []


def _moves(health: Health) -> list[str | Rows]:
    rows = []
    for place, move in list(health.survey.reassignments.items())[:SHOWN_MAX]:
        there, wanted = progress_of(health.survey, place, move)
        rows.append([*place, move.adding, move.removing, progress_text(there, wanted)])
    return [Rows(["REASSIGNING", "PARTITION", "ADDING", "REMOVING", "COPIED"], rows)] if rows else []


def progress_text(there: int, wanted: int) -> str:
    """How much of a copy is there."""
    if not wanted:
        return "0 B"
    return f"{format_bytes(there)} of {format_bytes(wanted)} ({100 * there // wanted} %)"


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


# Again and again


def watch(connection: Connection, interval_s: float, *, as_json: bool) -> None:
    """Looks every few seconds, until Ctrl-C. A look that fails is told, and the next one tries again."""
    if sys.stdout.isatty() and not as_json:
        _watch_live(connection, interval_s)
    else:
        _watch_lines(connection, interval_s, as_json=as_json)


def _watch_live(connection: Connection, interval_s: float) -> None:
    console = Console(highlight=False)
    with Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            live.update(_picture(connection, interval_s), refresh=True)
            time.sleep(interval_s)


def _picture(connection: Connection, interval_s: float) -> RenderableType:
    taken = f"{datetime.now():%H:%M:%S}, every {interval_s:g} s, Ctrl-C ends"
    try:
        health = judge(take_survey(connection))
    except Failure as failure:
        return Group(Text(failure.message, style="bold red"), Text(taken, style="dim"))
    parts: list[RenderableType] = [Text(headline(health), style=STATE_STYLES[health.state]), Text(taken, style="dim")]
    for part in ("", *report(health)):
        parts.append(rich_table(*part) if isinstance(part, Rows) else Text(part))
    return Group(*parts)


def _watch_lines(connection: Connection, interval_s: float, *, as_json: bool) -> None:
    while True:
        try:
            health = judge(take_survey(connection))
        except Failure as failure:
            note(f"penstock: {failure.message}")
        else:
            print_line(json.dumps(health_document(health)) if as_json else _line(health))
            sys.stdout.flush()
        time.sleep(interval_s)


def _line(health: Health) -> str:
    survey = health.survey
    fields = {
        "state": health.state.value,
        "brokers": f"{health.answering}/{len(health.brokers)}",
        "controller": "-" if survey.controller_id is None else survey.controller_id,
        "partitions": len(survey.partitions),
        "offline": len(health.offline),
        "under_replicated": len(health.under_replicated),
        "under_min_isr": len(health.under_min_isr),
        "not_preferred": len(health.not_preferred),
        "reassigning": len(survey.reassignments),
        "lag_max": health.lag_max,
    }
    taken = f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}"
    return " ".join([taken, *(f"{name}={value}" for name, value in fields.items())])
