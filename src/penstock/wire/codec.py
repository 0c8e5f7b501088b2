"""Messages to bytes and back, for any version they are declared for.

    data = encode(MetadataRequest(topics=None), 12)
    request, position = decode(MetadataRequest, 12, data)

The code that does it is compiled from the declarations on first use of a class in a version (see `encoding` and
`decoding`). A caller on a hot path asks once for the compiled function. Both raise ProtocolError; bytes after the
message are the caller's matter, who gets the position where it ended.
"""

from __future__ import annotations

from typing import Any, Protocol, TypeVar

from penstock.base.world import Buffer
from penstock.wire.decoding import compile_decoder
from penstock.wire.encoding import compile_encoder
from penstock.wire.schema import M, Message, ProtocolError, schema_of

Decoded = TypeVar("Decoded", covariant=True)
Encoded = TypeVar("Encoded", contravariant=True)


class Decoder(Protocol[Decoded]):
    """Reads one message at a position; returns it and the position after it."""

    def __call__(self, buffer: Buffer, position: int = 0, /) -> tuple[Decoded, int]: ...


class Encoder(Protocol[Encoded]):
    """Appends one message; after an error nothing has been appended."""

    def __call__(self, message: Encoded, out: bytearray, /) -> None: ...


_decoders: dict[tuple[type, int], Any] = {}
_encoders: dict[tuple[type, int], Any] = {}


def decoder(cls: type[M], version: int) -> Decoder[M]:
    """The compiled decoder of a message in a version; ProtocolError if it has no such version."""
    found: Decoder[M] | None = _decoders.get((cls, version))
    if found is None:
        _check_version(cls, version)
        found = _decoders[cls, version] = compile_decoder(cls, version)
    return found


def encoder(cls: type[M], version: int) -> Encoder[M]:
    """The compiled encoder of a message in a version; ProtocolError if it has no such version."""
    found: Encoder[M] | None = _encoders.get((cls, version))
    if found is None:
        _check_version(cls, version)
        found = _encoders[cls, version] = compile_encoder(cls, version)
    return found


def decode(cls: type[M], version: int, buffer: Buffer, position: int = 0) -> tuple[M, int]:
    """The message at a position of a buffer, and the position after it. Fields of type `Records` are slices of the
    buffer, everything else is copied out of it."""
    return decoder(cls, version)(buffer, position)


def encode(message: Message, version: int) -> bytes:
    out = bytearray()
    encoder(type(message), version)(message, out)
    return bytes(out)


def encode_into(message: Message, version: int, out: bytearray) -> None:
    """Append the message to a bytearray."""
    encoder(type(message), version)(message, out)


def _check_version(cls: type[Message], version: int) -> None:
    versions = schema_of(cls).versions
    if version not in versions:
        raise ProtocolError(f"{cls.__name__} has versions {versions}, not {version}")
