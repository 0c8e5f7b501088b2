"""SCRAM's client: the examples of the RFCs, and servers that are not to be believed."""

from __future__ import annotations

from base64 import b64encode

import pytest

from penstock.sasl.exchange import LoginFailed
from penstock.sasl.scram import ITERATIONS_MAX, ScramClient

NONCE = "rOprNGfwEbeRWgbNEkqO"
SHA_256 = {  # RFC 7677, section 3
    "mechanism": "SCRAM-SHA-256",
    "server_first": b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096",
    "proof": b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
    "server_final": b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
}
SHA_512 = {
    "mechanism": "SCRAM-SHA-512",
    "server_first": b"r=rOprNGfwEbeRWgbNEkqO02431b08-2f89-4bad-a4e6-80c0564ec865,"
    b"s=Yin2FuHTt/M0kJWb0t9OI32n2VmOGi3m+JfjOvuDF88=,i=4096",
    "proof": b"c=biws,r=rOprNGfwEbeRWgbNEkqO02431b08-2f89-4bad-a4e6-80c0564ec865,"
    b"p=Hc5yec3NmCD7t+kFRw4/3yD6/F3SQHc7AVYschRja+Bc3sbdjlA0eH1OjJc0DD4ghn1tnXN5/Wr6qm9xmaHt4A==",
    "server_final": b"v=BQuhnKHqYDwQWS5jAw4sZed+C9KFUALsbrq81bB0mh+bcUUbbMPNNmBIupnS2AmyyDnG5CTBQtkjJ9kyY4kzmw==",
}


def client(mechanism: str = "SCRAM-SHA-256", user: str = "user") -> ScramClient:
    return ScramClient(mechanism, user, "pencil", NONCE)


@pytest.mark.parametrize("example", [SHA_256, SHA_512], ids=["sha-256", "sha-512"])
def test_known_exchange(example: dict[str, bytes]) -> None:
    login = client(str(example["mechanism"]))
    assert login.first() == b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
    assert login.answer(example["server_first"]) == example["proof"]
    assert not login.is_done
    assert login.answer(example["server_final"]) is None
    assert login.is_done


def test_names_are_escaped() -> None:
    assert client(user="a=b,c").first() == b"n,,n=a=3Db=2Cc,r=" + NONCE.encode()


def test_server_that_does_not_know_the_user_is_not_believed() -> None:
    login = client()
    login.answer(SHA_256["server_first"])
    with pytest.raises(LoginFailed, match="may not be the right one"):
        login.answer(b"v=" + b64encode(bytes(32)))
    assert not login.is_done


def test_refusal_has_the_servers_reason() -> None:
    login = client()
    login.answer(SHA_256["server_first"])
    with pytest.raises(LoginFailed, match="invalid-proof"):
        login.answer(b"e=invalid-proof")


@pytest.mark.parametrize(
    ("server_first", "reason"),
    [
        (b"r=somethingelse,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "nonce"),
        (b"r=rOprNGfwEbeRWgbNEkqO,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "nonce"),
        (b"r=rOprNGfwEbeRWgbNEkqO" + b"x" * 2000 + b",s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "nonce"),
        (b"r=rOprNGfwEbeRWgbNEkqOabc,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4095", "iterations"),
        (b"r=rOprNGfwEbeRWgbNEkqOabc,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=%d" % (ITERATIONS_MAX + 1), "iterations"),
        (b"r=rOprNGfwEbeRWgbNEkqOabc,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=many", "not a number"),
        (b"r=rOprNGfwEbeRWgbNEkqOabc,s=!,i=4096", "base64"),
        (b"r=rOprNGfwEbeRWgbNEkqOabc,s=,i=4096", "no salt"),
        (b"s=W22ZaJ0SNY7soEsUEjb6gQ==,r=rOprNGfwEbeRWgbNEkqOabc,i=4096", "not one of SCRAM"),
        (b"e=unknown-user", "unknown-user"),
        (b"", "not one of SCRAM"),
        (b"\xff\xfe", "not text"),
        (b"r=" + b"x" * 20_000, "too long"),
    ],
)
def test_bad_first_message(server_first: bytes, reason: str) -> None:
    with pytest.raises(LoginFailed, match=reason):
        client().answer(server_first)


@pytest.mark.parametrize("nonce", ["", "short", "with,comma,within,it", "ünprintable-nonce-of-length"])
def test_nonce_must_be_long_and_printable(nonce: str) -> None:
    with pytest.raises(ValueError, match="nonce"):
        ScramClient("SCRAM-SHA-256", "user", "pencil", nonce)
