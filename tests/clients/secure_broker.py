"""A broker with every kind of listener, users for every mechanism, and what clients need to use them."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import jwt
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion
from cryptography.hazmat.primitives.asymmetric import rsa

from penstock.cli.certificates import Authority
from penstock.testing.broker_process import BrokerProcess, free_port

USER, PASSWORD = "alice", "it's secret, = and ü"
PROTOCOLS = ("SASL_SSL", "SASL_PLAINTEXT", "SSL", "PLAINTEXT")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
_KEY = rsa.generate_private_key(65537, 2048)


def token(user: str = USER, lifetime_s: int = 600, key: rsa.RSAPrivateKey = _KEY) -> str:
    now_s = int(time.time())
    return jwt.encode({"sub": user, "iat": now_s, "exp": now_s + lifetime_s}, key, "RS256", headers={"kid": "k"})


@dataclass
class SecureBroker:
    """Addresses by protocol, and the authority that signed its certificate."""

    process: BrokerProcess
    authority: Authority
    client_certificate: Path
    ports: dict[str, int]

    def address(self, protocol: str) -> str:
        return f"localhost:{self.ports[protocol]}"

    def librdkafka(self, protocol: str, mechanism: str = "", password: str = PASSWORD) -> dict[str, str]:
        """Settings for confluent-kafka, kcat and our own commands."""
        settings = {"bootstrap.servers": self.address(protocol), "security.protocol": protocol}
        if protocol.endswith("SSL"):
            settings["ssl.ca.location"] = str(self.authority.certificate_path)
        if protocol == "SSL":
            settings |= {
                "ssl.certificate.location": str(self.client_certificate),
                "ssl.key.location": str(self.client_certificate),
            }
        if mechanism:
            settings["sasl.mechanism"] = mechanism
            if mechanism != "OAUTHBEARER":
                settings |= {"sasl.username": USER, "sasl.password": password}
        return settings


@contextmanager
def secure_broker(folder: Path, **more: str) -> Iterator[SecureBroker]:
    """`more` settings have underscores for dots."""
    authority = Authority(folder / "authority")
    ports = {protocol: free_port() for protocol in PROTOCOLS}
    keys = folder / "keys.json"
    jwk = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(_KEY.public_key()))
    keys.write_text(json.dumps({"keys": [jwk | {"kid": "k"}]}))
    plain = f'org.apache.kafka.common.security.plain.PlainLoginModule required user_{USER}="{PASSWORD}";'
    settings = {
        "listeners": ",".join(f"{protocol}://localhost:{port}" for protocol, port in ports.items()),
        "inter.broker.listener.name": "PLAINTEXT",
        "ssl.keystore.location": str(authority.sign("server", ["localhost"])),
        "ssl.truststore.location": str(authority.certificate_path),
        "listener.name.ssl.ssl.client.auth": "required",
        "listener.name.ssl.ssl.principal.mapping.rules": "RULE:^CN=([^,]+)$/$1/L",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "sasl.plain.without.tls.enable": "true",
        "listener.name.sasl_ssl.plain.sasl.jaas.config": plain,
        "listener.name.sasl_plaintext.plain.sasl.jaas.config": plain,
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
    }
    settings |= {name.replace("_", "."): value for name, value in more.items()}
    with BrokerProcess(folder / "data", settings=settings) as process:
        broker = SecureBroker(process, authority, authority.sign("Alice"), ports)
        _add_user(broker.address("PLAINTEXT"))
        yield broker


def _add_user(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    mechanisms = (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
    new = [
        UserScramCredentialUpsertion(USER, ScramCredentialInfo(each, 4096), PASSWORD.encode()) for each in mechanisms
    ]
    for future in admin.alter_user_scram_credentials(new).values():
        future.result(10)
