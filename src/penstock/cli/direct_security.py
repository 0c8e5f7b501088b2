"""TLS and logins for our own connections, from the same client settings (librdkafka's names) as everybody else's."""

from __future__ import annotations

import secrets
import socket
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from penstock.base.settings import SettingsError
from penstock.base.tls_settings import TlsFiles, client_context
from penstock.cli.failure import ExitCode, Failure, usage
from penstock.sasl import oauthbearer, plain, scram
from penstock.sasl.exchange import ClientExchange
from penstock.sasl.oauthbearer import OAuthBearerClient
from penstock.sasl.plain import PlainClient
from penstock.sasl.scram import ScramClient

MECHANISMS = (plain.MECHANISM, *scram.HASH_NAMES, oauthbearer.MECHANISM)
NONCE_BYTES = 24
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


@dataclass(frozen=True, slots=True)
class Security:
    """How a connection is secured; nothing at all by default."""

    context: ssl.SSLContext | None = None
    mechanism: str = ""
    user: str = field(repr=False, default="")
    password: str = field(repr=False, default="")

    def secured(self, plain_socket: socket.socket, host: str) -> socket.socket:
        """The socket after the handshake, if there is to be one; OSError or Failure."""
        if self.context is None:
            return plain_socket
        try:
            return self.context.wrap_socket(plain_socket, server_hostname=host)
        except ssl.SSLCertVerificationError as error:
            raise Failure(
                f"the certificate of the broker at {host} is not trusted: {error.verify_message}; see ssl.ca.location",
                ExitCode.REFUSED,
            ) from error

    def login(self) -> ClientExchange | None:
        """The machine that logs in, for one connection."""
        if not self.mechanism:
            return None
        if self.mechanism == plain.MECHANISM:
            return PlainClient(self.user, self.password)
        if self.mechanism == oauthbearer.MECHANISM:
            return OAuthBearerClient(self.password)
        return ScramClient(self.mechanism, self.user, self.password, secrets.token_urlsafe(NONCE_BYTES))


def parse_security(settings: Mapping[str, str]) -> Security:
    """Failure if the settings are wrong, or of a kind that only librdkafka knows."""
    protocol = settings.get("security.protocol", "plaintext").upper()
    if protocol not in _PROTOCOLS:
        raise usage(f"security.protocol is one of {', '.join(_PROTOCOLS)}, not {protocol[:50]!r}")
    context = _context(settings) if protocol.endswith("SSL") else None
    if not protocol.startswith("SASL_"):
        return Security(context)
    mechanism = (settings.get("sasl.mechanism") or settings.get("sasl.mechanisms") or "").upper()
    if mechanism not in MECHANISMS:
        raise usage(f"sasl.mechanism: this command knows {', '.join(MECHANISMS)}, not {mechanism[:50]!r}")
    secret = "sasl.oauthbearer.token" if mechanism == oauthbearer.MECHANISM else "sasl.password"
    user = settings.get("sasl.username", "")
    if not settings.get(secret) or (secret == "sasl.password" and not user):
        raise usage(f"a login with {mechanism} needs {secret}{'' if 'token' in secret else ' and sasl.username'}")
    return Security(context, mechanism, user, settings[secret])


def _context(settings: Mapping[str, str]) -> ssl.SSLContext:
    verifies = settings.get("enable.ssl.certificate.verification", "true").lower() != "false"
    checks_host = settings.get("ssl.endpoint.identification.algorithm", "https").lower() == "https"
    files = TlsFiles(
        certificate=_pem(settings, "ssl.certificate"),
        key=_pem(settings, "ssl.key"),
        key_password=settings.get("ssl.key.password"),
        trusted=_pem(settings, "ssl.ca"),
        client_auth="none",
        versions=("TLSv1.2", "TLSv1.3"),
        ciphers=(),
        checks_host=checks_host and verifies,
    )
    try:
        context = client_context(files)
    except SettingsError as error:
        raise usage(f"client setting: {error}") from error
    if not verifies:
        context.verify_mode = ssl.CERT_NONE
    return context


def _pem(settings: Mapping[str, str], name: str) -> str | None:
    if text := settings.get(f"{name}.pem"):
        return text
    path = settings.get(f"{name}.location")
    if path is None or path == "probe":
        return None
    try:
        return Path(path).expanduser().read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise usage(f"client setting {name}.location: {path} cannot be read: {error}") from error
