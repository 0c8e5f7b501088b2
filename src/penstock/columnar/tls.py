"""TLS for a connection, from PEM texts: whom to trust, and who we are."""

from __future__ import annotations

import socket
import ssl

from penstock.base.settings import SettingsError
from penstock.base.tls_settings import load_identity
from penstock.base.world import Address
from penstock.columnar.errors import NotTrusted, SettingError
from penstock.columnar.security_settings import TlsSettings

_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}


def tls_context(settings: TlsSettings) -> ssl.SSLContext:
    """SettingError if the certificates or the key cannot be used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = settings.checks_host
    context.minimum_version = _VERSIONS[settings.versions[0]]
    context.maximum_version = _VERSIONS[settings.versions[-1]]
    if settings.ciphers is not None:
        try:
            context.set_ciphers(settings.ciphers.replace(",", ":"))
        except ssl.SSLError:
            raise SettingError("ssl.cipher.suites", "has no cipher that OpenSSL knows by this name") from None
    _trust(context, settings.ca)
    if settings.certificate is not None and settings.key is not None:
        _identify(context, settings.certificate, settings.key, settings.key_password)
    return context


def _trust(context: ssl.SSLContext, ca: str | None) -> None:
    if ca is None:
        context.load_default_certs(ssl.Purpose.SERVER_AUTH)
        return
    try:
        context.load_verify_locations(cadata=ca)
    except (ssl.SSLError, ValueError) as error:
        raise SettingError("ssl.ca.location", f"the trusted certificates cannot be read: {error}") from None


def _identify(context: ssl.SSLContext, certificate: str, key: str, password: str | None) -> None:
    try:
        load_identity(context, certificate, key, password)
    except SettingsError as error:
        text = str(error).removeprefix("ssl.keystore: ")
        raise SettingError("ssl.keystore.key", f"of the client: {text}") from None


def secured(plain: socket.socket, context: ssl.SSLContext, address: Address) -> ssl.SSLSocket:
    """The socket after the handshake; NotTrusted if there is none."""
    try:
        return context.wrap_socket(plain, server_hostname=address.host)
    except ssl.SSLError as error:
        raise not_trusted(address, error) from error
    except OSError as error:
        raise type(error)(f"{address}: no TLS: {error.strerror or error}") from error


def not_trusted(address: Address, error: ssl.SSLError) -> Exception:
    """In words; what is only a broken connection stays what it is."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return NotTrusted(
            f"the certificate of the broker at {address} is not trusted: {error.verify_message}; "
            "check ssl.ca.location (or ssl.truststore.certificates) and the host name"
        )
    reason = error.reason or str(error)
    if isinstance(error, ssl.SSLEOFError):
        return ConnectionResetError(f"{address}: the connection ended during TLS: {reason}")
    if reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST"):
        return NotTrusted(f"what answers at {address} does not speak TLS: is it the port of another listener?")
    if "CERTIFICATE" in reason or "HANDSHAKE" in reason:
        return NotTrusted(
            f"the broker at {address} refused our part of TLS ({reason}): it may ask for a client certificate, "
            "which ssl.keystore.certificate.chain and ssl.keystore.key give"
        )
    return NotTrusted(f"TLS with the broker at {address} failed: {reason}")
