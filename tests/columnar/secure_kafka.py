"""An Apache Kafka with listeners for TLS and logins, and certificates of its own making."""

from __future__ import annotations

import base64
import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from penstock.testing.apache_kafka import ApacheKafka
from penstock.testing.broker_process import free_port

from .producing_sites import DEADLINE_S
from .topic_filling import fill

USER, PASSWORD = "alice", 'it\'s "secret", = and ü'
PLAIN_USER, PLAIN_PASSWORD = "bob", "plain-secret"
#: Topics that exist, and what nobody may do with them.
NOT_TO_BE_READ, NOT_TO_BE_WRITTEN, NOT_TO_BE_SEEN = "not-to-be-read", "not-to-be-written", "not-to-be-seen"
_MODULES = "org.apache.kafka.common.security"


class Certificates:
    """Two authorities; the first has signed a server called localhost, and a client."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.ca, self.ca_key = self._authority("ca")
        self.other_ca, _ = self._authority("other-ca")
        self.server = self._signed("server", "subjectAltName=DNS:localhost")
        self.client = self._signed("client", "extendedKeyUsage=clientAuth")

    def _authority(self, name: str) -> tuple[Path, Path]:
        certificate, key = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", str(key)]
        _openssl("req", "-x509", *new_key, "-out", str(certificate), "-days", "2", "-subj", f"/CN={name}")
        return certificate, key

    def _signed(self, name: str, extension: str) -> Path:
        """A file with the key and the certificate."""
        key, request, certificate = (self.folder / f"{name}.{suffix}" for suffix in ("key", "csr", "crt"))
        extensions = self.folder / f"{name}.ext"
        extensions.write_text(extension + "\n")
        new_key = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", str(key)]
        _openssl("req", *new_key, "-out", str(request), "-subj", f"/CN={name}")
        signer = ["-CA", str(self.ca), "-CAkey", str(self.ca_key), "-CAcreateserial", "-extfile", str(extensions)]
        _openssl("x509", "-req", "-in", str(request), *signer, "-out", str(certificate), "-days", "2")
        both = self.folder / f"{name}.pem"
        both.write_text(key.read_text() + certificate.read_text())
        return both


def _openssl(*arguments: str) -> None:
    subprocess.run(["openssl", *arguments], check=True, capture_output=True, timeout=DEADLINE_S)


@dataclass
class SecureKafka:
    """Addresses by their listeners' protocols, and what is needed to use them."""

    kafka: ApacheKafka
    certificates: Certificates
    ports: dict[str, int]

    @property
    def plain(self) -> str:
        return self.kafka.bootstrap

    def address(self, protocol: str, host: str = "localhost") -> str:
        return f"{host}:{self.ports[protocol]}"

    def settings(self, protocol: str, **more: str) -> dict[str, str]:
        """For one of its listeners; underscores in names stand for dots."""
        trusted = {"ssl.ca.location": str(self.certificates.ca)} if protocol.endswith("SSL") else {}
        named = {name.replace("_", "."): value for name, value in more.items()}
        return {"security.protocol": protocol, **trusted, **named}


def unsecured_token(user: str) -> str:
    """A token without a signature, as Kafka takes it where nothing else is set."""
    now_s = int(time.time())
    parts = ({"alg": "none"}, {"sub": user, "iat": now_s - 10, "exp": now_s + 3600})
    texts = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts]
    return ".".join(texts) + "."


@contextmanager
def secure_kafka(jars: Path, folder: Path) -> Iterator[SecureKafka]:
    certificates = Certificates(folder / "certificates")
    ports = {protocol: free_port() for protocol in ("SSL", "SASL_SSL", "SASL_PLAINTEXT")}
    listeners = [f"{protocol}://localhost:{port}" for protocol, port in ports.items()]
    kafka = ApacheKafka(jars, folder / "kafka", settings=_settings(certificates), more_listeners=listeners)
    with kafka:
        _add_user(kafka.bootstrap)
        _forbid(kafka.bootstrap)
        yield SecureKafka(kafka, certificates, ports)


def _settings(certificates: Certificates) -> dict[str, str]:
    protocols = ("PLAINTEXT", "SSL", "SASL_SSL", "SASL_PLAINTEXT")
    rows = {
        "listener.security.protocol.map": ",".join(["CONTROLLER:PLAINTEXT", *(f"{name}:{name}" for name in protocols)]),
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(certificates.server),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(certificates.ca),
        "listener.name.ssl.ssl.client.auth": "required",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "allow.everyone.if.no.acl.found": "true",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
        "listener.name.sasl_plaintext.connections.max.reauth.ms": "4000",
    }
    modules = {
        "plain": f'{_MODULES}.plain.PlainLoginModule required user_{PLAIN_USER}="{PLAIN_PASSWORD}";',
        "scram-sha-256": f"{_MODULES}.scram.ScramLoginModule required;",
        "scram-sha-512": f"{_MODULES}.scram.ScramLoginModule required;",
        "oauthbearer": f'{_MODULES}.oauthbearer.OAuthBearerLoginModule required unsecuredLoginStringClaim_sub="x";',
    }
    for protocol in ("sasl_ssl", "sasl_plaintext"):
        rows |= {f"listener.name.{protocol}.{name}.sasl.jaas.config": module for name, module in modules.items()}
    return rows


def _add_user(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        change = UserScramCredentialUpsertion(USER, ScramCredentialInfo(mechanism, 4096), PASSWORD.encode())
        for future in admin.alter_user_scram_credentials([change]).values():
            future.result(DEADLINE_S)


def _forbid(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    forbidden = {
        NOT_TO_BE_READ: AclOperation.READ,
        NOT_TO_BE_WRITTEN: AclOperation.WRITE,
        NOT_TO_BE_SEEN: AclOperation.DESCRIBE,
    }
    for future in admin.create_topics([NewTopic(topic, 1, 1) for topic in forbidden]).values():
        future.result(DEADLINE_S)
    for topic in forbidden:  # nothing is fetched from an empty one
        fill(bootstrap, topic, [b"secret"])
    kind, pattern = ResourceType.TOPIC, ResourcePatternType.LITERAL
    rules = [
        AclBinding(kind, topic, pattern, "User:*", "*", operation, permission)
        for topic, denied in forbidden.items()
        for operation, permission in (
            (AclOperation.ALL, AclPermissionType.ALLOW),
            (denied, AclPermissionType.DENY),
        )
    ]
    for future in admin.create_acls(rules).values():
        future.result(DEADLINE_S)
