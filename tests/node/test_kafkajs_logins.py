"""kafkajs: every way to log in that it has, right and wrong."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.clients.secure_broker import MECHANISMS, PASSWORD, USER, SecureBroker, secure_broker, token

from .conftest import run_program

pytestmark = pytest.mark.node


@pytest.fixture(scope="module")
def secured(kafkajs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureBroker]:
    with secure_broker(tmp_path_factory.mktemp("kafkajs")) as broker:
        yield broker


def login(broker: SecureBroker, mechanism: str, *, is_right: bool) -> dict[str, str]:
    ca = {"ca": str(broker.authority.certificate_path), "mechanism": mechanism.lower()}
    if mechanism == "OAUTHBEARER":
        return ca | {"token": token() if is_right else token(key=rsa.generate_private_key(65537, 2048))}
    return ca | {"username": USER, "password": PASSWORD if is_right else "wrong"}


@pytest.mark.parametrize("protocol", ["SASL_SSL", "SASL_PLAINTEXT"])
@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_right(kafkajs: Path, secured: SecureBroker, topic: str, protocol: str, mechanism: str) -> None:
    how = login(secured, mechanism, is_right=True)
    if protocol == "SASL_PLAINTEXT":
        del how["ca"]
    answers = run_program(kafkajs, "login", secured.address(protocol), topic, how)
    assert answers == {"produce": 0, "consume": "hello"}


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_wrong(kafkajs: Path, secured: SecureBroker, topic: str, mechanism: str) -> None:
    how = login(secured, mechanism, is_right=False)
    answers = run_program(kafkajs, "login", secured.address("SASL_SSL"), topic, how)
    assert answers.keys() == {"produce", "consume"}
    # it takes the reason why a token is refused for consent, and is shown the door with its next request
    told = "KafkaJSConnectionClosedError" if mechanism == "OAUTHBEARER" else "KafkaJSSASLAuthenticationError"
    assert {answer["error"] for answer in answers.values()} == {told}
