"""The options that the commands of `penstock pipeline` share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.pipelines.status import STATE_FOLDER_VARIABLE

StateFolder = Annotated[
    Path | None,
    typer.Option(
        "--state",
        metavar="DIR",
        envvar=STATE_FOLDER_VARIABLE,
        file_okay=False,
        show_default="'.penstock' beside the pipeline",
        help="Where checkpoints and status are kept.",
    ),
]
Master = Annotated[
    str | None, typer.Option("--master", metavar="URL", help="Where Spark runs.", show_default="local[*]")
]
SparkSettings = Annotated[
    list[str] | None,
    typer.Option("--conf", "-c", metavar="KEY=VALUE", help="A setting of Spark; may be repeated."),
]
