"""Kafka's own client logs in with bearer tokens: of the issuer, of somebody else, and one that nobody signed.

The last is what it makes up by itself if it is told no other way.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.clients.secure_broker import USER, SecureBroker, secure_broker, token

from .conftest import JAVA, TOOL_TIMEOUT_S

pytestmark = pytest.mark.kafka

MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
HANDLER = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler"


@pytest.fixture(scope="module")
def broker(kafka_libs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureBroker]:
    with secure_broker(tmp_path_factory.mktemp("bearer")) as broker:
        yield broker


def signed_by(key: rsa.RSAPrivateKey | None) -> Callable[[Path], list[str]]:
    def lines(folder: Path) -> list[str]:
        file = folder / "token.jwt"
        file.write_text(token() if key is None else token(key=key))
        return [
            f"sasl.jaas.config={MODULE};",
            f"sasl.login.callback.handler.class={HANDLER}",
            f"sasl.oauthbearer.token.endpoint.url={file.as_uri()}",
        ]

    return lines


def unsigned(_folder: Path) -> list[str]:
    return [f'sasl.jaas.config={MODULE} unsecuredLoginStringClaim_sub="{USER}";']


@pytest.mark.parametrize(
    ("login", "is_let_in"),
    [(signed_by(None), True), (signed_by(rsa.generate_private_key(65537, 2048)), False), (unsigned, False)],
    ids=["the issuer", "somebody else", "nobody"],
)
def test_a_token_signed_by(
    broker: SecureBroker, kafka_libs: Path, tmp_path: Path, login: Callable[[Path], list[str]], is_let_in: bool
) -> None:
    config = tmp_path / "client.properties"
    settings = [
        "security.protocol=SASL_SSL",
        "ssl.truststore.type=PEM",
        f"ssl.truststore.location={broker.authority.certificate_path}",
        "sasl.mechanism=OAUTHBEARER",
        "default.api.timeout.ms=15000",
        "request.timeout.ms=10000",
        *login(tmp_path),
    ]
    config.write_text("\n".join(settings) + "\n")
    allowed = [
        f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.{what}={value}"
        for what, value in (("urls", (tmp_path / "token.jwt").as_uri()), ("files", str(tmp_path / "token.jwt")))
    ]
    command = [*JAVA, *allowed, "-cp", f"{kafka_libs}/*", "org.apache.kafka.tools.TopicCommand", "--list"]
    command += ["--bootstrap-server", broker.address("SASL_SSL"), "--command-config", str(config)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=TOOL_TIMEOUT_S, check=False)
    told = done.stdout + done.stderr
    assert (done.returncode == 0) == is_let_in, told
    assert is_let_in or "invalid_token" in told or "the login failed" in told, told
