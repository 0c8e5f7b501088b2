"""A proxy on loopback that does to a connection what networks do: cuts it, delays it, swallows one of its directions.

async with TcpProxy("127.0.0.1", server_port) as proxy:
    client = await connect("127.0.0.1", proxy.port)
    proxy.swallows_answers = True
"""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

PIECE_BYTES = 65536


class TcpProxy:
    """Set its attributes at any time: they hold for what arrives from then on."""

    def __init__(self, host: str, port: int) -> None:
        self.target = host, port
        self.port = 0
        self.delay_s = 0.0
        self.swallows_requests = False
        self.swallows_answers = False
        self.refuses = False
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def cut(self) -> None:
        """End every connection that goes through, at both ends and without a word."""
        for writer in list(self._writers):
            writer.transport.abort()

    def heal(self) -> None:
        """Let everything through again. What was swallowed is lost: cut what it was a part of."""
        self.delay_s = 0.0
        self.swallows_requests = self.swallows_answers = self.refuses = False

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        try:
            if self.refuses:
                return
            onward_reader, onward = await asyncio.open_connection(*self.target)
            self._writers.add(onward)
            try:
                await asyncio.gather(
                    self._copy(reader, onward, is_answer=False), self._copy(onward_reader, writer, is_answer=True)
                )
            finally:
                onward.transport.abort()
                self._writers.discard(onward)
        except OSError:
            pass
        finally:
            writer.transport.abort()
            self._writers.discard(writer)
            self._tasks.discard(task)

    async def _copy(self, source: asyncio.StreamReader, target: asyncio.StreamWriter, *, is_answer: bool) -> None:
        while piece := await source.read(PIECE_BYTES):
            if self.delay_s:
                await asyncio.sleep(self.delay_s)
            if not (self.swallows_answers if is_answer else self.swallows_requests):
                target.write(piece)
                await target.drain()
        raise ConnectionResetError  # one end has closed: so does the other

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        self.cut()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
