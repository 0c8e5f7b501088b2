"""Metrics of a real process, asked for with an ordinary HTTP client."""

from __future__ import annotations

import base64
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from penstock.cli.certificates import Authority
from penstock.testing.broker_process import BrokerProcess, BrokerProcessError, free_port
from penstock.testing.raw_client import RawClient
from penstock.wire.messages.k18_api_versions import ApiVersionsRequest

Command = Callable[..., Any]


def get(url: str, login: str | None = None, tls: ssl.SSLContext | None = None) -> str:
    request = Request(f"{'http' if tls is None else 'https'}://{url}")
    if login is not None:
        request.add_header("Authorization", "Basic " + base64.b64encode(login.encode()).decode())
    with urlopen(request, timeout=20, context=tls) as answer:
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


def status(url: str, login: str | None = None, tls: ssl.SSLContext | None = None) -> int:
    try:
        get(url, login, tls)
    except HTTPError as refused:
        refused.close()
        return refused.code
    return 200


def test_users_log_in_over_tls_and_need_the_right(tmp_path: Path, command: Command) -> None:
    authority = Authority(tmp_path / "authority")
    port, metrics = free_port(), f"0.0.0.0:{free_port()}"
    settings = {
        "listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "metrics.listener": metrics,
        "metrics.security.protocol": "SASL_SSL",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:root",
        "ssl.keystore.location": str(authority.sign("server", ["localhost"])),
    }
    tls = ssl.create_default_context(cafile=str(authority.certificate_path))
    url = f"localhost:{metrics.rpartition(':')[2]}"
    with BrokerProcess(tmp_path / "data", port=port, settings=settings) as process:
        at = ["--bootstrap", process.bootstrap]
        for user in ("root", "prometheus", "nosy"):
            assert command("user", "add", user, *at, stdin=f"{user}'s password\n".encode()).code == 0
        assert (
            command("acl", "add", "--allow", "User:prometheus", "--operation", "describe", "--cluster", *at).code == 0
        )
        for path in ("/metrics", "/healthz"):
            assert status(url + path, tls=tls) == 401
            assert status(url + path, "root:wrong", tls) == 401
            assert status(url + path, "root:root's password", tls) == 200
            assert status(url + path, "prometheus:prometheus's password", tls) == 200
            assert status(url + path, "nosy:nosy's password", tls) == (403 if path == "/metrics" else 200)
        with pytest.raises(OSError):
            get(f"{url}/healthz", "root:root's password")  # without TLS
        assert "password" not in process.log_text()


def test_a_certificate_is_a_login(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "authority")
    metrics = f"0.0.0.0:{free_port()}"
    settings = {
        "metrics.listener": metrics,
        "metrics.security.protocol": "SSL",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:root",
        "ssl.keystore.location": str(authority.sign("server", ["localhost"])),
        "ssl.truststore.location": str(authority.certificate_path),
        "listener.name.metrics.ssl.client.auth": "required",
        "listener.name.metrics.ssl.principal.mapping.rules": "RULE:^CN=(root|nosy)$/$1/",
    }
    url = f"localhost:{metrics.rpartition(':')[2]}"

    def asking_as(name: str | None) -> ssl.SSLContext:
        tls = ssl.create_default_context(cafile=str(authority.certificate_path))
        if name is not None:
            tls.load_cert_chain(authority.sign(name))
        return tls

    with BrokerProcess(tmp_path / "data", settings=settings):
        assert status(f"{url}/metrics", tls=asking_as("root")) == 200
        assert status(f"{url}/metrics", tls=asking_as("nosy")) == 403
        assert status(f"{url}/healthz", tls=asking_as("nosy")) == 200
        assert status(f"{url}/healthz", tls=asking_as("nobody")) == 401  # no rule makes a user of it
        with pytest.raises(OSError):
            get(f"{url}/healthz", tls=asking_as(None))
