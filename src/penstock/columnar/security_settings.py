"""The settings of TLS and of the login, under the names of the Java client and of librdkafka, read and checked.

Certificates and keys are read here, once, so that a mistake is found where the settings are written down, and what
comes out is plain data that can be sent to where it is used. Only PEM is read; a Java key store is refused with what to
do instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from penstock.columnar import jaas
from penstock.columnar.errors import SettingError
from penstock.sasl import oauthbearer, plain, scram

PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = (plain.MECHANISM, *scram.HASH_NAMES, oauthbearer.MECHANISM)
TLS_VERSIONS = ("TLSv1.2", "TLSv1.3")
PEM_BYTES_MAX = 4 << 20

SECURITY_NAMES = frozenset(
    [
        "security.protocol",
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.certificate.location",
        "ssl.certificate.pem",
        "ssl.key.location",
        "ssl.key.pem",
        "ssl.key.password",
        "ssl.truststore.type",
        "ssl.truststore.location",
        "ssl.truststore.certificates",
        "ssl.keystore.type",
        "ssl.keystore.location",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.endpoint.identification.algorithm",
        "ssl.protocol",
        "ssl.enabled.protocols",
        "ssl.cipher.suites",
        "sasl.mechanism",
        "sasl.mechanisms",
        "sasl.username",
        "sasl.password",
        "sasl.jaas.config",
        "sasl.oauthbearer.token",
    ]
)

_TO_PEM = "Java key stores (JKS, PKCS12) cannot be read; export the certificates as PEM and set {type}=PEM"
_Read = Callable[[Path], str]


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """PEM texts; without `ca` the system says whom to trust."""

    ca: str | None
    certificate: str | None
    key: str | None = field(repr=False)
    key_password: str | None = field(repr=False)
    checks_host: bool
    versions: tuple[str, ...]
    ciphers: str | None


@dataclass(frozen=True, slots=True)
class LoginSettings:
    """Who logs in, and how; `token` with OAUTHBEARER, `user` and `password` with the others."""

    mechanism: str
    user: str = ""
    password: str = field(repr=False, default="")
    token: str = field(repr=False, default="")
    is_token: bool = False
    """Whether the user is the id of a delegation token, and the password its HMAC."""


def parse_security(values: Mapping[str, str]) -> tuple[TlsSettings | None, LoginSettings | None]:
    """What is needed for the `security.protocol`; SettingError."""
    protocol = values.get("security.protocol", "PLAINTEXT").upper()
    if protocol not in PROTOCOLS:
        raise SettingError("security.protocol", f"is one of {', '.join(PROTOCOLS)}, not {protocol[:50]!r}")
    has_login, has_tls = protocol.startswith("SASL_"), protocol.endswith("SSL")
    _check_needless(values, protocol, has_tls=has_tls, has_login=has_login)
    return _parse_tls(values) if has_tls else None, _parse_login(values) if has_login else None


def _check_needless(values: Mapping[str, str], protocol: str, *, has_tls: bool, has_login: bool) -> None:
    """A password without a login is a forgotten `security.protocol`; nobody should believe to be safe."""
    credentials = ("sasl.jaas.config", "sasl.password", "sasl.oauthbearer.token")
    for name in credentials if not has_login else ():
        if values.get(name):
            raise SettingError("security.protocol", f"is {protocol}, which has no login, but {name} is given")
    stores = (
        "ssl.ca.location",
        "ssl.ca.pem",
        "ssl.truststore.location",
        "ssl.truststore.certificates",
        "ssl.keystore.key",
    )
    for name in stores if not has_tls else ():
        if values.get(name):
            raise SettingError("security.protocol", f"is {protocol}, which has no TLS, but {name} is given")


# ── TLS ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _parse_tls(values: Mapping[str, str]) -> TlsSettings:
    ca = _one_of(values, "ssl.ca.pem", "ssl.ca.location", "ssl.truststore.certificates", "ssl.truststore.location")
    certificate = _one_of(
        values,
        "ssl.certificate.pem",
        "ssl.certificate.location",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.location",
    )
    key = _one_of(values, "ssl.key.pem", "ssl.key.location", "ssl.keystore.key", "ssl.keystore.location")
    if (certificate is None) != (key is None):
        missing = "its key (ssl.keystore.key or ssl.key.location)" if key is None else "a certificate for it"
        raise SettingError("ssl.keystore.key", f"a client certificate and its key go together: {missing} is missing")
    algorithm = values.get("ssl.endpoint.identification.algorithm", "https").strip().lower()
    if algorithm not in ("https", "", "none"):
        raise SettingError("ssl.endpoint.identification.algorithm", "is https, or none to accept any host name")
    return TlsSettings(
        ca=_pem(values, ca, "CERTIFICATE"),
        certificate=_pem(values, certificate, "CERTIFICATE"),
        key=_pem(values, key, "PRIVATE KEY"),
        key_password=values.get("ssl.key.password") or None,
        checks_host=algorithm == "https",
        versions=_tls_versions(values),
        ciphers=values.get("ssl.cipher.suites") or None,
    )


def _one_of(values: Mapping[str, str], *names: str) -> str | None:
    """The name that is given of those that mean the same."""
    given = [name for name in names if values.get(name)]
    if len(given) > 1:
        raise SettingError(given[0], f"and {given[1]} say the same thing; give one of them")
    return given[0] if given else None


def _pem(values: Mapping[str, str], name: str | None, kind: str) -> str | None:
    if name is None:
        return None
    is_file = name.endswith(".location")
    store, _, rest = name.removeprefix("ssl.").partition(".")
    type_name = f"ssl.{store}.type" if rest and store in ("truststore", "keystore") else ""
    store_type = values.get(type_name, "PEM").upper()
    if store_type != "PEM":
        raise SettingError(type_name, f"is {store_type}. " + _TO_PEM.format(type=type_name))
    text = _read_pem_file(name, values[name], type_name) if is_file else values[name]
    if f"{kind}-----" not in text:
        raise SettingError(name, f"has no PEM block of the kind {kind}")
    return text


def _read_pem_file(name: str, path: str, type_name: str) -> str:
    try:
        with Path(path).expanduser().open("rb") as file:
            content = file.read(PEM_BYTES_MAX + 1)
    except OSError as error:
        raise SettingError(name, f"{path} cannot be read: {error.strerror or error}") from error
    if b"-----BEGIN " not in content:
        hint = " " + _TO_PEM.format(type=type_name) if type_name else ""
        raise SettingError(name, f"{path} is not a PEM file.{hint}")
    if len(content) > PEM_BYTES_MAX:
        raise SettingError(name, f"{path} is larger than {PEM_BYTES_MAX} bytes")
    return content.decode("utf-8", errors="replace")


def _tls_versions(values: Mapping[str, str]) -> tuple[str, ...]:
    name = "ssl.enabled.protocols" if values.get("ssl.enabled.protocols") else "ssl.protocol"
    asked = [word.strip() for word in values.get(name, "").split(",") if word.strip() not in ("", "TLS")]
    if unknown := [word for word in asked if word not in TLS_VERSIONS]:
        raise SettingError(name, f"{unknown[0][:50]} is not offered; {' and '.join(TLS_VERSIONS)} are")
    return tuple(version for version in TLS_VERSIONS if not asked or version in asked)


# ── the login ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _parse_login(values: Mapping[str, str]) -> LoginSettings:
    name = _one_of(values, "sasl.mechanism", "sasl.mechanisms")
    if name is None:
        raise SettingError("sasl.mechanism", f"is needed: one of {', '.join(MECHANISMS)}")
    mechanism = values[name].strip().upper()
    if mechanism == "GSSAPI":
        raise SettingError(name, "Kerberos (GSSAPI) is not supported; use PLAIN, SCRAM or OAUTHBEARER")
    if mechanism not in MECHANISMS:
        raise SettingError(name, f"{mechanism[:50]} is not supported; {', '.join(MECHANISMS)} are")
    if mechanism == oauthbearer.MECHANISM:
        return _checked(LoginSettings(mechanism, token=_needed(values, "sasl.oauthbearer.token")))
    if values.get(jaas.NAME):
        return _login_of_jaas(values, mechanism)
    return _checked(LoginSettings(mechanism, _needed(values, "sasl.username"), _needed(values, "sasl.password")))


def _login_of_jaas(values: Mapping[str, str], mechanism: str) -> LoginSettings:
    for name in ("sasl.username", "sasl.password"):
        if values.get(name):
            raise SettingError(name, f"and {jaas.NAME} say the same thing; give one of them")
    login = jaas.parse_jaas(values[jaas.NAME])
    fitting = jaas.PLAIN_MODULE if mechanism == plain.MECHANISM else jaas.SCRAM_MODULE
    if login.module != fitting:
        raise SettingError(jaas.NAME, f"the mechanism {mechanism} needs the login module {fitting}")
    return _checked(LoginSettings(mechanism, login.user, login.password, is_token=login.is_token))


def _needed(values: Mapping[str, str], name: str) -> str:
    if not values.get(name):
        raise SettingError(name, "is needed for the login")
    return values[name]


def _checked(login: LoginSettings) -> LoginSettings:
    """What a mechanism would refuse is refused where the settings are read."""
    try:
        client_of(login, "0" * scram.NONCE_LENGTH_MIN)
    except ValueError as error:
        name = "sasl.oauthbearer.token" if login.mechanism == oauthbearer.MECHANISM else "sasl.username"
        raise SettingError(name, str(error)) from None
    return login


def client_of(
    login: LoginSettings, nonce: str
) -> plain.PlainClient | scram.ScramClient | oauthbearer.OAuthBearerClient:
    """The machine that logs in."""
    if login.mechanism == plain.MECHANISM:
        return plain.PlainClient(login.user, login.password)
    if login.mechanism == oauthbearer.MECHANISM:
        return oauthbearer.OAuthBearerClient(login.token)
    return scram.ScramClient(login.mechanism, login.user, login.password, nonce, is_token=login.is_token)
