"""`penstock demo`: a cluster, a stream of orders and a pipeline, from nothing, with the results moving on the screen.

Everything it starts belongs to it and ends with it (`owned_process.py`); its files go with it too, unless --data says
where to keep them.
"""

from __future__ import annotations

import json
import os
import queue
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.live import Live

from penstock.cli.connection import ANSWER_TIMEOUT_S, Connection
from penstock.cli.demo_orders import OrderStream
from penstock.cli.demo_pipeline import TOPICS, lay_out, newest_revenue, parquet_size
from penstock.cli.demo_topics import Feed, Results
from penstock.cli.demo_view import Sight, line, next_steps, picture, sent_text
from penstock.cli.doctor_checks import OK, check_java, check_pipelines, check_spark
from penstock.cli.failure import ExitCode, Failure
from penstock.cli.kafka_admin import NewTopic
from penstock.cli.output import can_draw, note, print_line
from penstock.cli.owned_process import OwnedProcess
from penstock.pipelines.status import PipelineStatus, State

BROKERS = 3
PARTITIONS = 2
READY = "penstock ready "
START_S_MAX = 60.0
PIPELINE_S_MAX = 240.0
#: So long a slow machine may take for its first results.
RESULTS_S_MAX = 180.0
STOP_S_MAX = 60.0
STARTS_MAX = 4
STEP_S = 0.5
LINE_S = 5.0
ROWS_SHOWN = 8
PROGRAM = (sys.executable, "-m", "penstock.cli")
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def demo(
    seconds: Annotated[
        float | None,
        typer.Option(
            "--seconds", metavar="N", min=1, help="End so long after the first results.", show_default="Ctrl-C"
        ),
    ] = None,
    orders_per_s: Annotated[float, typer.Option("--rate", metavar="N", min=1, help="Orders per second.")] = 100,
    seed: Annotated[int, typer.Option("--seed", metavar="N", help="Other orders.")] = 1,
    data: Annotated[
        Path | None,
        typer.Option(
            "--data", metavar="DIR", help="Keep everything here.", show_default="a folder that goes at the end"
        ),
    ] = None,
) -> None:
    """Show a cluster and a pipeline at work, with nothing prepared.

    Three brokers, a stream of shop orders with late, double and broken ones, and a pipeline that cleans, joins and sums
    them up into a topic, a SQLite table and Parquet. It ends with Ctrl-C and leaves nothing running.
    """
    _check_needs()
    with ExitStack() as stack:
        asked = stack.enter_context(_asked_to_end())
        folder = stack.enter_context(_folder(data))
        bootstrap = stack.enter_context(_cluster(folder, asked))
        _make_topics(bootstrap)
        file = lay_out(folder)
        feed = Feed(bootstrap, OrderStream(seed), orders_per_s)
        stack.callback(feed.stop)
        results = Results(bootstrap)
        stack.callback(results.stop)
        pipeline = stack.enter_context(_pipeline(file, bootstrap))
        shown = _Shown(bootstrap, folder, feed, results, pipeline)
        _show(shown, asked, seconds)
        _tell_the_end(shown.look(), is_kept=data is not None)


def _check_needs() -> None:
    for finding in (check_pipelines(), check_spark(), check_java()):
        if finding.status != OK:
            text = f"the demo runs a pipeline on Spark: {finding.check}: {finding.text}; {finding.advice}"
            raise Failure(text, ExitCode.NOT_FOUND)


@contextmanager
def _asked_to_end() -> Iterator[threading.Event]:
    """Set by the first signal; so everything ends in order."""
    asked = threading.Event()
    before = {number: signal.signal(number, lambda *_: asked.set()) for number in SIGNALS}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def _folder(data: Path | None) -> Iterator[Path]:
    if data is not None:
        data.mkdir(parents=True, exist_ok=True)
        yield data.resolve()
        return
    folder = Path(tempfile.mkdtemp(prefix="penstock-demo-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _cluster(folder: Path, asked: threading.Event) -> Iterator[str]:
    """`penstock up` with three brokers on free ports; where clients reach it."""
    lines: queue.SimpleQueue[str] = queue.SimpleQueue()
    command = [*PROGRAM, "up", "--brokers", str(BROKERS), "--port", "0", "--data", str(folder / "cluster")]
    note("starting three brokers …")
    cluster = OwnedProcess([*command, "--set", "metrics.listener=127.0.0.1:0"], on_output=lines.put)
    try:
        _wait_until(lambda: not lines.empty(), cluster, START_S_MAX, "the cluster", asked)
        places = dict(word.split("=", 1) for word in lines.get().removeprefix(READY).split() if "=" in word)
        yield places["kafka"]
    finally:
        cluster.end(STOP_S_MAX)


def _wait_until(
    condition: Callable[[], bool], process: OwnedProcess, timeout_s: float, what: str, asked: threading.Event
) -> None:
    deadline_s = time.monotonic() + timeout_s
    while not condition():
        if process.poll() is not None:
            process.close()
            raise Failure(f"{what} did not start: {process.why()}")
        if time.monotonic() > deadline_s:
            raise Failure(f"{what} was not ready after {timeout_s:g} s: {process.why()}")
        if asked.wait(0.05):
            raise KeyboardInterrupt


def _make_topics(bootstrap: str) -> None:
    connection = Connection(bootstrap, None, None)
    admin = connection.admin()
    there = connection.metadata(admin).topics
    new = [NewTopic(name, PARTITIONS, BROKERS) for name in TOPICS if name not in there]
    if new:
        for name, answer in admin.create_topics(new, request_timeout=ANSWER_TIMEOUT_S).items():
            connection.answer(answer, f"topic '{name}'")


class _Pipeline:
    """The process that runs the pipeline, and the last status it told."""

    def __init__(self, file: Path, bootstrap: str) -> None:
        self.status: PipelineStatus | None = None
        self._starts_left = STARTS_MAX
        cores = min(4, os.cpu_count() or 1)
        self._command = [*PROGRAM, "pipeline", "run", str(file), "--json", "--master", f"local[{cores}]"]
        self._environment = {"PENSTOCK_BOOTSTRAP": bootstrap}
        self.process = self._start()

    def _start(self) -> OwnedProcess:
        self._starts_left -= 1
        return OwnedProcess(self._command, on_output=self._told, environment=self._environment)

    def keep_running(self) -> None:
        """If it has ended, start it again: it goes on where it was. On a busy machine Spark may give up at first."""
        if self.process.poll() is None:
            return
        self.process.close()
        if not self._starts_left:
            raise Failure(f"the pipeline has ended: {self.process.why()}")
        note(f"the pipeline has ended ({self.process.why()}) and starts again")
        self.status = None
        self.process = self._start()

    def _told(self, text: str) -> None:
        try:
            self.status = PipelineStatus.from_document(json.loads(text))
        except ValueError:
            return


@contextmanager
def _pipeline(file: Path, bootstrap: str) -> Iterator[_Pipeline]:
    pipeline = _Pipeline(file, bootstrap)
    try:
        yield pipeline
    finally:
        note("stopping …")
        pipeline.process.end(STOP_S_MAX)


class _Shown:
    """Puts together what there is to see."""

    def __init__(self, bootstrap: str, folder: Path, feed: Feed, results: Results, pipeline: _Pipeline) -> None:
        self.pipeline = pipeline
        self._bootstrap = bootstrap
        self._folder = folder
        self._feed = feed
        self._results = results

    def look(self) -> Sight:
        files, file_bytes = parquet_size(self._folder)
        return Sight(
            self._bootstrap,
            self._folder,
            dict(self._feed.stream.sent),
            self.pipeline.status,
            newest_revenue(self._folder, ROWS_SHOWN),
            dict(self._results.counts),
            dict(self._results.last),
            files,
            file_bytes,
        )


@dataclass(slots=True)
class Ending:
    """When it ends by itself: so long after the first results, or if none come, after the time that they may take."""

    seconds: float | None
    runs_since_s: float | None = None
    end_at_s: float | None = None

    def is_over(self, now_s: float, *, runs: bool, moves: Callable[[], bool]) -> bool:
        """Whether it is time to go."""
        if self.seconds is None:
            return False
        if runs and self.runs_since_s is None:
            self.runs_since_s = now_s
        if self.end_at_s is None and self.runs_since_s is not None:
            is_late = now_s - self.runs_since_s > RESULTS_S_MAX
            self.end_at_s = now_s + self.seconds if is_late or moves() else None
        return self.end_at_s is not None and now_s > self.end_at_s


def _show(shown: _Shown, asked: threading.Event, seconds: float | None) -> None:
    """Until Ctrl-C, the end of the time, or the end of the pipeline, which is a failure."""
    ends = "Ctrl-C ends it" if seconds is None else f"ends {seconds:g} s after the first results, or with Ctrl-C"
    started_s = time.monotonic()
    ending = Ending(seconds)
    with _screen(shown, ends) as draw:
        while not asked.is_set():
            status, now_s = shown.pipeline.status, time.monotonic()
            shown.pipeline.keep_running()
            if status is None and now_s - started_s > PIPELINE_S_MAX:
                raise Failure(f"the pipeline was not ready after {PIPELINE_S_MAX:g} s")
            runs = status is not None and status.state is State.RUNNING
            if ending.is_over(now_s, runs=runs, moves=lambda: shown.look().moves):
                return
            draw()
            asked.wait(STEP_S)


@contextmanager
def _screen(shown: _Shown, ends: str) -> Iterator[Callable[[], None]]:
    if can_draw():
        with Live(console=Console(highlight=False), screen=True, auto_refresh=False) as live:
            yield lambda: live.update(picture(shown.look(), ends), refresh=True)
        return
    for text in [*next_steps(shown.look()), ends]:
        print_line(text)
    due_s = 0.0

    def print_due() -> None:
        nonlocal due_s
        if time.monotonic() >= due_s:
            print_line(line(shown.look()))
            sys.stdout.flush()
            due_s = time.monotonic() + LINE_S

    yield print_due


def _tell_the_end(sight: Sight, *, is_kept: bool) -> None:
    print_line(line(sight))
    print_line(sent_text(sight))
    if is_kept:
        print_line(f"everything is in {sight.folder}; 'penstock demo --data {sight.folder}' goes on from there")
    if not sight.moves:
        print_line("it ended before results had come out everywhere: let it run a little longer")
