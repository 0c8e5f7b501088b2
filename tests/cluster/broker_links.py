"""The wires between brokers, and from each of them to the keeper, any of which can be cut.

    with BrokerLinks() as links:
        zookeeper = links.to_keeper(0, keeper.port)      # where broker 0 is to look for its keeper
        port = links.to_broker(1, internal_port)         # where the others are to look for broker 1
        links.cut(0, KEEPER)
        links.heal()

Each way is a proxy on loopback. A wire that is cut is silent: what is sent over it, a closing too, waits until it is
healed, as TCP does it. A broker is known by the client id in its first request, so a cut is between two of them.
"""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from threading import Thread
from types import TracebackType
from typing import Self

KEEPER = -1
NOBODY = -2  # whoever is not a broker
BROKER = re.compile(rb"penstock-\D*(\d+)")  # the client id of one
PIECE_BYTES = 1 << 16
CALL_S_MAX = 10.0

Pair = frozenset[int]


class BrokerLinks:
    """See the head of this file."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = Thread(target=self._loop.run_forever, daemon=True)
        self._servers: list[asyncio.Server] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._open: defaultdict[Pair, asyncio.Event] = defaultdict(_opened)

    def to_keeper(self, broker_id: int, keeper_port: int) -> int:
        """A port through which one broker reaches the keeper."""
        return self._listen(keeper_port, KEEPER, broker_id)

    def to_broker(self, broker_id: int, port: int) -> int:
        """A port through which other brokers reach this one."""
        return self._listen(port, broker_id, None)

    def cut(self, one: int, other: int) -> None:
        self._loop.call_soon_threadsafe(self._open[frozenset((one, other))].clear)

    def cut_off(self, broker_id: int, from_whom: list[int]) -> None:
        for other in from_whom:
            self.cut(broker_id, other)

    def heal(self) -> None:
        """All wires."""

        def heal() -> None:
            for is_open in self._open.values():
                is_open.set()

        self._loop.call_soon_threadsafe(heal)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(CALL_S_MAX)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CALL_S_MAX)
        self._loop.close()

    async def _end(self) -> None:
        for is_open in self._open.values():
            is_open.set()
        for server in self._servers:
            server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _listen(self, target_port: int, target: int, source: int | None) -> int:
        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            task = asyncio.current_task()
            assert task is not None
            self._tasks.add(task)
            try:
                await self._carry(reader, writer, target_port, target, source)
            except (OSError, asyncio.IncompleteReadError):
                pass
            finally:
                writer.transport.abort()
                self._tasks.discard(task)

        async def listen() -> int:
            self._servers.append(await asyncio.start_server(accept, "127.0.0.1", 0))
            port: int = self._servers[-1].sockets[0].getsockname()[1]
            return port

        return asyncio.run_coroutine_threadsafe(listen(), self._loop).result(CALL_S_MAX)

    async def _carry(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        target_port: int,
        target: int,
        source: int | None,
    ) -> None:
        first = b""
        if source is None:
            first = await reader.readexactly(14)
            first += await reader.readexactly(int.from_bytes(first[12:14], "big"))
            source = _source(first[14:])
        is_open = self._open[frozenset((source, target))]
        await is_open.wait()
        onward_reader, onward = await asyncio.open_connection("127.0.0.1", target_port)
        onward.write(first)
        copies = [
            asyncio.ensure_future(_copy(reader, onward, is_open)),
            asyncio.ensure_future(_copy(onward_reader, writer, is_open)),
        ]
        try:
            await asyncio.wait(copies, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for copy in copies:
                copy.cancel()
            await asyncio.gather(*copies, return_exceptions=True)
            onward.transport.abort()


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter, is_open: asyncio.Event) -> None:
    """Until one end has closed, and the other may know it."""
    try:
        while piece := await source.read(PIECE_BYTES):
            await is_open.wait()
            target.write(piece)
            await target.drain()
    finally:
        await is_open.wait()


def _opened() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


def _source(client_id: bytes) -> int:
    match = BROKER.fullmatch(client_id)
    return NOBODY if match is None else int(match[1])
