"""Where a broker listens and what it tells clients: IPv6, several listeners, advertised addresses."""

from __future__ import annotations

import socket

import pytest

from penstock.testing.broker_process import free_port
from penstock.testing.pytest_plugin import StartPenstock

from .client import Client, Message
from .conftest import CLIENTS
from .kcat_client import PROGRAM, KcatClient

pytestmark = pytest.mark.clients


def clients_at(address: str) -> list[Client]:
    return [kind(address) for kind in CLIENTS if kind is not KcatClient or PROGRAM]


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
        return True
    except OSError:
        return False


def assert_all_work(address: str, topic: str) -> None:
    """Every client finds the broker at this address, writes and reads."""
    for number, client in enumerate(clients_at(address)):
        try:
            client.produce(topic, [Message(b"%d" % number)])
            assert client.consume(topic, number + 1)[number].value == b"%d" % number, client.name
        finally:
            client.close()


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
def test_ipv6(start_penstock: StartPenstock) -> None:
    broker = start_penstock(host="::1")
    assert broker.bootstrap == f"[::1]:{broker.port}"
    assert_all_work(broker.bootstrap, "six")


def test_several_listeners_each_with_its_own_address(start_penstock: StartPenstock) -> None:
    """A client is told the address of the listener it came by: each of them works, and names only itself."""
    inside, outside, by_name = (free_port() for _ in range(3))
    broker = start_penstock(
        settings={
            "listeners": f"INSIDE://127.0.0.1:{inside},OUTSIDE://0.0.0.0:{outside},NAMED://127.0.0.1:{by_name}",
            "advertised.listeners": (
                f"INSIDE://127.0.0.1:{inside},OUTSIDE://127.0.0.2:{outside},NAMED://localhost:{by_name}"
            ),
            "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT,NAMED:PLAINTEXT",
            "inter.broker.listener.name": "INSIDE",
        }
    )
    addresses = {inside: "127.0.0.1", outside: "127.0.0.2", by_name: "localhost"}
    assert broker.addresses == [f"{host}:{port}" for port, host in addresses.items()]
    for port, host in addresses.items():
        for client in clients_at(f"127.0.0.1:{port}"):
            if client.has_admin:
                with client.admin() as admin:
                    assert admin.describe_cluster().brokers == {0: (host, port)}, client.name
            client.close()
    assert_all_work(f"127.0.0.1:{inside}", "by-the-inner-door")
    assert_all_work(f"127.0.0.1:{outside}", "by-the-outer-door")
    assert_all_work(f"127.0.0.1:{by_name}", "by-name")


def test_every_address_of_the_machine(start_penstock: StartPenstock) -> None:
    port = free_port()
    start_penstock(
        settings={
            "listeners": f"PLAINTEXT://0.0.0.0:{port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.3:{port}",
        }
    )
    assert_all_work(f"127.0.0.2:{port}", "anywhere")
