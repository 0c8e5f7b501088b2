"""ZooKeeper's way of writing things down ("jute"), and its records, in both directions.

Numbers are big-endian, buffers and strings have an int32 length (-1: none), vectors an int32 count. What is read is
checked against the bytes that remain before anything is allocated. A record is a `Record` subclass whose fields are
written in the order of their declaration, each with the type that its annotation names.
"""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from typing import Any, NamedTuple, TypeAlias

from penstock.base.world import Buffer
from penstock.zookeeper.errors import MarshallingError
from penstock.zookeeper.operations import Acl, Identity, Stat

_INT = Struct(">i")
_LONG = Struct(">q")
_STAT = Struct(">qqqqiiiqiiq")

Writer: TypeAlias = bytearray


class Reader:
    """Reads one frame from its beginning to its end."""

    __slots__ = ("_data", "position")

    def __init__(self, data: Buffer, position: int = 0) -> None:
        self._data = memoryview(data)
        self.position = position

    @property
    def is_at_end(self) -> bool:
        return self.position >= len(self._data)

    def _take(self, count: int) -> memoryview:
        if count < 0 or count > len(self._data) - self.position:
            raise MarshallingError(f"{count} bytes were announced where {len(self._data) - self.position} are left")
        taken = self._data[self.position : self.position + count]
        self.position += count
        return taken

    def integer(self) -> int:
        value: int = _INT.unpack(self._take(4))[0]
        return value

    def long(self) -> int:
        value: int = _LONG.unpack(self._take(8))[0]
        return value

    def boolean(self) -> bool:
        return self._take(1)[0] != 0

    def buffer(self) -> bytes:
        """A buffer; one that is not there reads as an empty one."""
        count = self.integer()
        return b"" if count == -1 else bytes(self._take(count))

    def string(self) -> str:
        try:
            return str(self._take(self.integer()), "utf-8")  # one that is not there is a mistake
        except UnicodeDecodeError as error:
            raise MarshallingError(f"a string that is not UTF-8: {error}") from error

    def count(self) -> int:
        """How many items of a vector follow; each takes at least four bytes."""
        count = self.integer()
        if count == -1:
            return 0
        if count < 0 or count * 4 > len(self._data) - self.position:
            raise MarshallingError(f"a vector of {count} items where {len(self._data) - self.position} bytes are left")
        return count

    def strings(self) -> list[str]:
        return [self.string() for _ in range(self.count())]

    def acl(self) -> tuple[Acl, ...]:
        return tuple(Acl(self.integer(), Identity(self.string(), self.string())) for _ in range(self.count()))

    def stat(self) -> Stat:
        return Stat(*_STAT.unpack(self._take(_STAT.size)))


def write_integer(value: int, out: Writer) -> None:
    out += _INT.pack(value)


def write_long(value: int, out: Writer) -> None:
    out += _LONG.pack(value)


def write_boolean(value: bool, out: Writer) -> None:
    out.append(1 if value else 0)


def write_buffer(value: bytes, out: Writer) -> None:
    out += _INT.pack(len(value))
    out += value


def write_string(value: str, out: Writer) -> None:
    write_buffer(value.encode(), out)


def write_strings(values: list[str], out: Writer) -> None:
    out += _INT.pack(len(values))
    for value in values:
        write_string(value, out)


def write_acl(acl: tuple[Acl, ...], out: Writer) -> None:
    out += _INT.pack(len(acl))
    for permissions, (scheme, name) in acl:
        out += _INT.pack(permissions)
        write_string(scheme, out)
        write_string(name, out)


def write_stat(stat: Stat, out: Writer) -> None:
    out += _STAT.pack(*stat)


class _Kind(NamedTuple):
    read: Callable[[Reader], Any]
    write: Callable[[Any, Writer], None]


KINDS: dict[str, _Kind] = {
    "Int": _Kind(Reader.integer, write_integer),
    "Long": _Kind(Reader.long, write_long),
    "Bool": _Kind(Reader.boolean, write_boolean),
    "Bytes": _Kind(Reader.buffer, write_buffer),
    "Text": _Kind(Reader.string, write_string),
    "Texts": _Kind(Reader.strings, write_strings),
    "Acls": _Kind(Reader.acl, write_acl),
    "NodeStat": _Kind(Reader.stat, write_stat),
}

Int: TypeAlias = int
Long: TypeAlias = int
Bool: TypeAlias = bool
Bytes: TypeAlias = bytes
Text: TypeAlias = str
Texts: TypeAlias = list[str]
Acls: TypeAlias = tuple[Acl, ...]
NodeStat: TypeAlias = Stat


_kinds: dict[type[Any], tuple[_Kind, ...]] = {}


def _kinds_of(cls: type[Any]) -> tuple[_Kind, ...]:
    found = _kinds.get(cls)
    if found is None:
        found = _kinds[cls] = tuple(KINDS[kind.__forward_arg__] for kind in cls.__annotations__.values())
    return found


def read_record(cls: type[Any], reader: Reader) -> Any:
    """A record: a NamedTuple whose annotations are the names of `KINDS`."""
    return cls(*(kind.read(reader) for kind in _kinds_of(cls)))


def write_record(record: Any, out: Writer) -> None:
    for value, kind in zip(record, _kinds_of(type(record)), strict=True):
        kind.write(value, out)
