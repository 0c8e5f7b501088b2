"""The process that serves the keeper: what `penstock keeper` becomes once it has understood its command line."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys

import uvloop

from penstock.base.real_world import real_world
from penstock.cli.log_lines import log_to_stderr
from penstock.zookeeper.errors import CoordinationError
from penstock.zookeeper.journal import JournalCorruptError
from penstock.zookeeper.keeper import Keeper
from penstock.zookeeper.store import Store

logger = logging.getLogger("penstock")


class StartError(Exception):
    """The keeper cannot start; the text says what to do."""


def main() -> int:
    """Serve until Ctrl-C or SIGTERM, or until the disk fails; returns the exit code."""
    host, port, folder, level = sys.argv[1:]
    log_to_stderr(verbose=level == "debug")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            return 1 if runner.run(_serve(host, int(port), folder)) else 0
        except (StartError, JournalCorruptError, CoordinationError, OSError) as error:
            print(f"penstock: {error}", file=sys.stderr)
            return 1


async def _serve(host: str, port: int, folder: str) -> bool:
    """Serve; returns whether the keeper failed."""
    loop = asyncio.get_running_loop()
    stopping: asyncio.Future[bool] = loop.create_future()

    def stop(has_failed: bool) -> None:
        if not stopping.done():
            stopping.set_result(has_failed)

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop, False)
    world = real_world()
    try:
        store = Store.open(world.disk, world.clock, folder)
    except BlockingIOError as error:
        raise StartError(
            f"{folder} is in use by another process: stop it, or choose another folder with --data"
        ) from error
    try:
        store.on_stopped.append(lambda _error: stop(True))
        keeper = Keeper(world, store)
        try:
            address = await keeper.listen(host, port)
        except OSError as error:
            raise StartError(f"cannot listen on {host}:{port}: {error.strerror or error}") from error
        try:
            print(f"penstock ready keeper={address}", flush=True)
            has_failed = await stopping
            if has_failed:
                logger.error("the keeper cannot write any more and ends: %s", store.failure)
            return has_failed
        finally:
            await keeper.close()
    finally:
        await store.close()


if __name__ == "__main__":
    sys.exit(main())
