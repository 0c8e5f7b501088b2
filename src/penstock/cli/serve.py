"""The process that serves: what `penstock up` becomes once it has understood its command line (`server_process.py`)."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import os
import resource
import signal
import sys

import uvloop

from penstock.base.broker_settings import load_broker_settings
from penstock.base.real_world import real_world
from penstock.base.settings import Settings
from penstock.broker.start import StartError, start_broker
from penstock.zookeeper.errors import StorageFullError
from penstock.zookeeper.journal import JournalCorruptError
from penstock.zookeeper.local import LocalCoordination

logger = logging.getLogger("penstock")

FILES_WANTED = 1 << 20


def main() -> int:
    """Serve until Ctrl-C or SIGTERM, or until the broker cannot go on; returns the exit code."""
    with os.fdopen(int(sys.argv[1]), "rb") as file:
        order = json.load(file)
    logging.basicConfig(
        level=logging.DEBUG if order["verbose"] else logging.INFO,
        stream=sys.stderr,
        format="%(asctime)s %(levelname)-7s %(message)s",
    )
    settings = load_broker_settings(order["values"])
    for warning in settings.warnings:
        logger.warning("%s", warning)
    _raise_file_limit()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            return 1 if runner.run(_serve(settings, order["data"])) else 0
        except (StartError, JournalCorruptError, StorageFullError, OSError) as error:
            print(f"penstock: {error}", file=sys.stderr)
            return 1


def _raise_file_limit() -> None:
    """Every segment is a file and every client a socket: take as many descriptors as the system gives."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(hard, FILES_WANTED) if hard != resource.RLIM_INFINITY else FILES_WANTED
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


async def _serve(settings: Settings, data: str) -> bool:
    """Serve; returns whether the broker failed."""
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)
    world = real_world()
    world.disk.make_dirs(data)
    try:
        coordination = await LocalCoordination.open(world.disk, world.clock, f"{data}/keeper")
    except BlockingIOError as error:
        raise StartError(
            f"{data} is in use by another process: stop it, or choose another folder with --data"
        ) from error
    try:
        broker = await start_broker(world, settings, coordination)
        try:
            _quiet_collector()
            addresses = ",".join(str(address) for address in broker.addresses)
            print(f"penstock ready kafka={addresses}", flush=True)
            stopped = asyncio.ensure_future(stopping.wait())
            failed = asyncio.ensure_future(broker.failed())
            await asyncio.wait((stopped, failed), return_when=asyncio.FIRST_COMPLETED)
            has_failed = failed.done()
            stopped.cancel()
            failed.cancel()
            return has_failed
        finally:
            await broker.stop()
    finally:
        await coordination.close()


def _quiet_collector() -> None:
    """What lives since the start lives for ever; collections look only at what came later, and seldom."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


if __name__ == "__main__":
    sys.exit(main())
