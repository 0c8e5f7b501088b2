"""Lines of text as messages: what `penstock produce` reads.

A line is either plain (a value, perhaps with a key before a separator) or one JSON object with the fields key, value,
headers, partition and timestamp. `penstock consume --json` prints exactly such objects, so the output of one is input
for the other. Wrong input raises `LineError`, which says what is wrong; the caller knows which line it was.
"""

from __future__ import annotations

import base64
import binascii
import json
from dataclasses import dataclass, field
from typing import Any

from penstock.cli.failure import Failure
from penstock.cli.timestamps import parse_timestamp_ms

FIELDS = {"key", "value", "headers", "partition", "timestamp", "key_encoding", "value_encoding"}
IGNORED_FIELDS = {"topic", "offset", "timestamp_type"}
ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "\\": "\\", "e": "\x1b"}

Header = tuple[str, bytes | None]


class LineError(ValueError):
    """A line of the input that is no message."""


@dataclass(slots=True)
class InputMessage:
    """A message to send; what is None is left to the client or the broker."""

    value: bytes | None
    key: bytes | None = None
    headers: list[Header] = field(default_factory=list)
    partition: int | None = None
    timestamp_ms: int | None = None


@dataclass(slots=True, frozen=True)
class PlainLines:
    """How to read plain lines: what separates key and value, and which text stands for null."""

    key_separator: bytes | None = None
    null_marker: bytes | None = None

    def parse(self, line: bytes) -> InputMessage:
        """One line, without its line break, as a message."""
        if self.key_separator is None:
            return InputMessage(self._or_null(line))
        key, separator, value = line.partition(self.key_separator)
        if not separator:
            raise LineError(f"no key separator {self.key_separator.decode(errors='replace')!r} in it")
        return InputMessage(self._or_null(value), self._or_null(key))

    def _or_null(self, text: bytes) -> bytes | None:
        return None if self.null_marker is not None and text == self.null_marker else text


class JsonLines:
    """Reads lines that are JSON objects."""

    def parse(self, line: bytes) -> InputMessage:
        """One JSON object as a message."""
        try:
            document = json.loads(line)
        except ValueError as error:
            raise LineError(f"not JSON ({error})") from error
        if not isinstance(document, dict):
            raise LineError('not a JSON object such as {"key": "a", "value": "b"}')
        unknown = document.keys() - FIELDS - IGNORED_FIELDS
        if unknown:
            raise LineError(f"unknown field {sorted(unknown)[0]!r} (known: {', '.join(sorted(FIELDS))})")
        if "value" not in document:
            raise LineError("no field 'value' (null is allowed)")
        return InputMessage(
            value=_bytes_of(document["value"], document.get("value_encoding"), "value"),
            key=_bytes_of(document.get("key"), document.get("key_encoding"), "key"),
            headers=_headers_of(document.get("headers")),
            partition=_partition_of(document.get("partition")),
            timestamp_ms=_timestamp_of(document.get("timestamp")),
        )


def _bytes_of(content: Any, encoding: Any, name: str) -> bytes | None:
    if encoding not in (None, "base64"):
        raise LineError(f"{name}_encoding is {encoding!r}; only 'base64' is known")
    if content is None:
        return None
    if encoding == "base64":
        return _decode_base64(content, name)
    if isinstance(content, str):
        return content.encode("utf-8", "surrogatepass")
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()


def _decode_base64(content: Any, name: str) -> bytes:
    if not isinstance(content, str):
        raise LineError(f"{name} is not a string of base64")
    try:
        return base64.b64decode(content, validate=True)
    except (binascii.Error, ValueError) as error:
        raise LineError(f"{name} is not base64") from error


def _headers_of(headers: Any) -> list[Header]:
    if headers is None:
        return []
    pairs = list(headers.items()) if isinstance(headers, dict) else headers
    if not isinstance(pairs, list) or not all(
        isinstance(pair, (list, tuple)) and len(pair) == 2 and isinstance(pair[0], str) for pair in pairs
    ):
        raise LineError('headers is neither {"name": "value"} nor [["name", "value"], …]')
    return [(name, _header_value(value)) for name, value in pairs]


def _header_value(value: Any) -> bytes | None:
    if isinstance(value, dict) and value.keys() == {"base64"}:
        return _decode_base64(value["base64"], "a header")
    return _bytes_of(value, None, "a header")


def _partition_of(partition: Any) -> int | None:
    if partition is None:
        return None
    if isinstance(partition, bool) or not isinstance(partition, int) or partition < 0:
        raise LineError(f"partition is {partition!r}, not a number from 0")
    return partition


def _timestamp_of(timestamp: Any) -> int | None:
    if timestamp is None:
        return None
    if isinstance(timestamp, str):
        try:
            return parse_timestamp_ms(timestamp)
        except Failure as failure:
            raise LineError(f"timestamp: {failure.message}") from failure
    if isinstance(timestamp, bool) or not isinstance(timestamp, int) or timestamp < 0:
        raise LineError(f"timestamp is {timestamp!r}, neither milliseconds since 1970 nor ISO 8601")
    return timestamp


def parse_headers(text: str | None) -> list[Header]:
    """`a=1,b=2` as headers; a backslash before a comma keeps it."""
    if not text:
        return []
    headers: list[Header] = []
    for part in text.replace("\\,", "\0").split(","):
        name, separator, value = part.replace("\0", ",").partition("=")
        if not separator or not name.strip():
            raise LineError(f"wants NAME=VALUE,NAME=VALUE, not {part!r}")
        headers.append((name.strip(), value.encode()))
    return headers


def unescape(text: str) -> str:
    r"""Turns \n, \t, \r, \0, \e, \\ and \xNN, as people write them in a shell, into the characters they mean."""
    result: list[str] = []
    index = 0
    while index < len(text):
        if text[index] != "\\" or index + 1 == len(text):
            result.append(text[index])
            index += 1
            continue
        digits = text[index + 2 : index + 4]
        if text[index + 1] == "x" and len(digits) == 2 and all(digit in "0123456789abcdefABCDEF" for digit in digits):
            result.append(chr(int(digits, 16)))
            index += 4
            continue
        result.append(ESCAPES.get(text[index + 1], text[index : index + 2]))
        index += 2
    return "".join(result)
