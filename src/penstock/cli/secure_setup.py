"""What `penstock up --secure` gives a newcomer: certificates, users, deny-by-default, and a file for clients.

Everything is made once, in the folder `security` of the data folder, which only its owner can read, and used again at
the next start; but for the certificate of the brokers, if it is about to end or not for the host that they listen on:

    ca.pem, ca.key       the authority that signed the brokers' certificate; clients trust ca.pem
    broker.pem           the brokers' key and certificate
    broker.password      what brokers log in to each other with
    admin.password       of the user `admin`, who may do everything
    token.secret         what delegation tokens are made with
    client.properties    for `--client-config`, and for any program with librdkafka
"""

from __future__ import annotations

import secrets
import socket
from dataclasses import dataclass, field
from pathlib import Path

from penstock.base.broker_rows_security import AUTHORIZERS
from penstock.cli.certificates import Authority, write_private
from penstock.sasl.jaas_entries import SCRAM_MODULE

ADMIN, BROKERS = "admin", "penstock-broker"
MECHANISM = "SCRAM-SHA-512"
PASSWORD_BYTES = 24
_LOCAL_HOSTS = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True)
class SecureSetup:
    """Where things are, what brokers are started with, and which lines tell the user."""

    folder: Path
    settings: dict[str, str] = field(repr=False)
    users: dict[str, str] = field(repr=False)
    is_new: bool
    is_renewed: bool

    def lines(self) -> list[str]:
        made = "made" if self.is_new else "uses again"
        renewed = ["penstock: the brokers have a new certificate: the old one was about to end, or not for all hosts"]
        return [
            f"penstock: --secure {made} an authority, certificates and the user 'admin' in {self.folder}",
            *(renewed if self.is_renewed else ()),
            "penstock: clients connect with TLS and log in (SCRAM-SHA-512); nobody but 'admin' may do anything yet",
            f"penstock: try: penstock topic list --client-config {self.folder / 'client.properties'}",
        ]


def secure_setup(data: Path, host: str, bootstrap: str) -> SecureSetup:
    """Make what is missing; `bootstrap` is written down for clients."""
    folder = data / "security"
    is_new = not (folder / "broker.pem").exists()
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    authority = Authority(folder)
    folder.chmod(0o700)
    names = dict.fromkeys([*_LOCAL_HOSTS, socket.gethostname(), *([] if _is_wildcard(host) else [host])])
    is_renewed = not is_new and not authority.still_serves(folder / "broker.pem", list(names))
    if is_new or is_renewed:
        authority.sign("broker", list(names))
    of_brokers, of_admin, of_tokens = (
        _password(folder / name) for name in ("broker.password", "admin.password", "token.secret")
    )
    write_private(folder / "client.properties", _client_properties(bootstrap, authority, of_admin).encode())
    own = f'{SCRAM_MODULE} required username="{BROKERS}" password="{of_brokers}";'
    settings = {
        "security.inter.broker.protocol": "SASL_SSL",
        "ssl.keystore.location": str(folder / "broker.pem"),
        "ssl.truststore.location": str(authority.certificate_path),
        "sasl.mechanism.inter.broker.protocol": MECHANISM,
        "sasl.jaas.config": own,
        "authorizer.class.name": AUTHORIZERS[0],
        "super.users": f"User:{ADMIN};User:{BROKERS}",
        "delegation.token.secret.key": of_tokens,
        "zookeeper.auth.digest": f"{BROKERS}:{of_brokers}",
        "zookeeper.set.acl": "true",
    }
    return SecureSetup(folder, settings, {ADMIN: of_admin}, is_new, is_renewed)


def keeper_identity(data: Path) -> dict[str, str]:
    """As whom brokers that share a keeper show themselves to it, so that it keeps their secrets for them."""
    data.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = data / "security"
    folder.mkdir(mode=0o700, exist_ok=True)
    return {"zookeeper.auth.digest": f"{BROKERS}:{_password(folder / 'broker.password')}"}


def _is_wildcard(host: str) -> bool:
    return host in ("", "0.0.0.0", "::")


def _password(path: Path) -> str:
    if not path.exists():
        write_private(path, secrets.token_urlsafe(PASSWORD_BYTES).encode())
    return path.read_text().strip()


def _client_properties(bootstrap: str, authority: Authority, password: str) -> str:
    rows = {
        "bootstrap.servers": bootstrap,
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": str(authority.certificate_path),
        "sasl.mechanism": MECHANISM,
        "sasl.username": ADMIN,
        "sasl.password": password,
    }
    return "".join(f"{name}={value}\n" for name, value in rows.items())
