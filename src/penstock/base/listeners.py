"""Listeners: where a broker binds, what it tells clients, and which listener the brokers use among themselves.

A listener has a name (`EXTERNAL`), a security protocol that its name maps to, an address to bind and an address that is
advertised to clients. Everything is parsed here for every protocol; which ones are served is the server's decision.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from enum import Enum

from penstock.base.settings import SettingsError, TypedSettings
from penstock.base.world import Address

_LISTENER = re.compile(r"([a-zA-Z0-9_-]+)://(?:\[([0-9a-fA-F:.]+(?:%[a-zA-Z0-9]+)?)\]|([^:/\[\]\s]*)):([0-9]{1,5})/?")
_WILDCARDS = ("", "0.0.0.0", "::")


class SecurityProtocol(Enum):
    """How a listener speaks: with TLS or without, with a login (SASL) or without."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def has_tls(self) -> bool:
        return self in (SecurityProtocol.SSL, SecurityProtocol.SASL_SSL)

    @property
    def has_login(self) -> bool:
        return self in (SecurityProtocol.SASL_PLAINTEXT, SecurityProtocol.SASL_SSL)


@dataclass(frozen=True, slots=True)
class Listener:
    """One listener. `bind.host` is empty for every IPv4 address; a port 0 is filled in once it is bound."""

    name: str
    protocol: SecurityProtocol
    bind: Address
    advertised: Address

    def bound_to(self, port: int) -> Listener:
        """The same listener after it got a real port."""
        advertised = self.advertised if self.advertised.port else self.advertised._replace(port=port)
        return replace(self, bind=self.bind._replace(port=port), advertised=advertised)


@dataclass(frozen=True, slots=True)
class Listeners:
    """All listeners of a broker, in the order they were given, and the name of the one between brokers."""

    all: tuple[Listener, ...]
    inter_broker_name: str

    @property
    def inter_broker(self) -> Listener:
        return self[self.inter_broker_name]

    def __getitem__(self, name: str) -> Listener:
        return next(listener for listener in self.all if listener.name == name)


def parse_listeners(settings: TypedSettings, host_name: str) -> Listeners:
    """The listeners of a broker; `host_name` is advertised where a listener binds every address.

    SettingsError with everything that is wrong.
    """
    problems: list[str] = []
    protocols = _parse_protocol_map(settings.text("listener.security.protocol.map"), problems)
    bound = _parse_addresses("listeners", settings.list("listeners"), problems)
    advertised_texts = settings.value("advertised.listeners")
    advertised: dict[str, Address] = {}
    if isinstance(advertised_texts, tuple):
        advertised = _parse_addresses("advertised.listeners", [*advertised_texts], problems)
    _check_bound(bound, problems)
    _check_advertised(advertised, bound, problems)
    listeners = []
    for name, bind in bound.items():
        protocol = protocols.get(name)
        if protocol is None:
            problems.append(f"listeners: {name} has no protocol in listener.security.protocol.map")
            continue
        visible = bind._replace(host=host_name) if bind.host in _WILDCARDS else bind
        listeners.append(Listener(name, protocol, bind, advertised.get(name, visible)))
    inter_broker_name = _inter_broker_name(settings, listeners, problems)
    if problems:
        raise SettingsError(problems)
    return Listeners(tuple(listeners), inter_broker_name)


def _parse_protocol_map(text: str, problems: list[str]) -> dict[str, SecurityProtocol]:
    protocols: dict[str, SecurityProtocol] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, _, protocol = (part.strip().upper() for part in entry.partition(":"))
        if not name or protocol not in SecurityProtocol.__members__:
            wanted = ", ".join(SecurityProtocol.__members__)
            problems.append(f"listener.security.protocol.map: {entry!r} is not NAME:PROTOCOL with one of {wanted}")
        elif name in protocols:
            problems.append(f"listener.security.protocol.map has {name} more than once")
        else:
            protocols[name] = SecurityProtocol[protocol]
    return protocols


def _parse_addresses(setting: str, texts: list[str], problems: list[str]) -> dict[str, Address]:
    addresses: dict[str, Address] = {}
    for text in texts:
        match = _LISTENER.fullmatch(text)
        if match is None or int(match[4]) > 65535:
            problems.append(
                f"{setting}: {text!r} is not NAME://host:port (an IPv6 address in brackets: NAME://[::1]:9092)"
            )
            continue
        name = match[1].upper()
        if name in addresses:
            problems.append(f"{setting} has the listener {name} more than once")
        addresses[name] = Address(match[2] or match[3] or "", int(match[4]))
    return addresses


def _check_bound(bound: dict[str, Address], problems: list[str]) -> None:
    owners: dict[Address, str] = {}
    for name, address in bound.items():
        if address.port == 0:
            continue
        if address in owners:
            problems.append(f"listeners: {owners[address]} and {name} have the same address {address}")
        owners.setdefault(address, name)


def _check_advertised(advertised: dict[str, Address], bound: dict[str, Address], problems: list[str]) -> None:
    for name, address in advertised.items():
        if name not in bound:
            problems.append(f"advertised.listeners: {name} is not in listeners ({', '.join(bound)})")
        if address.host in _WILDCARDS:
            shown = address.host or "no host"
            problems.append(
                f"advertised.listeners: nobody can connect to {shown}; give {name} a host that clients reach"
            )


def _inter_broker_name(settings: TypedSettings, listeners: list[Listener], problems: list[str]) -> str:
    name = settings.optional_text("inter.broker.listener.name")
    if name is not None:
        if all(listener.name != name.upper() for listener in listeners):
            problems.append(f"inter.broker.listener.name: {name} is not in listeners")
        return name.upper()
    protocol = settings.text("security.inter.broker.protocol")
    same = [listener.name for listener in listeners if listener.protocol.value == protocol]
    if not same and protocol != SecurityProtocol.PLAINTEXT.value:
        problems.append(f"security.inter.broker.protocol: no listener speaks {protocol}")
    return (same or [listener.name for listener in listeners] or [""])[0]
