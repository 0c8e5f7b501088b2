"""Values that sources, steps and sinks have in common: formats, watermarks, addresses of tables, what is promised."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

from penstock.base.identifiers import topic_name_problem
from penstock.pipelines.reading_nodes import Node
from penstock.pipelines.relational.address import AddressError, TableAddress, parse_address, whole_address
from penstock.pipelines.specification import (
    BadRecords,
    BadRecordsToParquet,
    BadRecordsToTopic,
    DropBadRecords,
    Format,
    FormatKind,
    Guarantee,
    StopAtBadRecord,
    Watermark,
)

FORMAT_KEYS = ("format", "schema", "schema_file", "confluent_header", "format_options")
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
NAME_LENGTH_MAX = 100
_WATERMARK = re.compile(r"\s*(`?)(?P<column>[\w.]+)\1\s+(?P<delay>\d+\s+\w+.*)", re.ASCII)
_UNITS = "microsecond|millisecond|second|minute|hour|day|week|month|year"
_INTERVAL = re.compile(rf"(\d+\s+({_UNITS})s?)(\s+\d+\s+({_UNITS})s?)*", re.ASCII | re.IGNORECASE)
_REMOTE = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://")


class Place(NamedTuple):
    """Where relative paths begin, and how databases are called."""

    folder: Path
    connections: Mapping[str, str]


def check_name(node: Node, name: str) -> None:
    """Names are tables in SQL, names of folders and of queries."""
    if not NAME.fullmatch(name) or len(name) > NAME_LENGTH_MAX:
        node.wrong(f"a name has letters, digits and _, and begins with a letter; {name!r} cannot be a table in SQL")


def topic_of(node: Node) -> str:
    topic = node.as_text("the name of a topic")
    problem = topic_name_problem(topic) if topic else None
    if problem is not None:
        node.wrong(problem)
    return topic


def interval_of(node: Node) -> str:
    text = node.as_text("a time such as 10 seconds")
    if text and not _INTERVAL.fullmatch(text.strip()):
        node.wrong(f"{node.what_it_is()} is no time; write for example 10 seconds, 2 minutes or 1 hour 30 minutes")
    return text.strip()


def watermark_of(node: Node | None) -> Watermark | None:
    """`at 2 minutes`, or a column and a delay."""
    if node is None:
        return None
    if node.entries is not None:
        column, delay = node.take("column"), node.take("delay")
        node.finish(("column", "delay"))
        if column is None or delay is None:
            node.wrong("a watermark has a column and a delay, as in: at 2 minutes")
            return None
        return Watermark(column.as_text("a column"), interval_of(delay))
    found = _WATERMARK.fullmatch(node.as_text("a column and a delay such as: at 2 minutes"))
    if found is None or not _INTERVAL.fullmatch(found["delay"].strip()):
        if node.text:
            node.wrong(f"a watermark is a column and a delay, as in: at 2 minutes; not {node.what_it_is()}")
        return None
    return Watermark(found["column"], found["delay"].strip())


def guarantee_of(node: Node | None) -> Guarantee | None:
    return None if node is None else Guarantee(node.as_choice(list(Guarantee), Guarantee.AT_LEAST_ONCE))


def path_of(node: Node, place: Place) -> str:
    """A folder or file; relative ones begin beside the pipeline's file."""
    text = node.as_text("a path")
    return text if not text or _REMOTE.match(text) else str(place.folder / Path(text).expanduser())


# ── formats ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def format_of(node: Node, place: Place, kinds: tuple[FormatKind, ...], *, is_sink: bool) -> Format:
    """The format of a source or sink, from its own keys."""
    given, schema_node, file_node = node.take("format"), node.take("schema"), node.take("schema_file")
    header, options = node.take("confluent_header"), node.take("format_options")
    kind = kinds[0]
    if given is not None:
        kind = FormatKind(given.as_choice(kinds, kinds[0]))
    elif not is_sink:
        node.wrong(f"there is no format; say one of {', '.join(kinds)}")
    schema = _schema_of(node, place, schema_node, file_node)
    _check_schema(node, kind, schema, schema_node or file_node, is_sink)
    if header is not None and kind is not FormatKind.AVRO:
        header.wrong("only Avro values have such a header")
    elif header is not None and is_sink:
        header.wrong("there is no registry to ask for the number of a schema; values are written without the header")
    return Format(
        kind,
        schema,
        header is not None and header.as_truth(),
        {} if options is None else options.as_settings(),
    )


def _schema_of(node: Node, place: Place, schema: Node | None, file: Node | None) -> str | None:
    if file is None:
        return None if schema is None else schema.as_text("a schema").strip()
    if schema is not None:
        file.wrong("there is a schema already; leave one of them")
    path = path_of(file, place)
    try:
        return Path(path).read_text("utf-8").strip() if path else None
    except (OSError, UnicodeDecodeError) as error:
        file.wrong(f"the schema cannot be read: {error}")
        return None


def _check_schema(node: Node, kind: FormatKind, schema: str | None, given: Node | None, is_sink: bool) -> None:
    if kind in (FormatKind.STRING, FormatKind.RAW, FormatKind.PARQUET) and given is not None:
        given.wrong(f"the format {kind} has no schema")
    if is_sink and given is not None and kind is not FormatKind.AVRO:
        given.wrong(f"what is written as {kind} has the columns that the rows have; say them in a step")
    if schema is None and not is_sink and kind in (FormatKind.JSON, FormatKind.CSV) and given is None:
        node.wrong(f'the format {kind} needs a schema, such as "id long, sku string, at timestamp"')
    if kind is FormatKind.AVRO and not is_sink and given is None:
        node.wrong("the format avro needs a schema: schema_file: orders.avsc, or its JSON as schema")
    if kind is FormatKind.AVRO and schema:
        try:
            json.loads(schema)
        except ValueError as error:
            if given is not None:
                given.wrong(f"an Avro schema is JSON, and this is none: {error}")


# ── tables and bad records ───────────────────────────────────────────────────────────────────────────────────────────


def table_of(node: Node, place: Place) -> tuple[str, str]:
    """The whole address of a table, and what may be shown of it."""
    text = node.as_text("the address of a table")
    if not text:
        return "", ""
    try:
        whole = whole_address(text, place.connections)
        address = parse_address(whole)
    except AddressError as error:
        node.wrong(str(error))
        return "", ""
    if address.kind == "sqlite" and not Path(address.database).is_absolute():
        return _beside(address, whole, place.folder), f"sqlite:{address.database}/{address.table}"
    return whole, str(address)


def _beside(address: TableAddress, whole: str, folder: Path) -> str:
    """A file of SQLite that is named without a folder lies beside the pipeline's file."""
    _, mark, settings = whole.partition("?")
    return f"sqlite://{quote(str(folder / address.database))}/{quote(address.table, safe='')}{mark}{settings}"


def bad_records_of(node: Node | None, place: Place) -> BadRecords | None:
    """`stop`, `drop`, or where they go."""
    if node is None:
        return None
    if node.entries is None:
        choice = node.as_choice(("stop", "drop"), "stop", also=", {topic: …}, {parquet: …}")
        return DropBadRecords() if choice == "drop" else StopAtBadRecord()
    topic, parquet = node.take("topic"), node.take("parquet")
    node.finish(("topic", "parquet"))
    if topic is not None and parquet is None:
        return BadRecordsToTopic(topic_of(topic))
    if parquet is not None and topic is None:
        return BadRecordsToParquet(path_of(parquet, place))
    node.wrong("bad records go to one place: {topic: …} or {parquet: …}; or write stop, or drop")
    return None
