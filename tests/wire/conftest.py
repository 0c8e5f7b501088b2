"""Instances of any declared message, made from its schema: one with every field set, and random ones."""

from __future__ import annotations

from itertools import count
from typing import Any
from uuid import UUID

import pytest
from hypothesis import strategies as st

from penstock.wire.api import APIS
from penstock.wire.messages.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from penstock.wire.messages.offsets_topic_records import OFFSETS_TOPIC_RECORDS
from penstock.wire.messages.transaction_topic_records import TransactionLogKey, TransactionLogValue
from penstock.wire.schema import Field, Kind, Message, declared_versions, schema_of

MESSAGES = [
    *(cls for api in APIS.values() for cls in (api.request, api.response)),
    *(cls for pair in OFFSETS_TOPIC_RECORDS.values() for cls in pair),
    TransactionLogKey,
    TransactionLogValue,
    ConsumerProtocolSubscription,
    ConsumerProtocolAssignment,
]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that takes `message_class` runs for every message."""
    if "message_class" in metafunc.fixturenames:
        metafunc.parametrize("message_class", MESSAGES, ids=lambda cls: cls.__name__)


class Samples:
    """Makes instances that a version can carry: fields that it does not have keep their defaults."""

    def versions(self, cls: type[Message]) -> range:
        declared = declared_versions(cls)
        return range(declared.first, declared.last + 1)

    def populated(self, cls: type[Message], version: int, *, nulls: bool = False, length: int = 2) -> Any:
        """Every field has a value that is not its default and differs from its neighbours'. With `nulls`, what may
        be null is; `length` is that of every array."""
        return self._populated(cls, version, 0 if nulls else length, count(1))

    def _populated(self, cls: type[Message], version: int, length: int, numbers: Any) -> Any:
        fields = [each for each in schema_of(cls).fields if version in each.versions]
        return cls(**{each.name: self._value(each, version, length, numbers) for each in fields})

    def _value(self, field: Field, version: int, length: int, numbers: Any) -> Any:
        if length == 0 and version in field.nullable:
            return None
        if field.is_array:
            return [self._element(field, version, length, numbers) for _ in range(length or 2)]
        return self._element(field, version, length, numbers)

    def _element(self, field: Field, version: int, length: int, numbers: Any) -> Any:
        if field.struct is not None:
            return self._populated(field.struct, version, length, numbers)
        number = next(numbers) % 100 + 1
        return {
            Kind.BOOL: not field.default,
            Kind.INT8: number,
            Kind.INT16: number,  # many are error codes, and only these are known to everybody
            Kind.INT32: 0x01020300 + number,
            Kind.INT64: 1_700_000_000_000 + 1000 * number,  # many are times, and some have whole seconds only
            Kind.UINT16: 40_000 + number,
            Kind.UINT32: 4_000_000_000 + number,
            Kind.FLOAT64: number + 0.25,
            Kind.UUID: UUID(int=0x0102030405060708090A0B0C0D0E0F00 + number),
            Kind.STRING: f"größe-{number}",
            Kind.BYTES: bytes(range(number)),
            Kind.RECORDS: bytes(range(number, 2 * number)),
        }[field.kind]

    def random(self, cls: type[Message], version: int) -> st.SearchStrategy[Any]:
        fields = [each for each in schema_of(cls).fields if version in each.versions]
        return st.builds(cls, **{each.name: self._random_value(each, version) for each in fields})

    def _random_value(self, field: Field, version: int) -> st.SearchStrategy[Any]:
        if field.struct is not None:
            strategy = self.random(field.struct, version)
        else:
            strategy = _RANDOM[field.kind]
        if field.is_array:
            strategy = st.lists(strategy, max_size=3)
        return st.none() | strategy if version in field.nullable else strategy


def _integers(bits: int, *, signed: bool = True) -> st.SearchStrategy[int]:
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    return st.integers(low, high)


_RANDOM: dict[Kind, st.SearchStrategy[Any]] = {
    Kind.BOOL: st.booleans(),
    Kind.INT8: _integers(8),
    Kind.INT16: _integers(16),
    Kind.INT32: _integers(32),
    Kind.INT64: _integers(64),
    Kind.UINT16: _integers(16, signed=False),
    Kind.UINT32: _integers(32, signed=False),
    Kind.FLOAT64: st.floats(allow_nan=False),
    Kind.UUID: st.uuids(),
    Kind.STRING: st.text(max_size=8) | st.integers(100, 300).map(lambda length: "é" * length),
    Kind.BYTES: st.binary(max_size=200),
    Kind.RECORDS: st.binary(max_size=200),
}


@pytest.fixture(scope="session")
def samples() -> Samples:
    return Samples()


@pytest.fixture(scope="session")
def messages() -> list[type[Message]]:
    return MESSAGES
