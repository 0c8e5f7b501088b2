"""`penstock demo`: its files, its picture, and the whole from nothing to nothing."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest
from rich.console import Console

from penstock.cli.demo import RESULTS_S_MAX, Ending
from penstock.cli.demo_orders import ITEMS, Kind
from penstock.cli.demo_pipeline import DATABASE, PARQUET_FOLDER, lay_out, newest_revenue, parquet_size
from penstock.cli.demo_view import Sight, line, next_steps, picture, sent_text
from penstock.cli.doctor_checks import OK, check_java
from penstock.pipelines.reading import read_file
from penstock.pipelines.specification import BadRecordsToTopic
from penstock.pipelines.status import PipelineStatus, QueryStatus, State

END_S_MAX = 600.0


def test_the_pipeline_and_the_database_are_laid_out(tmp_path: Path) -> None:
    for _ in ("at first", "and again"):
        pipeline = read_file(lay_out(tmp_path), {"PENSTOCK_BOOTSTRAP": "127.0.0.1:1234"})
    assert pipeline.brokers == "127.0.0.1:1234"
    assert {*pipeline.sinks} == {"to_topic", "to_table", "to_files"}
    assert isinstance(pipeline.on_bad_record, BadRecordsToTopic)
    with closing(sqlite3.connect(tmp_path / "shop.db")) as database:
        assert database.execute("select count(*) from items").fetchone() == (len(ITEMS),)


def test_results_that_are_not_there_yet_are_none(tmp_path: Path) -> None:
    assert newest_revenue(tmp_path, 5) == []
    assert parquet_size(tmp_path) == (0, 0)


def test_the_newest_results_are_shown(tmp_path: Path) -> None:
    lay_out(tmp_path)
    with closing(sqlite3.connect(tmp_path / "shop.db")) as database, database:
        database.execute("create table revenue (since text, category text, orders int, revenue real)")
        database.executemany("insert into revenue values (?, 'tea', 2, 15.0)", [(f"12:00:{n}0",) for n in range(4)])
    assert [row[0] for row in newest_revenue(tmp_path, 2)] == ["12:00:30", "12:00:20"]
    (tmp_path / PARQUET_FOLDER / "date=2026-01-01").mkdir(parents=True)
    (tmp_path / PARQUET_FOLDER / "date=2026-01-01" / "a.parquet").write_bytes(b"1234")
    assert parquet_size(tmp_path) == (1, 4)


def test_the_picture_and_the_line(tmp_path: Path) -> None:
    status = PipelineStatus("shop", State.RUNNING, queries=(QueryStatus("to_table", rows_per_s=99.7),))
    sight = Sight(
        "127.0.0.1:1234",
        tmp_path,
        {Kind.FINE: 1200, Kind.LATE: 3},
        status,
        [("12:00", "tea", 7, 52.5)],
        {"revenue": 40, "orders.dead": 5},
        {"orders.dead": "quantity is no int: {"},
        files=2,
        file_bytes=2048,
    )
    assert sight.moves
    assert sent_text(sight) == "1,203 orders sent: 1,200 fine, 3 late, 0 twice, 0 broken"
    assert line(sight).startswith("pipeline=running sent=1203 rows_per_s=100 lag=- topic_records=40")
    console = Console(record=True, width=140, file=sys.stderr)
    console.print(picture(sight, "Ctrl-C ends it"))
    text = console.export_text()
    parts = (
        "127.0.0.1:1234",
        "to_table",
        "5 broken orders",
        "quantity is no int",
        "2 files, 2.0 KiB",
        "tea",
        "Ctrl-C ends it",
    )
    assert all(part in text for part in parts)
    assert "Spark is starting" in line_of_start(tmp_path)


def test_the_next_steps_can_be_taken_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine that has neither penstock in its PATH nor the program sqlite3."""
    with closing(sqlite3.connect(tmp_path / DATABASE)) as database, database:
        database.execute("create table revenue (since text, category text, orders integer, revenue real)")
        database.execute("insert into revenue values ('12:00', 'tea', 7, 52.5)")
    monkeypatch.setenv("PATH", "/nowhere")
    steps = next_steps(Sight("127.0.0.1:1234", tmp_path, {}))
    assert f"  export PATH={Path(sys.executable).parent}:$PATH" in steps
    [look] = [step for step in steps if "select" in step]
    done = subprocess.run(["/bin/sh", "-c", look], capture_output=True, text=True, check=True)
    assert done.stdout == "('12:00', 'tea', 7, 52.5)\n"


def test_the_time_counts_from_the_first_results() -> None:
    ending = Ending(10)
    times = [(0, False, False), (30, True, False), (90, True, False), (95, True, True), (104, True, True)]
    assert not any(ending.is_over(now_s, runs=runs, moves=lambda: moves) for now_s, runs, moves in times)  # noqa: B023
    assert ending.is_over(106, runs=True, moves=lambda: True)
    late = Ending(10)
    assert not late.is_over(0, runs=True, moves=lambda: False)
    assert not late.is_over(RESULTS_S_MAX + 1, runs=True, moves=lambda: False)
    assert late.is_over(RESULTS_S_MAX + 12, runs=True, moves=lambda: False)
    assert not Ending(None).is_over(1e9, runs=True, moves=lambda: True)


def line_of_start(folder: Path) -> str:
    console = Console(record=True, width=140, file=sys.stderr)
    console.print(picture(Sight("127.0.0.1:1", folder, {}), ""))
    return console.export_text()


def processes_with(word: str) -> list[str]:
    """The command lines of living processes that name this."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            text = path.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if word in text and path.parent.name != str(os.getpid()):
            found.append(text)
    return found


@pytest.mark.spark
@pytest.mark.skipif(check_java().status != OK, reason="NOT TESTED WITH SPARK: there is no Java 17")
@pytest.mark.parametrize("seconds", [pytest.param(5, marks=pytest.mark.slow), None])
def test_from_nothing_to_nothing(tmp_path: Path, seconds: int | None) -> None:
    """With --seconds it ends by itself; otherwise it is watched until results come out everywhere, and interrupted."""
    folder = tmp_path / "demo"
    command = [sys.executable, "-m", "penstock.cli", "demo", "--data", str(folder), "--rate", "50"]
    command += [] if seconds is None else ["--seconds", str(seconds)]
    program = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert program.stdout is not None
    if seconds is None:
        deadline_s = time.monotonic() + END_S_MAX
        while not all_move(program.stdout.readline()):
            assert program.poll() is None and time.monotonic() < deadline_s
        program.send_signal(signal.SIGINT)
    out, err = program.communicate(timeout=END_S_MAX)
    assert program.returncode == 0, err
    assert "orders sent" in out
    assert processes_with(str(tmp_path)) == []
    assert newest_revenue(folder, 1) and parquet_size(folder)[0]


def all_move(text: str) -> bool:
    figures = dict(word.split("=", 1) for word in text.split() if "=" in word)
    names = ("topic_records", "table_rows_shown", "parquet_files", "bad_records")
    return all(figures.get(name, "0") != "0" for name in names)
