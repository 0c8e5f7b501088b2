"""The headers in front of every request and response.

A request on the wire is a 32-bit size, a header and a message. The header says which API in which version, and so how
to read the rest: itself too, because flexible versions have a flexible header. A response has only the number of the
request it answers; which API and version it is, the client remembers.

Known are the APIs whose messages the program has imported; the header of any other is read as an inflexible one, which
is enough to refuse it.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from penstock.base.world import Buffer
from penstock.wire.api_declaration import API_VERSIONS_KEY, FLEXIBLE_SINCE
from penstock.wire.schema import ProtocolError
from penstock.wire.varint import Malformed, read_varint, skip_tagged_fields

_NEVER = 0x7FFF
_FIXED_PART = Struct(">hhih")  # with the length of the client id, which is never compact
_CORRELATION_ID = Struct(">i")
_new_tuple = tuple.__new__  # half the time of calling the class, and every request has a header


class RequestHeader(NamedTuple):
    """What comes before the message of a request."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def request_header_version(api_key: int, api_version: int) -> int:
    """2 for flexible versions, 1 for the others (and for keys we do not know)."""
    return 2 if api_version >= FLEXIBLE_SINCE.get(api_key, _NEVER) else 1


def response_header_version(api_key: int, api_version: int) -> int:
    """1 for flexible versions, 0 for the others, and always 0 for ApiVersions: its client cannot know yet."""
    if api_key == API_VERSIONS_KEY:
        return 0
    return 1 if api_version >= FLEXIBLE_SINCE.get(api_key, _NEVER) else 0


def decode_request_header(buffer: Buffer, position: int = 0) -> tuple[RequestHeader, int]:
    """The header and the position of the message. A key that is not in `APIS` is for the caller to notice."""
    try:
        key, version, correlation_id, length = _FIXED_PART.unpack_from(buffer, position)
        position += 10
        client_id = None
        if length >= 0:
            stop = position + length
            if stop > len(buffer):
                raise Malformed(
                    f"a client id of {length} bytes needs more than the {len(buffer) - position} that remain"
                )
            client_id = str(buffer[position:stop], "utf-8")
            position = stop
        if version >= FLEXIBLE_SINCE.get(key, _NEVER):
            if buffer[position]:
                count, position = read_varint(buffer, position)
                position = skip_tagged_fields(buffer, position, count, len(buffer))
            else:
                position += 1
    except (StructError, IndexError, UnicodeError, Malformed) as fault:
        text = fault if isinstance(fault, Malformed | UnicodeError) else "the bytes end too soon"
        raise ProtocolError(f"request header: {text}") from None
    return _new_tuple(RequestHeader, (key, version, correlation_id, client_id)), position


def encode_request_header(header: RequestHeader, out: bytearray) -> None:
    client_id = None if header.client_id is None else header.client_id.encode()
    length = -1 if client_id is None else len(client_id)
    try:
        out += _FIXED_PART.pack(header.api_key, header.api_version, header.correlation_id, length)
    except StructError as fault:
        raise ProtocolError(f"request header: {fault}") from None
    out += client_id or b""
    if request_header_version(header.api_key, header.api_version) == 2:
        out.append(0)


def decode_response_header(api_key: int, api_version: int, buffer: Buffer, position: int = 0) -> tuple[int, int]:
    """The correlation id and the position of the message."""
    try:
        (correlation_id,) = _CORRELATION_ID.unpack_from(buffer, position)
        position += 4
        if response_header_version(api_key, api_version) == 1:
            count, position = read_varint(buffer, position)
            position = skip_tagged_fields(buffer, position, count, len(buffer))
    except (StructError, IndexError) as fault:
        raise ProtocolError("response header: the bytes end too soon") from fault
    except Malformed as fault:
        raise ProtocolError(f"response header: {fault}") from None
    return correlation_id, position


def encode_response_header(api_key: int, api_version: int, correlation_id: int, out: bytearray) -> None:
    out += _CORRELATION_ID.pack(correlation_id)
    if response_header_version(api_key, api_version) == 1:
        out.append(0)
