"""How a running pipeline looks, on a terminal, in a pipe and for scripts."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import pytest
from rich.console import Console

from penstock.cli.pipeline_view import (
    errors,
    format_duration,
    format_rate,
    headline,
    lines_of,
    open_view,
    picture,
    report,
)
from penstock.pipelines.status import PipelineStatus, QueryStatus, SourceStatus, State

ORDERS = SourceStatus("orders", 1500.4, 900, lag_rows=12345)
CHANGES = SourceStatus("items", 3.25, 4, held_back_bytes=2048)
TO_TOPIC = QueryStatus("to_topic", "sink", "topic revenue", 7, 1503.6, 140, 9000, 2, 33, sources=(ORDERS, CHANGES))
STATUS = PipelineStatus("revenue", State.RUNNING, pid=77, since_s=1000.0, changed_s=1125.0, queries=(TO_TOPIC,))


def test_the_headline_says_what_and_how_long() -> None:
    assert headline(STATUS, 1125.0) == "revenue: running, for 2 min 5 s, process 77"
    assert headline(replace(STATUS, state=State.FAILED), 1125.0) == "revenue: failed, process 77"


def test_a_row_for_each_source_and_the_query_once() -> None:
    columns, rows = report(STATUS)
    first, second = (dict(zip(columns, row, strict=True)) for row in rows)
    assert first == {
        "SINK": "to_topic",
        "SOURCE": "orders",
        "ROWS/S": "1,500",
        "LAG": "12,345",
        "HELD BACK": None,
        "BATCH": 7,
        "TOOK": "140 ms",
        "STATE ROWS": 33,
        "BAD": 2,
    }
    assert (second["SOURCE"], second["LAG"], second["HELD BACK"], second["BATCH"]) == ("items", None, "2.0 KiB", "")


def test_a_query_without_a_batch_yet_is_there() -> None:
    status = replace(STATUS, queries=(QueryStatus("to_topic"), QueryStatus("orders", "bad records")))
    assert [row[0] for row in report(status).rows] == ["to_topic", "orders (bad records)"]
    assert report(status).rows[0][5] is None


def test_lines_tell_what_is_new() -> None:
    assert lines_of(STATUS, None) == [
        "1970-01-01T00:18:45Z revenue state=running pid=77",
        "1970-01-01T00:18:45Z revenue query=to_topic batch=7 rows_per_s=1503.6 batch_ms=140 state_rows=33 "
        "bad_records=2 lag.orders=12345 held_back_bytes.items=2048",
    ]
    assert lines_of(STATUS, STATUS) == []
    last = replace(STATUS.queries[0], batch_id=8)
    ended = lines_of(replace(STATUS, state=State.FINISHED, queries=(last,)), STATUS)
    assert [line.split()[2] for line in ended] == ["query=to_topic", "state=finished"]
    failed = replace(STATUS, state=State.FAILED, last_error="no broker\nanswers…")
    assert lines_of(failed, STATUS) == [
        "1970-01-01T00:18:45Z revenue state=failed pid=77",
        '1970-01-01T00:18:45Z revenue error="no broker\\nanswers…"',
    ]
    assert lines_of(failed, failed) == []


def test_errors_are_told_once() -> None:
    query = replace(TO_TOPIC, last_error="no broker")
    assert errors(replace(STATUS, last_error="no broker", queries=(query,))) == ["no broker"]
    assert errors(replace(STATUS, queries=(query,))) == ["to_topic: no broker"]


def test_a_pipe_gets_lines_and_scripts_get_json(capsys: pytest.CaptureFixture[str]) -> None:
    with open_view() as show:
        show(STATUS)
        show(STATUS)
    assert len(capsys.readouterr().out.splitlines()) == 2
    with open_view(as_json=True) as show:
        show(STATUS)
        show(STATUS)
    [line] = capsys.readouterr().out.splitlines()
    assert PipelineStatus.from_document(json.loads(line)) == STATUS


def test_a_terminal_gets_a_picture(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("TERM", "dumb")  # nothing can be drawn anew there
    with open_view() as show:
        show(STATUS)
    assert "query=to_topic" in capsys.readouterr().out
    monkeypatch.setenv("TERM", "xterm")
    with open_view() as show:
        show(STATUS)
    assert "to_topic" in capsys.readouterr().out
    console = Console(record=True, width=140, file=sys.stderr)
    console.print(picture(replace(STATUS, last_error="no broker")))
    text = console.export_text()
    assert all(part in text for part in ("revenue: running", "12,345", "2.0 KiB", "140 ms", "no broker", "Ctrl-C"))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.4, "0 s"), (59, "59 s"), (60, "1 min 0 s"), (3700, "1 h 1 min"), (86400 * 3 + 7200, "3 d 2 h"), (-5, "0 s")],
)
def test_durations(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text


@pytest.mark.parametrize(("rate", "text"), [(0, "0"), (0.25, "0.2"), (9.96, "10.0"), (1234567.8, "1,234,568")])
def test_rates(rate: float, text: str) -> None:
    assert format_rate(rate) == text
