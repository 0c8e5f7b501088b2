"""Rules as they are stored: one znode for each pattern, named after it, with one value for each rule.

The name is `topic:literal:orders`, with what cannot be in a path escaped; a rule is a key, `ALLOW READ * User:alice`,
with nothing behind it. The principal comes last, for it may have blanks.

A newer release may know of operations and resources that this one does not: rules about those are passed over, as
nobody asks for them here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from urllib.parse import quote, unquote

from penstock.security.acls import Entry, Operation, Pattern, PatternType, Permission, ResourceType


def znode_name(pattern: Pattern) -> str:
    """What the znode of a pattern is called."""
    kind, how, name = pattern
    return f"{kind.name.lower()}:{how.name.lower()}:{quote(name, safe='')}"


def pattern_of(znode: str) -> Pattern | None:
    """The pattern whose znode has this name, if it is one that we know."""
    try:
        kind, how, name = znode.split(":", 2)
        return Pattern(ResourceType[kind.upper()], PatternType[how.upper()], unquote(name))
    except (KeyError, ValueError):
        return None


def stored_entries(entries: Iterable[Entry]) -> dict[str, str]:
    """The content of a znode with these rules."""
    return {
        f"{permission.name} {operation.name} {host} {principal}": ""
        for principal, host, operation, permission in sorted(entries)
    }


def entries_of(values: Mapping[str, str]) -> list[Entry]:
    """The rules in the content of a znode."""
    found = []
    for text in values:
        try:
            permission, operation, host, principal = text.split(" ", 3)
            found.append(Entry(principal, host, Operation[operation], Permission[permission]))
        except (KeyError, ValueError):
            continue
    return found
