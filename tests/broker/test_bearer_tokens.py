"""Which tokens are good, and that any others are not."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from penstock.base.broker_settings import load_broker_settings
from penstock.base.listeners import parse_listeners
from penstock.base.real_world import real_world
from penstock.base.settings import SettingsError
from penstock.broker.bearer_tokens import BearerTokens
from penstock.sasl.exchange import LoginFailed

RSA_KEY = rsa.generate_private_key(65537, 2048)
OTHER_KEY = rsa.generate_private_key(65537, 2048)
EC_KEY = ec.generate_private_key(ec.SECP256R1())
RSA_PUBLIC = RSA_KEY.public_key().public_bytes(
    serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
)


def document() -> str:
    rsa_jwk = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(RSA_KEY.public_key()))
    ec_jwk = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(EC_KEY.public_key()))
    return json.dumps({"keys": [rsa_jwk | {"kid": "r", "use": "sig"}, ec_jwk | {"kid": "e"}]})


def claims(**more: Any) -> dict[str, Any]:
    now_s = int(time.time())
    made = {"sub": "alice", "iss": "https://issuer", "aud": "penstock", "iat": now_s, "exp": now_s + 600} | more
    return {name: value for name, value in made.items() if value is not None}


def signed(key: Any = RSA_KEY, algorithm: str = "RS256", kid: str | None = "r", **more: Any) -> str:
    return jwt.encode(claims(**more), key, algorithm, headers={} if kid is None else {"kid": kid})


def hs_with_public_key() -> str:
    """The classic: the public key, which everybody has, as if it were a shared secret."""
    parts = jwt.encode(claims(), "x" * 40, "HS256", headers={"kid": "r"}).split(".")
    algorithm = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256)
    signature = algorithm.sign(".".join(parts[:2]).encode(), RSA_PUBLIC)
    return ".".join([*parts[:2], jwt.utils.base64url_encode(signature).decode()])


def on_tokens(tmp_path: Path, use: Callable[[BearerTokens], None], **more: str) -> None:
    keys = tmp_path / "keys.json"
    keys.write_text(document())
    settings = load_broker_settings(
        {
            "listeners": "SASL_PLAINTEXT://localhost:9092",
            "sasl.enabled.mechanisms": "OAUTHBEARER",
            "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
            "sasl.oauthbearer.expected.issuer": "https://issuer",
            "sasl.oauthbearer.expected.audience": "penstock,other",
        }
        | more
    )

    async def run() -> None:
        tokens = BearerTokens(real_world(), settings, parse_listeners(settings, "localhost").all[0])
        fetching = asyncio.ensure_future(tokens.fetch_forever())
        async with asyncio.timeout(10):
            while not tokens.key_ids:
                await asyncio.sleep(0)
        use(tokens)
        fetching.cancel()

    asyncio.run(run())


def test_good_tokens(tmp_path: Path) -> None:
    def use(tokens: BearerTokens) -> None:
        assert tokens.judge(signed()).user == "alice"
        assert tokens.judge(signed(EC_KEY, "ES256", "e", sub="bob")).user == "bob"
        until_ms = tokens.judge(signed(exp=int(time.time()) + 60)).until_ms
        assert until_ms is not None
        assert until_ms > time.time() * 1000

    on_tokens(tmp_path, use)


BAD = {
    "signed by nobody": lambda: jwt.encode(claims(), None, "none", headers={"kid": "r"}),
    "signed by somebody else": lambda: signed(OTHER_KEY),
    "a shared secret": lambda: signed("s" * 40, "HS256"),
    "the public key as a shared secret": hs_with_public_key,
    "a key of another kind": lambda: signed(EC_KEY, "ES256", "r"),
    "an unknown key": lambda: signed(kid="x"),
    "no key named": lambda: signed(kid=None),
    "another issuer": lambda: signed(iss="https://else"),
    "no issuer": lambda: signed(iss=None),
    "another audience": lambda: signed(aud="else"),
    "no audience": lambda: signed(aud=None),
    "expired": lambda: signed(exp=int(time.time()) - 3600),
    "without an end": lambda: signed(exp=None),
    "of the future": lambda: signed(nbf=int(time.time()) + 3600),
    "of nobody": lambda: signed(sub=None),
    "of an empty name": lambda: signed(sub=""),
    "no token": lambda: "a.b.c",
    "changed": lambda: signed()[:-4] + "AAAA",
}


@pytest.mark.parametrize("token", BAD.values(), ids=BAD.keys())
def test_bad_tokens(tmp_path: Path, token: Callable[[], str]) -> None:
    def use(tokens: BearerTokens) -> None:
        with pytest.raises(LoginFailed) as refused:
            tokens.judge(token())
        assert "alice" not in str(refused.value)

    on_tokens(tmp_path, use)


def test_without_keys_there_is_no_login_with_tokens() -> None:
    settings = load_broker_settings({"listeners": "SASL_PLAINTEXT://localhost:9092"})
    with pytest.raises(SettingsError, match=r"jwks\.endpoint\.url"):
        BearerTokens(real_world(), settings, parse_listeners(settings, "localhost").all[0])
