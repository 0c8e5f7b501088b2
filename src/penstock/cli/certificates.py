"""Making certificates: an authority of our own, and what it signs. For a cluster that nobody else's certificates suit.

Keys are of the curve P-256. A file with a key is readable by its owner only.
"""

from __future__ import annotations

import datetime
import ipaddress
import os
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

AUTHORITY_DAYS = 3650
SIGNED_DAYS = 825
RENEWED_BEFORE_DAYS = 30
_CLOCK_SKEW = datetime.timedelta(hours=1)


class Authority:
    """Signs certificates; kept in `ca.pem` and `ca.key` of a folder, which is made with them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.certificate_path = folder / "ca.pem"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        if not self.certificate_path.exists():
            self._make()
        self._certificate = x509.load_pem_x509_certificate(self.certificate_path.read_bytes())
        key = serialization.load_pem_private_key((folder / "ca.key").read_bytes(), password=None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        self._key = key

    def _make(self) -> None:
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name("Penstock's own authority")
        certificate = (
            _dated(AUTHORITY_DAYS)
            .subject_name(name)
            .issuer_name(name)
            .public_key(key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(is_authority=True), critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
            .sign(key, hashes.SHA256())
        )
        write_private(self.folder / "ca.key", _key_pem(key))
        self.certificate_path.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def still_serves(self, path: Path, hosts: Sequence[str]) -> bool:
        """Whether a file that `sign` has made is ours, is for all of these hosts, and will be good for a while."""
        try:
            shown = x509.load_pem_x509_certificate(path.read_bytes())
            shown.verify_directly_issued_by(self._certificate)
            named = shown.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        except (OSError, ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
            return False
        good_until = shown.not_valid_after_utc - datetime.timedelta(days=RENEWED_BEFORE_DAYS)
        return datetime.datetime.now(datetime.UTC) < good_until and all(_host(host) in named for host in hosts)

    def sign(self, name: str, hosts: Sequence[str] = ()) -> Path:
        """A file `<name>.pem` with a new key and its certificate, for a server at these hosts, and for a client."""
        key = ec.generate_private_key(ec.SECP256R1())
        builder = (
            _dated(SIGNED_DAYS)
            .subject_name(_name(name))
            .issuer_name(self._certificate.subject)
            .public_key(key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(is_authority=False), critical=True)
            .add_extension(
                x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]),
                critical=False,
            )
            .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()), critical=False)
        )
        if hosts:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False
            )
        certificate = builder.sign(self._key, hashes.SHA256())
        path = self.folder / f"{name}.pem"
        write_private(path, _key_pem(key) + certificate.public_bytes(serialization.Encoding.PEM))
        return path


def write_private(path: Path, content: bytes) -> None:
    """A file that only its owner can read, from its first byte on."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.unlink(missing_ok=True)
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def _dated(days: int) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCK_SKEW)
        .not_valid_after(now + datetime.timedelta(days=days))
    )


def _usage(*, is_authority: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not is_authority,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=is_authority,
        crl_sign=is_authority,
        encipher_only=False,
        decipher_only=False,
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
