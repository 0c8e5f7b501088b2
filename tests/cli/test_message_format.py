"""How consumed messages are shown."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.cli.failure import Failure
from penstock.cli.message_format import MessageFormat, json_line, raw_value, show_bytes
from penstock.cli.message_input import JsonLines


class FakeMessage:
    """A message as confluent-kafka hands it out."""

    def __init__(self, **parts: Any) -> None:
        self._parts = {
            "topic": "orders",
            "partition": 3,
            "offset": 42,
            "key": b"k",
            "value": b"v",
            "headers": [("a", b"1"), ("b", None)],
            "timestamp": (1, 1767225600123),
        } | parts

    def __getattr__(self, name: str) -> Any:
        return lambda: self._parts[name]


@pytest.mark.parametrize(
    ("template", "shown"),
    [
        ("%t %p %o %k %v", b"orders 3 42 k v"),
        ("%T %D", b"1767225600123 2026-01-01T00:00:00.123Z"),
        ("%h", b"a=1,b="),
        ("%s %K", b"1 1"),
        (r"%k\t%v\n", b"k\tv\n"),
        ("100%% %v%%", b"100% v%"),
        ("%%v", b"%v"),
        ("%%%v", b"%v"),
        ("%%%%", b"%%"),
        ("%v%v", b"vv"),
        ("", b""),
        ("no fields", b"no fields"),
    ],
)
def test_format_strings(template: str, shown: bytes) -> None:
    assert MessageFormat(template)(FakeMessage()) == shown


@pytest.mark.parametrize("template", ["%", "%q", "%v %", "% v"])
def test_an_unknown_field_is_wrong_usage(template: str) -> None:
    with pytest.raises(Failure, match="--format does not know"):
        MessageFormat(template)


def test_null_is_shown_as_the_marker_and_has_length_minus_one() -> None:
    message = FakeMessage(key=None, value=None, headers=None)
    assert MessageFormat("[%k][%v][%h] %s %K", "NULL")(message) == b"[NULL][NULL][] -1 -1"


def test_bytes_that_are_not_text_are_escaped() -> None:
    assert show_bytes(b"caf\xc3\xa9 \xff\x00") == "café \\xff\x00".encode()


def test_a_message_cannot_steer_a_terminal() -> None:
    assert show_bytes(b"\x1b[2J ok\n\t\x7f", terminal=True) == b"\\x1b[2J ok\n\t\\x7f"


def test_json_of_text() -> None:
    document = json.loads(json_line(FakeMessage()))
    assert document == {
        "topic": "orders",
        "partition": 3,
        "offset": 42,
        "timestamp": 1767225600123,
        "timestamp_type": "create",
        "key": "k",
        "value": "v",
        "headers": {"a": "1", "b": None},
    }


@pytest.mark.parametrize(
    "parts",
    [
        {},
        {"key": None, "value": None, "headers": None},
        {"key": b"\xff\x00", "value": b"\x80" * 10},
        {"headers": [("a", b"1"), ("a", b"2")]},
        {"headers": [("a", b"\xff"), ("b", "ü".encode())]},
        {"value": "zwei\nZeilen ü".encode()},
    ],
)
def test_json_lines_can_be_produced_again(parts: dict[str, Any]) -> None:
    message = FakeMessage(**parts)
    line = json_line(message)
    assert line.count(b"\n") == 1
    again = JsonLines().parse(line)
    assert (again.key, again.value) == (message.key(), message.value())
    assert again.headers == (message.headers() or [])
    assert (again.partition, again.timestamp_ms) == (3, 1767225600123)


def test_raw_values() -> None:
    assert raw_value(FakeMessage(value=b"\xff\n")) == b"\xff\n"
    assert raw_value(FakeMessage(value=None)) == b""
