r"""How `penstock consume` shows a message: by a format string such as '%t %p %o %k %v', or as one line of JSON.

Text that is valid UTF-8 is shown as it is. Bytes that are not are shown escaped (\xff) in text, and as base64 with a
field that says so in JSON. On a terminal control characters are escaped too: a message must not steer the terminal.
"""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from penstock.cli.failure import usage
from penstock.cli.message_input import unescape
from penstock.cli.timestamps import format_timestamp

CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), 127, *range(128, 160)) if chr(code) not in "\n\t"}


class Received(Protocol):
    """The parts of confluent-kafka's message that are shown."""

    def topic(self) -> str | None: ...
    def partition(self) -> int | None: ...
    def offset(self) -> int | None: ...
    def key(self) -> Any: ...
    def value(self) -> Any: ...
    def headers(self) -> Any: ...
    def timestamp(self) -> tuple[int, int]: ...


Part = Callable[[Received], bytes]
Formatter = Callable[[Received], bytes]


class MessageFormat:
    """A format string, compiled once to a list of parts."""

    def __init__(self, template: str, null_marker: str = "", terminal: bool = False) -> None:
        self._null = null_marker.encode()
        self._terminal = terminal
        self._parts = self._compile(template)

    def __call__(self, message: Received) -> bytes:
        return b"".join([part(message) for part in self._parts])

    def _compile(self, template: str) -> list[Part]:
        fields: dict[str, Part] = {
            "t": lambda message: str(message.topic()).encode(),
            "p": lambda message: b"%d" % (message.partition() or 0),
            "o": lambda message: b"%d" % (message.offset() or 0),
            "k": lambda message: self._text(message.key()),
            "v": lambda message: self._text(message.value()),
            "T": lambda message: b"%d" % message.timestamp()[1],
            "D": lambda message: format_timestamp(message.timestamp()[1]).encode(),
            "h": lambda message: self._headers(message.headers()),
            "s": lambda message: b"%d" % _length(message.value()),
            "K": lambda message: b"%d" % _length(message.key()),
        }
        parts: list[Part] = []
        pieces = template.split("%")
        parts.append(_constant(pieces[0]))
        index = 1
        while index < len(pieces):
            if not pieces[index] and index + 1 < len(pieces):
                parts.append(_constant("%" + pieces[index + 1]))
                index += 2
                continue
            letter = pieces[index][:1]
            if letter not in fields:
                raise usage(f"--format does not know %{letter} (known: {' '.join('%' + name for name in fields)} %%)")
            parts += [fields[letter], _constant(pieces[index][1:])]
            index += 1
        return parts

    def _text(self, content: bytes | None) -> bytes:
        return self._null if content is None else show_bytes(content, self._terminal)

    def _headers(self, headers: Sequence[tuple[str, bytes | None]] | None) -> bytes:
        return b",".join(name.encode() + b"=" + self._text(value) for name, value in headers or [])


def _constant(text: str) -> Part:
    shown = unescape(text).encode()
    return lambda message: shown


def _length(content: bytes | None) -> int:
    return -1 if content is None else len(content)


def show_bytes(content: bytes, terminal: bool = False) -> bytes:
    """The bytes as text that can be shown: escaped where they are not UTF-8 or would steer a terminal."""
    text = content.decode("utf-8", "backslashreplace")
    return (text.translate(CONTROLS) if terminal else text).encode()


def raw_value(message: Received) -> bytes:
    """Just the bytes of the value."""
    value: bytes | None = message.value()
    return value or b""


def json_line(message: Received) -> bytes:
    """The message as one line of JSON, which `penstock produce --json` reads back."""
    kind, timestamp_ms = message.timestamp()
    document: dict[str, Any] = {
        "topic": message.topic(),
        "partition": message.partition(),
        "offset": message.offset(),
        "timestamp": timestamp_ms if timestamp_ms >= 0 else None,
        "timestamp_type": {1: "create", 2: "append"}.get(kind),
    }
    for name, content in (("key", message.key()), ("value", message.value())):
        document[name], encoding = _json_content(content)
        if encoding:
            document[f"{name}_encoding"] = encoding
    document["headers"] = _json_headers(message.headers() or [])
    return json.dumps(document, ensure_ascii=False).encode() + b"\n"


def _json_content(content: bytes | None) -> tuple[str | None, str | None]:
    if content is None:
        return None, None
    try:
        return content.decode(), None
    except UnicodeDecodeError:
        return base64.b64encode(content).decode(), "base64"


def _json_headers(headers: Sequence[tuple[str, bytes | None]]) -> dict[str, Any] | list[list[Any]]:
    """An object, or a list of pairs where a name occurs twice (Kafka allows it, JSON does not)."""
    shown = [(name, _json_header(value)) for name, value in headers]
    if any(count > 1 for count in Counter(name for name, _ in headers).values()):
        return [[name, value] for name, value in shown]
    return dict(shown)


def _json_header(value: bytes | None) -> Any:
    text, encoding = _json_content(value)
    return {"base64": text} if encoding else text
