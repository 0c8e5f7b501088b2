"""The client's settings: Kafka's names, what is refused, and what never shows."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

from penstock.base.world import Address
from penstock.columnar.errors import SettingError
from penstock.columnar.settings import ClientSettings

PASSWORD = "correct horse battery"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
CERTIFICATE = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"
KEY = "-----BEGIN PRIVATE KEY-----\nBBBB\n-----END PRIVATE KEY-----\n"


def parse(**values: str) -> ClientSettings:
    """Settings with `_` for `.` in their names."""
    named = {name.replace("_", "."): value for name, value in values.items()}
    return ClientSettings.parse({"bootstrap.servers": "localhost:9092", **named})


def sasl(**values: str) -> ClientSettings:
    return parse(**{"security_protocol": "SASL_PLAINTEXT", **values})


def refused(name: str, text: str, **values: str) -> None:
    with pytest.raises(SettingError, match=text) as error:
        parse(**values)
    assert error.value.name == name
    assert PASSWORD not in str(error.value)


def test_defaults_are_those_of_kafka() -> None:
    settings = parse()
    assert settings.bootstrap == (Address("localhost", 9092),)
    assert (settings.request_timeout_s, settings.deadline_s, settings.delivery_timeout_s) == (30, 60, 120)
    assert settings.tls is None
    assert settings.login is None


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("one:1,two:2", [("one", 1), ("two", 2)]),
        (" one:1 , one:1 ,", [("one", 1)]),
        ("[::1]:9092", [("::1", 9092)]),
        ("PLAINTEXT://kafka.example.org:9093", [("kafka.example.org", 9093)]),
    ],
)
def test_addresses(text: str, addresses: list[tuple[str, int]]) -> None:
    assert list(parse(bootstrap_servers=text).bootstrap) == addresses


@pytest.mark.parametrize(
    "text", ["", ",", "localhost", "localhost:", "localhost:0", "localhost:70000", "a b:1", "::1:9"]
)
def test_bad_addresses(text: str) -> None:
    refused("bootstrap.servers", "host:port", bootstrap_servers=text)


def test_durations() -> None:
    settings = parse(request_timeout_ms="1500", retry_backoff_ms="0", default_api_timeout_ms="2000")
    assert (settings.request_timeout_s, settings.backoff_s, settings.deadline_s) == (1.5, 0, 2)
    refused("request.timeout.ms", "milliseconds", request_timeout_ms="soon")
    refused("request.timeout.ms", "at least 1", request_timeout_ms="0")


def test_settings_of_other_clients_pass() -> None:
    settings = parse(
        linger_ms="5", auto_offset_reset="earliest", compression_type="zstd", isolation_level="read_committed"
    )
    assert settings.get("compression.type") == "zstd"
    assert settings.get("acks") is None


def test_misspelt_ones_do_not() -> None:
    refused("request.timout.ms", "did you mean request.timeout.ms", request_timout_ms="1")
    refused("colour", "not a setting of Kafka's clients$", colour="red")
    refused("key.deserializer", "not supported", key_deserializer="x")


def test_numbers_and_truths_may_be_given_as_they_are() -> None:
    settings = ClientSettings.parse({"bootstrap.servers": "a:1", "retry.backoff.ms": 7, "enable.idempotence": True})  # type: ignore[dict-item]
    assert settings.backoff_s == 0.007
    with pytest.raises(SettingError, match="text or a number"):
        ClientSettings.parse({"bootstrap.servers": ["a:1"]})  # type: ignore[dict-item]


# ── the login ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", ["sasl_mechanism", "sasl_mechanisms"])
def test_login_with_user_and_password(name: str) -> None:
    login = sasl(**{name: "scram-sha-512"}, sasl_username="alice", sasl_password=PASSWORD).login
    assert login is not None
    assert (login.mechanism, login.user, login.password) == ("SCRAM-SHA-512", "alice", PASSWORD)


@pytest.mark.parametrize(("mechanism", "module"), [("PLAIN", PLAIN), ("SCRAM-SHA-256", SCRAM)])
def test_login_with_jaas(mechanism: str, module: str) -> None:
    config = f'{module} required\n  username="al\\"ice"\n  password="{PASSWORD}" ;'
    login = sasl(sasl_mechanism=mechanism, sasl_jaas_config=config).login
    assert login is not None
    assert (login.user, login.password) == ('al"ice', PASSWORD)


def test_login_with_token() -> None:
    login = sasl(sasl_mechanism="OAUTHBEARER", sasl_oauthbearer_token="abc.def").login
    assert login is not None
    assert login.token == "abc.def"


@pytest.mark.parametrize(
    "config",
    [
        "",
        "nonsense",
        f'{SCRAM} required username="a" password="{PASSWORD}"',
        f'{SCRAM} required username="a" password="{PASSWORD}"; {SCRAM} required;',
        f'{SCRAM} required username="a" password="{PASSWORD};',
        f'{SCRAM} perhaps username="a" password="{PASSWORD}";',
        f'{SCRAM} required username="a";',
        f'{SCRAM} required username="a" username="b" password="{PASSWORD}";',
        f'{PLAIN} required username="a" password="{PASSWORD}";',
        f'org.example.OtherModule required username="a" password="{PASSWORD}";',
    ],
)
def test_jaas_is_read_strictly(config: str) -> None:
    with pytest.raises(SettingError) as error:
        sasl(sasl_mechanism="SCRAM-SHA-256", sasl_jaas_config=config)
    assert error.value.name in ("sasl.jaas.config", "sasl.username")
    assert PASSWORD not in str(error.value)


def test_kerberos_is_refused_by_name() -> None:
    protocol = {"security_protocol": "SASL_SSL"}
    refused("sasl.mechanism", "Kerberos", **protocol, sasl_mechanism="GSSAPI")
    module = "com.sun.security.auth.module.Krb5LoginModule required useKeyTab=true;"
    refused("sasl.jaas.config", "Kerberos", **protocol, sasl_mechanism="PLAIN", sasl_jaas_config=module)
    refused("sasl.kerberos.keytab", "Kerberos", **protocol, sasl_kerberos_keytab="/etc/keytab")


def test_login_that_lacks_something() -> None:
    protocol = {"security_protocol": "SASL_SSL"}
    refused("sasl.mechanism", "is needed", **protocol)
    refused("sasl.username", "is needed", **protocol, sasl_mechanism="PLAIN")
    refused("sasl.password", "is needed", **protocol, sasl_mechanism="PLAIN", sasl_username="a")
    refused("sasl.oauthbearer.token", "is needed", **protocol, sasl_mechanism="OAUTHBEARER")
    refused("sasl.mechanism", "not supported", **protocol, sasl_mechanism="CRAM-MD5")


def test_password_without_login_is_a_forgotten_protocol() -> None:
    refused("security.protocol", "sasl.password is given", sasl_password=PASSWORD)
    refused("security.protocol", "ssl.ca.pem is given", ssl_ca_pem=CERTIFICATE)
    refused("security.protocol", "is one of", security_protocol="TLS")


def test_secrets_do_not_show_and_travel() -> None:
    settings = parse(
        security_protocol="SASL_SSL",
        sasl_mechanism="PLAIN",
        sasl_username="alice",
        sasl_password=PASSWORD,
        ssl_keystore_key=KEY,
        ssl_keystore_certificate_chain=CERTIFICATE,
        ssl_key_password="key secret",
    )
    shown = repr(settings)
    assert "alice" in shown
    assert not [secret for secret in (PASSWORD, "BBBB", "key secret") if secret in shown]
    assert copy.deepcopy(settings) == settings


# ── TLS ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_pem_from_files_and_texts(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text(CERTIFICATE)
    (tmp_path / "both.pem").write_text(KEY + CERTIFICATE)
    by_file = parse(
        security_protocol="SSL",
        ssl_ca_location=str(tmp_path / "ca.pem"),
        ssl_keystore_location=str(tmp_path / "both.pem"),
    ).tls
    by_text = parse(
        security_protocol="SSL",
        ssl_truststore_type="PEM",
        ssl_truststore_certificates=CERTIFICATE,
        ssl_keystore_type="PEM",
        ssl_keystore_key=KEY + CERTIFICATE,
        ssl_keystore_certificate_chain=KEY + CERTIFICATE,
    ).tls
    assert by_file == by_text


def test_hosts_are_checked_unless_told_otherwise() -> None:
    assert parse(security_protocol="SSL").tls.checks_host  # type: ignore[union-attr]
    assert not parse(security_protocol="SSL", ssl_endpoint_identification_algorithm="").tls.checks_host  # type: ignore[union-attr]
    refused(
        "ssl.endpoint.identification.algorithm",
        "is https",
        security_protocol="SSL",
        ssl_endpoint_identification_algorithm="ldaps",
    )


def test_java_stores_are_refused_with_what_to_do(tmp_path: Path) -> None:
    store = tmp_path / "trust.jks"
    store.write_bytes(b"\xfe\xed\xfe\xed\0\0\0\2")
    given = {"security_protocol": "SSL", "ssl_truststore_location": str(store)}
    refused("ssl.truststore.location", "not a PEM file.*ssl.truststore.type=PEM", **given)
    refused("ssl.truststore.type", "JKS.*ssl.truststore.type=PEM", **given, ssl_truststore_type="JKS")
    refused("ssl.truststore.password", "PEM", **given, ssl_truststore_password="x")


def test_tls_settings_that_cannot_be(tmp_path: Path) -> None:
    protocol = {"security_protocol": "SSL"}
    refused("ssl.ca.location", "cannot be read: No such file", **protocol, ssl_ca_location=str(tmp_path / "none"))
    refused("ssl.ca.pem", "no PEM block", **protocol, ssl_ca_pem=KEY)
    refused("ssl.keystore.key", "go together", **protocol, ssl_keystore_key=KEY)
    refused("ssl.ca.pem", "same thing", **protocol, ssl_ca_pem=CERTIFICATE, ssl_truststore_certificates=CERTIFICATE)
    refused("ssl.enabled.protocols", "SSLv3 is not offered", **protocol, ssl_enabled_protocols="TLSv1.3,SSLv3")
    refused("enable.ssl.certificate.verification", "always", **protocol, enable_ssl_certificate_verification="false")


def test_tls_versions() -> None:
    assert parse(security_protocol="SSL").tls.versions == ("TLSv1.2", "TLSv1.3")  # type: ignore[union-attr]
    assert parse(security_protocol="SSL", ssl_protocol="TLSv1.3").tls.versions == ("TLSv1.3",)  # type: ignore[union-attr]
