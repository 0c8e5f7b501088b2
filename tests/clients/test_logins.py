"""Every client library logs in with every mechanism it has, right and wrong, with TLS and without."""

from __future__ import annotations

import asyncio
import json
import re
import shutil
import ssl
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiokafka
import aiokafka.abc
import kafka
import kafka.errors
import kafka.net.sasl.oauth
import pyarrow as pa
import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from cryptography.hazmat.primitives.asymmetric import rsa

from penstock import columnar
from penstock.cli.main import run

from .secure_broker import MECHANISMS, PASSWORD, USER, SecureBroker, secure_broker, token

pytestmark = pytest.mark.clients

STRANGERS_KEY = rsa.generate_private_key(65537, 2048)
SASL_PROTOCOLS = ("SASL_SSL", "SASL_PLAINTEXT")
WITH_PASSWORD = MECHANISMS[:3]
DEADLINE_S = 20
TRIES_MS = 3_000


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureBroker]:
    with secure_broker(tmp_path_factory.mktemp("secure")) as broker:
        yield broker


def audited(broker: SecureBroker, event: str) -> list[dict[str, Any]]:
    path = broker.process.data / "logs" / "audit" / "audit.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [row for row in rows if row["event"] == event]


def confluent(settings: dict[str, Any], lifetime_s: int = 600, key: Any = None) -> dict[str, Any]:
    if settings.get("sasl.mechanism") == "OAUTHBEARER":
        made = token(lifetime_s=lifetime_s) if key is None else token(key=key)
        settings = settings | {"oauth_cb": lambda _config: (made, time.time() + lifetime_s)}
    return settings | {"log_level": 0}


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("protocol", SASL_PROTOCOLS)
def test_confluent(broker: SecureBroker, protocol: str, mechanism: str) -> None:
    settings = confluent(broker.librdkafka(protocol, mechanism))
    topic = f"confluent-{protocol}-{mechanism}"
    producer = Producer(settings)
    producer.produce(topic, b"hello")
    assert producer.flush(DEADLINE_S) == 0
    consumer = Consumer(settings | {"group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    message = consumer.poll(DEADLINE_S)
    consumer.close()
    assert message is not None
    assert message.value() == b"hello"


@pytest.mark.parametrize("mechanism", WITH_PASSWORD)
def test_confluent_with_a_wrong_password(broker: SecureBroker, mechanism: str) -> None:
    errors: list[Any] = []
    settings = broker.librdkafka("SASL_SSL", mechanism, "wrong") | {"error_cb": errors.append, "log_level": 0}
    admin = AdminClient(settings)
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=1.5)
    admin.poll(0)
    assert any("login failed" in str(error) for error in errors)


def test_confluent_with_a_token_of_somebody_else(broker: SecureBroker) -> None:
    errors: list[Any] = []
    settings = confluent(broker.librdkafka("SASL_SSL", "OAUTHBEARER"), key=STRANGERS_KEY)
    admin = AdminClient(settings | {"error_cb": errors.append})
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=1.5)
    admin.poll(0)
    assert any("invalid_token" in str(error) or "login failed" in str(error) for error in errors), errors


def test_certificates_are_names(broker: SecureBroker) -> None:
    assert AdminClient(broker.librdkafka("SSL") | {"log_level": 0}).list_topics(timeout=DEADLINE_S).brokers
    names = {row["principal"] for row in audited(broker, "login") if row["mechanism"] == "TLS"}
    assert names == {"User:alice"}


def test_no_certificate_no_connection(broker: SecureBroker) -> None:
    settings = broker.librdkafka("SSL")
    del settings["ssl.certificate.location"], settings["ssl.key.location"]
    with pytest.raises(KafkaException):
        AdminClient(settings | {"log_level": 0}).list_topics(timeout=1.5)


class KafkaPythonToken(kafka.net.sasl.oauth.AbstractTokenProvider):
    def token(self) -> str:
        return token()


class KafkaPythonWrongToken(kafka.net.sasl.oauth.AbstractTokenProvider):
    def token(self) -> str:
        return token(key=STRANGERS_KEY)


def kafka_python(broker: SecureBroker, protocol: str, mechanism: str, password: str = PASSWORD) -> dict[str, Any]:
    settings: dict[str, Any] = {
        "bootstrap_servers": broker.address(protocol),
        "security_protocol": protocol,
        "sasl_mechanism": mechanism,
    }
    if protocol.endswith("SSL"):
        settings["ssl_cafile"] = str(broker.authority.certificate_path)
    if mechanism == "OAUTHBEARER":
        return settings | {"sasl_oauth_token_provider": KafkaPythonToken()}
    return settings | {"sasl_plain_username": USER, "sasl_plain_password": password}


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("protocol", SASL_PROTOCOLS)
def test_kafka_python(broker: SecureBroker, protocol: str, mechanism: str) -> None:
    producer = kafka.KafkaProducer(**kafka_python(broker, protocol, mechanism))
    sent = producer.send(f"kafka-python-{protocol}-{mechanism}", b"hello").get(DEADLINE_S)
    assert sent.offset >= 0
    producer.close()


@pytest.mark.parametrize("mechanism", WITH_PASSWORD)
def test_kafka_python_with_a_wrong_password(broker: SecureBroker, mechanism: str) -> None:
    """It takes a refused login for a connection that broke, and tries again until its time is over."""
    settings = kafka_python(broker, "SASL_SSL", mechanism, "wrong")
    with pytest.raises(kafka.errors.KafkaError):
        kafka.KafkaAdminClient(**settings, bootstrap_timeout_ms=TRIES_MS).list_topics()


def test_kafka_python_with_a_token_of_somebody_else(broker: SecureBroker) -> None:
    settings = kafka_python(broker, "SASL_SSL", "OAUTHBEARER") | {"sasl_oauth_token_provider": KafkaPythonWrongToken()}
    with pytest.raises(kafka.errors.KafkaError):
        kafka.KafkaAdminClient(**settings, bootstrap_timeout_ms=TRIES_MS).list_topics()


class AiokafkaToken(aiokafka.abc.AbstractTokenProvider):
    async def token(self) -> str:
        return token()


class AiokafkaWrongToken(aiokafka.abc.AbstractTokenProvider):
    async def token(self) -> str:
        return token(key=STRANGERS_KEY)


async def aiokafka_send(broker: SecureBroker, protocol: str, mechanism: str, password: str = PASSWORD) -> int:
    """A wrong password stands for a wrong token as well."""
    context = None
    if protocol.endswith("SSL"):
        context = ssl.create_default_context(cafile=str(broker.authority.certificate_path))
    login: dict[str, Any] = {"sasl_plain_username": USER, "sasl_plain_password": password}
    if mechanism == "OAUTHBEARER":
        login = {"sasl_oauth_token_provider": AiokafkaToken() if password == PASSWORD else AiokafkaWrongToken()}
    producer = aiokafka.AIOKafkaProducer(
        bootstrap_servers=broker.address(protocol),
        security_protocol=protocol,
        ssl_context=context,
        sasl_mechanism=mechanism,
        **login,
    )
    try:
        await producer.start()
        sent = await producer.send_and_wait(f"aiokafka-{protocol}-{mechanism}", b"hello")
        return int(sent.offset)
    finally:
        await producer.stop()


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("protocol", SASL_PROTOCOLS)
def test_aiokafka(broker: SecureBroker, protocol: str, mechanism: str) -> None:
    assert asyncio.run(aiokafka_send(broker, protocol, mechanism)) >= 0


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_aiokafka_with_a_wrong_password(broker: SecureBroker, mechanism: str) -> None:
    with pytest.raises(aiokafka.errors.KafkaError):
        asyncio.run(aiokafka_send(broker, "SASL_SSL", mechanism, "wrong"))


def librdkafka_of_kcat() -> tuple[int, ...]:
    shown = subprocess.run(["kcat", "-V"], capture_output=True, text=True, check=False).stdout
    found = re.search(r"librdkafka ([0-9.]+)", shown)
    return tuple(int(part) for part in found[1].rstrip(".").split(".")) if found else ()


@pytest.mark.skipif(shutil.which("kcat") is None, reason="NOT TESTED WITH kcat, which is not installed")
@pytest.mark.parametrize("mechanism", WITH_PASSWORD)
@pytest.mark.parametrize("protocol", SASL_PROTOCOLS)
def test_kcat(broker: SecureBroker, protocol: str, mechanism: str) -> None:
    """Before 2.6.1 librdkafka sent a nonce with its own part in it twice: whoever checks all of it refuses that."""

    def kcat(password: str) -> subprocess.CompletedProcess[str]:
        settings = broker.librdkafka(protocol, mechanism, password)
        options = [word for name, value in settings.items() for word in ("-X", f"{name}={value}")]
        command = ["kcat", "-L", "-m", "2", *options]
        return subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE_S, check=False)

    if mechanism != "PLAIN" and librdkafka_of_kcat() < (2, 6, 1):
        assert "does not belong to its first" in kcat(PASSWORD).stderr
        return
    assert "broker 0" in kcat(PASSWORD).stdout
    assert kcat("wrong").returncode != 0


def test_our_own_commands(broker: SecureBroker, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "client.properties"
    for password, code in ((PASSWORD, 0), ("wrong", 6)):
        settings = broker.librdkafka("SASL_SSL", "SCRAM-SHA-512", password)
        config.write_text("".join(f"{name}={value}\n" for name, value in settings.items()), encoding="utf-8")
        assert (run(["user", "list", "--client-config", str(config)]) == 0) == (code == 0)
    shown = capsys.readouterr()
    assert "alice\tSCRAM-SHA-256, SCRAM-SHA-512" in shown.out
    assert "the login failed" in shown.err


def test_logins_are_on_record_without_secrets(broker: SecureBroker) -> None:
    for mechanism in WITH_PASSWORD:
        AdminClient(confluent(broker.librdkafka("SASL_SSL", mechanism))).list_topics(timeout=DEADLINE_S)
    text = (broker.process.data / "logs" / "audit" / "audit.jsonl").read_text() + broker.process.log_text()
    assert PASSWORD not in text
    assert {row["mechanism"] for row in audited(broker, "login")} >= set(WITH_PASSWORD)


@pytest.mark.parametrize("mechanism", [*WITH_PASSWORD, "OAUTHBEARER", "SSL"])
def test_columns(broker: SecureBroker, mechanism: str) -> None:
    protocol = "SSL" if mechanism == "SSL" else "SASL_SSL"
    settings = broker.librdkafka(protocol, "" if mechanism == "SSL" else mechanism)
    if mechanism == "OAUTHBEARER":
        settings["sasl.oauthbearer.token"] = token()
    bootstrap = settings.pop("bootstrap.servers")
    if mechanism != "SSL":
        secret = "sasl.oauthbearer.token" if mechanism == "OAUTHBEARER" else "sasl.password"
        wrong = token(key=STRANGERS_KEY) if mechanism == "OAUTHBEARER" else "wrong"
        with pytest.raises(columnar.ColumnarError, match=r"login failed|refused"):
            columnar.read(bootstrap, "any", settings=settings | {secret: wrong}).read_all()
    topic = f"columns-{mechanism}"
    admin = AdminClient({"bootstrap.servers": broker.address("PLAINTEXT")})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(DEADLINE_S)
    table = pa.table({"value": pa.array([b"%d" % number for number in range(1000)], pa.binary())})
    columnar.write(table, topic, bootstrap, settings=settings)
    assert (
        columnar.read(bootstrap, topic, settings=settings).read_all()["value"].to_pylist() == table["value"].to_pylist()
    )
