"""Writes the encoder of one message in one version: a flat function from objects to the end of a bytearray.

In the generated code `m…` are the objects and `out…` the bytearrays (a tagged field is encoded on its own first,
because its size travels before it). Fixed-size fields beside each other, with the length that follows them where that
has a fixed size too, are packed in one go.

A value that this version has no field for is an error if it is not the default, unless the field is ignorable: a
message never silently loses what its receiver would need.
"""

from __future__ import annotations

from struct import pack
from typing import Any

from penstock.wire.schema import PACKED_TOGETHER, Field, Kind, Message, Schema, schema_of
from penstock.wire.source import ENCODING_FAULTS, Run, Source
from penstock.wire.varint import Malformed, write_varint

_STRING_LENGTH_MAX = 0x7FFF


def _write_string_length(out: bytearray, length_plus_one: int) -> None:
    if length_plus_one > _STRING_LENGTH_MAX + 1:
        raise Malformed(f"a string of {length_plus_one - 1} bytes is too long")
    write_varint(out, length_plus_one)


_CONSTANTS: dict[str, Any] = {
    "Malformed": Malformed,
    "pack": pack,
    "write_varint": write_varint,
    "write_string_length": _write_string_length,
}


def compile_encoder(cls: type[Message], version: int) -> Any:
    """A function (message, out: bytearray) -> None."""
    schema = schema_of(cls)
    source = Source(f"{cls.__name__} v{version}")
    writer = _EncoderWriter(source, version, version in schema.flexible)
    source.add("size = len(out)")
    writer.structure(schema, "m")
    writer.flush()
    return source.compile("m, out", _CONSTANTS, ENCODING_FAULTS, recover="del out[size:]")


class _EncoderWriter:
    def __init__(self, source: Source, version: int, flexible: bool) -> None:
        self._source = source
        self._version = version
        self._flexible = flexible
        self._out = "out"
        self._run = Run()

    def structure(self, schema: Schema, owner: str) -> None:
        """Write the encoding of the fields of the object in the variable `owner`."""
        tagged = []
        for each in schema.fields:
            value = f"{owner}.{each.name}"
            with self._source.field(each.name):
                if self._version not in each.versions:
                    self._absent(each, value)
                elif each.tag is not None:
                    tagged.append(each)
                else:
                    self._value(each, value)
        if tagged:
            self._tagged_section(owner, sorted(tagged, key=lambda each: each.tag or 0))
        elif self._flexible:
            self._run.add("x", None, self._source.path)

    def _absent(self, field: Field, value: str) -> None:
        if not field.ignorable:
            with self._source.block(f"if {self._differs(field, value)}:"):
                self._source.add("raise Malformed('this version has no such field, and it has a value')")

    def _differs(self, field: Field, value: str) -> str:
        """An expression: is the value other than the default?"""
        if field.default is None:
            return f"{value} is not None"
        if field.is_array:
            return f"{value} or {value} is None"
        if field.struct is None:
            return f"{value} != {self._source.constant('default', field.default)}"
        fields = schema_of(field.struct).fields
        return f"{value} is None or " + " or ".join(self._differs(each, f"{value}.{each.name}") for each in fields)

    def _value(self, field: Field, value: str) -> None:
        if field.is_fixed_size:
            self._fixed(field.kind, value)
        elif field.is_array:
            self._array(field, value)
        elif field.kind is Kind.STRUCT:
            self._struct(field, value)
        else:
            self._blob(field.kind, value, self._version in field.nullable)

    def _fixed(self, kind: Kind, value: str) -> None:
        self._run.add(kind.value, f"{value}.bytes" if kind is Kind.UUID else value, self._source.path)

    def flush(self) -> None:
        """Pack the fixed-size fields that have gathered."""
        run, self._run = self._run, Run()
        if run.is_empty:
            return
        if not run.names:
            zeros = self._source.constant("zeros", bytes(run.struct.size))
            self._source.add(f"{self._out} += {zeros}", run.field)
            return
        packer = self._source.constant("pack", run.struct.pack)
        self._source.add(f"{self._out} += {packer}({', '.join(run.names)})", run.field)

    def _length(self, count: str, code: str) -> None:
        """Write a length or count; flexible versions write one more, so that zero means null."""
        if not self._flexible:
            self._run.add(code, count, self._source.path)
            self.flush()
            return
        self.flush()
        with self._source.block(f"if {count} < 128:"):
            self._source.add(f"{self._out}.append({count})")
        with self._source.block("else:"):
            writer = "write_string_length" if code == "h" else "write_varint"
            self._source.add(f"{writer}({self._out}, {count})")

    def _blob(self, kind: Kind, value: str, nullable: bool) -> None:
        add, data, count = self._source.add, self._source.name("s"), self._source.name("n")
        add(f"{data} = {value}")
        size = f"len({data}) + 1" if self._flexible else f"len({data})"
        if nullable:
            with self._source.block(f"if {data} is None:"):
                add(f"{count} = {0 if self._flexible else -1}")
                add(f"{data} = b''")
            with self._source.block("else:"):
                self._take_blob(kind, data, count, size)
        else:
            self._take_blob(kind, data, count, size)
        self._length(count, "h" if kind is Kind.STRING else "i")
        add(f"{self._out} += {data}")

    def _take_blob(self, kind: Kind, data: str, count: str, size: str) -> None:
        if kind is Kind.STRING:
            self._source.add(f"{data} = {data}.encode()")
        self._source.add(f"{count} = {size}")

    def _struct(self, field: Field, value: str) -> None:
        assert field.struct is not None
        inner = self._source.name("m")
        self._source.add(f"{inner} = {value}")
        if self._version not in field.nullable:
            self.structure(schema_of(field.struct), inner)
            return
        self.flush()
        with self._source.block(f"if {inner} is None:"):
            self._source.add(f"{self._out}.append({255 if field.tag is None else 0})")
        with self._source.block("else:"):
            self._source.add(f"{self._out}.append(1)")
            self.structure(schema_of(field.struct), inner)
            self.flush()

    def _array(self, field: Field, value: str) -> None:
        add, items, count = self._source.add, self._source.name("a"), self._source.name("n")
        add(f"{items} = {value}")
        one = 1 if self._flexible else 0
        if self._version in field.nullable:
            add(f"{count} = {one - 1} if {items} is None else len({items}) + {one}")
        else:
            add(f"{count} = len({items}) + {one}")
        self._length(count, "i")
        with self._source.block(f"if {items}:"):
            self._elements(field, items)

    def _elements(self, field: Field, items: str) -> None:
        if field.kind in PACKED_TOGETHER:
            self._source.add(f"{self._out} += pack(f'>{{len({items})}}{field.kind.value}', *{items})")
            return
        element = self._source.name("m")
        with self._source.block(f"for {element} in {items}:"):
            if field.struct is not None:
                self.structure(schema_of(field.struct), element)
            elif field.kind is Kind.UUID:
                self._fixed(field.kind, element)
            else:
                self._blob(field.kind, element, nullable=False)
            self.flush()

    def _tagged_section(self, owner: str, tagged: list[Field]) -> None:
        """The number of tagged fields that are not at their default, then tag, size and value of each."""
        add, section, count = self._source.add, self._source.name("out"), self._source.name("t")
        self.flush()
        add(f"{section} = bytearray()")
        add(f"{count} = 0")
        for each in tagged:
            value = f"{owner}.{each.name}"
            with self._source.field(each.name), self._source.block(f"if {self._differs(each, value)}:"):
                body = self._source.name("out")
                add(f"{body} = bytearray()")
                outer, self._out = self._out, body
                self._value(each, value)
                self.flush()
                self._out = outer
                add(f"{count} += 1")
                add(f"write_varint({section}, {each.tag})")
                add(f"write_varint({section}, len({body}))")
                add(f"{section} += {body}")
        add(f"{self._out}.append({count})")
        add(f"{self._out} += {section}")
