"""Metrics of a real process, asked for with an ordinary HTTP client."""

from __future__ import annotations

import base64
import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from penstock.testing.broker_process import BrokerProcess, BrokerProcessError, free_port
from penstock.testing.raw_client import RawClient
from penstock.wire.messages.k18_api_versions import ApiVersionsRequest


def get(url: str, login: str | None = None) -> str:
    request = Request(f"http://{url}")
    if login is not None:
        request.add_header("Authorization", "Basic " + base64.b64encode(login.encode()).decode())
    with urlopen(request, timeout=20) as answer:
        text: str = answer.read().decode()
        return text


def samples(text: str) -> dict[str, float]:
    return {sample.name: sample.value for family in text_string_to_metric_families(text) for sample in family.samples}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("metrics") / "data") as process:
        yield process


def test_the_ready_line_says_where_metrics_are(broker: BrokerProcess) -> None:
    (where,) = broker.metrics
    host, port = where.split(":")
    assert host == "127.0.0.1" and int(port) >= 9308
    assert get(f"{where}/healthz") == "ok\n"


def test_a_process_tells_of_itself(broker: BrokerProcess) -> None:
    host, port = broker.bootstrap.split(":")
    with RawClient(host, int(port)) as client:
        client.call(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 3)
        found = samples(get(f"{broker.metrics[0]}/metrics"))
    assert found["penstock_requests_total"] == 1
    assert found["penstock_connections"] == 1
    assert found["process_resident_memory_bytes"] > 1 << 20
    assert found["process_cpu_seconds_total"] > 0
    assert found["process_open_fds"] > 3
    assert found["penstock_loop_delay_max_seconds"] >= 0


def test_errors_have_their_status(broker: BrokerProcess) -> None:
    for path, status in (("/", 404), ("/metrics/x", 404)):
        with pytest.raises(HTTPError) as refused:
            get(f"{broker.metrics[0]}{path}")
        assert refused.value.code == status
        refused.value.close()
    with pytest.raises(HTTPError) as refused:
        urlopen(f"http://{broker.metrics[0]}/metrics", data=b"x" * 100_000, timeout=20)
    assert refused.value.code == 405
    refused.value.close()


def test_a_second_broker_takes_the_next_port(broker: BrokerProcess, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data") as second:
        assert second.metrics != broker.metrics
        assert samples(get(f"{second.metrics[0]}/metrics"))["penstock_controller_active"] == 1


def test_a_port_that_was_asked_for_must_be_free(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(BrokerProcessError, match="cannot serve metrics on"):
            BrokerProcess(tmp_path / "data", settings={"metrics.listener": where}).start()


def test_other_machines_need_a_login(tmp_path: Path) -> None:
    where = f"0.0.0.0:{free_port()}"
    settings = {"metrics.listener": where, "metrics.login": "me:my secret"}
    with BrokerProcess(tmp_path / "data", settings=settings) as guarded:
        with pytest.raises(HTTPError) as refused:
            get(f"{guarded.metrics[0]}/metrics")
        assert refused.value.code == 401
        refused.value.close()
        assert "penstock_broker_info" in get(f"{guarded.metrics[0]}/metrics", "me:my secret")
        assert "my secret" not in guarded.log_text()
