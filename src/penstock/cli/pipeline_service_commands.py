"""`penstock pipeline status` and `penstock pipeline up`: pipelines as things that run for a long time."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.failure import usage
from penstock.cli.options import Json
from penstock.cli.pipeline_options import Master, SparkSettings, StateFolder
from penstock.cli.pipeline_status import show, watch
from penstock.cli.pipeline_up import run_folder
from penstock.pipelines.status import all_statuses, default_state_folder

WATCH_INTERVAL_S = 2.0


def _known_names(incomplete: str) -> list[str]:
    """For tab completion: the pipelines that ran from this folder."""
    statuses = all_statuses(default_state_folder(Path()))
    return [status.name for status in statuses if status.name.startswith(incomplete)]


def status(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[NAME…]",
            help="Names of pipelines; all if none.",
            show_default=False,
            autocompletion=_known_names,
        ),
    ] = None,
    state: StateFolder = None,
    watching: Annotated[bool, typer.Option("--watch", "-w", help="Look again and again, until Ctrl-C.")] = False,
    interval_s: Annotated[
        float | None,
        typer.Option("--interval", metavar="SECONDS", min=0.1, help="With --watch: time between two looks."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Show what every pipeline is doing: rows per second, lag, what a replication slot holds back, the last error.

    Ends with 0 if all is well, and with 8 if one has failed, is gone without a word, or has a file that cannot be read.
    """
    if interval_s is not None and not watching:
        raise usage("--interval goes with --watch")
    folder = (state or default_state_folder(Path())).resolve()
    if watching:
        watch(folder, names or [], interval_s or WATCH_INTERVAL_S, as_json=as_json)
        return
    raise typer.Exit(show(folder, names or [], as_json=as_json))


def up(
    folder: Annotated[
        Path,
        typer.Argument(
            metavar="DIR", help="The folder with the pipelines' files.", show_default=False, file_okay=False
        ),
    ],
    state: StateFolder = None,
    master: Master = None,
    settings: SparkSettings = None,
) -> None:
    """Run every pipeline of a folder, as a service.

    Each *.yaml of the folder is a process of its own. A new file starts, a changed one is checked and started anew,
    one that is gone is stopped; one that failed starts again after a pause. Ctrl-C stops all of them.
    """
    options = [
        *(["--master", master] if master else []),
        *(word for each in settings or [] for word in ("--conf", each)),
    ]
    run_folder(folder, state, options)
