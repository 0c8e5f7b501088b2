"""What may be asked about quotas, and changed: the rules of AlterClientQuotas, the filters of DescribeClientQuotas."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from penstock.base.addresses import is_address
from penstock.base.errors import ApiError, Error
from penstock.security.quotas import (
    CLIENT_ID,
    CLIENT_KEYS,
    CONNECTION,
    IP,
    USER,
    WHOLE_NUMBERS,
    Entity,
)

_KINDS = (USER, CLIENT_ID, IP)
_FRACTION_MAX = 1e-6
_INT_MAX = 2**31 - 1
_LONG_MAX = 2**63 - 1


class Change(NamedTuple):
    """A limit that is set, or (None) taken away."""

    key: str
    value: float | None


def checked_entity(parts: Sequence[tuple[str, str | None]]) -> Entity:
    """For whom limits are changed; ApiError if nobody can be meant."""
    if not parts:
        raise _wrong("the entity is empty: name a user, a client-id, both, or an ip")
    named: dict[str, str | None] = {}
    for kind, name in parts:
        if kind not in _KINDS:
            raise _wrong(f"there are no quotas for a {kind!r}: name a user, a client-id or an ip")
        if kind in named:
            raise _wrong(f"the entity names more than one {kind}")
        if name == "":
            raise _wrong(f"the {kind} has an empty name (the default has none at all)")
        named[kind] = name
    if IP in named:
        if len(named) > 1:
            raise _wrong("an ip has quotas of its own, not together with a user or a client-id")
        _check_address(named[IP])
    return Entity.of_parts(named)


def _check_address(address: str | None) -> None:
    if address is not None and not is_address(address):
        raise _wrong(f"{address} is no IP address")


def checked_changes(entity: Entity, changes: Sequence[Change]) -> dict[str, str | None]:
    """The changes as settings; ApiError with what is wrong."""
    known = (CONNECTION,) if entity.ip is not None else CLIENT_KEYS
    checked: dict[str, str | None] = {}
    for change in changes:
        if change.key in checked:
            raise _wrong(f"{change.key} is changed twice for one entity")
        checked[change.key] = None
        if change.value is not None:
            if change.key not in known:
                raise _wrong(f"{change.key} is no quota of this kind of entity: there are {', '.join(known)}")
            checked[change.key] = _checked_value(change.key, change.value)
    return checked


def _checked_value(key: str, value: float) -> str:
    if math.isnan(value) or math.isinf(value):
        raise _wrong(f"{key} must be a number")
    if key not in WHOLE_NUMBERS:
        if value <= 0:
            raise _wrong(f"{key} must be more than 0")
        return repr(value)
    whole = int(value + _FRACTION_MAX)
    if abs(whole - value) > _FRACTION_MAX:
        raise _wrong(f"{key} must be a whole number")
    most = _INT_MAX if key == CONNECTION else _LONG_MAX
    if not 0 < whole <= most and not (key == CONNECTION and whole == 0):
        raise _wrong(f"{key} must be between {0 if key == CONNECTION else 1} and {most}")
    return str(whole)


def altered(values: Mapping[str, str], changes: Mapping[str, str | None]) -> dict[str, str]:
    """The settings of an entity after changes; those that are not quotas stay as they are."""
    merged = {**values, **changes}
    return {key: value for key, value in merged.items() if value is not None}


class MatchType(IntEnum):
    """How one part of a filter matches; the numbers are those of the protocol."""

    EXACT = 0
    DEFAULT = 1
    ANY_NAME = 2


@dataclass(frozen=True, slots=True)
class Filter:
    """Which entities are asked for: the names that parts must have (None: the default), and which parts at all."""

    exact: Mapping[str, str | None]
    present: frozenset[str]
    is_strict: bool

    def __contains__(self, entity: Entity) -> bool:
        parts = entity.parts()
        wanted = self.exact.keys() | self.present
        if not wanted:
            return not self.is_strict
        if self.is_strict and parts.keys() != wanted:
            return False
        return wanted <= parts.keys() and all(parts[kind] == name for kind, name in self.exact.items())


def checked_filter(components: Iterable[tuple[str, int, str | None]], *, is_strict: bool) -> Filter:
    """From (type, match type, name); ApiError if nothing can be meant by it."""
    exact: dict[str, str | None] = {}
    present: set[str] = set()
    for kind, match_type, name in components:
        if not kind:
            raise _wrong("a part of the filter has no entity type")
        if kind in exact or kind in present:
            raise _wrong(f"the filter names the entity type {kind} more than once")
        if kind not in _KINDS:
            raise ApiError(Error.UNSUPPORTED_VERSION, f"there are no quotas for a {kind!r}")
        if match_type not in (MatchType.EXACT, MatchType.DEFAULT, MatchType.ANY_NAME):
            raise _wrong(f"there is no match type {match_type}")
        if (name is None) == (match_type == MatchType.EXACT):
            raise _wrong(f"the part {kind} of the filter needs a name exactly if it matches one name")
        if match_type == MatchType.ANY_NAME:
            present.add(kind)
        else:
            exact[kind] = name
    kinds = exact.keys() | present
    if IP in kinds and len(kinds) > 1:
        raise _wrong("an ip is not asked for together with a user or a client-id")
    return Filter(exact, frozenset(present), is_strict)


def _wrong(text: str) -> ApiError:
    return ApiError(Error.INVALID_REQUEST, text)
