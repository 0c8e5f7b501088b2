"""`penstock pipeline check` and `run`: one file, looked at or run here."""

from __future__ import annotations

import signal
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli.failure import ExitCode, Failure
from penstock.cli.options import Json, key_values
from penstock.cli.output import note, print_json, print_line
from penstock.cli.pipeline_options import Master, SparkSettings, StateFolder
from penstock.cli.pipeline_session import STOPS, open_session
from penstock.cli.pipeline_view import open_view
from penstock.pipelines.checking import check_pipeline
from penstock.pipelines.reading import read_file
from penstock.pipelines.reading_nodes import PipelineMistakes
from penstock.pipelines.running import Run
from penstock.pipelines.specification import Pipeline
from penstock.pipelines.status import AlreadyRunning, State, default_state_folder, held_lock

File = Annotated[Path, typer.Argument(metavar="FILE", help="The pipeline's file.", show_default=False)]


def check(file: File, as_json: Json = False, master: Master = None, conf: SparkSettings = None) -> None:
    """Find mistakes without running it, and draw the plan."""
    try:
        pipeline = read_file(file)
    except PipelineMistakes as found:
        _tell_mistakes(file, [asdict(each) for each in found.mistakes], [], "", as_json)
        return
    spark = open_session(pipeline, master or "local[1]", key_values(conf, "--conf"))
    try:
        findings = check_pipeline(spark, pipeline)
    finally:
        spark.stop()
    mistakes = [asdict(each) for each in sorted(findings.mistakes)]
    _tell_mistakes(file, mistakes, [asdict(each) for each in findings.warnings], findings.plan, as_json)


def _tell_mistakes(
    file: Path, mistakes: list[dict[str, Any]], warnings: list[dict[str, Any]], plan: str, as_json: bool
) -> None:
    if as_json:
        print_json({"file": str(file), "mistakes": mistakes, "warnings": warnings, "plan": plan})
    else:
        if plan:
            print_line(plan)
        for each in warnings:
            note(f"{_place(file, each)} note: {each['text']}")
        for each in mistakes:
            note(f"{_place(file, each)} {each['text']}")
    if mistakes:
        raise Failure(f"{file}: {len(mistakes)} mistake{'s' if len(mistakes) > 1 else ''}", ExitCode.REFUSED)


def _place(file: Path, mistake: dict[str, Any]) -> str:
    line = f":{mistake['line']}" if mistake["line"] else ""
    return f"{file}{line}: {mistake['key']}:" if mistake["key"] else f"{file}{line}:"


def run(
    file: File,
    once: Annotated[bool, typer.Option("--once", help="Process what is there, then end.")] = False,
    as_json: Json = False,
    master: Master = None,
    conf: SparkSettings = None,
    state: StateFolder = None,
) -> None:
    """Run it until Ctrl-C; started again, it goes on where it was."""
    try:
        pipeline = read_file(file)
    except PipelineMistakes as found:
        raise Failure(str(found), ExitCode.REFUSED) from None
    folder = state or default_state_folder(pipeline.folder)
    try:
        with held_lock(folder, pipeline.name):
            _run(pipeline, folder, once, as_json, master, key_values(conf, "--conf"))
    except AlreadyRunning as error:
        raise Failure(str(error), ExitCode.REFUSED) from None


def _run(
    pipeline: Pipeline, folder: Path, once: bool, as_json: bool, master: str | None, settings: dict[str, str]
) -> None:
    spark = open_session(pipeline, master, settings)
    try:
        running = Run(spark, pipeline, folder)
        for number in STOPS:  # after Spark, which has a handler of its own
            signal.signal(number, lambda *_: running.stop())
        with open_view(as_json=as_json) as show:
            last = running.run(once=once, show=show)
    finally:
        spark.stop()
    if last.state is State.FAILED:
        raise Failure(f"{pipeline.name}: {last.last_error}")
