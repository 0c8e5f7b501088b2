"""`penstock up`: a whole Penstock on this machine, in the foreground, until Ctrl-C or SIGTERM."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.failure import usage
from penstock.cli.given_settings import (
    ConfigFile,
    SetOptions,
    Verbose,
    check_port,
    checked_settings,
    given_settings,
)
from penstock.cli.output import note
from penstock.cli.secure_setup import SecureSetup, keeper_identity, secure_setup
from penstock.cli.server_process import become

#: How many replicas what matters has, while there are so many brokers.
REPLICAS = 3
#: With several brokers these are for `penstock up` to choose, for each its own.
CHOSEN_PER_BROKER = ("node.id", "listeners", "advertised.listeners", "log.dirs")
#: Where the first one serves metrics; the others do on the ports after it.
METRICS_PORT = 9308
#: Their processes are watched, so this matters only for one that hangs.
SESSION_TIMEOUT_MS = 6000


def up(
    port: Annotated[
        int,
        typer.Option(
            "--port", help="Where to listen for Kafka clients, further brokers on the next ones; 0 chooses free ports."
        ),
    ] = 9092,
    host: Annotated[str, typer.Option("--host", help="The address to listen on.")] = "127.0.0.1",
    data: Annotated[Path, typer.Option("--data", metavar="DIR", help="The folder that keeps everything.")] = Path(
        "penstock-data"
    ),
    config: ConfigFile = None,
    given: SetOptions = None,
    brokers: Annotated[int, typer.Option("--brokers", metavar="N", min=1, help="How many brokers to run.")] = 1,
    secure: Annotated[
        bool,
        typer.Option("--secure", help="TLS, logins and deny-by-default: makes certificates and the user 'admin'."),
    ] = False,
    verbose: Verbose = False,
) -> None:
    """Start Penstock here and stay in the foreground.

    Prints one line when it can serve: penstock ready kafka=127.0.0.1:9092 metrics=127.0.0.1:9308
    """
    check_port(port, 65536 - brokers)
    folder = str(data.absolute())
    setup = _secured(data.absolute(), host, port, brokers) if secure else None
    users = {} if setup is None else setup.users
    protocol = "PLAINTEXT" if setup is None else "SASL_SSL"
    made = setup.settings if setup is not None else keeper_identity(data.absolute()) if brokers > 1 else {}
    values = {**defaults(brokers), **made, **given_settings(config, given)}
    if values.get("zookeeper.connect"):
        raise usage("'penstock up' has a keeper of its own: leave zookeeper.connect out, or run 'penstock broker'")
    _tell_of_others(folder, brokers)
    if brokers == 1:
        values = {**place(folder, host, port, 0, protocol), **values}
        checked_settings(values)
        become("penstock.cli.serve", {"values": values, "data": folder, "verbose": verbose, "users": users})
    chosen = [name for name in CHOSEN_PER_BROKER if name in values]
    if chosen:
        raise usage(f"with several brokers 'penstock up' chooses {' and '.join(chosen)}: leave it out")
    places = [
        {
            "id": broker_id,
            "data": broker_folder(folder, broker_id),
            "values": {
                "metrics.listener": values.get("metrics.listener", f"127.0.0.1:{METRICS_PORT + broker_id}+"),
                **place(folder, host, port and port + broker_id, broker_id, protocol),
            },
        }
        for broker_id in range(brokers)
    ]
    checked_settings({**values, **place(folder, host, port, 0, protocol)})
    order = {"values": values, "places": places, "data": folder, "verbose": verbose, "users": users}
    become("penstock.cli.serve_cluster", order)


def _secured(data: Path, host: str, port: int, brokers: int) -> SecureSetup:
    """What --secure needs, made and told."""
    if not port:
        raise usage("--secure writes addresses down for clients: give it a --port")
    shown = "localhost" if host in ("127.0.0.1", "0.0.0.0", "::1", "::") else host
    at = f"[{shown}]" if ":" in shown else shown
    setup = secure_setup(data, host, ",".join(f"{at}:{port + number}" for number in range(brokers)))
    for line in setup.lines():
        note(line)
    return setup


def defaults(brokers: int) -> dict[str, str]:
    """What suits one machine with so many brokers, where a file, the environment and --set say nothing else."""
    replicas = min(REPLICAS, brokers)
    in_sync = 2 if replicas == REPLICAS else 1  # so many that any one may be lost, and writing goes on
    values = {
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
        "group.initial.rebalance.delay.ms": 0,
        "group.consumer.assignment.interval.ms": 0,
    }
    if brokers > 1:
        values |= {
            "default.replication.factor": replicas,
            "min.insync.replicas": in_sync,
            "zookeeper.session.timeout.ms": SESSION_TIMEOUT_MS,
        }
    return {name: str(value) for name, value in values.items()}


def place(folder: str, host: str, port: int, broker_id: int, protocol: str = "PLAINTEXT") -> dict[str, str]:
    """Who a broker is, where it listens and where its data is."""
    at = f"[{host}]" if ":" in host else host
    return {
        "node.id": str(broker_id),
        "listeners": f"{protocol}://{at}:{port}",
        "log.dirs": f"{broker_folder(folder, broker_id)}/logs",
    }


def broker_folder(folder: str, broker_id: int) -> str:
    """The first broker has the folder itself, so that one broker can become several, and several one."""
    return folder if broker_id == 0 else f"{folder}/broker-{broker_id}"


def _tell_of_others(folder: str, brokers: int) -> None:
    """Data of brokers that are not started this time may be missed."""
    matches = (re.fullmatch(r"broker-([0-9]+)", path.name) for path in Path(folder).glob("broker-*"))
    others = sorted(broker_id for match in matches if match and (broker_id := int(match[1])) >= brokers)
    if others:
        listed = ", ".join(str(broker_id) for broker_id in others)
        note(f"penstock: {folder} also has the data of broker {listed}, which is not started; see --brokers")
