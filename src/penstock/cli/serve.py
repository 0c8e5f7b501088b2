"""The process that serves as a broker: what `penstock up` becomes, and what a watcher starts.

Alone it is a whole Penstock, with a keeper in this process. With `zookeeper.connect` it is one broker of a cluster and
has a watcher (`watch.py`, `serve_cluster.py`): that one ends its session once this process has ended, and this process
ends when a pipe from the watcher closes.

It stops in order when it is asked to. While it is still starting, and when nobody wants to wait any more, it just ends:
the next start can cope with that, as it can with a kill.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import resource
import signal
import sys
from collections.abc import Mapping

import uvloop

from penstock.base.broker_settings import load_broker_settings
from penstock.base.process_figures import process_figures
from penstock.base.real_world import real_world
from penstock.base.settings import Settings
from penstock.base.world import Lock, World
from penstock.base.zookeeper_connect import parse_zookeeper_connect
from penstock.broker.start import StartError, start_broker
from penstock.cli.child import read_order
from penstock.cli.log_lines import log_to_stderr
from penstock.zookeeper.broker_session import open_broker_session
from penstock.zookeeper.coordination import Coordination
from penstock.zookeeper.errors import CoordinationError
from penstock.zookeeper.journal import JournalCorruptError
from penstock.zookeeper.local import LocalCoordination
from penstock.zookeeper.session import LOCK_FILE

logger = logging.getLogger("penstock")

FILES_WANTED = 1 << 20
LOCK_PAUSE_S = 0.05
ORPHAN_STOP_S = 3.0
LOCK_S_MAX = ORPHAN_STOP_S + 1.0  # by then a broker whose watcher was killed has ended
CLOSE_S_MAX = 2.0


def main() -> int:
    """Serve until Ctrl-C or SIGTERM, or until the broker cannot go on; returns the exit code."""
    order_fd = int(sys.argv[1])
    order = read_order(order_fd)
    os.close(order_fd)
    watcher_fd = int(sys.argv[2]) if len(sys.argv) > 2 else None
    prefix = f"{order['name']}: " if "name" in order else ""
    log_to_stderr(verbose=order["verbose"], prefix=prefix)
    settings = load_broker_settings(order["values"])
    for warning in settings.warnings:
        logger.warning("%s", warning)
    _raise_file_limit()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            return 1 if runner.run(_serve(settings, order["data"], watcher_fd, order.get("users", {}))) else 0
        except (StartError, JournalCorruptError, CoordinationError, OSError) as error:
            print(f"penstock: {prefix}{error}", file=sys.stderr)
            return 1


def _raise_file_limit() -> None:
    """Every segment is a file and every client a socket: take as many descriptors as the system gives."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = min(hard, FILES_WANTED) if hard != resource.RLIM_INFINITY else FILES_WANTED
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


async def _serve(settings: Settings, data: str, watcher_fd: int | None, users: Mapping[str, str]) -> bool:
    """Serve; returns whether the broker failed. `users` and their passwords are made where they are missing."""
    end = End(watcher_fd)
    world = real_world()
    world.disk.make_dirs(data)
    if settings.optional_text("zookeeper.connect") is None:
        coordination = await _embedded_keeper(world, data)
    else:
        _lock = await _lock_folder(world, data)
        coordination = await _join(world, settings, data)
    try:
        broker = await start_broker(world, settings, coordination, process_figures)
        end.is_starting = False
        try:
            await broker.make_users(users)
            _quiet_collector()
            addresses = ",".join(str(address) for address in broker.addresses)
            metrics = f" metrics={broker.metrics.address}" if broker.metrics.address is not None else ""
            logger.info("serving as process %d", os.getpid())
            print(f"penstock ready kafka={addresses}{metrics}", flush=True)
            wanted = asyncio.ensure_future(end.wanted.wait())
            failed = asyncio.ensure_future(broker.failed())
            await asyncio.wait((wanted, failed), return_when=asyncio.FIRST_COMPLETED)
            has_failed = failed.done()
            wanted.cancel()
            failed.cancel()
            return has_failed
        finally:
            await broker.stop()
    finally:
        await _leave(coordination)


class End:
    """Who may end this process, and how."""

    def __init__(self, watcher_fd: int | None) -> None:
        self.is_starting = True
        self.wanted = asyncio.Event()
        self._is_watched = watcher_fd is not None
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:
                loop.add_signal_handler(number, self._asked)
        if watcher_fd is not None:
            loop.add_reader(watcher_fd, self._orphaned, watcher_fd)

    def _asked(self) -> None:
        if self.is_starting:
            os._exit(0)
        if self.wanted.is_set() and not self._is_watched:  # a watcher has its own way of ending us
            os._exit(1)
        self.wanted.set()

    def _orphaned(self, watcher_fd: int) -> None:
        """The pipe of the watcher has closed, and with it the watcher has gone."""
        asyncio.get_running_loop().remove_reader(watcher_fd)
        logger.error("the watcher of this broker has gone, so the broker ends")
        if self.is_starting:
            os._exit(1)
        self.wanted.set()
        asyncio.get_running_loop().call_later(ORPHAN_STOP_S, os._exit, 1)


async def _embedded_keeper(world: World, data: str) -> Coordination:
    try:
        return await LocalCoordination.open(world.disk, world.clock, f"{data}/keeper")
    except BlockingIOError as error:
        raise _in_use(data) from error


async def _lock_folder(world: World, data: str) -> Lock:
    """The folder for this process alone; waits for one that is about to end."""
    give_up_s = world.clock.monotonic() + LOCK_S_MAX
    while True:
        try:
            return world.disk.lock(f"{data}/{LOCK_FILE}")
        except BlockingIOError as error:
            if world.clock.monotonic() > give_up_s:
                raise _in_use(data) from error
        await asyncio.sleep(LOCK_PAUSE_S)


def _in_use(data: str) -> StartError:
    return StartError(f"{data} is in use by another process: stop it, or choose another folder with --data")


async def _join(world: World, settings: Settings, data: str) -> Coordination:
    """A session with the ZooKeeper of the cluster."""
    ensemble = parse_zookeeper_connect(settings.text("zookeeper.connect"))
    wait_ms = settings.integer("zookeeper.connection.timeout.ms")
    timeout_ms = settings.integer("zookeeper.session.timeout.ms")
    try:
        async with asyncio.timeout(wait_ms / 1000):
            return await open_broker_session(
                world,
                ensemble,
                data,
                timeout_ms=timeout_ms,
                digest=settings.optional_text("zookeeper.auth.digest"),
                protects_all=settings.flag("zookeeper.set.acl"),
            )
    except TimeoutError as error:
        raise StartError(
            f"ZooKeeper at {ensemble} did not answer within {wait_ms} ms: start it, or name another with --zookeeper"
        ) from error


async def _leave(coordination: Coordination) -> None:
    """End the session; without a connection that is left to the watcher, or to the session's timeout."""
    try:
        async with asyncio.timeout(CLOSE_S_MAX):
            await coordination.close()
    except TimeoutError:
        pass


def _quiet_collector() -> None:
    """What lives since the start lives for ever; collections look only at what came later, and seldom."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 100)


if __name__ == "__main__":
    sys.exit(main())
