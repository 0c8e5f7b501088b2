"""Where settings are written down: .properties files as Java reads them, and environment variables."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from penstock.base.settings import SettingsError

ENVIRONMENT_PREFIX = "PENSTOCK_"

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|(u)|(.)|$)", re.DOTALL)
_KEY = re.compile(r"((?:\\.|[^\\=:\s])*)\s*[=:]?\s*", re.DOTALL)


def parse_properties(text: str) -> dict[str, str]:
    """The settings of a .properties file; a name that is given twice has its last value. SettingsError if malformed."""
    values: dict[str, str] = {}
    problems: list[str] = []
    for number, line in _logical_lines(text):
        match = _KEY.match(line)
        assert match is not None
        try:
            values[_unescape(match[1])] = _unescape(line[match.end() :])
        except ValueError as error:
            problems.append(f"line {number}: {error}")
    if problems:
        raise SettingsError(problems)
    return values


def _logical_lines(text: str) -> list[tuple[int, str]]:
    """Lines with a setting, joined where one ends with a backslash, each with the number of its first line."""
    lines: list[tuple[int, str]] = []
    begun: tuple[int, str] | None = None
    for number, raw in enumerate(re.split(r"\r\n|\r|\n", text), start=1):
        line = raw.lstrip(" \t\f")
        if begun is None and (not line or line[0] in "#!"):
            continue
        first, start = begun or (number, "")
        trailing_backslashes = len(line) - len(line.rstrip("\\"))
        if trailing_backslashes % 2:
            begun = first, start + line[:-1]
        else:
            lines.append((first, start + line))
            begun = None
    return [*lines, begun] if begun else lines


def _unescape(text: str) -> str:
    def replacement(match: re.Match[str]) -> str:
        if match[2]:
            raise ValueError("\\u needs four hexadecimal digits")
        return chr(int(match[1], 16)) if match[1] else _ESCAPES.get(match[3] or "", match[3] or "")

    return _ESCAPE.sub(replacement, text)


def from_environment(environment: Mapping[str, str], reserved: Collection[str] = ()) -> dict[str, str]:
    """Settings from variables like PENSTOCK_LOG_RETENTION_MS, without those in `reserved` (which mean something else).

    An underscore is a dot, two are an underscore and three a dash: PENSTOCK_LISTENER_NAME_MY__NET_MAX_CONNECTIONS.
    """
    return {
        _setting_name(variable): text
        for variable, text in environment.items()
        if variable.startswith(ENVIRONMENT_PREFIX) and variable not in reserved
    }


def _setting_name(variable: str) -> str:
    words = {1: ".", 2: "_", 3: "-"}
    name = variable.removeprefix(ENVIRONMENT_PREFIX).lower()
    return re.sub(r"_{1,3}", lambda match: words[len(match[0])], name)
