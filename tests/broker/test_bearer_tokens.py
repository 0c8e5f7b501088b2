"""Which tokens are good, and that any others are not."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from penstock.base.broker_settings import load_broker_settings
from penstock.base.listeners import parse_listeners
from penstock.base.real_world import real_world
from penstock.base.settings import Settings, SettingsError
from penstock.broker import greetings
from penstock.broker.bearer_tokens import BearerTokens
from penstock.broker.greetings import Greetings
from penstock.sasl.exchange import Login, LoginFailed

RSA_KEY = rsa.generate_private_key(65537, 2048)
SHORT_KEY = rsa.generate_private_key(65537, 1024)
OTHER_KEY = rsa.generate_private_key(65537, 2048)
EC_KEY = ec.generate_private_key(ec.SECP256R1())
RSA_PUBLIC = RSA_KEY.public_key().public_bytes(
    serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
)


def document() -> str:
    rsa_jwk = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(RSA_KEY.public_key()))
    ec_jwk = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(EC_KEY.public_key()))
    pinned, short = (json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key())) for key in (OTHER_KEY, SHORT_KEY))
    keys = [
        rsa_jwk | {"kid": "r", "use": "sig"},
        ec_jwk | {"kid": "e"},
        pinned | {"kid": "p", "alg": "RS256"},
        pinned | {"kid": "for secrets", "use": "enc"},
        pinned | {"kid": "to sign", "key_ops": ["sign"]},
        short | {"kid": "s"},
        {"kty": "oct", "kid": "o", "k": "c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0c2VjcmV0"},
    ]
    return json.dumps({"keys": keys})


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
        assert tokens.judge(signed(OTHER_KEY, "RS256", "p")).user == "alice"
        assert tokens.key_ids == ["r", "e", "p"]
        until_ms = tokens.judge(signed(exp=int(time.time()) + 60)).until_ms
        assert until_ms is not None
        assert until_ms > time.time() * 1000

    on_tokens(tmp_path, use)


@pytest.mark.parametrize("scope", ["read", "read write read", [], ["read", "write"], 7, {"read": "read"}])
def test_scopes_that_are_fine(tmp_path: Path, scope: object) -> None:
    on_tokens(tmp_path, lambda tokens: check_user(tokens.judge(signed(scope=scope))))


def test_scopes_are_in_the_claim_that_is_named(tmp_path: Path) -> None:
    def use(tokens: BearerTokens) -> None:
        check_user(tokens.judge(signed(scope=["", ""], scp=["read"])))
        with pytest.raises(LoginFailed, match="scopes"):
            tokens.judge(signed(scp=["read", "read"]))

    on_tokens(tmp_path, use, **{"sasl.oauthbearer.scope.claim.name": "scp"})


def check_user(login: Login) -> None:
    assert login.user == "alice"


BAD = {
    "signed by nobody": lambda: jwt.encode(claims(), None, "none", headers={"kid": "r"}),
    "signed by somebody else": lambda: signed(OTHER_KEY),
    "a shared secret": lambda: signed("s" * 40, "HS256"),
    "the public key as a shared secret": hs_with_public_key,
    "the shared secret of the document": lambda: signed("secret" * 6, "HS256", "o"),
    "another algorithm than that of the key": lambda: signed(OTHER_KEY, "PS256", "p"),
    "a key that is for something else": lambda: signed(OTHER_KEY, "RS256", "for secrets"),
    "a key that checks nothing": lambda: signed(OTHER_KEY, "RS256", "to sign"),
    "a key that is too short": lambda: signed(SHORT_KEY, "RS256", "s"),
    "with something that must be understood": lambda: jwt.encode(
        claims(), RSA_KEY, "RS256", headers={"kid": "r", "crit": ["exp"], "exp": 1}
    ),
    "with an end that is no number": lambda: signed(exp=float("nan")),
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
    "with an empty scope": lambda: signed(scope=" "),
    "with an empty scope among others": lambda: signed(scope=["read", ""]),
    "with a scope twice": lambda: signed(scope=["read", " read"]),
    "with a scope that is no text": lambda: signed(scope=["read", 7]),
    "no token": lambda: "a.b.c",
    "changed": lambda: signed()[:-4] + "AAAA",
}


@pytest.mark.filterwarnings("ignore:The RSA key is 1024")
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


@contextmanager
def served(documents: dict[str, bytes], asked: list[str]) -> Iterator[str]:
    """An issuer that tells its keys by HTTP; without a document it fails."""

    class Issuer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            content = documents.get(self.path)
            self.send_response(500 if content is None else 200)
            self.end_headers()
            self.wfile.write(content or b"")

        def log_message(self, *_: Any) -> None:
            """The test's own output stays readable."""

    server = HTTPServer(("127.0.0.1", 0), Issuer)
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def key_document(**keys: rsa.RSAPrivateKey) -> bytes:
    rows = [
        json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key())) | {"kid": kid} for kid, key in keys.items()
    ]
    return json.dumps({"keys": rows}).encode()


def test_an_issuer_changes_its_keys() -> None:
    documents = {"/keys": key_document(old=RSA_KEY)}
    asked: list[str] = []

    async def known(tokens: BearerTokens, key_ids: list[str]) -> None:
        async with asyncio.timeout(10):
            while tokens.key_ids != key_ids:
                await asyncio.sleep(0.01)

    async def asked_again(times: int) -> None:
        async with asyncio.timeout(10):
            while len(asked) < times:
                await asyncio.sleep(0.01)

    async def run(url: str) -> None:
        settings = load_broker_settings(
            {
                "listeners": "SASL_PLAINTEXT://localhost:9092",
                "sasl.enabled.mechanisms": "OAUTHBEARER",
                "sasl.oauthbearer.jwks.endpoint.url": f"{url}/keys",
                "sasl.oauthbearer.jwks.endpoint.refresh.ms": "20",
                "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms": "20",
                "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms": "50",
            }
        )
        tokens = BearerTokens(real_world(), settings, parse_listeners(settings, "localhost").all[0])
        fetching = asyncio.ensure_future(tokens.fetch_forever())
        await known(tokens, ["old"])
        old, new = signed(kid="old"), signed(OTHER_KEY, kid="new")
        assert tokens.judge(old).user == "alice"
        with pytest.raises(LoginFailed):
            tokens.judge(new)
        documents["/keys"] = key_document(old=RSA_KEY, new=OTHER_KEY)
        await known(tokens, ["old", "new"])
        assert tokens.judge(old).user == tokens.judge(new).user == "alice"
        documents["/keys"] = key_document(new=OTHER_KEY)
        await known(tokens, ["new"])
        with pytest.raises(LoginFailed):
            tokens.judge(old)
        for broken in (None, b"{}", b"not a document", b"x" * (2 << 20)):  # those that are known stay
            documents.pop("/keys", None)
            if broken is not None:
                documents["/keys"] = broken
            await asked_again(len(asked) + 3)
            assert tokens.judge(new).user == "alice"
        documents["/keys"] = key_document(old=RSA_KEY)
        await known(tokens, ["old"])
        fetching.cancel()

    with served(documents, asked) as url:
        asyncio.run(run(url))


def test_a_listener_begins_to_take_tokens_while_it_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(greetings, "FILES_EVERY_S", 0.02)
    keys = tmp_path / "keys.json"
    keys.write_bytes(key_document(k=RSA_KEY))

    def settings_with(*mechanisms: str) -> Settings:
        return load_broker_settings(
            {
                "listeners": "SASL_PLAINTEXT://localhost:9092",
                "sasl.enabled.mechanisms": ",".join(mechanisms),
                "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
            }
        )

    async def run() -> None:
        nobody: Any = None
        before, after = settings_with("SCRAM-SHA-512"), settings_with("SCRAM-SHA-512", "OAUTHBEARER")
        all_greetings = Greetings(real_world(), nobody, nobody, nobody)
        greeting = all_greetings.of(parse_listeners(before, "localhost").all[0], before, nobody)
        assert greeting is not None and greeting.tokens is None
        looking = asyncio.ensure_future(all_greetings.look_again_forever())
        await asyncio.sleep(0)
        all_greetings.use(after)
        async with asyncio.timeout(10):
            while greeting.tokens is None or greeting.tokens.key_ids != ["k"]:
                await asyncio.sleep(0.01)
        looking.cancel()
        await asyncio.wait([looking])

    asyncio.run(run())
