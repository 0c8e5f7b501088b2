"""Python source under construction: lines, the values they refer to, and which field each line is about.

The compilers of encoders and decoders write one flat function for a message and a version. Its code is free of
context: it raises whatever goes wrong. When that happens, the number of the failed line says which field it was, and
`Source.compile` gives the function an `except` that makes a ProtocolError of it; success costs nothing.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from penstock.wire.schema import ProtocolError
from penstock.wire.varint import Malformed

DECODING_FAULTS = (Malformed, struct.error, IndexError, UnicodeError)
ENCODING_FAULTS = (Malformed, struct.error, UnicodeError, AttributeError, TypeError)  # wrong values, null among them


class Source:
    """One function: `add` lines inside nested `block`s, inside the `field` they are about."""

    def __init__(self, title: str) -> None:
        self._title = title
        self._lines: list[str] = []
        self._field_of_line: list[str] = []
        self._depth = 0
        self._path: list[str] = []
        self._names = 0
        self._constants: dict[str, Any] = {}

    def add(self, line: str, field: str | None = None) -> None:
        self._lines.append("    " * self._depth + line)
        self._field_of_line.append(self.path if field is None else field)

    @contextmanager
    def block(self, line: str) -> Iterator[None]:
        self.add(line)
        self._depth += 1
        yield
        self._depth -= 1

    @contextmanager
    def field(self, name: str) -> Iterator[None]:
        self._path.append(name)
        yield
        self._path.pop()

    @property
    def path(self) -> str:
        return ".".join(self._path)

    def name(self, prefix: str) -> str:
        """A variable that no other line uses."""
        self._names += 1
        return f"{prefix}{self._names}"

    def constant(self, prefix: str, value: Any) -> str:
        """The name under which the function sees a value."""
        name = self.name(prefix)
        self._constants[name] = value
        return name

    def compile(
        self, signature: str, constants: dict[str, Any], faults: tuple[type[Exception], ...], recover: str = "pass"
    ) -> Callable[..., Any]:
        """The function. `faults` are what its lines may raise, `recover` a line to run when that happens."""
        header = [f"def run({signature}):", "    try:"]
        footer = ["    except FAULTS as fault:", f"        {recover}", "        raise explain(fault) from None"]
        lines = header + ["        " + line for line in self._lines] + footer
        namespace = {**constants, **self._constants, "FAULTS": faults, "explain": self._explainer(len(header))}
        exec(compile("\n".join(lines), f"<{self._title}>", "exec"), namespace)  # noqa: S102 (our own declarations)
        function: Callable[..., Any] = namespace["run"]
        return function

    def _explainer(self, lines_before: int) -> Callable[[Exception], ProtocolError]:
        def explain(fault: Exception) -> ProtocolError:
            assert fault.__traceback__ is not None
            line = fault.__traceback__.tb_lineno - lines_before
            field = self._field_of_line[line - 1]
            return ProtocolError(": ".join(part for part in (self._title, field, _text(fault)) if part))

        return explain


def _text(fault: Exception) -> str:
    if isinstance(fault, IndexError) or (isinstance(fault, struct.error) and "unpack" in str(fault)):
        return "the bytes end too soon"
    if isinstance(fault, UnicodeDecodeError):
        return "a string is not valid UTF-8"
    if "NoneType" in str(fault):
        return "null is not allowed in this version"
    return str(fault)


class Run:
    """Fixed-size fields next to each other, which one struct.Struct packs or unpacks together."""

    def __init__(self) -> None:
        self.format = ""
        self.names: list[str] = []
        self.fields: list[str] = []

    def add(self, code: str, name: str | None, field: str) -> None:
        """The code may be "x", a zero byte that has no name."""
        self.format += code
        if name is not None:
            self.names.append(name)
        self.fields.append(field)

    @property
    def is_empty(self) -> bool:
        return not self.fields

    @property
    def field(self) -> str:
        first, last = self.fields[0], self.fields[-1]
        return first if first == last else f"{first} to {last}"

    @property
    def struct(self) -> struct.Struct:
        return struct.Struct(">" + self.format)
