"""What Java calls a JAAS configuration: one login module, its flag, options with quoted values, and a semicolon.

    org.apache.kafka.common.security.scram.ScramLoginModule required username="alice" password="it's a secret";

The text has passwords in it: no error shows a part of a value.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM_MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTHBEARER_MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"

_FLAGS = ("required", "requisite", "sufficient", "optional")
#: Programs that bring Kafka's classes under another name.
_SHADED = re.compile(r"^(?:kafkashaded\.|shadedkafka\.)")
_WORD = r"[A-Za-z0-9_.$-]+"
_QUOTED = r'"((?:[^"\\]|\\.)*)"'
_HEAD = re.compile(rf"\s*({_WORD})\s+({_WORD})")
_OPTION = re.compile(rf"\s+({_WORD})\s*=\s*(?:{_QUOTED}|'([^']*)'|([^\s\"';=]+))", re.DOTALL)
_END = re.compile(r"\s*;\s*")


@dataclass(frozen=True, slots=True)
class JaasEntry:
    """A login module and its options, in which there may be passwords."""

    module: str
    options: dict[str, str] = field(repr=False)


def parse_entry(text: str) -> JaasEntry:
    """ValueError with a sentence about what is wrong, without a part of a value."""
    head = _HEAD.match(text)
    if head is None:
        raise ValueError('is written as: <login module> required username="…" password="…";')
    if head[2].lower() not in _FLAGS:
        raise ValueError(f"the login module is followed by {', '.join(_FLAGS)}")
    return JaasEntry(_SHADED.sub("", head[1]), _parse_options(text, head.end()))


def _parse_options(text: str, position: int) -> dict[str, str]:
    options: dict[str, str] = {}
    while option := _OPTION.match(text, position):
        name, quoted, single, bare = option.groups()
        if name in options:
            raise ValueError(f"the option {name} is given twice")
        value = re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL) if quoted is not None else single
        options[name] = bare if value is None else value
        position = option.end()
    end = _END.match(text, position)
    if end is None or end.end() != len(text):
        after = f" after the option {list(options)[-1]}" if options else ""
        raise ValueError(f'cannot be read{after}: options are written as name="value", and a semicolon ends them')
    return options
