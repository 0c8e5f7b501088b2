"""The little HTTP server of the metrics: what it answers, and what it does with guests who misbehave."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable

import pytest

from penstock.base.world import Stream, World
from penstock.broker import http_metrics
from penstock.broker.http_metrics import CONNECTIONS_MAX, HEAD_BYTES_MAX, HEAD_S_MAX, Guard, HttpMetrics
from penstock.testing.sim_world import Simulation

PORT = 9308
PIECES = [b"penstock_a 1\n", b"penstock_b 2\n"]


class Guest:
    """A client that sends what it likes."""

    def __init__(self, stream: Stream) -> None:
        self.stream = stream

    @classmethod
    async def come(cls, world: World) -> Guest:
        return cls(await world.network.connect("broker", PORT))

    async def send(self, data: bytes) -> None:
        while data:
            try:
                data = data[self.stream.send(data) :]
            except BlockingIOError:
                await _until(self.stream.watch_write)

    async def read_all(self) -> bytes:
        """Everything until the other end closes."""
        received = bytearray()
        while True:
            buffer = bytearray(65536)
            try:
                count = self.stream.recv_into(buffer)
            except BlockingIOError:
                await _until(self.stream.watch_read)
                continue
            except ConnectionError:
                return bytes(received)
            if not count:
                return bytes(received)
            received += buffer[:count]

    async def ask(self, request: bytes) -> bytes:
        await self.send(request)
        return await self.read_all()


async def _until(watch: Callable[[Callable[[], None] | None], None]) -> None:
    ready = asyncio.get_running_loop().create_future()
    watch(lambda: ready.done() or ready.set_result(None))
    await ready
    watch(None)


class Bench:
    """A server on one simulated machine, and another machine for guests."""

    def __init__(self, *, guard: Guard | None = None) -> None:
        self.is_healthy = True
        self.pieces: list[bytes | Exception] = list(PIECES)
        self.simulation = Simulation(3, limit_s=1000)
        world = self.simulation.machine("broker").process("broker").world
        self.http = HttpMetrics(world.network, self._scrape, is_healthy=lambda: self.is_healthy, guard=guard)
        self.world = self.simulation.machine("client").process("client").world

    async def _scrape(self) -> AsyncGenerator[bytes]:
        for piece in self.pieces:
            if isinstance(piece, Exception):
                raise piece
            yield piece

    def run(self, drive: Callable[[], Awaitable[None]]) -> None:
        async def main() -> None:
            await self.http.listen("0.0.0.0", PORT)
            await drive()
            await self.http.close()

        with self.simulation:
            self.simulation.run(main())

    def ask(self, request: bytes) -> bytes:
        """What one guest is answered."""
        answers: list[bytes] = []

        async def drive() -> None:
            answers.append(await (await Guest.come(self.world)).ask(request))

        self.run(drive)
        return answers[0]


def get(path: str = "/metrics", *fields: str, method: str = "GET", version: str = "1.1") -> bytes:
    return "\r\n".join([f"{method} {path} HTTP/{version}", "Host: broker", *fields, "", ""]).encode()


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


def test_metrics_come_in_chunks() -> None:
    head, _, body = Bench().ask(get()).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain; version=0.0.4; charset=utf-8\r\n")
    assert b"Transfer-Encoding: chunked\r\n" in head and b"Connection: close" in head
    assert body == b"d\r\npenstock_a 1\n\r\nd\r\npenstock_b 2\n\r\n0\r\n\r\n"


def test_an_older_client_gets_them_until_the_connection_ends() -> None:
    head, _, body = Bench().ask(get(version="1.0")).partition(b"\r\n\r\n")
    assert b"Transfer-Encoding" not in head
    assert body == b"".join(PIECES)


def test_a_question_mark_ends_the_path() -> None:
    assert status(Bench().ask(get("/metrics?name[]=up"))) == 200


@pytest.mark.parametrize(("is_healthy", "expected"), [(True, 200), (False, 503)])
def test_health_is_whether_the_broker_serves(is_healthy: bool, expected: int) -> None:
    bench = Bench()
    bench.is_healthy = is_healthy
    assert status(bench.ask(get("/healthz"))) == expected


def test_head_has_no_body() -> None:
    for path in ("/metrics", "/healthz"):
        answer = Bench().ask(get(path, method="HEAD"))
        assert status(answer) == 200
        assert answer.endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    ("request_bytes", "expected"),
    [
        (get("/"), 404),
        (get("/metrics/"), 404),
        (get("/../metrics"), 404),
        (get("/favicon.ico"), 404),
        (get(method="POST"), 405),
        (get(method="POST", version="1.0") + b"x" * 10_000, 405),
        (get(method="DELETE"), 405),
        (get(version="2"), 400),
        (get(version="0.9"), 400),
        (get("metrics"), 400),
        (get(method="get"), 400),
        (b"GET /metrics\r\n\r\n", 400),
        (b"\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400),
        (b"\0\0\0\x12\0\x12\0\3\0\0\0\1\r\n\r\n", 400),
        (get("/metrics", "no colon"), 400),
        (get("/metrics", ": no name"), 400),
        (get("/" + "x" * HEAD_BYTES_MAX), 431),
        (get("/metrics", "A: " + "x" * HEAD_BYTES_MAX), 431),
        (b"x" * (HEAD_BYTES_MAX + 1), 431),
    ],
    ids=lambda value: value[:20].decode("latin-1").strip() if isinstance(value, bytes) else None,
)
def test_everything_else_is_an_error(request_bytes: bytes, expected: int) -> None:
    answer = Bench().ask(request_bytes)
    assert status(answer) == expected
    head, _, body = answer.partition(b"\r\n\r\n")
    assert f"Content-Length: {len(body)}".encode() in head


def test_a_failure_is_told_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    bench.pieces = [ValueError("a bug")]
    assert status(bench.ask(get())) == 500
    assert "metrics could not be told" in caplog.text


def test_a_failure_in_the_middle_leaves_the_answer_unfinished(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    bench.pieces = [PIECES[0], ValueError("a bug")]
    assert not bench.ask(get()).endswith(b"0\r\n\r\n")
    assert "metrics could not be told" in caplog.text


def test_whoever_is_slow_with_the_head_is_closed() -> None:
    bench = Bench()

    async def drive() -> None:
        guest = await Guest.come(bench.world)
        closed = asyncio.ensure_future(guest.read_all())
        for _ in range(100):
            try:
                await guest.send(b"G")
            except OSError:
                break
            await asyncio.sleep(HEAD_S_MAX / 10)
        assert await closed == b""

    bench.run(drive)


def test_whoever_does_not_read_is_closed() -> None:
    bench = Bench()
    bench.pieces = [b"x" * 65536 for _ in range(500)]

    async def drive() -> None:
        guest = await Guest.come(bench.world)
        await guest.send(get())
        await asyncio.sleep(2 * http_metrics.ANSWER_S_MAX)
        assert not (await guest.read_all()).endswith(b"0\r\n\r\n")
        assert status(await (await Guest.come(bench.world)).ask(get("/healthz"))) == 200

    bench.run(drive)


def test_many_silent_guests_do_not_keep_one_out_who_asks() -> None:
    bench = Bench()

    async def drive() -> None:
        silent = [await Guest.come(bench.world) for _ in range(3 * CONNECTIONS_MAX)]
        assert status(await (await Guest.come(bench.world)).ask(get())) == 200
        assert await silent[0].read_all() == b""

    bench.run(drive)


def test_no_more_are_answered_at_a_time_than_there_are_places() -> None:
    bench = Bench()
    bench.pieces = [b"x" * 65536 for _ in range(500)]

    async def drive() -> None:
        greedy = [await Guest.come(bench.world) for _ in range(CONNECTIONS_MAX)]
        for guest in greedy:
            await guest.send(get())
        await asyncio.sleep(1)
        assert await (await Guest.come(bench.world)).ask(get("/healthz")) == b""
        await asyncio.sleep(2 * http_metrics.ANSWER_S_MAX)
        assert status(await (await Guest.come(bench.world)).ask(get("/healthz"))) == 200

    bench.run(drive)


def test_guests_who_leave_are_forgotten(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench()
    bench.pieces = [b"x" * 65536 for _ in range(100)]

    async def drive() -> None:
        for request in (b"", b"GET", get(), get("/healthz")):
            guest = await Guest.come(bench.world)
            await guest.send(request)
            guest.stream.close()
        await asyncio.sleep(1)
        assert not bench.http._guests

    bench.run(drive)
    assert caplog.text == ""


def test_the_next_free_port_is_taken_where_that_is_allowed() -> None:
    bench = Bench()

    async def drive() -> None:
        world = bench.simulation.machine("other").process("other").world
        servers = [HttpMetrics(world.network, bench._scrape, is_healthy=lambda: True) for _ in range(3)]
        ports = [(await server.listen_nearby("127.0.0.1", PORT)).port for server in servers]
        assert ports == [PORT, PORT + 1, PORT + 2]
        await servers[1].close()
        assert (await servers[1].listen_nearby("127.0.0.1", PORT)).port == PORT + 1
        with pytest.raises(OSError):
            await servers[1].listen("127.0.0.1", PORT)
        for server in servers:
            await server.close()

    bench.run(drive)
