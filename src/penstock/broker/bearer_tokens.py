"""What a bearer token (JWT) is worth: its signature, who made it for whom, and until when.

The keys come from a JWKS document: a file, or an address that is asked beside the loop, again and again, and sooner
when a token names a key that is not known (the issuer may have changed its keys). A token is good only if one of those
keys signed it with an algorithm of that kind of key, and the one that the document has for the key if it has one: never
`none`, never a shared secret. What a token says must be understood (`crit`) is not. Issuer and audience must be
the ones that the settings name, and there must be an end of validity. Scopes, if there are any, must be texts that are
neither empty nor twice there; nothing follows from them, as in Kafka: what a user may do is in the rules of access.

`sasl.oauthbearer.jwks.endpoint.url` is needed to offer OAUTHBEARER at all: nobody's word is taken without a signature.
As with Kafka these settings are read when a broker starts; that tokens are taken at all can be changed while it runs.
"""

from __future__ import annotations

import asyncio
import json
import logging
import math
import re
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from penstock.base.listeners import Listener
from penstock.base.settings import Settings, SettingsError
from penstock.base.world import World
from penstock.sasl.exchange import Login, LoginFailed

logger = logging.getLogger(__name__)

_URL = "sasl.oauthbearer.jwks.endpoint.url"
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
_KEY_KINDS = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}
DOCUMENT_BYTES_MAX = 1 << 20
FETCH_S_MAX = 10.0
EARLY_FETCH_S_MIN = 5.0
KEYS_MAX = 100
RSA_BITS_MIN = 2048  # RFC 7518, 3.3
_NAME = re.compile(r"[^\x00-\x1f\x7f]{1,1000}")
_BLANKS = "".join(map(chr, range(0x21)))  # what Java's trim() takes off


class _Key(NamedTuple):
    """A public key, and what the document says that it is for."""

    kind: str
    algorithm: str | None
    public: Any


class BearerTokens:
    """The judge of one listener's tokens. `start` begins to fetch keys."""

    def __init__(self, world: World, settings: Settings, listener: Listener) -> None:
        of_listener = settings.for_listener(listener.name)
        self._world = world
        self._url = of_listener.optional_text(_URL) or ""
        self._issuer = of_listener.optional_text("sasl.oauthbearer.expected.issuer")
        self._audience = of_listener.list("sasl.oauthbearer.expected.audience")
        self._skew_s = of_listener.integer("sasl.oauthbearer.clock.skew.seconds")
        self._user_claim = of_listener.text("sasl.oauthbearer.sub.claim.name")
        self._scope_claim = of_listener.text("sasl.oauthbearer.scope.claim.name")
        self._refresh_s = of_listener.integer("sasl.oauthbearer.jwks.endpoint.refresh.ms") / 1000
        self._retry_s = of_listener.integer("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms") / 1000
        self._retry_s_max = of_listener.integer("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms") / 1000
        self._keys: dict[str, _Key] = {}
        self._wanted = asyncio.Event()
        self._fetched_s = float("-inf")
        for name, value in (("issuer", self._issuer), ("audience", self._audience)):
            if not value:
                logger.warning(
                    "listener %s takes tokens of any %s: sasl.oauthbearer.expected.%s is not given",
                    listener.name,
                    name,
                    name,
                )
        if urlsplit(self._url).scheme == "http":
            logger.warning("%s: whoever is on the way to it could put a key of their own there: use https", _URL)
        if urlsplit(self._url).scheme not in ("file", "http", "https"):
            raise SettingsError(
                [f"listener {listener.name}: OAUTHBEARER needs {_URL}, which is file:///…, https://… or http://…"]
            )

    @property
    def key_ids(self) -> list[str]:
        """Of the keys that are known now."""
        return list(self._keys)

    # ── judging ──────────────────────────────────────────────────────────────────────────────────────────────────

    def judge(self, token: str) -> Login:
        """Whose token it is; LoginFailed, which says nothing of what is in it."""
        import jwt

        try:
            head = jwt.get_unverified_header(token)
            key = self._key_of(head)
            claims = jwt.decode(
                token,
                key,
                algorithms=[head["alg"]],
                issuer=self._issuer,
                audience=self._audience or None,
                leeway=self._skew_s,
                options={
                    "require": ["exp", self._user_claim],
                    "verify_aud": bool(self._audience),
                    "verify_exp": False,  # by the clock of our world, below
                    "verify_nbf": False,
                    "verify_iat": False,
                },
            )
        except jwt.PyJWTError as error:
            raise LoginFailed(f"the token is not valid here: {type(error).__name__}") from None
        return self._login(claims)

    def _key_of(self, head: dict[str, Any]) -> Any:
        """The key that a token says to be signed with, if it is one for the algorithm that it names."""
        algorithm, key_id = head.get("alg"), head.get("kid")
        if algorithm not in ALGORITHMS or "crit" in head:
            raise LoginFailed("the token is not signed in a way that is accepted")
        found = self._keys.get(key_id) if isinstance(key_id, str) else None
        if key_id is None and len(self._keys) == 1:
            found = next(iter(self._keys.values()))
        if found is None:
            self._want_keys()
            raise LoginFailed("the token is signed with a key that is not known here")
        if found.kind != _KEY_KINDS[algorithm[:2]] or found.algorithm not in (None, algorithm):
            raise LoginFailed("the token is not signed in a way that its key can be used for")
        return found.public

    def _login(self, claims: dict[str, Any]) -> Login:
        now_s = self._world.clock.wall_ms() / 1000
        ends_s, user = claims["exp"], claims[self._user_claim]
        times = [ends_s, *(claims[name] for name in ("nbf", "iat") if name in claims)]
        if any(
            not isinstance(time_s, int | float) or isinstance(time_s, bool) or math.isnan(time_s) for time_s in times
        ):
            raise LoginFailed("the token has a time that is not a number")
        if now_s >= ends_s + self._skew_s:
            raise LoginFailed("the token has expired")
        if any(time_s > now_s + self._skew_s for time_s in times[1:]):
            raise LoginFailed("the token is not valid yet")
        if not isinstance(user, str) or not _NAME.fullmatch(user):
            raise LoginFailed("the token does not name a user")
        _check_scopes(claims.get(self._scope_claim))
        return Login(user, until_ms=int((min(ends_s, 1e11) + self._skew_s) * 1000))

    # ── the keys ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _want_keys(self) -> None:
        """Sooner than planned, but not as often as somebody sends tokens with made-up keys."""
        if self._world.clock.monotonic() - self._fetched_s > EARLY_FETCH_S_MIN:
            self._wanted.set()

    async def fetch_forever(self) -> None:
        """Keep the keys fresh; what cannot be fetched leaves those that are there."""
        retry_s = self._retry_s
        while True:
            self._wanted.clear()
            self._fetched_s = self._world.clock.monotonic()
            try:
                self._keys = _usable_keys(await self._world.disk.run("read", self._document))
                pause_s, retry_s = self._refresh_s, self._retry_s
            except Exception as error:  # of the network, the file, or what is in it
                logger.error("the keys of %s could not be read: %s", _shown(self._url), error)
                pause_s, retry_s = retry_s, min(2 * retry_s, self._retry_s_max)
            try:
                async with asyncio.timeout(pause_s):
                    await self._wanted.wait()
            except TimeoutError:
                pass

    def _document(self) -> bytes:
        """Beside the loop; of a file as well, which need not be one that we may write."""
        import urllib.request

        with urllib.request.urlopen(self._url, timeout=FETCH_S_MAX) as answer:
            content: bytes = answer.read(DOCUMENT_BYTES_MAX + 1)
        if len(content) > DOCUMENT_BYTES_MAX:
            raise ValueError("the document is too large")
        return content


def _check_scopes(claim: object) -> None:
    """One text is one scope, whatever blanks it has; a claim that is neither a text nor a list has none."""
    scopes = [claim] if isinstance(claim, str) else claim if isinstance(claim, list) else []
    seen = set()
    for scope in scopes:
        name = scope.strip(_BLANKS) if isinstance(scope, str) else ""
        if not name or name in seen:
            raise LoginFailed("the token has scopes that are not texts, or empty, or twice there")
        seen.add(name)


def _usable_keys(document: bytes) -> dict[str, _Key]:
    """Public keys for signatures, by their ids; those that are anything else are left out."""
    found = {}
    for given in json.loads(document)["keys"][:KEYS_MAX]:
        key = _usable_key(given)
        if key is not None:
            found[str(given.get("kid") or "")] = key
    if not found:
        raise ValueError("there is no key in it that signatures can be checked with")
    return found


def _usable_key(given: dict[str, Any]) -> _Key | None:
    import jwt

    is_for_signatures = given.get("use") in (None, "sig") and "verify" in given.get("key_ops", ["verify"])
    if given.get("kty") not in _KEY_KINDS.values() or not is_for_signatures:
        return None
    try:
        key = jwt.PyJWK.from_dict(given).key
    except jwt.PyJWTError:
        return None
    if given["kty"] == "RSA" and key.key_size < RSA_BITS_MIN:
        logger.warning("a key of %d bits is not used: RSA keys that sign tokens have %d", key.key_size, RSA_BITS_MIN)
        return None
    is_private = hasattr(key, "private_bytes")
    return _Key(given["kty"], given.get("alg"), key.public_key() if is_private else key)


def _shown(url: str) -> str:
    """Without a user, a password or a query."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.hostname or ''}{parts.path}"
