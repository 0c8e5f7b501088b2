"""Requests gone wrong: a sound one of any API and version, its mutants, and somebody who sends one after another."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

from penstock.testing.raw_client import ConnectionEnded, RawClient
from penstock.testing.sim_client import batch_of
from penstock.wire.api import APIS, OWN_APIS
from penstock.wire.api_declaration import Api
from penstock.wire.codec import encode
from penstock.wire.messages.k18_api_versions import ApiVersionsRequest
from penstock.wire.schema import Field, Kind, Message, schema_of

ALL_APIS = APIS | OWN_APIS
ANSWER_S = 10.0
TRUNCATIONS = 8


def sample(cls: type[Message], version: int, chance: random.Random) -> Any:
    """A request that a handler goes far with: small numbers, names that exist, sound batches."""
    fields = [each for each in schema_of(cls).fields if version in each.versions]
    return cls(**{each.name: _value(each, version, chance) for each in fields})


def _value(field: Field, version: int, chance: random.Random) -> Any:
    if version in field.nullable and chance.random() < 0.2:
        return None
    if field.is_array:
        return [_element(field, version, chance) for _ in range(chance.randrange(3))]
    return _element(field, version, chance)


def _element(field: Field, version: int, chance: random.Random) -> Any:
    if field.struct is not None:
        return sample(field.struct, version, chance)
    number = chance.choice([0, 0, 1, 2, -1, -2, 127])
    if "timeout" in field.name or "wait" in field.name:
        number = chance.choice([0, 1, 50])
    return {
        Kind.BOOL: bool(number & 1),
        Kind.UINT16: number & 0x7F,
        Kind.UINT32: number & 0x7F,
        Kind.FLOAT64: float(number),
        Kind.UUID: UUID(int=number & 0x7F),
        Kind.STRING: chance.choice(["fuzzed", "fuzzed-2", "", "0", "retention.ms", "../x", "größe"]),
        Kind.BYTES: bytes(number & 0x7F),
        Kind.RECORDS: batch_of([b"fuzz"]),
    }.get(field.kind, number)


def mutations(body: bytes, count: int, chance: random.Random) -> Iterator[bytes]:
    """The body as it is, cut at some places, and with some bytes changed, doubled or taken out."""
    yield body
    for cut in {0, len(body) - 1, *(chance.randrange(len(body) + 1) for _ in range(TRUNCATIONS))}:
        yield body[: max(cut, 0)]
    for _ in range(count):
        mutant = bytearray(body)
        for _ in range(1 + chance.randrange(4)):
            at = chance.randrange(len(mutant) + 1)
            kind = chance.randrange(4)
            if kind == 0:
                mutant[at:at] = chance.randbytes(1 + chance.randrange(8))
            elif kind == 1:
                del mutant[at : at + 1 + chance.randrange(8)]
            elif at < len(mutant):
                mutant[at] = chance.choice([0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)])
        yield bytes(mutant)


class Attacker:
    """Sends one body after another, on a new connection whenever the last one was closed."""

    def __init__(self, connect: Callable[[], RawClient]) -> None:
        self._connect = connect
        self._client: RawClient | None = None
        self.answered = self.closed = 0

    def send_all(self, served: list[Any], count: int, chance: random.Random) -> None:
        """Of every API in every version a sound request, cut ones, and `count` mutants; each is answered or closed."""
        for row in served:
            api = ALL_APIS[row.api_key]
            for version in range(row.min_version, row.max_version + 1):
                for body in mutations(encode(sample(api.request, version, chance), version), count, chance):
                    try:
                        self.send(api, version, body)
                    except TimeoutError:
                        raise AssertionError(f"{api.name} version {version}: no answer to {body.hex()}") from None
        self.close()

    def send(self, api: Api, version: int, body: bytes) -> None:
        if self._client is None:
            self._client = self._connect()
        self._client.send(self._client.frame(api.key, version, body))
        if api.key == 0:  # it may have become one with acks=0, that is not answered
            self._client.send(self._client.frame_of(ApiVersionsRequest(), 0))
        try:
            self._client.receive_frame(ANSWER_S)
            self.answered += 1
            if api.key == 0:
                self.close()
        except ConnectionEnded:
            self.closed += 1
            self.close()

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
        self._client = None
