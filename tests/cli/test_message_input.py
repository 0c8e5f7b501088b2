"""Lines as messages."""

from __future__ import annotations

import pytest

from penstock.cli.message_input import InputMessage, JsonLines, LineError, PlainLines, parse_headers, unescape


def test_plain_lines_are_values() -> None:
    assert PlainLines().parse(b"a:b") == InputMessage(b"a:b")
    assert PlainLines().parse(b"") == InputMessage(b"")


def test_a_separator_ends_the_key() -> None:
    lines = PlainLines(b":")
    assert lines.parse(b"k:v:w") == InputMessage(b"v:w", b"k")
    assert lines.parse(b":v") == InputMessage(b"v", b"")
    with pytest.raises(LineError, match="no key separator"):
        lines.parse(b"kv")


def test_a_marker_means_null() -> None:
    assert PlainLines(b":", b"NULL").parse(b"k:NULL") == InputMessage(None, b"k")
    assert PlainLines(None, b"NULL").parse(b"NULL") == InputMessage(None)
    assert PlainLines(None, b"").parse(b"") == InputMessage(None)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b'{"value": "v"}', InputMessage(b"v")),
        (b'{"value": null, "key": "k"}', InputMessage(None, b"k")),
        (b'{"value": {"a": [1, "\xc3\xbc"]}, "key": 7}', InputMessage('{"a":[1,"ü"]}'.encode(), b"7")),
        (b'{"value": "/w==", "value_encoding": "base64"}', InputMessage(b"\xff")),
        (b'{"value": "v", "headers": {"a": "1", "b": null}}', InputMessage(b"v", None, [("a", b"1"), ("b", None)])),
        (b'{"value": "v", "headers": [["a", {"base64": "/w=="}]]}', InputMessage(b"v", None, [("a", b"\xff")])),
        (b'{"value": "v", "partition": 2, "timestamp": 5}', InputMessage(b"v", None, [], 2, 5)),
        (b'{"value": "v", "timestamp": "1970-01-01T00:00:01Z"}', InputMessage(b"v", None, [], None, 1000)),
        (b'{"value": "v", "topic": "t", "offset": 9}', InputMessage(b"v")),
    ],
)
def test_json_lines(line: bytes, message: InputMessage) -> None:
    assert JsonLines().parse(line) == message


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"", "not JSON"),
        (b"\xff", "not JSON"),
        (b'"text"', "not a JSON object"),
        (b'{"vlaue": 1}', "unknown field 'vlaue'"),
        (b"{}", "no field 'value'"),
        (b'{"value": "v", "partition": -1}', "partition is -1"),
        (b'{"value": "v", "partition": true}', "partition is True"),
        (b'{"value": "v", "timestamp": "soon"}', "timestamp"),
        (b'{"value": "v", "timestamp": 1.5}', "timestamp is 1.5"),
        (b'{"value": "v", "headers": "a=1"}', "headers is neither"),
        (b'{"value": "v", "headers": [["a"]]}', "headers is neither"),
        (b'{"value": "?", "value_encoding": "base64"}', "value is not base64"),
        (b'{"value": 1, "value_encoding": "base64"}', "value is not a string"),
        (b'{"value": "v", "key_encoding": "hex"}', "key_encoding is 'hex'"),
    ],
)
def test_wrong_json_lines(line: bytes, problem: str) -> None:
    with pytest.raises(LineError, match=problem):
        JsonLines().parse(line)


def test_headers_of_the_command_line() -> None:
    assert parse_headers(None) == []
    assert parse_headers("a=1, b=x=y,c=") == [("a", b"1"), ("b", b"x=y"), ("c", b"")]
    assert parse_headers(r"a=1\,2,b=3") == [("a", b"1,2"), ("b", b"3")]
    with pytest.raises(LineError, match="wants NAME=VALUE"):
        parse_headers("a=1,b")


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        (r"\t", "\t"),
        (r"a\nb", "a\nb"),
        (r"\\n", r"\n"),
        (r"\x1f|", "\x1f|"),
        (r"\q", r"\q"),
        ("\\", "\\"),
        (r"\xg1", r"\xg1"),
    ],
)
def test_escapes(text: str, meant: str) -> None:
    assert unescape(text) == meant
