"""`penstock pipeline up`: every pipeline of a folder, as a service."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import typer

from penstock.cli.failure import ExitCode, Failure
from penstock.cli.pipeline_service import FolderService
from penstock.pipelines.service_status import ServiceRuns
from penstock.pipelines.status import default_state_folder


def run_folder(folder: Path, state: Path | None, options: list[str]) -> None:
    """Run it until a signal comes; what everybody says goes out line by line, each with its name."""
    if not folder.is_dir():
        raise Failure(f"{folder} is no folder: pass the one that holds the pipelines' files", ExitCode.NOT_FOUND)
    service = FolderService(folder, state or default_state_folder(folder), options, _Told())
    try:
        service.run()
    except ServiceRuns as error:
        raise Failure(str(error), ExitCode.EXISTS) from error


class _Told:
    """Prints from many threads, one whole line at a time; the reader of the output may go, the service does not."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_colourful = sys.stdout.isatty()

    def __call__(self, name: str, text: str, is_bad: bool) -> None:
        label = f"[{name}]"
        if self._is_colourful:
            label = typer.style(label, fg="red" if is_bad else "cyan", bold=True)
        with self._lock:
            try:
                sys.stdout.write(f"{label} {text}\n")
                sys.stdout.flush()
            except (BrokenPipeError, ValueError):
                return
