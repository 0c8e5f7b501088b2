"""How the name in a client's certificate becomes the name of a user: `ssl.principal.mapping.rules`.

    RULE:^CN=([^,]+),.*$/$1/L, DEFAULT

Rules are tried in order; the first whose pattern matches the whole name makes the user of it, in lower (`L`) or upper
(`U`) case if it says so. `DEFAULT` is the name as it is, as RFC 2253 writes it: `CN=alice,OU=sales,O=Example,C=DE`.
A name that no rule matches is nobody's, and the connection is refused.

The names are those of strangers, as long as their authority lets them be: so patterns are RE2's, whose time is bounded.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

Subject: TypeAlias = Sequence[Sequence[tuple[str, str]]]
"""As Python's ssl module has it: the most general part first."""

_SHORT = {
    "commonName": "CN",
    "countryName": "C",
    "stateOrProvinceName": "ST",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
    "emailAddress": "1.2.840.113549.1.9.1",
}
_SPECIAL = re.compile(r'([,+"\\<>;=])')
_RULE = re.compile(r"\s*(?:(DEFAULT)|RULE:((?:\\.|[^\\/])*)/((?:\\.|[^\\/])*)/([LU]?))\s*(?:,|$)")
_GROUP = re.compile(r"\$(\d)|\\(.)")


class NoRuleError(Exception):
    """No rule matches a name; the text has the name."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule; a pattern of None is DEFAULT."""

    pattern: Any = None
    replacement: str = ""
    case: str = ""

    def user(self, name: str) -> str | None:
        if self.pattern is None:
            return name
        match = self.pattern.fullmatch(name)
        if match is None:
            return None
        user = _GROUP.sub(lambda group: match[int(group[1])] or "" if group[1] else group[2], self.replacement)
        return user.lower() if self.case == "L" else user.upper() if self.case == "U" else user


def parse_rules(text: str) -> tuple[Rule, ...]:
    """ValueError with a sentence about what is wrong."""
    rules: list[Rule] = []
    position = 0
    while position < len(text.rstrip()):
        found = _RULE.match(text, position)
        if found is None:
            raise ValueError(f"{text[position : position + 60]!r} is not DEFAULT or RULE:pattern/replacement/[LU]")
        rules.append(Rule() if found[1] else _rule(found[2], found[3], found[4]))
        position = found.end()
    return tuple(rules) or (Rule(),)


def _rule(pattern: str, replacement: str, case: str) -> Rule:
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        compiled = re2.compile(pattern, options)
    except (re2.error, UnicodeError) as error:
        reason = error.args[0].decode(errors="replace") if isinstance(error.args[0], bytes) else error
        raise ValueError(
            f"the pattern {pattern!r} cannot be read (RE2 has neither look-ahead nor references back): {reason}"
        ) from None
    wanted = [int(group[1]) for group in _GROUP.finditer(replacement) if group[1]]
    if wanted and max(wanted) > compiled.groups:
        raise ValueError(f"the replacement {replacement!r} has ${max(wanted)}, and the pattern no such group")
    return Rule(compiled, replacement, case)


def distinguished_name(subject: Subject) -> str:
    """A certificate's name as RFC 2253 writes it: the most special part first, without spaces between."""
    return ",".join("+".join(_part(*pair) for pair in part) for part in reversed(subject))


def _part(kind: str, value: str) -> str:
    escaped = _SPECIAL.sub(r"\\\1", value)
    if escaped[:1] in ("#", " "):
        escaped = "\\" + escaped
    if escaped.endswith(" "):
        escaped = escaped[:-1] + "\\ "
    return f"{_SHORT.get(kind, kind)}={escaped}"


def user_of(subject: Subject, rules: Sequence[Rule]) -> str:
    """NoRuleError if no rule matches."""
    name = distinguished_name(subject)
    for rule in rules:
        user = rule.user(name)
        if user:
            return user
    raise NoRuleError(f"no rule of ssl.principal.mapping.rules matches the certificate of {name}")
