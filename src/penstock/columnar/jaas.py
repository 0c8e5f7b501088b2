"""`sasl.jaas.config`, the Java clients' way to write down a user and a password, for the login modules that make sense.

    org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" password="it's a secret";

One module, its flag, options with quoted values, and a semicolon; anything else is refused, and never shown: the text
has a password in it.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from penstock.columnar.errors import SettingError

NAME = "sasl.jaas.config"
PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
#: Programs that bring Kafka's classes under another name.
_SHADED = re.compile(r"^(?:kafkashaded\.|shadedkafka\.)")
_REFUSED = {
    "com.sun.security.auth.module.Krb5LoginModule": "Kerberos is not supported; use PLAIN, SCRAM or OAUTHBEARER",
    "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule": (
        "tokens are not fetched here; give the token itself with sasl.oauthbearer.token"
    ),
}
_FLAGS = ("required", "requisite", "sufficient", "optional")

_WORD = r"[A-Za-z0-9_.$-]+"
_QUOTED = r'"((?:[^"\\]|\\.)*)"'
_HEAD = re.compile(rf"\s*({_WORD})\s+({_WORD})")
_OPTION = re.compile(rf"\s+({_WORD})\s*=\s*(?:{_QUOTED}|'([^']*)'|([^\s\"';=]+))", re.DOTALL)
_END = re.compile(r"\s*;\s*")


class JaasLogin(NamedTuple):
    """The module, and who logs in."""

    module: str
    user: str
    password: str


def parse_jaas(text: str) -> JaasLogin:
    """SettingError, which never has a part of a value in it."""
    head = _HEAD.match(text)
    if head is None:
        raise SettingError(NAME, 'is written as: <login module> required username="…" password="…";')
    module, flag = _SHADED.sub("", head[1]), head[2]
    if module in _REFUSED:
        raise SettingError(NAME, _REFUSED[module])
    if module not in (PLAIN_MODULE, SCRAM_MODULE):
        raise SettingError(
            NAME, f"the login module {module[:120]} is not supported; PlainLoginModule and ScramLoginModule are"
        )
    if flag.lower() not in _FLAGS:
        raise SettingError(NAME, f"the login module is followed by {', '.join(_FLAGS)}")
    options = _parse_options(text, head.end())
    if not options.get("username") or "password" not in options:
        raise SettingError(NAME, 'username="…" and password="…" are both needed')
    return JaasLogin(module, options["username"], options["password"])


def _parse_options(text: str, position: int) -> dict[str, str]:
    options: dict[str, str] = {}
    while option := _OPTION.match(text, position):
        name, quoted, single, bare = option.groups()
        if name in options:
            raise SettingError(NAME, f"the option {name} is given twice")
        value = re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL) if quoted is not None else single
        options[name] = bare if value is None else value
        position = option.end()
    end = _END.match(text, position)
    if end is None or end.end() != len(text):
        after = f" after the option {list(options)[-1]}" if options else ""
        raise SettingError(
            NAME, f'cannot be read{after}: options are written as name="value", and a semicolon ends them'
        )
    unknown = set(options) - {"username", "password", "serviceName"}
    if unknown:
        raise SettingError(NAME, f"the option {sorted(unknown)[0]} of the login module is not supported")
    return options
