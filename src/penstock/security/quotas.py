"""How much may you: what can be limited, for whom, and which of several limits counts.

A limit is set for a user, for a client id, for both together, or for whoever has none of their own (the default); for
new connections it is set for an address. Of all that fit the nearest one counts, for each kind of limit by itself:
user and client id before user alone before client id alone, and what is named before a default.

Everybody for whom a limit counts shares one meter if they are the same to it: a limit of a user counts all client ids
of that user together, and a default is not one limit for all but one for each.

Limits are kept like settings (`/config/users/…`, `/config/clients/…`, `/config/ips/…`). Names are written there with
percent signs for everything unusual, so that none of them can be mistaken for a default, or for a pair of two names.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple
from urllib.parse import quote, unquote

from penstock.base.addresses import plain_address

PRODUCE = "producer_byte_rate"
FETCH = "consumer_byte_rate"
REQUEST = "request_percentage"
MUTATION = "controller_mutation_rate"
CONNECTION = "connection_creation_rate"
CLIENT_KEYS = (PRODUCE, FETCH, REQUEST, MUTATION)
WHOLE_NUMBERS = (PRODUCE, FETCH, CONNECTION)

USER = "user"
CLIENT_ID = "client-id"
IP = "ip"

CONFIG_TYPES = ("users", "clients", "ips")
_DEFAULT = "<default>"
_PAIR = ","


class Entity(NamedTuple):
    """For whom a limit is set. Each part is None if it does not matter, `ANY` for a default, or a name."""

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None

    def parts(self) -> dict[str, str | None]:
        """By type, with None for a default, as the protocol has it."""
        named = ((USER, self.user), (CLIENT_ID, self.client_id), (IP, self.ip))
        return {kind: None if name == ANY else name for kind, name in named if name is not None}

    @classmethod
    def of_parts(cls, parts: Mapping[str, str | None]) -> Entity:
        """From names by type; the types are known, and names are not empty."""
        named = {kind: ANY if name is None else name for kind, name in parts.items()}
        return cls(named.get(USER), named.get(CLIENT_ID), named.get(IP))


ANY = ""
"""A default: everybody who has no limit of their own. No user, client id or address has an empty name here."""


def config_name(entity: Entity) -> tuple[str, str]:
    """Where the limits of somebody are kept: the type of settings, and the name."""
    if entity.ip is not None:
        return "ips", _written(entity.ip)
    if entity.user is None:
        assert entity.client_id is not None
        return "clients", _written(entity.client_id)
    user = _written(entity.user)
    return "users", user if entity.client_id is None else f"{user}{_PAIR}{_written(entity.client_id)}"


def entity_of(config_type: str, name: str) -> Entity:
    """Whose limits are kept there."""
    if config_type == "ips":
        return Entity(ip=_read(name))
    if config_type == "clients":
        return Entity(client_id=_read(name))
    user, comma, client_id = name.partition(_PAIR)
    return Entity(user=_read(user), client_id=_read(client_id) if comma else None)


def _written(name: str) -> str:
    if name == ANY:
        return _DEFAULT
    return quote(name, safe="").replace(".", "%2E") if name in (".", "..") else quote(name, safe=" @:+=")


def _read(written: str) -> str:
    return ANY if written == _DEFAULT else unquote(written)


class Match(NamedTuple):
    """The limit that counts for somebody, and who shares its meter: a user, a client id, or both."""

    user: str | None
    client_id: str | None
    limit: float


@dataclass(frozen=True, slots=True)
class QuotaTable:
    """All limits that are set: by kind and by whom."""

    limits: Mapping[str, Mapping[Entity, float]]

    @classmethod
    def of(cls, configs: Mapping[str, Mapping[str, str]]) -> QuotaTable:
        """From settings by "type/name"; what is not a limit is passed over."""
        limits: dict[str, dict[Entity, float]] = {}
        for entity, values in quotas_in(configs):
            if entity.ip is not None:
                entity = Entity(ip=plain_address(entity.ip))
            for key, value in values.items():
                limits.setdefault(key, {})[entity] = value
        return cls(limits)

    @property
    def limits_clients(self) -> bool:
        return any(key in self.limits for key in CLIENT_KEYS)

    def match(self, key: str, user: str, client_id: str) -> Match | None:
        """The limit of one kind for a user with a client id, or None."""
        limits = self.limits.get(key)
        if limits is None:
            return None
        for entity in (
            Entity(user, client_id),
            Entity(user, ANY),
            Entity(user),
            Entity(ANY, client_id),
            Entity(ANY, ANY),
            Entity(ANY),
            Entity(None, client_id),
            Entity(None, ANY),
        ):
            limit = limits.get(entity)
            if limit is not None:
                return Match(
                    None if entity.user is None else user, None if entity.client_id is None else client_id, limit
                )
        return None

    def connections_per_s(self, address: str) -> float | None:
        """How many connections an address may make in a second, or None."""
        limits = self.limits.get(CONNECTION)
        if limits is None:
            return None
        limit = limits.get(Entity(ip=plain_address(address)))
        return limits.get(Entity(ip=ANY)) if limit is None else limit


def quotas_in(configs: Mapping[str, Mapping[str, str]]) -> Iterator[tuple[Entity, dict[str, float]]]:
    """Whoever has limits, with all of them."""
    for full_name, values in configs.items():
        config_type, _, name = full_name.partition("/")
        if config_type in CONFIG_TYPES:
            known = (CONNECTION,) if config_type == "ips" else CLIENT_KEYS
            found = {key: float(values[key]) for key in known if key in values}
            if found:
                yield entity_of(config_type, name), found
