"""What a pipeline is: sources, steps and sinks as plain data, however they were written down.

Rows flow from sources through steps into sinks. Every source and step has a name, and is a table of that name for the
SQL of the steps behind it. A sink names the source or step whose rows it takes. Nothing here does anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

DEFAULT_BROKERS = "127.0.0.1:9092"


class Guarantee(StrEnum):
    """How often a row that went in comes out, when things are killed and started again."""

    EXACTLY_ONCE = "exactly once"
    AT_LEAST_ONCE = "at least once"


class FormatKind(StrEnum):
    """How the bytes of a record, or the lines of a file, are made of columns."""

    JSON = "json"
    AVRO = "avro"
    CSV = "csv"
    STRING = "string"
    RAW = "raw"
    PARQUET = "parquet"


class OutputMode(StrEnum):
    """Which rows of an aggregation a batch hands on."""

    APPEND = "append"
    UPDATE = "update"
    COMPLETE = "complete"


@dataclass(frozen=True, slots=True)
class Format:
    """How values are read or written."""

    kind: FormatKind
    schema: str | None = None
    """columns as in `create table` (json, csv), or an Avro schema as JSON"""
    skips_confluent_header: bool = False
    """Avro values begin with five bytes that name a schema in a registry"""
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Spark's options for json and csv"""


@dataclass(frozen=True, slots=True)
class Watermark:
    """Rows whose time is more than the delay behind the newest one come too late."""

    column: str
    delay: str


# ── sources ──────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class TopicSource:
    """The records of topics."""

    name: str
    topics: tuple[str, ...]
    """none: `pattern` chooses them"""
    format: Format
    pattern: str | None = None
    include: tuple[str, ...] = ()
    """of key, topic, partition, offset, timestamp, headers: they become columns `_key`, `_topic` and so on"""
    start: str = "earliest"
    watermark: Watermark | None = None
    deduplicate: tuple[str, ...] = ()
    on_bad_record: BadRecords | None = None
    """None: as the pipeline says"""
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    """further options of format("penstock")"""


@dataclass(frozen=True, slots=True)
class FileSource:
    """The files of a folder, each read once; or all of them anew in every batch (`is_lookup`)."""

    name: str
    path: str
    format: Format
    is_lookup: bool = False
    watermark: Watermark | None = None
    deduplicate: tuple[str, ...] = ()
    on_bad_record: BadRecords | None = None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class TableSource:
    """A table of a database: read anew in every batch, or followed as a stream (`mode`)."""

    name: str
    address: str = field(repr=False)
    """the whole address, which may hold a password: people are shown `shown`"""
    shown: str
    mode: str | None = None
    """None: a lookup table; growing: new and changed rows by a column; changes: change capture"""
    watermark: Watermark | None = None
    deduplicate: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=dict, repr=False)
    """further options of format("penstock-table")"""


Source = TopicSource | FileSource | TableSource


# ── steps ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class SqlStep:
    """A query over the tables before it."""

    name: str
    sql: str
    line: int = 0
    """where the text begins in the file"""
    watermark: Watermark | None = None
    deduplicate: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PythonStep:
    """A function of the user's project that takes DataFrames and returns one."""

    name: str
    module: str
    function: str
    inputs: tuple[str, ...]
    watermark: Watermark | None = None
    deduplicate: tuple[str, ...] = ()


Step = SqlStep | PythonStep


# ── sinks ────────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class TopicSink:
    """Rows as records of a topic."""

    name: str
    input: str
    topic: str
    format: Format
    key: tuple[str, ...] = ()
    timestamp: str | None = None
    delete_when: str | None = None
    """a boolean column: where it is true, the record is a tombstone"""
    output: OutputMode | None = None
    """None: append where Spark can, otherwise update"""
    guarantee: Guarantee | None = None
    """what is asked for; None: the best there is"""
    options: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class TableSink:
    """Rows in a table of a database."""

    name: str
    input: str
    address: str = field(repr=False)
    shown: str
    mode: str = "insert"
    keys: tuple[str, ...] = ()
    create: bool = False
    delete_when: str | None = None
    output: OutputMode | None = None
    guarantee: Guarantee | None = None
    options: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, slots=True)
class ParquetSink:
    """Rows in Parquet files of a folder."""

    name: str
    input: str
    path: str
    date_column: str | None = None
    """the files are in folders date=2026-01-31 by the day of this column"""
    partition_by: tuple[str, ...] = ()
    guarantee: Guarantee | None = None

    @property
    def output(self) -> OutputMode:
        return OutputMode.APPEND


Sink = TopicSink | TableSink | ParquetSink


# ── bad records ──────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class StopAtBadRecord:
    """The pipeline stops; nothing of the batch is written."""


@dataclass(frozen=True, slots=True)
class DropBadRecords:
    """They are counted and left out."""


@dataclass(frozen=True, slots=True)
class BadRecordsToTopic:
    """Their bytes go to a topic, with the reason and the place as headers."""

    topic: str


@dataclass(frozen=True, slots=True)
class BadRecordsToParquet:
    """Their bytes go to Parquet files, with the reason and the place as columns."""

    path: str


BadRecords = StopAtBadRecord | DropBadRecords | BadRecordsToTopic | BadRecordsToParquet


# ── the whole ────────────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Pipeline:
    """See the head of this file."""

    name: str
    sources: Mapping[str, Source]
    steps: Mapping[str, Step]
    """in their order: a step sees the sources and the steps before it"""
    sinks: Mapping[str, Sink]
    on_bad_record: BadRecords = field(default_factory=StopAtBadRecord)
    connections: Mapping[str, str] = field(default_factory=dict, repr=False)
    """addresses of databases by the names that tables use for them; they may hold passwords"""
    brokers: str = DEFAULT_BROKERS
    client: Mapping[str, str] = field(default_factory=dict, repr=False)
    """settings of the Kafka client, such as security.protocol"""
    guarantee: Guarantee | None = None
    """what is asked of every sink that does not say itself"""
    trigger: str | None = None
    """how often a batch begins, such as `10 seconds`; None: as soon as the one before has ended"""
    spark: Mapping[str, str] = field(default_factory=dict, repr=False)
    checkpoints: str | None = None
    """where checkpoints are, such as a folder of HDFS; None: in the state folder"""
    file: Path | None = None
    lines: Mapping[str, int] = field(default_factory=dict, repr=False, compare=False)
    """where each key stands in the file, such as `sinks.to_topic.key`"""

    @property
    def folder(self) -> Path:
        """What relative paths and the modules of Python steps are looked up in."""
        return Path.cwd() if self.file is None else self.file.resolve().parent

    def bad_records_of(self, source: TopicSource | FileSource) -> BadRecords:
        """What happens to records of this source that cannot be read.

        Files that are looked up are read anew in each batch, so their bad lines cannot be kept once: they stop it.
        """
        wanted = source.on_bad_record or self.on_bad_record
        is_lookup = isinstance(source, FileSource) and source.is_lookup
        return StopAtBadRecord() if is_lookup and not isinstance(wanted, DropBadRecords) else wanted

    def line_of(self, key: str) -> int:
        """Where a key stands in the file, or else the nearest one around it; 0 if nobody knows."""
        while key and key not in self.lines:
            key = key.rpartition(".")[0]
        return self.lines.get(key, 0)

    def guarantee_of(self, sink: Sink) -> Guarantee | None:
        """What was asked of a sink."""
        return sink.guarantee or self.guarantee
