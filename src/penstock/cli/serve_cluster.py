"""Several brokers on one machine: what `penstock up --brokers N` becomes. It is their watcher, and the keeper's home.

Each broker is a process of its own and reaches the keeper over loopback, on a port that is chosen at every start. The
first broker's data, and the keeper's, lie where those of a single broker do, so that one can become several.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import uvloop

from penstock.base.broker_settings import load_broker_settings
from penstock.base.real_world import real_world
from penstock.base.world import Address
from penstock.cli.child import read_order
from penstock.cli.log_lines import log_to_stderr
from penstock.cli.watched_broker import READY, WatchedBroker
from penstock.zookeeper.errors import CoordinationError
from penstock.zookeeper.journal import JournalCorruptError
from penstock.zookeeper.keeper import Keeper
from penstock.zookeeper.store import Store

logger = logging.getLogger("penstock")

HOST = "127.0.0.1"
STOP_S_MAX = 30.0
FAILED_STOP_S_MAX = 5.0


class StartError(Exception):
    """It cannot start; the text says what to do."""


def main() -> int:
    """Serve until Ctrl-C or SIGTERM, or until the keeper's disk fails; returns the exit code."""
    order = read_order(int(sys.argv[1]))
    log_to_stderr(verbose=order["verbose"])
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            return runner.run(_serve(order))
        except (StartError, JournalCorruptError, CoordinationError, OSError) as error:
            print(f"penstock: {error}", file=sys.stderr)
            return 1


async def _serve(order: Mapping[str, Any]) -> int:
    """Serve; returns the exit code."""
    end = End()
    async with _keeper(order["data"], end) as address:
        end.brokers = [_broker(order, place, address) for place in order["places"]]
        try:
            await _until_the_end(end)
        finally:
            await _stop(end)
    return 1 if end.has_failed else 0


class End:
    """What ends it: the first signal stops everything in order, a second one at once."""

    def __init__(self) -> None:
        self.wanted = asyncio.Event()
        self.has_failed = False
        self.brokers: list[WatchedBroker] = []
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(number) is not signal.SIG_IGN:
                asyncio.get_running_loop().add_signal_handler(number, self._asked)

    def _asked(self) -> None:
        if self.wanted.is_set():
            for broker in self.brokers:
                broker.kill()
        self.wanted.set()

    def keeper_failed(self, error: Exception) -> None:
        logger.error("the keeper cannot write any more, so everything ends: %s", error)
        self.has_failed = True
        self.wanted.set()


@asynccontextmanager
async def _keeper(data: str, end: End) -> AsyncIterator[Address]:
    """The keeper, and where it listens."""
    world = real_world()
    try:
        store = Store.open(world.disk, world.clock, f"{data}/keeper")
    except BlockingIOError as error:
        raise StartError(f"{data} is in use by another process: stop it, or use another folder with --data") from error
    try:
        store.on_stopped.append(end.keeper_failed)
        for session_id in [each for each, session in store.tree.sessions.items() if not session.password]:
            await store.close_session(session_id)  # of a single broker that had the keeper in its process: it is gone
        keeper = Keeper(world, store)
        address = await keeper.listen(HOST, 0)
        logger.info("the keeper listens on %s", address)
        try:
            yield address
        finally:
            await keeper.close()
    finally:
        await store.close()


def _broker(order: Mapping[str, Any], place: Mapping[str, Any], keeper: Address) -> WatchedBroker:
    values = {**order["values"], **place["values"], "zookeeper.connect": str(keeper)}
    its_order = {
        "name": f"broker {place['id']}",
        "values": values,
        "data": place["data"],
        "verbose": order["verbose"],
        "users": order.get("users", {}),
    }
    timeout_ms = load_broker_settings(values).integer("zookeeper.session.timeout.ms")
    return WatchedBroker(place["id"], its_order, [keeper], timeout_ms)


async def _until_the_end(end: End) -> None:
    """Returns when it is time to stop; StartError if a broker does not come up at the beginning."""
    running = [broker.running for broker in end.brokers]
    wanted = asyncio.ensure_future(end.wanted.wait())
    all_ready = asyncio.ensure_future(asyncio.wait([broker.ready for broker in end.brokers]))
    try:
        await asyncio.wait((wanted, all_ready, *running), return_when=asyncio.FIRST_COMPLETED)
        if all_ready.done():
            _announce([broker.ready.result() for broker in end.brokers])
        await asyncio.wait((wanted, *running), return_when=asyncio.FIRST_COMPLETED)
    finally:
        wanted.cancel()
        all_ready.cancel()
    if not end.wanted.is_set():
        missing = next(broker for broker in end.brokers if broker.running.done())
        raise StartError(f"broker {missing.broker_id} did not start, so nothing does")


async def _stop(end: End) -> None:
    """One after the other, so that each can hand over what it leads; without a keeper there is nothing to hand over."""
    for broker in end.brokers:
        broker.stay_down()
    if end.has_failed:
        await asyncio.gather(*(broker.stop(FAILED_STOP_S_MAX) for broker in end.brokers))
    for broker in reversed(end.brokers):
        await broker.stop(STOP_S_MAX)


def _announce(places: list[dict[str, str]]) -> None:
    """One line with the addresses of all brokers, of each kind."""
    words = [f"{kind}={','.join(place[kind] for place in places if kind in place)}" for kind in places[0]]
    print(READY + " ".join(words), flush=True)


if __name__ == "__main__":
    sys.exit(main())
