"""SCRAM (RFC 5802, RFC 7677): a login in which neither side ever shows the password, and the server proves itself too.

The client sends a nonce; the server answers with a longer one, a salt and how often to hash; the client proves that it
knows the password; the server proves that it has the user's keys. The formulas and their names are those of the RFC, in
functions that a server needs as well.

Kafka's brokers hash passwords as plain UTF-8, without the preparation of strings (SASLprep) that the RFC asks for; for
ASCII the two are the same, and for all else we do as Kafka does.
"""

from __future__ import annotations

import hashlib
import hmac
import re
from base64 import b64decode, b64encode
from binascii import Error as Base64Error

from penstock.sasl.exchange import LoginFailed

HASH_NAMES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
ITERATIONS_MIN = 4096
#: A server that asks for more wants to see our processor busy.
ITERATIONS_MAX = 1_000_000
NONCE_LENGTH_MIN = 16
NONCE_LENGTH_MAX = 1024
_MESSAGE_BYTES_MAX = 16 * 1024
_ERROR_SHOWN_MAX = 100

_CHANNEL = "n,,"  # no channel binding, no other identity
_TOKEN_EXTENSION = ",tokenauth=true"  # Kafka's own
_PRINTABLE = re.compile(r"[\x21-\x2b\x2d-\x7e]+")  # RFC 5802, 5.1: all but the comma


# ── the formulas, for both sides ─────────────────────────────────────────────────────────────────────────────────────


def salted_password(hash_name: str, password: str, salt: bytes, iterations: int) -> bytes:
    return hashlib.pbkdf2_hmac(hash_name, password.encode(), salt, iterations)


def client_key(hash_name: str, salted: bytes) -> bytes:
    return hmac.digest(salted, b"Client Key", hash_name)


def stored_key(hash_name: str, of_client: bytes) -> bytes:
    return hashlib.new(hash_name, of_client).digest()


def server_key(hash_name: str, salted: bytes) -> bytes:
    return hmac.digest(salted, b"Server Key", hash_name)


def signature(hash_name: str, key: bytes, auth_message: str) -> bytes:
    """Of the client with the stored key, of the server with the server key."""
    return hmac.digest(key, auth_message.encode(), hash_name)


def exclusive_or(one: bytes, other: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(one, other, strict=True))


def escaped_name(user: str) -> str:
    return user.replace("=", "=3D").replace(",", "=2C")


# ── the client ───────────────────────────────────────────────────────────────────────────────────────────────────────


class ScramClient:
    """The client's side; see `exchange`. The nonce must be fresh and not to be guessed.

    With a delegation token, the user is its id and the password its HMAC in base64.
    """

    def __init__(self, mechanism: str, user: str, password: str, nonce: str, *, is_token: bool = False) -> None:
        if not user:
            raise ValueError("the user must not be empty")
        if not _PRINTABLE.fullmatch(nonce) or len(nonce) < NONCE_LENGTH_MIN:
            raise ValueError(f"a nonce has at least {NONCE_LENGTH_MIN} printable characters, and no comma")
        self.mechanism = mechanism
        self.is_done = False
        self._hash = HASH_NAMES[mechanism]
        self._password = password
        self._nonce = nonce
        self._first_bare = f"n={escaped_name(user)},r={nonce}{_TOKEN_EXTENSION if is_token else ''}"
        self._server_signature: bytes | None = None

    def first(self) -> bytes:
        return f"{_CHANNEL}{self._first_bare}".encode()

    def answer(self, challenge: bytes) -> bytes | None:
        text = _text_of(challenge)
        if self._server_signature is None:
            return self._prove(text)
        self._check_proof(text)
        self.is_done = True
        return None

    def _prove(self, server_first: str) -> bytes:
        nonce, salt, iterations = self._read_server_first(server_first)
        channel = b64encode(_CHANNEL.encode()).decode()
        without_proof = f"c={channel},r={nonce}"
        auth_message = f"{self._first_bare},{server_first},{without_proof}"
        salted = salted_password(self._hash, self._password, salt, iterations)
        of_client = client_key(self._hash, salted)
        proof = exclusive_or(of_client, signature(self._hash, stored_key(self._hash, of_client), auth_message))
        self._server_signature = signature(self._hash, server_key(self._hash, salted), auth_message)
        return f"{without_proof},p={b64encode(proof).decode()}".encode()

    def _read_server_first(self, text: str) -> tuple[str, bytes, int]:
        """Nonce, salt, iterations."""
        fields = text.split(",")
        if fields[0].startswith("e="):
            raise LoginFailed(f"the server refused: {fields[0][2:][:_ERROR_SHOWN_MAX]}")
        if len(fields) < 3 or [field[:2] for field in fields[:3]] != ["r=", "s=", "i="]:
            raise LoginFailed("the server's first message is not one of SCRAM")
        nonce, salt, iterations = fields[0][2:], _from_base64(fields[1][2:]), fields[2][2:]
        self._check_nonce(nonce)
        if not salt:
            raise LoginFailed("the server sent no salt")
        if not re.fullmatch(r"[0-9]{1,9}", iterations):
            raise LoginFailed("the server's number of iterations is not a number")
        if not ITERATIONS_MIN <= int(iterations) <= ITERATIONS_MAX:
            raise LoginFailed(
                f"the server asks for {iterations} iterations, and {ITERATIONS_MIN} to {ITERATIONS_MAX} are accepted"
            )
        return nonce, salt, int(iterations)

    def _check_nonce(self, nonce: str) -> None:
        begins_right = nonce.startswith(self._nonce) and len(nonce) > len(self._nonce)
        if not begins_right or len(nonce) > NONCE_LENGTH_MAX or not _PRINTABLE.fullmatch(nonce):
            raise LoginFailed("the server's nonce does not continue ours")

    def _check_proof(self, server_final: str) -> None:
        first = server_final.split(",")[0]
        if first.startswith("e="):
            raise LoginFailed(f"the server refused: {first[2:][:_ERROR_SHOWN_MAX]}")
        if not first.startswith("v="):
            raise LoginFailed("the server's last message is not one of SCRAM")
        if not hmac.compare_digest(_from_base64(first[2:]), self._server_signature or b""):
            raise LoginFailed("the server could not prove that it knows the user: it may not be the right one")


def _text_of(message: bytes) -> str:
    if len(message) > _MESSAGE_BYTES_MAX:
        raise LoginFailed("the server's message is too long")
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise LoginFailed("the server's message is not text") from None


def _from_base64(text: str) -> bytes:
    try:
        return b64decode(text, validate=True)
    except (Base64Error, ValueError):
        raise LoginFailed("the server's message is not base64 where it should be") from None
