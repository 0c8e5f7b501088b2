"""TLS and logins against Apache Kafka: what works, and what is said when it does not."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import penstock.columnar
from penstock.columnar.cluster import Cluster
from penstock.columnar.errors import BrokerAway, ColumnarError, NotAllowed, NotTrusted, TopicGone
from penstock.columnar.settings import ClientSettings

from .producing_sites import wait_until
from .secure_kafka import (
    NOT_TO_BE_READ,
    NOT_TO_BE_SEEN,
    NOT_TO_BE_WRITTEN,
    PASSWORD,
    PLAIN_PASSWORD,
    PLAIN_USER,
    USER,
    SecureKafka,
    secure_kafka,
    unsecured_token,
)
from .topic_filling import fill, numbers

pytestmark = pytest.mark.kafka

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
ROWS = 20_000


@pytest.fixture(scope="module")
def kafka(kafka_libs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureKafka]:
    with secure_kafka(kafka_libs, tmp_path_factory.mktemp("secure")) as kafka:
        fill(kafka.plain, "t", numbers(0, ROWS))
        yield kafka


def read(kafka: SecureKafka, protocol: str, host: str = "localhost", **settings: str) -> list[bytes]:
    named = kafka.settings(protocol, default_api_timeout_ms="15000", **settings)
    values: list[bytes] = (
        penstock.columnar.read(kafka.address(protocol, host), "t", settings=named).read_all()["value"].to_pylist()
    )
    return values


@pytest.mark.parametrize("protocol", ["SASL_SSL", "SASL_PLAINTEXT"])
@pytest.mark.parametrize(
    ("mechanism", "user", "password"),
    [("PLAIN", PLAIN_USER, PLAIN_PASSWORD), ("SCRAM-SHA-256", USER, PASSWORD), ("SCRAM-SHA-512", USER, PASSWORD)],
    ids=["plain", "scram-sha-256", "scram-sha-512"],
)
def test_logins(kafka: SecureKafka, protocol: str, mechanism: str, user: str, password: str) -> None:
    settings = {"sasl_mechanism": mechanism, "sasl_username": user, "sasl_password": password}
    assert read(kafka, protocol, **settings) == numbers(0, ROWS)
    with pytest.raises(
        NotAllowed, match=f"logging in at localhost:.* with {mechanism}: .*SASL_AUTHENTICATION_FAILED"
    ) as error:
        read(kafka, protocol, **{**settings, "sasl_password": "wrong"})
    assert "wrong" not in str(error.value)


def test_login_as_java_clients_write_it(kafka: SecureKafka) -> None:
    quoted = PASSWORD.replace("\\", "\\\\").replace('"', '\\"')
    config = f'{SCRAM} required username="{USER}" password="{quoted}";'
    assert read(kafka, "SASL_SSL", sasl_mechanism="SCRAM-SHA-256", sasl_jaas_config=config) == numbers(0, ROWS)


def test_login_with_a_token(kafka: SecureKafka) -> None:
    settings = {"sasl_mechanism": "OAUTHBEARER"}
    assert read(kafka, "SASL_SSL", **settings, sasl_oauthbearer_token=unsecured_token(USER)) == numbers(0, ROWS)
    with pytest.raises(NotAllowed, match="OAUTHBEARER"):
        read(kafka, "SASL_SSL", **settings, sasl_oauthbearer_token="not.a.token")


def test_login_that_holds_for_a_while_only(kafka: SecureKafka) -> None:
    """The broker ends connections whose login is over: before that, another one is made."""
    named = kafka.settings(
        "SASL_PLAINTEXT", sasl_mechanism="PLAIN", sasl_username=PLAIN_USER, sasl_password=PLAIN_PASSWORD
    )
    address = kafka.address("SASL_PLAINTEXT")
    with Cluster(ClientSettings.parse({"bootstrap.servers": address, **named})) as cluster:
        first = cluster.any()
        assert first.renew_s is not None
        renew_s = first.renew_s
        wait_until(lambda: time.monotonic() > renew_s, "the login nearly over")
        assert cluster.any() is not first
        assert cluster.topics(["t"])


def test_mutual_tls(kafka: SecureKafka) -> None:
    assert read(kafka, "SSL", ssl_keystore_location=str(kafka.certificates.client)) == numbers(0, ROWS)
    texts = kafka.certificates.client.read_text()
    inline = {"ssl_keystore_type": "PEM", "ssl_keystore_key": texts, "ssl_keystore_certificate_chain": texts}
    assert read(kafka, "SSL", **inline) == numbers(0, ROWS)
    with pytest.raises(NotTrusted, match="may ask for a client certificate"):
        read(kafka, "SSL")


@pytest.mark.parametrize("version", ["TLSv1.2", "TLSv1.3"])
def test_tls_versions(kafka: SecureKafka, version: str) -> None:
    certificate = {"ssl_keystore_location": str(kafka.certificates.client)}
    assert read(kafka, "SSL", **certificate, ssl_enabled_protocols=version) == numbers(0, ROWS)


def test_wrong_authority(kafka: SecureKafka) -> None:
    login = {"sasl_mechanism": "PLAIN", "sasl_username": PLAIN_USER, "sasl_password": PLAIN_PASSWORD}
    with pytest.raises(NotTrusted, match=r"is not trusted: .*check ssl\.ca\.location"):
        read(kafka, "SASL_SSL", **login, ssl_ca_location=str(kafka.certificates.other_ca))


def test_wrong_host(kafka: SecureKafka) -> None:
    login = {"sasl_mechanism": "PLAIN", "sasl_username": PLAIN_USER, "sasl_password": PLAIN_PASSWORD}
    with pytest.raises(NotTrusted, match="IP address mismatch"):
        read(kafka, "SASL_SSL", "127.0.0.1", **login)
    assert read(kafka, "SASL_SSL", "127.0.0.1", **login, ssl_endpoint_identification_algorithm="")


def test_wrong_protocol(kafka: SecureKafka) -> None:
    """TLS to a plain port, no TLS to a TLS port, and no login where one is due."""
    settings = {"default.api.timeout.ms": "500", "request.timeout.ms": "300"}
    tls = ClientSettings.parse({**settings, "bootstrap.servers": kafka.plain, "security.protocol": "SSL"})
    with Cluster(tls) as cluster, pytest.raises((NotTrusted, BrokerAway), match="TLS"):
        cluster.topics()
    for protocol in ("SSL", "SASL_PLAINTEXT"):
        with pytest.raises(BrokerAway, match="the last reason"):
            penstock.columnar.read(kafka.address(protocol), "t", settings=settings)


def test_mechanism_that_is_not_offered(kafka: SecureKafka) -> None:
    with pytest.raises(ColumnarError, match=r"sasl\.mechanism"):
        read(kafka, "SASL_SSL", sasl_mechanism="CRAM-MD5", sasl_username="a", sasl_password="b")


def as_alice(kafka: SecureKafka, protocol: str = "SASL_SSL") -> dict[str, str]:
    login = {"sasl_mechanism": "SCRAM-SHA-512", "sasl_username": USER, "sasl_password": PASSWORD}
    return kafka.settings(protocol, default_api_timeout_ms="15000", **login)


@pytest.mark.parametrize("transactional_id", [None, "written-in-secret"])
def test_what_is_written_after_a_login_is_there(kafka: SecureKafka, transactional_id: str | None) -> None:
    topic = f"written-{transactional_id}"
    fill(kafka.plain, topic, [b"first"])
    values = numbers(0, 1000)
    address, settings = kafka.address("SASL_SSL"), as_alice(kafka)
    written = penstock.columnar.write(
        pa.table({"value": values}), topic, address, transactional_id=transactional_id, settings=settings
    )
    assert written.rows == len(values)

    def read_back() -> list[bytes]:
        found: list[bytes] = penstock.columnar.read(address, topic, settings=settings).read_all()["value"].to_pylist()
        return found

    # Kafka answers that a transaction is committed a moment before its records can be read
    wait_until(lambda: read_back() == [b"first", *values], "what was written")


def test_what_one_may_not_read(kafka: SecureKafka) -> None:
    with pytest.raises(NotAllowed, match=f"{NOT_TO_BE_READ}.*TOPIC_AUTHORIZATION_FAILED"):
        penstock.columnar.read(kafka.address("SASL_SSL"), NOT_TO_BE_READ, settings=as_alice(kafka)).read_all()


def test_what_one_may_not_write(kafka: SecureKafka) -> None:
    rows = pa.table({"value": [b"x"]})
    with pytest.raises(NotAllowed, match=f"{NOT_TO_BE_WRITTEN}.*TOPIC_AUTHORIZATION_FAILED"):
        penstock.columnar.write(rows, NOT_TO_BE_WRITTEN, kafka.address("SASL_SSL"), settings=as_alice(kafka))


def test_what_one_may_not_see(kafka: SecureKafka) -> None:
    with pytest.raises((NotAllowed, TopicGone), match=NOT_TO_BE_SEEN):
        penstock.columnar.read(kafka.address("SASL_SSL"), NOT_TO_BE_SEEN, settings=as_alice(kafka)).read_all()
