"""How a message of Kafka's protocol is declared: the class is the schema, the type and the documentation.

    @struct
    class MetadataRequestTopic:
        topic_id: UUID = field("10+", ignorable=True)
        name: str | None = field("0+", nullable="10+")

    @message("0-13", flexible="9+")
    class MetadataRequest:
        topics: list[MetadataRequestTopic] | None = field("0+", nullable="1+")
        allow_auto_topic_creation: bool = field("4+", default=True)

The annotation is both the Python type and, with the widths below (`int8` … `Records`), the type on the wire. `field`
says in which versions the field exists, in which it may be null, and under which tag it travels if it is a tagged
one. Messages are dataclasses with slots, built with keywords; what is left out has Kafka's default.

There are some hundreds of them and a broker uses a few, so all that costs time waits for the first use: annotations
are read by `schema_of`, and a constructor is compiled when its class is first called. Importing stays cheap.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import cache, lru_cache
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Protocol,
    TypeAlias,
    TypeVar,
    Union,
    dataclass_transform,
    get_args,
    get_origin,
    get_type_hints,
)
from uuid import UUID

from penstock.base.identifiers import NO_ID
from penstock.base.world import Buffer


class ProtocolError(ValueError):
    """Bytes that are not the message they should be, or a message that its version cannot carry."""


class Kind(Enum):
    """A type on the wire; the value is its code in the struct module where it has a fixed size."""

    BOOL = "?"
    INT8 = "b"
    INT16 = "h"
    INT32 = "i"
    INT64 = "q"
    UINT16 = "H"
    UINT32 = "I"
    FLOAT64 = "d"
    UUID = "16s"
    STRING = "string"
    BYTES = "bytes"
    RECORDS = "records"
    STRUCT = "struct"


PACKED_TOGETHER = frozenset(kind for kind in Kind if len(kind.value) == 1)  # an array of them is packed in one go

int8: TypeAlias = Annotated[int, Kind.INT8]
int16: TypeAlias = Annotated[int, Kind.INT16]
int32: TypeAlias = Annotated[int, Kind.INT32]
int64: TypeAlias = Annotated[int, Kind.INT64]
uint16: TypeAlias = Annotated[int, Kind.UINT16]
uint32: TypeAlias = Annotated[int, Kind.UINT32]
float64: TypeAlias = Annotated[float, Kind.FLOAT64]
Records: TypeAlias = Annotated[Buffer, Kind.RECORDS]  # decoded to a slice of the buffer, not to a copy

_KIND_OF_TYPE = {bool: Kind.BOOL, str: Kind.STRING, bytes: Kind.BYTES, UUID: Kind.UUID}
_ZERO = {Kind.BOOL: False, Kind.FLOAT64: 0.0, Kind.UUID: NO_ID, Kind.STRING: "", Kind.BYTES: b"", Kind.RECORDS: b""}


class Message(Protocol):
    """Any class declared with `message` or `struct`."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


T = TypeVar("T")
M = TypeVar("M", bound=Message)


@dataclass(frozen=True, slots=True)
class Versions:
    """A range of versions, both ends included. Written "3-7", "3", "3+" or "none"."""

    first: int
    last: int

    def __contains__(self, version: int) -> bool:
        return self.first <= version <= self.last

    def __str__(self) -> str:
        return f"{self.first}-{self.last}" if self.last != self.first else str(self.first)


_LAST = 0x7FFF
NO_VERSIONS = Versions(_LAST, -1)


@lru_cache
def parse_versions(text: str) -> Versions:
    if text == "none":
        return NO_VERSIONS
    if text.endswith("+"):
        return Versions(int(text[:-1]), _LAST)
    first, _, last = text.partition("-")
    return Versions(int(first), int(last or first))


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field of a message, with everything the compilers need to know."""

    name: str
    kind: Kind
    versions: Versions
    nullable: Versions
    default: Any  # for an array [] or None; for a struct None, or its class where the default is one with defaults
    ignorable: bool
    tag: int | None
    is_array: bool
    struct: type[Message] | None

    @property
    def is_fixed_size(self) -> bool:
        return not self.is_array and self.kind not in (Kind.STRING, Kind.BYTES, Kind.RECORDS, Kind.STRUCT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Schema:
    """A class and its fields, in their order on the wire. A nested struct lives by the versions of its message."""

    cls: type[Message]
    versions: Versions
    flexible: Versions
    fields: tuple[Field, ...]


_TYPE_DEFAULT = object()


def field(
    versions: str,
    *,
    nullable: str = "none",
    default: Any = _TYPE_DEFAULT,
    tag: int | None = None,
    ignorable: bool = False,
) -> Any:
    """Declare a field: the versions it is in, those where it may be null, its default if that is not the zero of its
    type, its tag if it is a tagged field, and whether a version without it may silently drop its value."""
    return dataclasses.field(metadata=_declared(versions, nullable, default, tag, ignorable))


@lru_cache(maxsize=None, typed=True)
def _declared(versions: str, nullable: str, default: Any, tag: int | None, ignorable: bool) -> dict[str, Any]:
    """What `field` was told. Most of the two thousand fields are told one of a few things, and share it."""
    return {"versions": versions, "nullable": nullable, "default": default, "tag": tag, "ignorable": ignorable}


@dataclass_transform(kw_only_default=True)
def message(versions: str, *, flexible: str = "none") -> Callable[[type[T]], type[T]]:
    """Declare a message: the versions we speak, and those with compact lengths and tagged fields."""

    def declare(cls: type[T]) -> type[T]:
        return _declare(cls, versions, flexible)

    return declare


@dataclass_transform(kw_only_default=True)
def struct(cls: type[T]) -> type[T]:
    """Declare a structure that is used inside messages."""
    return _declare(cls, "none", "none")


_RANGES: dict[type, tuple[str, str]] = {}


def declared_versions(cls: type[Message]) -> Versions:
    """The versions of a message, without looking at its fields."""
    return parse_versions(_RANGES[cls][0])


def declared_flexible(cls: type[Message]) -> Versions:
    """The flexible ones of them; of `NO_VERSIONS`, the first is larger than every version."""
    return parse_versions(_RANGES[cls][1])


def _declare(cls: type[T], versions: str, flexible: str) -> type[T]:
    cls.__doc__ = cls.__doc__ or cls.__name__  # without one, dataclass would spend its time on building one
    made = dataclass(slots=True, init=False, repr=False, eq=False, match_args=False)(cls)
    _RANGES[made] = (versions, flexible)
    for name, method in (("__init__", _first_init), ("__eq__", _equal), ("__repr__", _show), ("__hash__", None)):
        setattr(made, name, method)
    return made


def _first_init(self: Message, **values: Any) -> None:
    cls = type(self)
    init = _compile_init(schema_of(cls))
    cls.__init__ = init  # type: ignore[method-assign]
    init(self, **values)


def _equal(self: Message, other: object) -> bool:
    if type(other) is not type(self):
        return False
    return all(getattr(self, name) == getattr(other, name) for name in self.__dataclass_fields__)


def _show(self: Message) -> str:
    """Only what differs from the default; bytes by their size, because they may be long or secret."""
    shown = []
    for each in schema_of(type(self)).fields:
        value = getattr(self, each.name)
        if value != default_of(each):
            is_bytes = isinstance(value, bytes | bytearray | memoryview)
            shown.append(f"{each.name}=<{len(value)} bytes>" if is_bytes else f"{each.name}={value!r}")
    return f"{type(self).__name__}({', '.join(shown)})"


def default_of(declared: Field) -> Any:
    """A default that nobody else holds."""
    if declared.is_array and declared.default is not None:
        return []
    if declared.kind is Kind.STRUCT and declared.default is not None:
        return declared.default()
    return declared.default


@cache
def schema_of(cls: type[Message]) -> Schema:
    """The schema of a declared class; TypeError for any other."""
    if cls not in _RANGES:
        raise TypeError(f"{cls.__name__} is not declared as a message or struct")
    versions, flexible = _RANGES[cls]
    types = get_type_hints(cls, include_extras=True)
    fields = tuple(_read_field(each, types[each.name]) for each in dataclasses.fields(cls))
    return Schema(cls=cls, versions=parse_versions(versions), flexible=parse_versions(flexible), fields=fields)


def _read_field(declared: dataclasses.Field[Any], annotation: Any) -> Field:
    if get_origin(annotation) in (Union, UnionType):
        (annotation,) = (each for each in get_args(annotation) if each is not NoneType)
    is_array = get_origin(annotation) is list
    if is_array:
        (annotation,) = get_args(annotation)
    kind, struct_class = _read_type(annotation)
    default = declared.metadata["default"]
    if default is _TYPE_DEFAULT:
        default = [] if is_array else struct_class if struct_class else _ZERO.get(kind, 0)
    return Field(
        name=declared.name,
        kind=kind,
        versions=parse_versions(declared.metadata["versions"]),
        nullable=parse_versions(declared.metadata["nullable"]),
        default=default,
        ignorable=declared.metadata["ignorable"],
        tag=declared.metadata["tag"],
        is_array=is_array,
        struct=struct_class,
    )


def _read_type(annotation: Any) -> tuple[Kind, type[Message] | None]:
    marks = getattr(annotation, "__metadata__", ())
    if marks:
        return marks[0], None
    if annotation in _KIND_OF_TYPE:
        return _KIND_OF_TYPE[annotation], None
    return Kind.STRUCT, annotation


def _compile_init(schema: Schema) -> Callable[..., None]:
    """A constructor that takes each field by keyword, written out as `dataclasses` would."""
    parameters, body = [], []
    namespace: dict[str, Any] = {"UNSET": _TYPE_DEFAULT}
    for each in schema.fields:
        fresh = "[]" if each.is_array else f"new_{each.name}()"
        if each.default is None or (not each.is_array and each.kind is not Kind.STRUCT):
            namespace[f"default_{each.name}"] = each.default
            parameters.append(f"{each.name}=default_{each.name}")
            body.append(f" self.{each.name} = {each.name}")
        else:
            namespace[f"new_{each.name}"] = each.default
            parameters.append(f"{each.name}=UNSET")
            body.append(f" self.{each.name} = {fresh} if {each.name} is UNSET else {each.name}")
    star = "*, " if parameters else ""
    source = "\n".join([f"def __init__(self, {star}{', '.join(parameters)}):", *body, " pass"])
    exec(source, namespace)  # noqa: S102 (only names from our own declarations)
    init: Callable[..., None] = namespace["__init__"]
    return init
