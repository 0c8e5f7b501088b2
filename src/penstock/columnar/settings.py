"""The settings of the client, under Kafka's names, read and checked once.

    ClientSettings.parse({"bootstrap.servers": "localhost:9092", "security.protocol": "SASL_SSL", …})

Names are those of the Java client; where librdkafka has another name for the same thing, that is taken too. A setting
of Kafka's clients that means nothing here is left out; a name that no client has is refused, with the nearest one that
there is. The result is plain data: it can be sent to another process, and shown without its secrets.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from penstock.base.world import Address
from penstock.columnar.errors import SettingError
from penstock.columnar.known_settings import MEANINGLESS, REFUSED
from penstock.columnar.security_settings import SECURITY_NAMES, LoginSettings, TlsSettings, parse_security

CLIENT_ID = "penstock-columnar"

#: Milliseconds: name, other names, default, lowest.
_DURATIONS = (
    ("request.timeout.ms", ("socket.timeout.ms",), 30_000, 1),
    ("default.api.timeout.ms", (), 60_000, 1),
    ("delivery.timeout.ms", (), 120_000, 1),
    ("transaction.timeout.ms", (), 60_000, 1),
    ("socket.connection.setup.timeout.ms", ("socket.connection.setup.timeout.max.ms",), 10_000, 1),
    ("retry.backoff.ms", (), 100, 0),
    ("retry.backoff.max.ms", (), 1_000, 0),
    ("fetch.max.wait.ms", (), 500, 0),
)
#: For whoever asks with `get`; they say something about reading or writing, not about connections.
_FOR_OTHERS = frozenset(
    [
        "acks",
        "batch.num.messages",
        "batch.size",
        "compression.codec",
        "compression.type",
        "fetch.max.bytes",
        "group.id",
        "isolation.level",
        "max.partition.fetch.bytes",
        "max.request.size",
        "request.required.acks",
        "transactional.id",
    ]
)
_CONNECTION_NAMES = frozenset({"bootstrap.servers", "client.id"})
_OF_DURATIONS = frozenset(name for row in _DURATIONS for name in (row[0], *row[1]))
KNOWN = _CONNECTION_NAMES | _OF_DURATIONS | _FOR_OTHERS | SECURITY_NAMES | MEANINGLESS | frozenset(REFUSED)

_ADDRESS = re.compile(r"(?:[A-Za-z0-9_]+://)?(?:\[([0-9a-fA-F:.]+(?:%\w+)?)\]|([^\s:,/\[\]]+)):([0-9]{1,5})")


@dataclass(frozen=True, slots=True)
class ClientSettings:
    """See the head of this file."""

    bootstrap: tuple[Address, ...]
    client_id: str
    request_timeout_s: float
    """for one answer"""
    deadline_s: float
    """for one thing that was asked of the cluster, however often it has to be tried"""
    delivery_timeout_s: float
    """the same for one batch of records"""
    transaction_timeout_s: float
    connect_timeout_s: float
    backoff_s: float
    backoff_max_s: float
    fetch_wait_ms: int
    tls: TlsSettings | None
    login: LoginSettings | None
    others: tuple[tuple[str, str], ...]

    @classmethod
    def parse(cls, values: Mapping[str, str]) -> Self:
        """SettingError for the first thing that is wrong."""
        given = {name: _text(name, value) for name, value in values.items()}
        _check_names(given)
        durations = {row[0]: _milliseconds(given, *row) for row in _DURATIONS}
        tls, login = parse_security(given)
        return cls(
            bootstrap=parse_bootstrap(given.get("bootstrap.servers") or given.get("metadata.broker.list") or ""),
            client_id=given.get("client.id") or CLIENT_ID,
            request_timeout_s=durations["request.timeout.ms"] / 1000,
            deadline_s=durations["default.api.timeout.ms"] / 1000,
            delivery_timeout_s=durations["delivery.timeout.ms"] / 1000,
            transaction_timeout_s=durations["transaction.timeout.ms"] / 1000,
            connect_timeout_s=durations["socket.connection.setup.timeout.ms"] / 1000,
            backoff_s=durations["retry.backoff.ms"] / 1000,
            backoff_max_s=durations["retry.backoff.max.ms"] / 1000,
            fetch_wait_ms=durations["fetch.max.wait.ms"],
            tls=tls,
            login=login,
            others=tuple(sorted((name, value) for name, value in given.items() if name in _FOR_OTHERS)),
        )

    def get(self, name: str, default: str | None = None) -> str | None:
        """A setting that says how to read or write, such as `compression.type`; as it was given."""
        assert name in _FOR_OTHERS, name
        return dict(self.others).get(name, default)


def parse_bootstrap(text: str) -> tuple[Address, ...]:
    """The addresses of a list such as `one:9092,[::1]:9093`; SettingError."""
    name = "bootstrap.servers"
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words:
        raise SettingError(name, "is needed: the addresses of some brokers, as host:port,host:port")
    addresses = []
    for word in words:
        found = _ADDRESS.fullmatch(word)
        if found is None or not 0 < int(found[3]) < 65536:
            raise SettingError(name, f"{word[:100]!r} is not an address; write host:port, or [ipv6]:port")
        addresses.append(Address(found[1] or found[2], int(found[3])))
    return tuple(dict.fromkeys(addresses))


def _text(name: object, value: object) -> str:
    if not isinstance(name, str) or not isinstance(value, str | int | float | bool):
        raise SettingError(str(name)[:100], "settings are names with a text or a number")
    return str(value).lower() if isinstance(value, bool) else str(value)


def _check_names(given: Mapping[str, str]) -> None:
    for name in given:
        if name in REFUSED:
            raise SettingError(name, f"is not supported: {REFUSED[name]}")
        if name not in KNOWN:
            near = difflib.get_close_matches(name, KNOWN - frozenset(REFUSED), n=1, cutoff=0.75)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise SettingError(name[:100], f"is not a setting of Kafka's clients{hint}")


def _milliseconds(given: Mapping[str, str], name: str, others: tuple[str, ...], default: int, lowest: int) -> int:
    used = next((each for each in (name, *others) if given.get(each)), None)
    if used is None:
        return default
    if not re.fullmatch(r"[0-9]{1,10}", given[used]) or int(given[used]) < lowest:
        raise SettingError(used, f"is a number of milliseconds, at least {lowest}, not {given[used][:50]!r}")
    return int(given[used])
