"""Sources and steps, from the tree of a file."""

from __future__ import annotations

import re

from penstock.base.topic_patterns import PatternError, topic_matcher
from penstock.pipelines.reading_nodes import Node, did_you_mean
from penstock.pipelines.reading_values import (
    FORMAT_KEYS,
    Place,
    bad_records_of,
    format_of,
    interval_of,
    path_of,
    table_of,
    topic_of,
    watermark_of,
)
from penstock.pipelines.specification import (
    FileSource,
    FormatKind,
    PythonStep,
    Source,
    SqlStep,
    Step,
    TableSource,
    TopicSource,
)

TOPIC_FORMATS = (FormatKind.JSON, FormatKind.AVRO, FormatKind.CSV, FormatKind.STRING, FormatKind.RAW)
FILE_FORMATS = (FormatKind.JSON, FormatKind.CSV, FormatKind.PARQUET, FormatKind.STRING)
SOURCE_KINDS = ("topic", "pattern", "files", "table")
INCLUDABLE = ("key", "topic", "partition", "offset", "timestamp", "headers")
EVERY_KEYS = ("watermark", "deduplicate", "options")
TOPIC_KEYS = ("topic", "pattern", "include", "start", "on_bad_record", *FORMAT_KEYS, *EVERY_KEYS)
FILE_KEYS = ("files", "lookup", "on_bad_record", *FORMAT_KEYS, *EVERY_KEYS)
TABLE_KEYS = ("table", "follow", "changes", *EVERY_KEYS)
FOLLOW_KEYS = ("column", "overlap", "partitions", "rows_per_batch")
CHANGES_KEYS = ("slot", "publication", "rows_per_batch")
STEP_KEYS = ("sql", "python", "from", "watermark", "deduplicate")
_FUNCTION = re.compile(r"(?P<module>[A-Za-z_]\w*(\.[A-Za-z_]\w*)*):(?P<function>[A-Za-z_]\w*)", re.ASCII)
_OFFSETS = re.compile(r"\s*\{.*\}\s*", re.DOTALL)
_SPELLED = {"rows_per_batch": "rowsPerBatch"}


def source_of(name: str, node: Node, place: Place) -> Source | None:
    """One source; None after mistakes that leave nothing of it."""
    if not node.mapping("a source, such as {topic: orders, format: json, …},"):
        return None
    kinds = [key for key in SOURCE_KINDS if node.has(key)]
    if len(kinds) != 1:
        what = "a source does not say" if not kinds else f"a source says {' and '.join(kinds)}:"
        hint = "" if kinds else node.misspelled(SOURCE_KINDS)
        node.wrong(f"{what} where rows come from: one of topic, pattern, files, table{hint}")
        return None
    if kinds[0] == "files":
        return _file_source(name, node, place)
    return _table_source(name, node, place) if kinds[0] == "table" else _topic_source(name, node, place)


def _topic_source(name: str, node: Node, place: Place) -> TopicSource:
    topic, pattern, start = node.take("topic"), node.take("pattern"), node.take("start")
    format = format_of(node, place, TOPIC_FORMATS, is_sink=False)
    source = TopicSource(
        name,
        () if topic is None else _topics_of(topic),
        format,
        None if pattern is None else _pattern_of(pattern),
        _include_of(node.take("include"), format.kind),
        "earliest" if start is None else _start_of(start),
        watermark_of(node.take("watermark")),
        _names_of(node.take("deduplicate")),
        bad_records_of(node.take("on_bad_record"), place),
        _options_of(node.take("options")),
    )
    node.finish(TOPIC_KEYS)
    return source


def _topics_of(node: Node) -> tuple[str, ...]:
    if node.items is not None:
        return tuple(topic_of(item) for item in node.items)
    return (topic_of(node),)


def _pattern_of(node: Node) -> str:
    text = node.as_text("a regular expression")
    try:
        topic_matcher(text or ".")
    except PatternError as error:
        node.wrong(f"{node.what_it_is()} {error}")
    return text


def _include_of(node: Node | None, kind: FormatKind) -> tuple[str, ...]:
    if node is None:
        return ()
    if kind is FormatKind.RAW:
        node.wrong("the format raw has all these columns already")
    names = node.as_texts()
    for name in names:
        if name not in INCLUDABLE:
            hint = did_you_mean(name, INCLUDABLE) or f"; there are {', '.join(INCLUDABLE)}"
            node.wrong(f"{name!r} is nothing that a record has{hint}")
    return names


def _start_of(node: Node) -> str:
    text = node.as_text("earliest, latest or offsets as JSON").strip()
    if text and text not in ("earliest", "latest") and not _OFFSETS.fullmatch(text):
        node.wrong(f'start is earliest, latest, or offsets as \'{{"orders": {{"0": 23}}}}\', not {node.what_it_is()}')
    return text


def _file_source(name: str, node: Node, place: Place) -> FileSource:
    path, lookup = node.take("files"), node.take("lookup")
    assert path is not None
    source = FileSource(
        name,
        path_of(path, place),
        format_of(node, place, FILE_FORMATS, is_sink=False),
        lookup is not None and lookup.as_truth(),
        watermark_of(node.take("watermark")),
        _names_of(node.take("deduplicate")),
        bad_records_of(node.take("on_bad_record"), place),
        _options_of(node.take("options")),
    )
    node.finish(FILE_KEYS)
    if source.is_lookup and (source.watermark or source.deduplicate):
        node.wrong("files that are looked up are no stream: they have no watermark and nothing to deduplicate")
    return source


def _table_source(name: str, node: Node, place: Place) -> TableSource:
    table, follow, changes = node.take("table"), node.take("follow"), node.take("changes")
    assert table is not None
    address, shown = table_of(table, place)
    if follow is not None and changes is not None:
        changes.wrong("a table is followed by a column or by its changes, not both")
    mode, options = _following(follow, changes)
    source = TableSource(
        name,
        address,
        shown,
        mode,
        watermark_of(node.take("watermark")),
        _names_of(node.take("deduplicate")),
        {**_options_of(node.take("options")), **options},
    )
    node.finish(TABLE_KEYS)
    if mode is None and (source.watermark or source.deduplicate):
        node.wrong("a table that is looked up is no stream: it has no watermark and nothing to deduplicate; see follow")
    return source


def _following(follow: Node | None, changes: Node | None) -> tuple[str | None, dict[str, str]]:
    if changes is not None:
        return "changes", _stream_options(changes, CHANGES_KEYS)
    if follow is None:
        return None, {}
    if follow.text is not None:
        return "growing", {"column": follow.as_text("the growing column")}
    options = _stream_options(follow, FOLLOW_KEYS)
    if "column" not in options and follow.entries is not None:
        follow.wrong("there is no column: name the one that grows with every insert and update, such as updated_at")
    return "growing", options


def _stream_options(node: Node, keys: tuple[str, ...]) -> dict[str, str]:
    if not node.mapping(f"{', '.join(keys)}"):
        return {}
    options: dict[str, str] = {}
    for key in keys:
        value = node.take(key)
        if value is not None:
            is_time = key == "overlap" and not (value.text or "").strip().isdecimal()  # of a column of numbers
            options[_SPELLED.get(key, key)] = interval_of(value) if is_time else value.as_text()
    node.finish(keys)
    return options


def _names_of(node: Node | None) -> tuple[str, ...]:
    return () if node is None else node.as_texts("a column or a list of columns")


def _options_of(node: Node | None) -> dict[str, str]:
    return {} if node is None else node.as_settings()


# ── steps ────────────────────────────────────────────────────────────────────────────────────────────────────────────


def step_of(name: str, node: Node, before: tuple[str, ...]) -> Step | None:
    """One step: SQL as a text, or keys. `before` are the tables that it may use."""
    if node.text is not None:
        return SqlStep(name, node.as_text("SQL"), node.line)
    if not node.mapping("SQL, or {python: module:function, from: …},"):
        return None
    sql, python, inputs = node.take("sql"), node.take("python"), node.take("from")
    watermark, deduplicate = watermark_of(node.take("watermark")), _names_of(node.take("deduplicate"))
    node.finish(STEP_KEYS)
    if (sql is None) == (python is None):
        node.wrong("a step has either sql or python")
        return None
    if sql is not None:
        if inputs is not None:
            inputs.wrong("SQL names its tables itself; from is for python")
        return SqlStep(name, sql.as_text("SQL"), sql.line, watermark, deduplicate)
    assert python is not None
    return _python_step(name, node, python, inputs, before, PythonStep(name, "", "", (), watermark, deduplicate))


def _python_step(
    name: str, node: Node, python: Node, inputs: Node | None, before: tuple[str, ...], rest: PythonStep
) -> PythonStep | None:
    found = _FUNCTION.fullmatch(python.as_text("module:function").strip())
    if found is None:
        python.wrong(f"a function of your project is written as module:function, not {python.what_it_is()}")
        return None
    if inputs is None:
        node.wrong("there is no from: name the source or step whose DataFrame the function gets (or a list of them)")
        return None
    names = inputs.as_texts()
    for each in names:
        if each not in before:
            hint = did_you_mean(each, before) or f"; there are {', '.join(before) or 'none'}"
            inputs.wrong(f"there is no source or earlier step {each!r}{hint}")
    return PythonStep(name, found["module"], found["function"], names, rest.watermark, rest.deduplicate)
