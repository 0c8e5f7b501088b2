"""One of the brokers that `penstock up` runs as processes of their own: started, watched, and started again.

A broker that ends without being asked to gets its session ended at once, as every watcher does it, and is started again
after a pause, which grows while it keeps ending. One that does not even serve for the first time ends everything.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import signal
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from penstock.cli.child import exit_code, start_broker_process
from penstock.cli.server_process import write_order
from penstock.cli.session_end import ASKED_TRIES_S, Server, end_session_of

logger = logging.getLogger("penstock")

READY = "penstock ready "
RESTART_S = 1.0
RESTART_S_MAX = 30.0
SETTLED_S = 60.0  # whoever served for so long starts with the shortest pause again
LINE_BYTES_MAX = 1 << 16


class WatchedBroker:
    """See the head of this file. `order` is that of its process; `servers` is where its session is ended.

    `ready` says where it is reached, once it serves for the first time. `running` is done when it has been stopped, or
    did not even come to that.
    """

    def __init__(
        self,
        broker_id: int,
        order: Mapping[str, Any],
        servers: list[Server],
        session_timeout_ms: int,
    ) -> None:
        self.broker_id = broker_id
        self.ready: asyncio.Future[dict[str, str]] = asyncio.get_running_loop().create_future()
        self._order = {**order, "values": dict(order["values"])}
        self._servers = servers
        self._session_timeout_ms = session_timeout_ms
        self._process_id: int | None = None
        self._stopping = asyncio.Event()
        self.running = asyncio.ensure_future(self._run())

    def stay_down(self) -> None:
        """Not to be started again when it ends."""
        self._stopping.set()

    async def stop(self, patience_s: float) -> None:
        """Ask it to stop, wait, and end it if it takes too long."""
        self._send(signal.SIGTERM)
        if not (await asyncio.wait((self.running,), timeout=patience_s))[0]:
            logger.error("broker %d did not stop within %g s and is ended", self.broker_id, patience_s)
            self.kill()
            await asyncio.wait((self.running,))

    def kill(self) -> None:
        """End it at once."""
        self._send(signal.SIGKILL)

    def _send(self, number: signal.Signals) -> None:
        self.stay_down()
        if self._process_id is not None:
            with suppress(ProcessLookupError):
                os.kill(self._process_id, number)

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        pause_s = RESTART_S
        while not self._stopping.is_set():
            started_s = loop.time()
            code = await self._live()
            if self._stopping.is_set() or not self.ready.done():
                return
            if loop.time() - started_s > SETTLED_S:
                pause_s = RESTART_S
            how = f"by signal {code - 128}" if code > 128 else f"with exit code {code}"
            logger.error("broker %d has ended %s; it starts again in %g s", self.broker_id, how, pause_s)
            await _wait_for(self._stopping, pause_s)
            pause_s = min(2 * pause_s, RESTART_S_MAX)

    async def _live(self) -> int:
        """One life of its process, and the end of its session; returns the exit code."""
        try:
            process_id, our_end, printed = self._start()
        except OSError as error:
            logger.error("broker %d cannot be started: %s", self.broker_id, error)
            return 1
        self._process_id = process_id
        output = _Lines(printed, self._printed)
        try:
            code = await _exit_of(process_id)
        finally:
            self._process_id = None
            output.close()
            os.close(our_end)
        timeout_ms = self._session_timeout_ms
        tries_s = ASKED_TRIES_S if self._stopping.is_set() else timeout_ms / 1000
        await asyncio.to_thread(
            end_session_of, self._order["data"], self._servers, timeout_ms=timeout_ms, tries_s=tries_s
        )
        return code

    def _start(self) -> tuple[int, int, int]:
        """Its process id, our end of the pipe it watches, and that of the pipe it prints to."""
        reading, writing = os.pipe()
        try:
            return *start_broker_process(write_order(self._order), writing), reading
        except OSError:
            os.close(reading)
            raise
        finally:
            os.close(writing)

    def _printed(self, line: str) -> None:
        if not line.startswith(READY) or self.ready.done():
            return
        places = dict(word.split("=", 1) for word in line.removeprefix(READY).split() if "=" in word)
        self._keep_port(places.get("kafka", ""))
        self.ready.set_result(places)

    def _keep_port(self, address: str) -> None:
        """A port that was chosen for it stays its own when it starts again."""
        values, port = self._order["values"], address.rpartition(":")[2]
        values["listeners"] = re.sub(r":0$", f":{port}", values["listeners"])


class _Lines:
    """What a process prints, line by line, for as long as it lives."""

    def __init__(self, fd: int, on_line: Callable[[str], None]) -> None:
        self._fd = fd
        self._on_line = on_line
        self._begun = b""
        os.set_blocking(fd, False)
        asyncio.get_running_loop().add_reader(fd, self._read)

    def _read(self) -> None:
        piece = os.read(self._fd, LINE_BYTES_MAX)
        if not piece:
            asyncio.get_running_loop().remove_reader(self._fd)
            return
        *lines, begun = (self._begun + piece).split(b"\n")
        self._begun = begun[:LINE_BYTES_MAX]
        for line in lines:
            self._on_line(line.decode(errors="replace"))

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._fd)
        os.close(self._fd)


def _exit_of(process_id: int) -> asyncio.Future[int]:
    """The exit code of a child, once it has ended. A thread waits for it: uvloop keeps SIGCHLD for itself."""
    loop = asyncio.get_running_loop()
    ended: asyncio.Future[int] = loop.create_future()

    def wait() -> None:
        _, status = os.waitpid(process_id, 0)
        loop.call_soon_threadsafe(ended.set_result, exit_code(status))

    threading.Thread(target=wait, name=f"penstock-wait-{process_id}", daemon=True).start()
    return ended


async def _wait_for(event: asyncio.Event, timeout_s: float) -> None:
    try:
        async with asyncio.timeout(timeout_s):
            await event.wait()
    except TimeoutError:
        pass
