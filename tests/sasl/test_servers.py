"""The server's side of the mechanisms, with the known holes of other brokers each as a test."""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64encode
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.sasl.exchange import Login, LoginFailed, ServerExchange
from penstock.sasl.oauthbearer import OAuthBearerClient, OAuthBearerServer
from penstock.sasl.plain import PlainClient, PlainServer
from penstock.sasl.scram import HASH_NAMES, ScramClient
from penstock.sasl.scram_server import (
    DEFAULT_SHAPES,
    Credential,
    Found,
    ScramServer,
    fake_credential,
    new_credential,
    shape_of,
)

SECRET = b"of the cluster"
SALT = bytes(range(32))
CLIENT_NONCE, SERVER_NONCE = "c" * 24, "s" * 24
MECHANISMS = sorted(HASH_NAMES)


def scram(mechanism: str, *users: str) -> ScramServer:
    credentials = {user: new_credential(mechanism, f"password of {user}", SALT) for user in users}

    def find(user: str, is_token: bool) -> Found | None:
        known = credentials.get(user)
        return None if known is None or is_token else Found(known, Login(user))

    return ScramServer(mechanism, find, SERVER_NONCE, SECRET)


def log_in(server: ServerExchange, client: Any) -> Login | None:
    message = client.first()
    while server.login is None:
        message = client.answer(server.answer(message))
    return server.login


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("user", ["alice", "a=b,c", "ü"])
def test_scram_lets_those_in_who_know_the_password(mechanism: str, user: str) -> None:
    client = ScramClient(mechanism, user, f"password of {user}", CLIENT_NONCE)
    assert log_in(scram(mechanism, user), client) == Login(user)


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(("user", "password"), [("alice", "wrong"), ("nobody", "password of alice")])
def test_scram_refuses_everybody_else_in_the_same_words(mechanism: str, user: str, password: str) -> None:
    with pytest.raises(LoginFailed, match=r"^the user or the password is wrong$"):
        log_in(scram(mechanism, "alice"), ScramClient(mechanism, user, password, CLIENT_NONCE))


def final_of(server: ScramServer, first: str, *, nonce: str | None = None, channel: str = "n,,") -> str:
    """A right last message for alice, but for what is given."""
    answer = server.answer(first.encode()).decode()
    fields = dict(part.split("=", 1) for part in answer.split(","))
    key = hashlib.pbkdf2_hmac("sha256", b"password of alice", SALT, int(fields["i"]))
    of_client = hmac.digest(key, b"Client Key", "sha256")
    unsigned = f"c={b64encode(channel.encode()).decode()},r={fields['r'] if nonce is None else nonce}"
    bare = first.split(",", 2)[2]
    signed = hmac.digest(hashlib.sha256(of_client).digest(), f"{bare},{answer},{unsigned}".encode(), "sha256")
    proof = bytes(a ^ b for a, b in zip(of_client, signed, strict=True))
    return f"{unsigned},p={b64encode(proof).decode()}"


def test_the_right_last_message_is_right() -> None:
    server = scram("SCRAM-SHA-256", "alice")
    server.answer(final_of(server, f"n,,n=alice,r={CLIENT_NONCE}").encode())
    assert server.login == Login("alice")


@pytest.mark.parametrize(
    "nonce", [CLIENT_NONCE, CLIENT_NONCE + SERVER_NONCE[:-1], SERVER_NONCE, CLIENT_NONCE + SERVER_NONCE + "x", "x"]
)
def test_all_of_the_nonce_is_checked(nonce: str) -> None:
    server = scram("SCRAM-SHA-256", "alice")
    last = final_of(server, f"n,,n=alice,r={CLIENT_NONCE}", nonce=nonce)
    with pytest.raises(LoginFailed, match="does not belong"):
        server.answer(last.encode())


def test_the_header_is_what_the_client_meant() -> None:
    """Somebody in between who took channel binding out of the first message is found out."""
    server = scram("SCRAM-SHA-256", "alice")
    last = final_of(server, f"n,,n=alice,r={CLIENT_NONCE}", channel="y,,")
    with pytest.raises(LoginFailed, match="does not belong"):
        server.answer(last.encode())


@pytest.mark.parametrize(
    "first",
    ["n,a=admin,n=alice,r=abc", "p=tls-unique,,n=alice,r=abc", "n,,n=,r=abc", "n,,n=a=b,r=abc", "n,,m=x,n=a,r=b"],
)
def test_nobody_acts_as_somebody_else(first: str) -> None:
    with pytest.raises(LoginFailed):
        scram("SCRAM-SHA-256", "alice").answer(first.encode())


def test_ones_own_name_as_authzid_is_fine() -> None:
    assert scram("SCRAM-SHA-256", "alice").answer(b"n,a=alice,n=alice,r=abc")


def test_users_who_do_not_exist_have_a_salt_that_stays_and_cannot_be_told_from_others() -> None:
    first = f"n,,n=nobody,r={CLIENT_NONCE}".encode()
    answers = {scram("SCRAM-SHA-256", "alice").answer(first) for _ in range(3)}
    assert len(answers) == 1
    other = scram("SCRAM-SHA-256", "alice").answer(first.replace(b"nobody", b"nobody2"))
    assert other not in answers
    real = scram("SCRAM-SHA-256", "alice").answer(first.replace(b"nobody", b"alice"))
    assert [len(part) for part in real.split(b",")] == [len(part) for part in other.split(b",")]
    assert fake_credential("SCRAM-SHA-256", "nobody", b"another cluster") != fake_credential(
        "SCRAM-SHA-256", "nobody", SECRET
    )


@pytest.mark.parametrize("salt", [b"1kq7v0c3m5x9z2a4s6d8f0g1h3", bytes(range(64)), bytes(range(200, 216))])
@pytest.mark.parametrize("iterations", [4096, 8192])
def test_somebody_unknown_looks_like_those_who_are_there(salt: bytes, iterations: int) -> None:
    real = new_credential("SCRAM-SHA-256", "password", salt, iterations)
    made = [fake_credential("SCRAM-SHA-256", f"nobody {n}", SECRET, [shape_of(real)]) for n in range(10)]
    assert {shape_of(each) for each in made} == {shape_of(real)}
    assert len({each.salt for each in made}) == 10
    assert made[0] == fake_credential("SCRAM-SHA-256", "nobody 0", SECRET, [shape_of(real)])
    shapes = [shape_of(real), *DEFAULT_SHAPES]
    mixed = [shape_of(fake_credential("SCRAM-SHA-256", f"nobody {n}", SECRET, shapes)) for n in range(100)]
    assert set(mixed) == set(shapes)


def hash_work(monkeypatch: pytest.MonkeyPatch, user: str) -> Counter[str]:
    """What a wrong login costs, as calls."""
    work: Counter[str] = Counter()
    server = scram("SCRAM-SHA-256", "alice")
    client = ScramClient("SCRAM-SHA-256", user, "wrong", CLIENT_NONCE)
    real_digest, real_compare = hmac.digest, hmac.compare_digest

    def digest(*arguments: Any) -> bytes:
        work["digest"] += 1
        return real_digest(*arguments)

    def compare(one: bytes, other: bytes) -> bool:
        work["compare"] += 1
        return real_compare(one, other)

    last = client.answer(server.answer(client.first()))
    server = scram("SCRAM-SHA-256", "alice")
    with monkeypatch.context() as patch:
        patch.setattr(hmac, "digest", digest)
        patch.setattr(hmac, "compare_digest", compare)
        server.answer(client.first())
        assert last is not None
        with pytest.raises(LoginFailed):
            server.answer(last)
    return work


def test_somebody_unknown_costs_as_much_as_a_wrong_password(monkeypatch: pytest.MonkeyPatch) -> None:
    known, unknown = hash_work(monkeypatch, "alice"), hash_work(monkeypatch, "nobody")
    assert known == unknown
    assert known["digest"] >= 5


def test_what_is_kept_does_not_show_itself_and_survives_being_written() -> None:
    credential = new_credential("SCRAM-SHA-512", "password", SALT)
    assert Credential.from_text(credential.to_text()) == credential
    assert b64encode(credential.stored_key).decode() not in repr(credential)
    with pytest.raises(ValueError, match="cannot be read"):
        Credential.from_text("salt=%%%,stored_key=a")


PASSWORDS = {"alice": "wonder", "bob": "builder"}


def test_plain_lets_those_in_who_know_the_password() -> None:
    assert log_in(PlainServer(PASSWORDS.get), PlainClient("alice", "wonder")) == Login("alice")
    assert PlainServer(PASSWORDS.get).answer(b"alice\0alice\0wonder") == b""


@pytest.mark.parametrize(
    "message",
    [
        b"\0alice\0wrong",
        b"\0nobody\0wonder",
        b"bob\0alice\0wonder",
        b"\0alice\0",
        b"\0\0wonder",
        b"alice",
        b"\xff\0a\0b",
        b"\0alice\0wonder\0",
        b"\0alice\0wonder" + b"x" * 4000,
        b"\0nobody\0\0 no password has this character",
    ],
)
def test_plain_refuses_everybody_else(message: bytes) -> None:
    server = PlainServer(PASSWORDS.get)
    with pytest.raises(LoginFailed):
        server.answer(message)
    assert server.login is None


def test_somebody_unknown_is_compared_with_a_password_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    real_compare, compared = hmac.compare_digest, []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append(other)
        return real_compare(one, other)

    monkeypatch.setattr(hmac, "compare_digest", compare)
    for user in ("alice", "nobody"):
        with pytest.raises(LoginFailed, match="the user or the password is wrong"):
            PlainServer(PASSWORDS.get).answer(f"\0{user}\0wrong".encode())
    assert compared == [b"wrong", b"wrong"]


def judge(token: str) -> Login:
    if token != "good":
        raise LoginFailed("the token is not good")
    return Login("alice", until_ms=5)


def test_bearer_is_judged() -> None:
    assert log_in(OAuthBearerServer(judge), OAuthBearerClient("good")) == Login("alice", until_ms=5)


def test_a_bearer_who_is_refused_hears_it_in_json_first() -> None:
    server = OAuthBearerServer(judge)
    assert b"invalid_token" in server.answer(OAuthBearerClient("bad").first())
    with pytest.raises(LoginFailed, match="not good"):
        server.answer(b"\x01")
    assert server.login is None


def test_a_bearer_cannot_act_as_somebody_else() -> None:
    server = OAuthBearerServer(judge)
    assert server.answer(b"n,a=bob,\x01auth=Bearer good\x01\x01")
    with pytest.raises(LoginFailed, match="somebody else"):
        server.answer(b"\x01")


def servers() -> list[ServerExchange]:
    return [scram("SCRAM-SHA-256", "alice"), PlainServer(PASSWORDS.get), OAuthBearerServer(judge)]


@given(st.lists(st.binary(max_size=200), min_size=1, max_size=3))
def test_any_bytes_get_a_refusal_and_nothing_else(messages: list[bytes]) -> None:
    for server in servers():
        try:
            for message in messages:
                server.answer(message)
        except LoginFailed:
            pass
        assert server.login is None


@given(st.data())
def test_a_right_message_with_other_bytes_in_it_does_not_log_in(data: st.DataObject) -> None:
    server = scram("SCRAM-SHA-256", "alice")
    client = ScramClient("SCRAM-SHA-256", "alice", "password of alice", CLIENT_NONCE)
    last = client.answer(server.answer(client.first()))
    assert last is not None
    position = data.draw(st.integers(0, len(last) - 1))
    byte = data.draw(st.integers(0, 255).filter(lambda byte: byte != last[position]))
    changed = last[:position] + bytes([byte]) + last[position + 1 :]
    with pytest.raises(LoginFailed):
        server.answer(changed)
    assert server.login is None
