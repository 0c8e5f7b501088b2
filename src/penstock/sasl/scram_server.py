"""SCRAM as the server has it: what is kept of a user, and the exchange that checks one.

The server keeps four things of a user, none of which is a password or opens another server: salt, iterations, and two
keys made from them. Whoever does not exist gets a salt that is made from a secret of the cluster and the name, and is
refused after the same work, with the same words, as somebody with a wrong password.

An identity to act as (authzid) must be the user's own. All of the nonce is checked, and that the client meant the same
first message as the server has seen. `tokenauth=true`, Kafka's own extension, says that the user is the id of a
delegation token and the password its HMAC.
"""

from __future__ import annotations

import hmac
import re
from base64 import b64decode, b64encode
from binascii import Error as Base64Error
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from penstock.sasl.exchange import Login, LoginFailed
from penstock.sasl.scram import (
    HASH_NAMES,
    ITERATIONS_MIN,
    NONCE_LENGTH_MAX,
    client_key,
    exclusive_or,
    salted_password,
    server_key,
    signature,
    stored_key,
)

SALT_BYTES = 32
DEFAULT_ITERATIONS = ITERATIONS_MIN
#: Kafka's limit for what an administrator may set: every login of a client pays for it.
STORED_ITERATIONS_MAX = 16384
_FAKE_SALT_BYTES_MAX = 1024
_TEXT = b"0123456789abcdefghijklmnopqrstuvwxyz"
_MESSAGE_BYTES_MAX = 4 * 1024
_REFUSED = "the user or the password is wrong"
_NOT_SCRAM = "this is not a message of SCRAM"

_FIRST = re.compile(
    r"(?P<header>[ny],(?:a=(?P<authzid>[^,]*))?,)(?P<bare>n=(?P<user>[^,]+),r=(?P<nonce>[^,]+)(?P<more>,.*)?)"
)
_FINAL = re.compile(
    r"(?P<unsigned>c=(?P<channel>[A-Za-z0-9+/=]+),r=(?P<nonce>[^,]+)(?:,[a-zA-Z]=[^,]*)*),p=(?P<proof>[A-Za-z0-9+/=]+)"
)
_EXTENSION = re.compile(r"([A-Za-z]+)=([^,]+)")
_NONCE = re.compile(r"[\x21-\x2b\x2d-\x7e]+")
_ESCAPE = re.compile(r"=(?!2C|3D)")


@dataclass(frozen=True, slots=True)
class Credential:
    """What is kept of a user for one mechanism."""

    salt: bytes = field(repr=False)
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)
    iterations: int

    def to_text(self) -> str:
        """As Kafka has written it into znodes since it has SCRAM."""
        salt, stored, server = (b64encode(part).decode() for part in (self.salt, self.stored_key, self.server_key))
        return f"salt={salt},stored_key={stored},server_key={server},iterations={self.iterations}"

    @classmethod
    def from_text(cls, text: str) -> Credential:
        """ValueError, without a part of the text."""
        values = dict(part.split("=", 1) for part in text.split(",") if "=" in part)
        try:
            salt, stored, server = (
                b64decode(values[name], validate=True) for name in ("salt", "stored_key", "server_key")
            )
            return cls(salt, stored, server, int(values["iterations"]))
        except (KeyError, ValueError):
            raise ValueError("a stored SCRAM credential cannot be read") from None


def credential_of(mechanism: str, salted: bytes, salt: bytes, iterations: int) -> Credential:
    """What to keep, from the salted password that an administrator sends."""
    hash_name = HASH_NAMES[mechanism]
    return Credential(
        salt=salt,
        stored_key=stored_key(hash_name, client_key(hash_name, salted)),
        server_key=server_key(hash_name, salted),
        iterations=iterations,
    )


def new_credential(mechanism: str, password: str, salt: bytes, iterations: int = DEFAULT_ITERATIONS) -> Credential:
    return credential_of(
        mechanism, salted_password(HASH_NAMES[mechanism], password, salt, iterations), salt, iterations
    )


def is_password(mechanism: str, credential: Credential, password: str) -> bool:
    """Whether this is the password, where it is sent as it is. The work of thousands of hashes, on purpose."""
    shown = new_credential(mechanism, password, credential.salt, credential.iterations)
    return hmac.compare_digest(shown.stored_key, credential.stored_key)


class Shape(NamedTuple):
    """What a stranger sees of a credential without knowing anything: who made it, for tools have their own ways."""

    iterations: int
    salt_bytes: int
    is_text: bool
    """Apache Kafka's tools make salts of digits and small letters."""


DEFAULT_SHAPES = (Shape(DEFAULT_ITERATIONS, SALT_BYTES, is_text=False),)


def shape_of(credential: Credential) -> Shape:
    salt = credential.salt
    return Shape(credential.iterations, min(len(salt), _FAKE_SALT_BYTES_MAX), all(byte in _TEXT for byte in salt))


def fake_credential(mechanism: str, user: str, secret: bytes, shapes: Sequence[Shape] = DEFAULT_SHAPES) -> Credential:
    """Of somebody who does not exist: always the same, and not to be told from a real one without the secret. It has
    one of the shapes that real ones have."""

    def made(part: str) -> bytes:
        return hmac.digest(secret, f"{mechanism}\0{part}\0{user}".encode(), HASH_NAMES[mechanism])

    shape = shapes[int.from_bytes(made("shape")[:8], "big") % len(shapes)]
    salt = made("salt")
    while len(salt) < shape.salt_bytes:
        salt += made(f"salt {len(salt)}")
    if shape.is_text:
        salt = bytes(_TEXT[byte % len(_TEXT)] for byte in salt)
    return Credential(salt[: shape.salt_bytes], made("stored"), made("server"), shape.iterations)


class Found(NamedTuple):
    """A user who exists: the credential, and who that is if it is a delegation token."""

    credential: Credential
    login: Login


class ScramServer:
    """The server's side; see `exchange`. `find` is asked for the user and whether that is the id of a token.

    The nonce must be fresh and not to be guessed, and `secret` the same for the whole cluster. Who does not exist seems
    to have a credential of one of the `shapes`.
    """

    def __init__(
        self,
        mechanism: str,
        find: Callable[[str, bool], Found | None],
        nonce: str,
        secret: bytes,
        shapes: Sequence[Shape] = DEFAULT_SHAPES,
    ) -> None:
        self.claimed = ""
        self.login: Login | None = None
        self._mechanism = mechanism
        self._hash = HASH_NAMES[mechanism]
        self._find = find
        self._nonce = nonce
        self._secret = secret
        self._shapes = shapes
        self._found: Found | None = None
        self._credential: Credential | None = None
        self._channel = ""
        self._so_far = ""  # of what both sides sign

    def answer(self, message: bytes) -> bytes:
        if self.login is not None:
            raise LoginFailed(_NOT_SCRAM)
        text = _text_of(message)
        return self._begin(text) if self._credential is None else self._finish(text, self._credential)

    def _begin(self, text: str) -> bytes:
        first = _FIRST.fullmatch(text)
        if first is None or not _is_nonce(first["nonce"]):
            raise LoginFailed(_NOT_SCRAM)
        self.claimed = user = _unescaped(first["user"])
        if first["authzid"] and _unescaped(first["authzid"]) != user:
            raise LoginFailed("nobody can act as somebody else")
        is_token = _extensions(first["more"] or "").get("tokenauth", "").lower() == "true"
        shapes = DEFAULT_SHAPES if is_token else self._shapes
        made_up = fake_credential(self._mechanism, user, self._secret, shapes)  # the same work for those who exist
        self._found = self._find(user, is_token)
        self._credential = made_up if self._found is None else self._found.credential
        self._nonce = first["nonce"] + self._nonce
        self._channel = b64encode(first["header"].encode()).decode()
        salt = b64encode(self._credential.salt).decode()
        answer = f"r={self._nonce},s={salt},i={self._credential.iterations}"
        self._so_far = f"{first['bare']},{answer}"
        return answer.encode()

    def _finish(self, text: str, credential: Credential) -> bytes:
        final = _FINAL.fullmatch(text)
        if final is None:
            raise LoginFailed(_NOT_SCRAM)
        is_ours = hmac.compare_digest(final["nonce"].encode(), self._nonce.encode())
        if not is_ours or final["channel"] != self._channel:
            raise LoginFailed("the client's last message does not belong to its first")
        signed = f"{self._so_far},{final['unsigned']}"
        is_right = self._is_proof(_from_base64(final["proof"]), credential, signed)
        of_server = signature(self._hash, credential.server_key, signed)
        if self._found is None or not is_right:
            raise LoginFailed(_REFUSED)
        self.login = self._found.login
        return f"v={b64encode(of_server).decode()}".encode()

    def _is_proof(self, proof: bytes, credential: Credential, signed: str) -> bool:
        of_client = signature(self._hash, credential.stored_key, signed)
        if len(proof) != len(of_client):
            raise LoginFailed(_NOT_SCRAM)
        shown = stored_key(self._hash, exclusive_or(proof, of_client))
        return hmac.compare_digest(shown, credential.stored_key)


def _is_nonce(nonce: str) -> bool:
    return len(nonce) <= NONCE_LENGTH_MAX and _NONCE.fullmatch(nonce) is not None


def _unescaped(name: str) -> str:
    if _ESCAPE.search(name):
        raise LoginFailed(_NOT_SCRAM)
    return name.replace("=2C", ",").replace("=3D", "=")


def _extensions(more: str) -> dict[str, str]:
    found = {}
    for part in more.split(",")[1:]:
        extension = _EXTENSION.fullmatch(part)
        if extension is None or extension[1] == "m":  # one that must be understood, and none is
            raise LoginFailed(_NOT_SCRAM)
        found[extension[1]] = extension[2]
    return found


def _text_of(message: bytes) -> str:
    if len(message) > _MESSAGE_BYTES_MAX:
        raise LoginFailed(_NOT_SCRAM)
    try:
        return message.decode()
    except UnicodeDecodeError:
        raise LoginFailed(_NOT_SCRAM) from None


def _from_base64(text: str) -> bytes:
    """Written in one way only: spare bits at the end are no place to hide a change."""
    try:
        decoded = b64decode(text, validate=True)
    except (Base64Error, ValueError):
        raise LoginFailed(_NOT_SCRAM) from None
    if b64encode(decoded).decode() != text:
        raise LoginFailed(_NOT_SCRAM)
    return decoded
