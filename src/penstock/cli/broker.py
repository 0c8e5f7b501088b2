"""`penstock broker`: one broker of a cluster whose state is in ZooKeeper, in the foreground."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Annotated

import typer

from penstock.base.zookeeper_connect import parse_zookeeper_connect
from penstock.cli.failure import usage
from penstock.cli.given_settings import ConfigFile, SetOptions, Verbose, checked_settings, given_settings
from penstock.cli.server_process import become


def broker(
    data: Annotated[Path, typer.Option("--data", metavar="DIR", help="The folder that keeps this broker's data.")],
    node_id: Annotated[
        int | None, typer.Option("--id", metavar="N", min=0, help="The number of this broker (node.id).")
    ] = None,
    zookeeper: Annotated[
        str | None,
        typer.Option(
            "--zookeeper",
            metavar="HOST:PORT,…/chroot",
            help="Every server of the ZooKeeper ensemble, or a 'penstock keeper' (zookeeper.connect).",
        ),
    ] = None,
    listener: Annotated[
        list[str] | None,
        typer.Option(
            "--listener", metavar="NAME://HOST:PORT", help="Where to listen for clients (listeners); repeatable."
        ),
    ] = None,
    config: ConfigFile = None,
    given: SetOptions = None,
    verbose: Verbose = False,
) -> None:
    """Run one broker of a cluster, with its watcher, and stay in the foreground.

    Prints one line when it can serve: penstock ready kafka=host1:9092 metrics=127.0.0.1:9308
    """
    folder = str(data.absolute())
    built_in = {"log.dirs": f"{folder}/logs", "broker.host": socket.gethostname()}
    values = {**built_in, **given_settings(config, given)}
    if node_id is not None:
        values.pop("broker.id", None)
        values["node.id"] = str(node_id)
    if zookeeper is not None:
        values["zookeeper.connect"] = zookeeper
    if listener:
        values["listeners"] = ",".join(listener)
    if not {"node.id", "broker.id"} & values.keys():
        raise usage("which broker is this? pass --id, a number that no other broker of the cluster has")
    if not values.get("zookeeper.connect"):
        raise usage("where is ZooKeeper? pass --zookeeper HOST:PORT,… ('penstock up' needs none)")
    settings = checked_settings(values)
    servers = parse_zookeeper_connect(settings.text("zookeeper.connect")).servers
    watch = {"servers": servers, "timeout_ms": settings.integer("zookeeper.session.timeout.ms")}
    become("penstock.cli.watch", {"values": values, "data": folder, "verbose": verbose, "watch": watch})
