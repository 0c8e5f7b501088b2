"""Sinks, from the tree of a file."""

from __future__ import annotations

from penstock.pipelines.reading_nodes import Node, did_you_mean
from penstock.pipelines.reading_sources import TOPIC_FORMATS
from penstock.pipelines.reading_values import FORMAT_KEYS, Place, format_of, guarantee_of, path_of, table_of, topic_of
from penstock.pipelines.specification import (
    FormatKind,
    OutputMode,
    ParquetSink,
    Sink,
    TableSink,
    TopicSink,
)

EVERY_KEYS = ("from", "guarantee")
TOPIC_KEYS = ("topic", "key", "timestamp", "delete_when", "output", "options", *FORMAT_KEYS, *EVERY_KEYS)
TABLE_KEYS = ("table", "mode", "keys", "create", "delete_when", "output", "options", *EVERY_KEYS)
PARQUET_KEYS = ("parquet", "date", "partition_by", *EVERY_KEYS)
TABLE_MODES = ("insert", "upsert", "delete")
SINK_KINDS = ("topic", "table", "parquet")


def sink_of(name: str, node: Node, place: Place, tables: tuple[str, ...]) -> Sink | None:
    """One sink; None after mistakes that leave nothing of it."""
    if not node.mapping("a sink, such as {from: revenue, topic: revenue},"):
        return None
    kinds = [key for key in SINK_KINDS if node.has(key)]
    if len(kinds) != 1:
        hint = "" if kinds else node.misspelled(SINK_KINDS)
        node.wrong(f"a sink says where rows go with exactly one of topic, table, parquet{hint}")
        return None
    source = _input_of(node, tables)
    if kinds[0] == "topic":
        return _topic_sink(name, source, node, place)
    return _table_sink(name, source, node, place) if kinds[0] == "table" else _parquet_sink(name, source, node, place)


def _input_of(node: Node, tables: tuple[str, ...]) -> str:
    given = node.take("from")
    if given is None:
        node.wrong("there is no from: name the source or step whose rows are written")
        return ""
    name = given.as_text("the name of a source or step")
    if name and name not in tables:
        hint = did_you_mean(name, tables) or f"; there are {', '.join(tables) or 'none'}"
        given.wrong(f"there is no source or step {name!r}{hint}")
    return name


def _text(node: Node | None, wanted: str) -> str | None:
    return None if node is None else node.as_text(wanted)


def _output_of(node: Node | None) -> OutputMode | None:
    return None if node is None else OutputMode(node.as_choice(list(OutputMode), OutputMode.APPEND))


def _topic_sink(name: str, source: str, node: Node, place: Place) -> TopicSink:
    topic, key, options = node.take("topic"), node.take("key"), node.take("options")
    assert topic is not None
    format = format_of(node, place, TOPIC_FORMATS, is_sink=True)
    sink = TopicSink(
        name,
        source,
        topic_of(topic),
        format,
        () if key is None else key.as_texts("a column or a list of columns"),
        _text(node.take("timestamp"), "a column"),
        _text(node.take("delete_when"), "a boolean column"),
        _output_of(node.take("output")),
        guarantee_of(node.take("guarantee")),
        {} if options is None else options.as_settings(),
    )
    if format.kind is FormatKind.RAW and (sink.key or sink.timestamp or sink.delete_when):
        node.wrong("the format raw takes key, value (null deletes), headers and timestamp from columns of these names")
    elif sink.delete_when and not sink.key:
        node.wrong("delete_when writes tombstones, which need a key")
    node.finish(TOPIC_KEYS)
    return sink


def _table_sink(name: str, source: str, node: Node, place: Place) -> TableSink:
    table, mode, keys, create = node.take("table"), node.take("mode"), node.take("keys"), node.take("create")
    options = node.take("options")
    assert table is not None
    address, shown = table_of(table, place)
    sink = TableSink(
        name,
        source,
        address,
        shown,
        "insert" if mode is None else mode.as_choice(TABLE_MODES, "insert"),
        () if keys is None else keys.as_texts("a column or a list of columns"),
        create is not None and create.as_truth(),
        _text(node.take("delete_when"), "a boolean column"),
        _output_of(node.take("output")),
        guarantee_of(node.take("guarantee")),
        {} if options is None else options.as_settings(),
    )
    if sink.mode != "insert" and not sink.keys and keys is None:
        node.wrong(f"mode: {sink.mode} needs keys: the columns by which a row is found again")
    if sink.mode == "insert" and keys is not None:
        keys.wrong("keys belong to mode: upsert or delete; rows of mode: insert are only added")
    if sink.delete_when and sink.mode != "upsert":
        node.wrong("delete_when needs mode: upsert, with keys")
    if sink.output not in (None, OutputMode.APPEND) and sink.mode != "upsert":
        node.wrong(
            f"output: {sink.output} hands on rows that were written before; a table takes those with mode: upsert"
        )
    node.finish(TABLE_KEYS)
    return sink


def _parquet_sink(name: str, source: str, node: Node, place: Place) -> ParquetSink:
    path, by = node.take("parquet"), node.take("partition_by")
    assert path is not None
    sink = ParquetSink(
        name,
        source,
        path_of(path, place),
        _text(node.take("date"), "a column with a date or a time"),
        () if by is None else by.as_texts("a column or a list of columns"),
        guarantee_of(node.take("guarantee")),
    )
    node.finish(PARQUET_KEYS)
    return sink
