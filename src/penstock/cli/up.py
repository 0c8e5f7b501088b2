"""`penstock up`: a whole Penstock on this machine, in the foreground, until Ctrl-C or SIGTERM."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from penstock.base.broker_settings import load_broker_settings
from penstock.base.properties import from_environment, parse_properties
from penstock.base.settings import SettingsError
from penstock.cli.failure import usage
from penstock.cli.server_process import become_server

#: What suits one machine, where a file, the environment and --set say nothing else.
ONE_MACHINE = {
    "node.id": "0",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.consumer.assignment.interval.ms": "0",
}
#: Variables of this prefix that are not settings.
NOT_SETTINGS = ("PENSTOCK_BOOTSTRAP", "PENSTOCK_CLIENT_CONFIG", "PENSTOCK_KAFKA_LIBS", "PENSTOCK_TEST_BOOTSTRAP")


def up(
    port: Annotated[
        int, typer.Option("--port", help="Where to listen for Kafka clients; 0 chooses a free port.")
    ] = 9092,
    host: Annotated[str, typer.Option("--host", help="The address to listen on.")] = "127.0.0.1",
    data: Annotated[Path, typer.Option("--data", help="The folder that keeps everything.")] = Path("penstock-data"),
    config: Annotated[
        Path | None, typer.Option("--config", help="A .properties file with settings, as Kafka's server.properties.")
    ] = None,
    given: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="One setting, under Kafka's name; repeatable."),
    ] = None,
    brokers: Annotated[int, typer.Option("--brokers", help="How many brokers to run.")] = 1,
    verbose: Annotated[bool, typer.Option("--verbose", "-v", help="Log more.")] = False,
) -> None:
    """Start Penstock here and stay in the foreground.

    Prints one line when it can serve: penstock ready kafka=127.0.0.1:9092
    """
    if brokers != 1:
        raise usage("this release runs one broker: leave --brokers out")
    if not 0 <= port <= 65535:
        raise usage(f"--port {port}: a port is a number from 0 to 65535")
    folder = str(data.absolute())
    values = _values(host, port, folder, config, given or [])
    try:
        load_broker_settings(values)
    except SettingsError as error:
        raise usage("\n  ".join(["the broker cannot start with these settings:", *error.problems])) from error
    become_server(values, folder, verbose=verbose)


def _values(host: str, port: int, folder: str, config: Path | None, given: list[str]) -> dict[str, str]:
    """Everything that was given, the strongest last: built-in, file, environment, command line."""
    at = f"[{host}]" if ":" in host else host
    values = {**ONE_MACHINE, "listeners": f"PLAINTEXT://{at}:{port}", "log.dirs": f"{folder}/logs"}
    if config is not None:
        try:
            values |= parse_properties(config.read_text(encoding="utf-8"))
        except SettingsError as error:
            raise usage("\n  ".join([f"{config} cannot be read:", *error.problems])) from error
        except UnicodeDecodeError as error:
            raise usage(f"{config} cannot be read: it is not text in UTF-8") from error
    values |= from_environment(os.environ, NOT_SETTINGS)
    for item in given:
        name, equals, value = item.partition("=")
        if not equals:
            raise usage(f"--set {item}: write it as KEY=VALUE")
        values[name.strip()] = value.strip()
    return values
