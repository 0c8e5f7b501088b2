"""Certificates and keys in files, in the settings themselves, and under a password."""

from __future__ import annotations

import os
import ssl
import tempfile
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from penstock.base.broker_settings import load_broker_settings
from penstock.base.settings import SettingsError
from penstock.base.tls_settings import certificate_problem, client_context, read_tls, server_context
from penstock.cli import certificates
from penstock.cli.certificates import Authority

PASSWORD = "a key's own secret"


class Pem:
    """A certificate and its key, plain and under a password, as text."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority(folder)
        self.path = self.authority.sign("server", ["localhost"])
        self.both = self.path.read_text()
        self.certificate = self.both[self.both.index("-----BEGIN CERTIFICATE") :]
        key = serialization.load_pem_private_key(self.both.encode(), password=None)
        self.encrypted = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.BestAvailableEncryption(PASSWORD.encode()),
        ).decode()
        self.trusted = self.authority.certificate_path.read_text()


@pytest.fixture(scope="module")
def pem(tmp_path_factory: pytest.TempPathFactory) -> Pem:
    return Pem(tmp_path_factory.mktemp("pem"))


def greet(settings: dict[str, str]) -> str | None:
    """A handshake of a listener and another broker, both with these settings; the version of TLS they agree on."""
    files = read_tls(load_broker_settings(settings))
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    server = server_context(files).wrap_bio(to_server, to_client, server_side=True)
    client = client_context(files).wrap_bio(to_client, to_server, server_hostname="localhost")
    for side in (client, server, client, server):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    return server.version()


def test_a_certificate_and_a_key_in_the_settings(pem: Pem) -> None:
    inline = {
        "ssl.keystore.certificate.chain": pem.certificate,
        "ssl.keystore.key": pem.both[: pem.both.index("-----BEGIN CERTIFICATE")],
        "ssl.truststore.certificates": pem.trusted,
        "ssl.client.auth": "required",
    }
    assert greet(inline) == "TLSv1.3"


def test_a_key_under_a_password(pem: Pem, tmp_path: Path) -> None:
    store = tmp_path / "encrypted.pem"
    store.write_text(pem.encrypted + pem.certificate)
    trusted = {"ssl.truststore.location": str(pem.authority.certificate_path)}
    assert greet({"ssl.keystore.location": str(store), "ssl.key.password": PASSWORD} | trusted) == "TLSv1.3"
    inline = {"ssl.keystore.certificate.chain": pem.certificate, "ssl.keystore.key": pem.encrypted}
    assert greet(inline | {"ssl.key.password": PASSWORD, "ssl.enabled.protocols": "TLSv1.2"} | trusted) == "TLSv1.2"


@pytest.mark.parametrize("password", [None, "not the secret"])
def test_another_password_is_a_clear_error(pem: Pem, password: str | None) -> None:
    settings = {"ssl.keystore.certificate.chain": pem.certificate, "ssl.keystore.key": pem.encrypted}
    if password is not None:
        settings["ssl.key.password"] = password
    with pytest.raises(SettingsError) as refused:
        greet(settings)
    assert "ssl.key.password" in str(refused.value)
    assert "not the secret" not in str(refused.value) and "BEGIN" not in str(refused.value)


def test_secrets_are_not_shown(pem: Pem) -> None:
    settings = load_broker_settings(
        {
            "ssl.keystore.certificate.chain": pem.certificate,
            "ssl.keystore.key": pem.encrypted,
            "ssl.key.password": PASSWORD,
        }
    )
    shown = repr(read_tls(settings))
    assert PASSWORD not in shown and "PRIVATE KEY" not in shown


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        ({"ssl.keystore.location": "/nowhere/at/all.pem"}, "/nowhere/at/all.pem cannot be read"),
        ({}, "needs a certificate and its key"),
    ],
)
def test_what_is_missing_is_said(settings: dict[str, str], problem: str) -> None:
    with pytest.raises(SettingsError, match=problem):
        greet(settings)


def test_a_java_key_store_is_no_pem(tmp_path: Path) -> None:
    store = tmp_path / "server.jks"
    store.write_bytes(b"\xfe\xed\xfe\xed" + bytes(100))
    with pytest.raises(SettingsError, match="convert Java key stores"):
        greet({"ssl.keystore.location": str(store)})


def test_a_key_is_on_no_disk_on_its_way_to_openssl(pem: Pem, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given = {"ssl.keystore.location": str(pem.path), "ssl.truststore.location": str(pem.authority.certificate_path)}
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "not there"))
    assert greet(given) == "TLSv1.3"
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.delattr(os, "memfd_create")
    assert greet(given) == "TLSv1.3"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("client_auth", ["none", "required"])
def test_a_certificate_that_nobody_will_believe(
    pem: Pem, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, client_auth: str
) -> None:
    def problem(path: Path) -> str | None:
        trusted = {"ssl.truststore.location": str(pem.authority.certificate_path), "ssl.client.auth": client_auth}
        files = read_tls(load_broker_settings({"ssl.keystore.location": str(path)} | trusted))
        return certificate_problem(server_context(files), files)

    assert problem(pem.path) is None
    monkeypatch.setattr(certificates, "SIGNED_DAYS", -0.02)
    assert problem(Authority(tmp_path).sign("server", ["localhost"])) == "certificate has expired"
