"""`penstock doctor`: looks at this machine and at the broker, line by line, and says what to do."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from penstock import __version__
from penstock.cli.connection import Connection, parse_addresses
from penstock.cli.doctor_checks import (
    FAIL,
    Finding,
    check_broker,
    check_crc32c,
    check_data_folder,
    check_event_loop,
    check_java,
    check_open_files,
    check_pipelines,
    check_port,
    check_program,
    check_python,
    check_record_loops,
    check_spark,
)
from penstock.cli.failure import ExitCode
from penstock.cli.options import Bootstrap, ClientConfig, ClientSettings, Json
from penstock.cli.output import STATUS, print_json, print_table

DEFAULT_DATA = Path("penstock-data")
Data = Annotated[Path, typer.Option("--data", metavar="DIR", help="The data folder that 'penstock up' uses.")]


def doctor(
    data: Data = DEFAULT_DATA,
    port: Annotated[
        int, typer.Option("--port", metavar="N", min=1, max=65535, help="The port that 'penstock up' uses.")
    ] = 9092,
    versions: Annotated[bool, typer.Option("--versions", help="Every API of the broker with its versions.")] = False,
    as_json: Json = False,
    bootstrap: Bootstrap = None,
    client_config: ClientConfig = None,
    client_settings: ClientSettings = None,
) -> None:
    """Check Python, compiled parts, limits, disk, ports and the broker; ends with 1 if something fails."""
    connection = Connection(bootstrap, client_config, client_settings)
    broker, served = check_broker(connection)
    brokers_own_port = bool(served) and port in [address[1] for address in parse_addresses(connection.bootstrap)]
    findings = [
        Finding("penstock", "ok", __version__),
        check_python(),
        check_record_loops(),
        check_event_loop(),
        check_crc32c(),
        check_open_files(),
        check_data_folder(data),
        check_port(port, brokers_own_port),
        check_java(),
        check_spark(),
        check_pipelines(),
        check_program("kcat", "trying things by hand", "install kcat from your system's packages"),
        broker,
    ]
    if as_json:
        apis = [{"api": key, "min": low, "max": high} for key, (low, high) in sorted(served.items())]
        print_json({"checks": [asdict(finding) for finding in findings], "apis": apis})
    else:
        rows = [[each.status, each.check, each.text, each.advice if each.status != "ok" else ""] for each in findings]
        print_table([STATUS, "CHECK", "FOUND", "WHAT TO DO"], rows)
        if versions and served:
            print_table(["API", "FROM", "TO"], [[key, low, high] for key, (low, high) in sorted(served.items())])
    if any(finding.status == FAIL for finding in findings):
        raise typer.Exit(ExitCode.FAILED)
