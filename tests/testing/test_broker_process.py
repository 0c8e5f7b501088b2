"""A broker as a process can be started, stopped, killed, paused and brought back, and says why when it cannot."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.testing.broker_process import PORTS, BrokerProcess, BrokerProcessError, free_port

pytestmark = pytest.mark.clients


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path / "data") as broker:
        yield broker


def answers(broker: BrokerProcess, timeout_s: float) -> bool:
    """Does it answer an ApiVersions request of version 0?"""
    request = bytes.fromhex("0000000a 0012 0000 00000007 ffff")
    with socket.create_connection(("127.0.0.1", broker.port), timeout_s) as client:
        client.sendall(request)
        try:
            return client.recv(8)[4:8] == b"\0\0\0\7"
        except TimeoutError:
            return False


def test_it_comes_back_on_its_port_and_folder(broker: BrokerProcess) -> None:
    first = (broker.bootstrap, broker.pid)
    for end in (broker.kill, broker.stop):
        end()
        assert not broker.is_running
        with pytest.raises(BrokerProcessError, match="not running"):
            broker.kill()
        broker.start()
        assert broker.is_running and answers(broker, 20)
    broker.restart()
    assert broker.bootstrap == first[0] == f"127.0.0.1:{broker.port}"
    assert broker.pid != first[1]


def test_it_stands_still_and_goes_on(broker: BrokerProcess) -> None:
    broker.pause()
    assert not answers(broker, 0.2)
    broker.resume()
    assert answers(broker, 20)


def test_a_paused_broker_is_ended_too(broker: BrokerProcess) -> None:
    broker.pause()
    broker.close()
    assert not broker.is_running


def test_it_is_not_started_twice(broker: BrokerProcess) -> None:
    with pytest.raises(BrokerProcessError, match="running already"):
        broker.start()


def test_settings_reach_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_NUM_PARTITIONS", "not for the broker")
    port = free_port()
    settings = {"listeners": f"ONE://127.0.0.1:{port}", "listener.security.protocol.map": "ONE:PLAINTEXT"}
    settings["inter.broker.listener.name"] = "ONE"
    with BrokerProcess(tmp_path / "data", settings=settings) as broker:
        assert broker.bootstrap == f"127.0.0.1:{port}"


def test_why_it_did_not_start_is_said(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "data", settings={"no.such.setting": "1"})
    with pytest.raises(BrokerProcessError, match=r"exit code 2[\s\S]*no\.such\.setting"):
        broker.start()
    assert not broker.is_running
    assert "no.such.setting" in broker.log_text()
    broker.close()


def test_a_start_has_a_deadline(tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "data", start_timeout_s=0.001)
    with pytest.raises(BrokerProcessError, match="not ready after"):
        broker.start()
    assert not broker.is_running


def test_before_the_first_start_there_is_no_address(tmp_path: Path) -> None:
    with pytest.raises(BrokerProcessError, match="never started"):
        _ = BrokerProcess(tmp_path / "data").bootstrap


def test_free_ports_are_none_of_outgoing_connections() -> None:
    assert free_port() in PORTS
    assert free_port("::1") in PORTS
