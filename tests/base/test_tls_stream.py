"""TLS over the simulated network: both sides, many bytes, goodbyes, and peers that do not speak it."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path

import pytest

from penstock.base.tls_settings import TlsFiles, client_context, server_context
from penstock.base.tls_stream import HANDSHAKE_BYTES_MAX, TlsError, TlsStream
from penstock.base.world import Stream, World
from penstock.cli.certificates import Authority
from penstock.testing.sim_world import Simulation

SIZE = 700_000


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> TlsFiles:
    return files_of(tmp_path_factory.mktemp("authority"))


def files_of(folder: Path) -> TlsFiles:
    authority = Authority(folder)
    both = authority.sign("broker", ["broker"]).read_text()
    trusted = authority.certificate_path.read_text()
    return TlsFiles(both, both, None, trusted, "required", ("TLSv1.2", "TLSv1.3"), (), checks_host=True)


class Echo:
    """A server that sends back what it gets."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self.context = context
        self.subjects: list[object] = []
        self.failures: list[str] = []
        self.ended = 0

    def accept(self, stream: Stream) -> None:
        def ready(tls: TlsStream) -> None:
            self.subjects.append(tls.subject)

        secured = TlsStream(stream, self.context, on_ready=ready, on_failure=self.failures.append)
        owed = bytearray()

        def send() -> None:
            try:
                while owed:
                    del owed[: secured.send(bytes(owed))]
                secured.watch_write(None)
            except BlockingIOError:
                secured.watch_write(send)

        def read() -> None:
            buffer = bytearray(10_000)
            try:
                count = secured.recv_into(buffer)
            except BlockingIOError:
                return
            except OSError:
                count = 0
            if not count:
                self.ended += 1
                secured.close()
                return
            owed.extend(buffer[:count])
            send()

        secured.watch_read(read)


def on_network(files: TlsFiles, drive: object) -> Echo:
    with Simulation(3, limit_s=300) as simulation:
        world = simulation.machine("broker").process("broker").world
        client = simulation.machine("client").process("client").world
        echo = Echo(server_context(files))

        async def run() -> None:
            await world.network.listen("0.0.0.0", 9093, echo.accept)
            await drive(client)  # type: ignore[operator]
            await asyncio.sleep(5)

        simulation.run(run())
    return echo


async def echoed(stream: TlsStream, data: bytes) -> bytes:
    received = bytearray()
    sent = 0
    while len(received) < len(data):
        try:
            sent += stream.send(data[sent : sent + 100_000]) if sent < len(data) else 0
        except BlockingIOError:
            pass
        buffer = bytearray(3_000)
        try:
            received += buffer[: stream.recv_into(buffer)]
        except BlockingIOError:
            await asyncio.sleep(0.01)
    return bytes(received)


def test_bytes_go_both_ways_and_a_goodbye_ends_it(files: TlsFiles) -> None:
    data = bytes(range(256)) * (SIZE // 256)

    async def drive(world: World) -> None:
        stream = await world.network.connect("broker", 9093)
        secured = TlsStream(stream, client_context(files), server_hostname="broker", is_server=False)
        await secured.shake_hands()
        assert await echoed(secured, data) == data
        secured.close()

    echo = on_network(files, drive)
    assert echo.subjects == [((("commonName", "broker"),),)]
    assert echo.ended == 1


def test_another_host_is_not_trusted(files: TlsFiles) -> None:
    async def drive(world: World) -> None:
        stream = await world.network.connect("broker", 9093)
        secured = TlsStream(stream, client_context(files), server_hostname="else", is_server=False)
        with pytest.raises(TlsError, match="not trusted"):
            await secured.shake_hands()

    on_network(files, drive)


@pytest.mark.parametrize(
    "junk", [b"GET / HTTP/1.1\r\n\r\n", b"\0\0\0\x10" + bytes(16), b"\x16\x03\x01\xff\xff" * 20_000]
)
def test_who_does_not_speak_tls_is_sent_away(files: TlsFiles, junk: bytes) -> None:
    async def drive(world: World) -> None:
        stream = await world.network.connect("broker", 9093)
        left = junk * (1 if len(junk) < 1000 else 1 + HANDSHAKE_BYTES_MAX // len(junk))
        while left:
            try:
                left = left[stream.send(left) :]
            except BlockingIOError:
                await asyncio.sleep(0.01)
            except OSError:
                break
        await asyncio.sleep(1)

    echo = on_network(files, drive)
    assert echo.ended == 1
    assert echo.subjects == []
