"""The records of the internal topics: from a key and a value message to bytes, and back.

A key begins with an int16 that says what kind of record it is, a value with an int16 that is its version. Kinds and
versions that this release does not know are passed over when a log is read: a newer one may have written them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from struct import Struct
from typing import Any, TypeAlias

from penstock.base.steps import StateRecord
from penstock.base.world import Buffer
from penstock.wire.codec import decoder, encoder
from penstock.wire.schema import Message, ProtocolError, declared_versions

_INT16 = Struct(">h")

WrittenVersion: TypeAlias = int | Callable[[Any], int]
"""the version a value is written in, or what decides it where that depends on what it says"""


class StateCodec:
    """The kinds of records of one internal topic, and in which version each value is written."""

    def __init__(
        self,
        kinds: Mapping[int, tuple[type[Message], type[Message]]],
        written_versions: Mapping[type[Message], WrittenVersion],
    ) -> None:
        self._kinds = kinds
        self._kind_of_key = {key: kind for kind, (key, _) in kinds.items()}
        self._written_versions = written_versions

    def encode(self, record: StateRecord) -> tuple[bytes, bytes | None]:
        """The key and the value of a record."""
        key = bytearray(_INT16.pack(self._kind_of_key[type(record.key)]))
        encoder(type(record.key), 0)(record.key, key)
        if record.value is None:
            return bytes(key), None
        written = self._written_versions.get(type(record.value), 0)
        version = written if isinstance(written, int) else written(record.value)
        value = bytearray(_INT16.pack(version))
        encoder(type(record.value), version)(record.value, value)
        return bytes(key), bytes(value)

    def decode(self, key: Buffer | None, value: Buffer | None) -> StateRecord | None:
        """What a record says; None if this release does not know such records. ProtocolError if it is damaged."""
        if key is None or len(key) < _INT16.size:
            raise ProtocolError("a record of an internal topic without a key")
        kind = self._kinds.get(_INT16.unpack_from(key)[0])
        if kind is None:
            return None
        key_class, value_class = kind
        key_message, _ = decoder(key_class, 0)(key, _INT16.size)
        if value is None:
            return StateRecord(key_message, None)
        if len(value) < _INT16.size:
            raise ProtocolError("a value without its version")
        version = _INT16.unpack_from(value)[0]
        if version not in declared_versions(value_class):
            return None
        value_message, _ = decoder(value_class, version)(value, _INT16.size)
        return StateRecord(key_message, value_message)
