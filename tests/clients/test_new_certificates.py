"""A certificate that is replaced in its place is used without a restart; one that cannot be used is not."""

from __future__ import annotations

import socket
import ssl
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.cli import certificates
from penstock.cli.certificates import Authority, write_private
from penstock.testing.broker_process import BrokerProcess, free_port

pytestmark = pytest.mark.clients

DEADLINE_S = 30


def wait_until(condition: Callable[[], bool], what: str) -> None:
    give_up_at = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < give_up_at, what
        time.sleep(0.1)


def shown_certificate(port: int, authority: Authority) -> bytes:
    context = ssl.create_default_context(cafile=str(authority.certificate_path))
    with (
        socket.create_connection(("localhost", port), DEADLINE_S) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as secured,
    ):
        certificate = secured.getpeercert(binary_form=True)
    assert certificate is not None
    return certificate


def test_new_files_are_used_for_new_connections(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    authority = Authority(tmp_path / "authority")
    port, plain_port = free_port(), free_port()
    store = authority.sign("server", ["localhost"])
    settings = {
        "listeners": f"SSL://localhost:{port},PLAINTEXT://localhost:{plain_port}",
        "inter.broker.listener.name": "PLAINTEXT",
        "ssl.keystore.location": str(store),
    }
    with BrokerProcess(tmp_path / "data", settings=settings) as broker:
        first = shown_certificate(port, authority)
        authority.sign("server", ["localhost"])  # in its place
        wait_until(lambda: shown_certificate(port, authority) != first, "the new certificate is not used")
        second = shown_certificate(port, authority)
        good = store.read_bytes()
        write_private(store, b"-----BEGIN RUBBISH-----\n")
        wait_until(lambda: "ssl.keystore" in broker.log_text(), "nobody says that the file cannot be used")
        assert shown_certificate(port, authority) == second
        monkeypatch.setattr(certificates, "SIGNED_DAYS", -0.02)
        authority.sign("server", ["localhost"])
        wait_until(lambda: "certificate has expired" in broker.log_text(), "nobody says that it is over")
        assert shown_certificate(port, authority) == second
        assert broker.log_text().count("RUBBISH") + broker.log_text().count("cannot be used") == 1
        write_private(store, good)
