"""`penstock up`: a whole Penstock on this machine, in the foreground, until Ctrl-C or SIGTERM."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import resource
import signal
import sys
from pathlib import Path
from typing import Annotated

import typer
import uvloop

from penstock.base.broker_settings import load_broker_settings
from penstock.base.properties import from_environment, parse_properties
from penstock.base.real_world import real_world
from penstock.base.settings import Settings, SettingsError
from penstock.broker.start import StartError, start_broker
from penstock.cli.failure import Failure, usage
from penstock.zookeeper.local import LocalCoordination

logger = logging.getLogger("penstock")

#: What suits one machine, where a file, the environment and --set say nothing else.
ONE_MACHINE = {
    "node.id": "0",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
FILES_WANTED = 1 << 20
#: Variables of this prefix that are not settings.
NOT_SETTINGS = ("PENSTOCK_BOOTSTRAP", "PENSTOCK_KAFKA_LIBS")


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
    logging.basicConfig(
        level=logging.DEBUG if verbose else logging.INFO,
        stream=sys.stderr,
        format="%(asctime)s %(levelname)-7s %(message)s",
    )
    settings = _settings(host, port, data, config, given or [])
    for warning in settings.warnings:
        logger.warning("%s", warning)
    _raise_file_limit()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            runner.run(_serve(settings, data))
        except StartError as error:
            raise Failure(str(error)) from error


def _settings(host: str, port: int, data: Path, config: Path | None, given: list[str]) -> Settings:
    """Everything that was given, the strongest last: built-in, file, environment, command line."""
    at = f"[{host}]" if ":" in host else host
    values = {**ONE_MACHINE, "listeners": f"PLAINTEXT://{at}:{port}", "log.dirs": str(data.absolute() / "logs")}
    try:
        if config is not None:
            values |= parse_properties(config.read_text(encoding="utf-8"))
        values |= from_environment(os.environ, NOT_SETTINGS)
        for item in given:
            name, equals, value = item.partition("=")
            if not equals:
                raise usage(f"--set {item}: write it as KEY=VALUE")
            values[name.strip()] = value.strip()
        return load_broker_settings(values)
    except SettingsError as error:
        raise usage("; ".join(error.problems)) from error


def _raise_file_limit() -> None:
    """Every segment is a file and every client a socket: take as many descriptors as the system gives."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(hard, FILES_WANTED) if hard != resource.RLIM_INFINITY else FILES_WANTED
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


async def _serve(settings: Settings, data: Path) -> None:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)
    world = real_world()
    world.disk.make_dirs(str(data.absolute()))
    coordination = await LocalCoordination.open(world.disk, world.clock, str(data.absolute() / "keeper"))
    try:
        broker = await start_broker(world, settings, coordination)
        try:
            _quiet_collector()
            addresses = ",".join(str(address) for address in broker.addresses)
            print(f"penstock ready kafka={addresses}", flush=True)
            stopped = asyncio.ensure_future(stopping.wait())
            failed = asyncio.ensure_future(broker.failed())
            await asyncio.wait((stopped, failed), return_when=asyncio.FIRST_COMPLETED)
            stopped.cancel()
            failed.cancel()
        finally:
            await broker.stop()
    finally:
        await coordination.close()


def _quiet_collector() -> None:
    """What lives since the start lives for ever; collections look only at what came later, and seldom."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)
