"""`penstock keeper`: the embedded keeper alone, as a server of its own, until Ctrl-C or SIGTERM."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.failure import usage


def keeper(
    data: Annotated[Path, typer.Option("--data", metavar="DIR", help="The folder that keeps everything.")] = Path(
        "penstock-keeper"
    ),
    port: Annotated[int, typer.Option("--port", metavar="N", help="Where to listen; 0 chooses a free port.")] = 2181,
    host: Annotated[str, typer.Option("--host", help="The address to listen on.")] = "127.0.0.1",
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log more.")] = False,
) -> None:
    """Serve a small ZooKeeper for brokers on this machine, and stay in the foreground.

    Prints one line when it can serve: penstock ready keeper=127.0.0.1:2181
    """
    if not 0 <= port <= 65535:
        raise usage(f"--port {port}: a port is a number from 0 to 65535")
    sys.stdout.flush()
    sys.stderr.flush()
    order = [host, str(port), str(data.absolute()), "debug" if verbose else "info"]
    # A program that only serves, without what only a command line needs.
    os.execv(sys.executable, [sys.executable, "-m", "penstock.cli.serve_keeper", *order])
