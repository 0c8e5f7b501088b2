"""TLS as the settings of a listener have it: our certificate and key, whom we trust, and the contexts made of them.

Only PEM, in files or in the settings themselves. SettingsError names the setting; nothing secret is in it.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from penstock.base.settings import SettingsError, TypedSettings

PEM_BYTES_MAX = 4 << 20
_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_DESCRIPTORS = "/proc/self/fd"
_KEYSTORE, _TRUSTSTORE = "ssl.keystore.location", "ssl.truststore.location"


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """Everything that TLS is made of, as text; two that are equal make equal contexts."""

    certificate: str | None
    key: str | None = field(repr=False)
    key_password: str | None = field(repr=False)
    trusted: str | None
    client_auth: str
    versions: tuple[str, ...]
    ciphers: tuple[str, ...]
    checks_host: bool


def read_tls(settings: TypedSettings) -> TlsFiles:
    """Reads the files that the settings name. Blocks for as long as that takes."""
    store = settings.optional_text(_KEYSTORE)
    both = None if store is None else _read(_KEYSTORE, store)
    trusted = settings.optional_text("ssl.truststore.certificates")
    trust_path = settings.optional_text(_TRUSTSTORE)
    if trusted is None and trust_path is not None:
        trusted = _read(_TRUSTSTORE, trust_path)
    return TlsFiles(
        certificate=settings.optional_text("ssl.keystore.certificate.chain") or both,
        key=settings.optional_text("ssl.keystore.key") or both,
        key_password=settings.optional_text("ssl.key.password"),
        trusted=trusted,
        client_auth=settings.text("ssl.client.auth"),
        versions=tuple(sorted(settings.list("ssl.enabled.protocols"))),
        ciphers=tuple(settings.list("ssl.cipher.suites")),
        checks_host=settings.text("ssl.endpoint.identification.algorithm") == "https",
    )


def _read(name: str, path: str) -> str:
    try:
        with Path(path).open("rb") as file:
            content = file.read(PEM_BYTES_MAX + 1)
    except OSError as error:
        raise SettingsError([f"{name}: {path} cannot be read: {error.strerror or error}"]) from error
    if b"-----BEGIN " not in content or len(content) > PEM_BYTES_MAX:
        raise SettingsError([f"{name}: {path} is no PEM file; convert Java key stores (JKS, PKCS12) to PEM"])
    return content.decode("utf-8", errors="replace")


def server_context(files: TlsFiles) -> ssl.SSLContext:
    """For a listener. Clients cannot negotiate anew, and choose among what we prefer."""
    if files.certificate is None or files.key is None:
        raise SettingsError(
            ["a listener with TLS needs a certificate and its key: ssl.keystore.location names a PEM file with both"]
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _restrict(context, files)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE | ssl.OP_NO_COMPRESSION
    load_identity(context, files.certificate, files.key, files.key_password)
    context.verify_mode = _CLIENT_AUTH[files.client_auth]
    if files.trusted is not None:
        _trust(context, files.trusted)
    elif context.verify_mode != ssl.CERT_NONE:
        raise SettingsError(["ssl.client.auth asks for certificates: ssl.truststore.location says which are trusted"])
    return context


def certificate_problem(context: ssl.SSLContext, files: TlsFiles) -> str | None:
    """Why nobody will believe the certificate of a listener now, whoever has signed it, or None.

    OpenSSL judges it, as a client that trusts this very certificate: nothing else here can read one.
    """
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.check_hostname = False
    client.verify_flags = ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
    _restrict(client, files)
    _trust(client, files.certificate or "")
    to_listener, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    listens = context.wrap_bio(to_listener, to_client, server_side=True)
    asks = client.wrap_bio(to_client, to_listener)
    for side in (asks, listens, asks):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
        except ssl.SSLCertVerificationError as error:
            return error.verify_message
        except ssl.SSLError:
            return None  # those who come will hear of it
    return None


def client_context(files: TlsFiles) -> ssl.SSLContext:
    """For connections to other brokers; our own certificate is shown if they ask for it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _restrict(context, files)
    context.check_hostname = files.checks_host
    if files.trusted is not None:
        _trust(context, files.trusted)
    else:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
    if files.certificate is not None and files.key is not None:
        load_identity(context, files.certificate, files.key, files.key_password)
    return context


def _restrict(context: ssl.SSLContext, files: TlsFiles) -> None:
    context.minimum_version = _VERSIONS[files.versions[0]]
    context.maximum_version = _VERSIONS[files.versions[-1]]
    older = [name for name in files.ciphers if not name.startswith("TLS_")]  # those of TLS 1.3 are all good
    if older:
        try:
            context.set_ciphers(":".join(older))
        except ssl.SSLError:
            raise SettingsError(["ssl.cipher.suites: OpenSSL knows no cipher by this name"]) from None


def _trust(context: ssl.SSLContext, trusted: str) -> None:
    try:
        context.load_verify_locations(cadata=trusted)
    except (ssl.SSLError, ValueError) as error:
        raise SettingsError([f"ssl.truststore: the trusted certificates cannot be used: {error}"]) from None


def load_identity(context: ssl.SSLContext, certificate: str, key: str, password: str | None) -> None:
    """OpenSSL takes a key only from a file, so there is one for a moment, which nobody else can read."""
    text = certificate if certificate == key else f"{key.strip()}\n{certificate.strip()}\n"
    try:
        with _file_with(text) as path:
            context.load_cert_chain(path, password=password or "")
    except (ssl.SSLError, ValueError) as error:
        hint = "; is ssl.key.password right?" if "ENCRYPTED" in key else ""
        raise SettingsError([f"ssl.keystore: the certificate and its key cannot be used: {error}{hint}"]) from None


@contextmanager
def _file_with(secret: str) -> Iterator[str]:
    """The path of a file that has this in it: in memory where the system can do that, so that no disk ever sees it."""
    if not hasattr(os, "memfd_create") or not os.path.isdir(_DESCRIPTORS):
        with _file_on_disk(secret) as path:
            yield path
        return
    descriptor = os.memfd_create("penstock-key")
    try:
        os.write(descriptor, secret.encode())
        yield f"{_DESCRIPTORS}/{descriptor}"
    finally:
        os.close(descriptor)


@contextmanager
def _file_on_disk(secret: str) -> Iterator[str]:
    import tempfile

    descriptor, path = tempfile.mkstemp(prefix="penstock-", suffix=".pem")
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(secret)
        yield path
    finally:
        os.unlink(path)
