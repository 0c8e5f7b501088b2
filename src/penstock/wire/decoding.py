"""Writes the decoder of one message in one version: a flat function from a buffer to objects.

In the generated code `b` is the buffer, `p` the position, `end` the length of the buffer and `budget` the number of
array elements and tagged fields that may still be decoded. Fixed-size fields beside each other, with the length that
follows them, are unpacked in one go. Before anything is allocated, a length is compared with the bytes that remain:
an array needs at least as many bytes as its count times the smallest encoding of its element. The budget bounds what
a small frame of tiny elements can blow up to.
"""

from __future__ import annotations

from functools import lru_cache
from struct import calcsize, unpack_from
from typing import Any
from uuid import UUID

from penstock.wire.schema import PACKED_TOGETHER, Field, Kind, Message, Schema, schema_of
from penstock.wire.source import DECODING_FAULTS, Run, Source
from penstock.wire.varint import Malformed, read_rest, read_varint, skip_tagged_fields, too_long

ELEMENTS_MAX = 1_000_000
STRING_LENGTH_MAX = 0x7FFF

_LENGTH_CODE = {Kind.STRING: "h"}  # in versions that are not flexible; all others count with 32 bits

_OF_SLICE = {Kind.STRING: ".tobytes().decode()", Kind.BYTES: ".tobytes()", Kind.RECORDS: ""}


@lru_cache(maxsize=8192)
def _uuid(raw: bytes) -> UUID:
    """The same topic ids come again and again, and building a UUID is slow."""
    return UUID(bytes=raw)


_CONSTANTS: dict[str, Any] = {
    "BUDGET": ELEMENTS_MAX,
    "Malformed": Malformed,
    "read_rest": read_rest,
    "read_varint": read_varint,
    "skip_tags": skip_tagged_fields,
    "too_long": too_long,
    "unpack_from": unpack_from,
    "uuid": _uuid,
}


def compile_decoder(cls: type[Message], version: int) -> Any:
    """A function (buffer, position=0) -> (message, position after it)."""
    schema = schema_of(cls)
    source = Source(f"{cls.__name__} v{version}")
    source.add("end = len(b)")
    source.add("budget = BUDGET")
    with source.block("if type(b) is not memoryview:"):
        source.add("b = memoryview(b)")
    writer = _DecoderWriter(source, version, version in schema.flexible)
    result = writer.structure(schema)
    writer.flush()
    source.add(f"return {result}, p")
    return source.compile("b, p=0", _CONSTANTS, DECODING_FAULTS)


class _DecoderWriter:
    def __init__(self, source: Source, version: int, flexible: bool) -> None:
        self._source = source
        self._version = version
        self._flexible = flexible
        self._run = Run()
        self._after_run: list[str] = []

    def structure(self, schema: Schema) -> str:
        """Write the decoding of all fields; the name of the variable that holds the object."""
        add = self._source.add
        made = self._source.name("m")
        new = self._source.constant("new_", schema.cls.__new__)
        add(f"{made} = {new}({self._source.constant(schema.cls.__name__, schema.cls)})")
        tagged = []
        for each in schema.fields:
            target = f"{made}.{each.name}"
            with self._source.field(each.name):
                if self._version not in each.versions:
                    add(f"{target} = {self._default(each)}")
                elif each.tag is not None:
                    add(f"{target} = {self._default(each)}")
                    tagged.append(each)
                else:
                    self._value(each, target)
        if self._flexible:
            self._tagged_section(made, tagged)
        return made

    def _default(self, field: Field) -> str:
        if field.is_array and field.default is not None:
            return "[]"
        if field.kind is Kind.STRUCT and field.default is not None:
            return f"{self._source.constant('default_', field.default)}()"
        return self._source.constant("default_", field.default)

    def _value(self, field: Field, target: str) -> None:
        if field.is_fixed_size:
            self._fixed(field.kind, target)
        elif field.is_array:
            self._array(field, target)
        elif field.kind is Kind.STRUCT:
            self._struct(field, target)
        else:
            self._blob(field.kind, target, self._version in field.nullable)

    def _fixed(self, kind: Kind, target: str) -> None:
        if kind is Kind.UUID:
            raw = self._source.name("u")
            self._after_run.append(f"{target} = uuid({raw})")
            target = raw
        self._run.add(kind.value, target, self._source.path)

    def flush(self) -> None:
        """Unpack the fixed-size fields that have gathered."""
        run, self._run = self._run, Run()
        after, self._after_run = self._after_run, []
        if run.is_empty:
            return
        if run.format == "B":
            self._source.add(f"{run.names[0]} = b[p]", run.field)
            self._source.add("p += 1")
        else:
            unpack = self._source.constant("unpack", run.struct.unpack_from)
            self._source.add(f"{', '.join(run.names)}, = {unpack}(b, p)", run.field)
            self._source.add(f"p += {run.struct.size}")
        for line in after:
            self._source.add(line)

    def _length(self, code: str) -> str:
        """Read a length or count; the variable holds -1 (or less) for null."""
        count = self._source.name("n")
        self._run.add("B" if self._flexible else code, count, self._source.path)
        self.flush()
        if self._flexible:
            with self._source.block(f"if {count} > 127:"):
                self._source.add(f"{count}, p = read_rest(b, p, {count})")
            self._source.add(f"{count} -= 1")
        return count

    def _null(self, nullable: bool, target: str) -> None:
        self._source.add(f"{target} = None" if nullable else "raise Malformed('null is not allowed in this version')")

    def _blob(self, kind: Kind, target: str, nullable: bool) -> None:
        add, count, stop = self._source.add, self._length(_LENGTH_CODE.get(kind, "i")), self._source.name("q")
        with self._source.block(f"if {count} < 0:"):
            self._null(nullable, target)
        with self._source.block("else:"):
            add(f"{stop} = p + {count}")
            with self._source.block(f"if {stop} > end:"):
                add(f"raise too_long({count}, end - p)")
            if kind is Kind.STRING and self._flexible:
                with self._source.block(f"if {count} > {STRING_LENGTH_MAX}:"):
                    add("raise Malformed(f'a string has {" + count + "} bytes')")
            add(f"{target} = b[p:{stop}]{_OF_SLICE[kind]}")
            add(f"p = {stop}")

    def _struct(self, field: Field, target: str) -> None:
        assert field.struct is not None
        if self._version not in field.nullable:
            self._source.add(f"{target} = {self.structure(schema_of(field.struct))}")
            return
        present = self._source.name("n")
        self._run.add("b", present, self._source.path)
        self.flush()
        with self._source.block(f"if {present} {'< 0' if field.tag is None else '== 0'}:"):
            self._source.add(f"{target} = None")
        with self._source.block("else:"):
            made = self.structure(schema_of(field.struct))
            self.flush()
            self._source.add(f"{target} = {made}")

    def _array(self, field: Field, target: str) -> None:
        add, count = self._source.add, self._length("i")
        with self._source.block(f"if {count} < 0:"):
            self._null(self._version in field.nullable, target)
        with self._source.block("else:"):
            smallest = max(1, _element_size_min(field, self._version, self._flexible))
            with self._source.block(f"if {count} * {smallest} > end - p:"):
                add(f"raise too_long({count}, end - p)")
            self._spend(count)
            self._elements(field, target, count)

    def _spend(self, count: str) -> None:
        self._source.add(f"budget -= {count}")
        with self._source.block("if budget < 0:"):
            self._source.add("raise Malformed('the message has more than a million elements')")

    def _elements(self, field: Field, target: str, count: str) -> None:
        add = self._source.add
        if field.kind in PACKED_TOGETHER:
            add(f"{target} = list(unpack_from(f'>{{{count}}}{field.kind.value}', b, p))")
            add(f"p += {count} * {calcsize(field.kind.value)}")
            return
        append = self._source.name("append")
        add(f"{target} = []")
        add(f"{append} = {target}.append")
        with self._source.block(f"for _ in range({count}):"):
            if field.struct is not None:
                element = self.structure(schema_of(field.struct))
            elif field.kind is Kind.UUID:
                element = self._source.name("e")
                self._fixed(field.kind, element)
            else:
                element = self._source.name("e")
                self._blob(field.kind, element, nullable=False)
            self.flush()
            add(f"{append}({element})")

    def _tagged_section(self, owner: str, tagged: list[Field]) -> None:
        add, count = self._source.add, self._source.name("t")
        self._run.add("B", count, self._source.path)
        self.flush()
        with self._source.block(f"if {count}:"):
            with self._source.block(f"if {count} > 127:"):
                add(f"{count}, p = read_rest(b, p, {count})")
            self._spend(count)
            if not tagged:
                add(f"p = skip_tags(b, p, {count}, end)")
                return
            with self._source.block(f"for _ in range({count}):"):
                self._tagged_field(owner, tagged)

    def _tagged_field(self, owner: str, tagged: list[Field]) -> None:
        """Known tags are decoded wherever they stand (the last of two alike wins), unknown ones skipped."""
        add, tag, stop = self._source.add, self._source.name("tag"), self._source.name("q")
        add(f"{tag}, p = read_varint(b, p)")
        add(f"{stop}, p = read_varint(b, p)")
        with self._source.block(f"if {stop} > end - p:"):
            add(f"raise too_long({stop}, end - p)")
        add(f"{stop} += p")
        for each in tagged:
            with self._source.block(f"if {tag} == {each.tag}:"), self._source.field(each.name):
                self._value(each, f"{owner}.{each.name}")
                self.flush()
                with self._source.block(f"if p != {stop}:"):
                    add("raise Malformed('the size of a tagged field is not that of its value')")
        add(f"p = {stop}")


def _element_size_min(field: Field, version: int, flexible: bool) -> int:
    if field.struct is not None:
        return _size_min(schema_of(field.struct), version, flexible)
    if field.kind in (Kind.STRING, Kind.BYTES, Kind.RECORDS):
        return 1 if flexible else calcsize(_LENGTH_CODE.get(field.kind, "i"))
    return calcsize(">" + field.kind.value)


def _size_min(schema: Schema, version: int, flexible: bool) -> int:
    """The bytes of the smallest encoding: everything empty or null."""
    total = 1 if flexible else 0
    for each in schema.fields:
        if version not in each.versions or each.tag is not None:
            continue
        if each.is_array:
            total += 1 if flexible else 4
        elif each.kind is Kind.STRUCT and version in each.nullable:
            total += 1
        else:
            total += _element_size_min(each, version, flexible)
    return total
