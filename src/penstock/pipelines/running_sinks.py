"""The queries of a pipeline: one for each sink, and one for the bad records of each source that keeps them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.readwriter import DataStreamWriter
from pyspark.sql.types import DateType, TimestampNTZType, TimestampType

from penstock.pipelines.bad_records import dead_columns, dead_letters
from penstock.pipelines.formats import FormatError, encoded, need_columns
from penstock.pipelines.named_writes import NamedWrites
from penstock.pipelines.parquet_folder import ParquetFolder
from penstock.pipelines.relational.table_sink_options import parse_sink_options
from penstock.pipelines.relational.target import check_columns
from penstock.pipelines.running_errors import told_of
from penstock.pipelines.running_frames import TABLES, TOPICS, Frames, client_options
from penstock.pipelines.specification import (
    BadRecordsToParquet,
    BadRecordsToTopic,
    FormatKind,
    Guarantee,
    OutputMode,
    ParquetSink,
    Pipeline,
    Sink,
    TableSink,
    TableSource,
    TopicSink,
)

#: How Spark's plan calls a data source that is read as a stream.
STREAM_OF_A_SOURCE = "StreamingRelationV2"
#: Columns that have a day.
DAYS = (DateType, TimestampType, TimestampNTZType)
DELIVERY = {Guarantee.EXACTLY_ONCE: "exactly-once", Guarantee.AT_LEAST_ONCE: "at-least-once"}


@dataclass(frozen=True, slots=True)
class PlannedQuery:
    """A query that can be started."""

    name: str
    kind: str
    target: str
    rows: DataFrame
    """as they are written"""
    writer: DataStreamWriter
    output: OutputMode


def planned_queries(frames: Frames) -> list[PlannedQuery]:
    """All queries of a pipeline whose frames are built."""
    pipeline = frames.pipeline
    queries = []
    for sink in pipeline.sinks.values():
        with told_of(f"sinks.{sink.name}"):
            queries.append(sink_query(frames, sink))
    for source in pipeline.sources.values():
        if isinstance(source, TableSource) or source.format.kind in (FormatKind.RAW, FormatKind.PARQUET):
            continue
        query = bad_records_query(frames, source.name)
        if query is not None:
            queries.append(query)
    for query in queries:
        check_slots(query, queries)
    return queries


def check_slots(query: PlannedQuery, queries: Sequence[PlannedQuery]) -> None:
    """A replication slot has one position, so only one query can read from it, and only once; ValueError."""
    before = [slot for each in queries[: queries.index(query)] for slot in slots_of(each.rows)]
    own = slots_of(query.rows)
    for slot in own:
        if slot in before or own.count(slot) > 1:
            whom = "this sink reads it twice" if own.count(slot) > 1 else "another sink reads from it already"
            raise ValueError(
                f"the replication slot {slot} can only be read once, and {whom}: name the table once more among the "
                "sources, with changes of another slot, and use that here; or write the changes into a topic, and read "
                "the topic as often as you like"
            )


def slots_of(rows: DataFrame) -> list[str]:
    """The replication slots that a query reads from, each as often as it is read."""
    leaves = rows._jdf.queryExecution().analyzed().collectLeaves()
    found = (leaves.apply(number) for number in range(leaves.size()))
    streams = [leaf for leaf in found if leaf.getClass().getSimpleName() == STREAM_OF_A_SOURCE]
    return [slot for leaf in streams if (slot := leaf.extraOptions().get("slot")) is not None]


def sink_query(frames: Frames, sink: Sink) -> PlannedQuery:
    rows = frames.tables[sink.input]
    if not rows.isStreaming:
        raise ValueError(
            f"no stream leads to it: {sink.input} is made of lookup tables alone. Read one as a "
            "stream (a topic, files, or a table with follow or changes)"
        )
    if isinstance(sink, ParquetSink):
        return _parquet_query(frames, sink.name, "sink", rows, sink)
    only_adds = isinstance(sink, TableSink) and sink.mode != "upsert"  # a row that changes must not be added again
    output = sink.output or (OutputMode.APPEND if only_adds else possible_output(frames.spark, rows))
    if isinstance(sink, TopicSink):
        records = encoded(rows, sink)
        return _topic_query(frames.pipeline, sink, records, output)
    name, options = query_name(frames.pipeline, sink.name), table_options(sink)
    check_columns(parse_sink_options(options, is_stream=True), rows.schema)
    if output is OutputMode.APPEND:
        writer = rows.writeStream.format(TABLES).options(**options, queryName=name).outputMode("append")
    else:
        writer = rows.writeStream.foreachBatch(NamedWrites(TABLES, options, name).write).outputMode(output.value)
    return PlannedQuery(sink.name, "sink", sink.shown, rows, writer, output)


def _topic_query(pipeline: Pipeline, sink: TopicSink, records: DataFrame, output: OutputMode) -> PlannedQuery:
    options = {**client_options(pipeline), **sink.options, "topic": sink.topic}
    asked = pipeline.guarantee_of(sink)
    if asked is not None:
        options["delivery"] = DELIVERY[asked]
    if output is OutputMode.APPEND:
        writer = records.writeStream.format(TOPICS).options(**options).outputMode("append")
    else:
        is_named = asked is not Guarantee.AT_LEAST_ONCE
        writes = NamedWrites(TOPICS, options, query_name(pipeline, sink.name), is_named)
        writer = records.writeStream.foreachBatch(writes.write).outputMode(output.value)
    return PlannedQuery(sink.name, "sink", f"topic {sink.topic}", records, writer, output)


def table_options(sink: TableSink) -> dict[str, str]:
    options = {**sink.options, "url": sink.address, "mode": sink.mode, "create": str(sink.create).lower()}
    if sink.keys:
        options["keys"] = ",".join(sink.keys)
    if sink.delete_when:
        options["deleteWhen"] = sink.delete_when
    return options


def _parquet_query(frames: Frames, name: str, kind: str, rows: DataFrame, sink: ParquetSink) -> PlannedQuery:
    need_columns(rows, (*sink.partition_by, *filter(None, (sink.date_column,))))
    if sink.date_column and not isinstance(days := rows.schema[sink.date_column].dataType, DAYS):
        raise FormatError(
            f"date: the column {sink.date_column} is {days.simpleString()}; make it a date or a time in a step"
        )
    folder = ParquetFolder(sink.path, f"{frames.pipeline.name}-{name}", sink.date_column, sink.partition_by)
    writer = rows.writeStream.foreachBatch(folder.write).outputMode("append")
    return PlannedQuery(name, kind, f"parquet {sink.path}", rows, writer, OutputMode.APPEND)


def bad_records_query(frames: Frames, name: str) -> PlannedQuery | None:
    """The query that keeps the bad records of a source; None if they are not kept."""
    source, pipeline = frames.pipeline.sources[name], frames.pipeline
    assert not isinstance(source, TableSource)
    kept = pipeline.bad_records_of(source)
    if isinstance(kept, BadRecordsToTopic):
        records = dead_letters(frames.bad_records(source), pipeline.name, name)
        options = {**client_options(pipeline), "topic": kept.topic}
        writer = records.writeStream.format(TOPICS).options(**options).outputMode("append")
        return PlannedQuery(f"{name}.bad", "bad records", f"topic {kept.topic}", records, writer, OutputMode.APPEND)
    if isinstance(kept, BadRecordsToParquet):
        rows = dead_columns(frames.bad_records(source), pipeline.name, name)
        return _parquet_query(frames, f"{name}.bad", "bad records", rows, ParquetSink(f"{name}.bad", name, kept.path))
    return None


def query_name(pipeline: Pipeline, name: str) -> str:
    """How Spark, and the databases that are written to, know a query."""
    return f"{pipeline.name}.{name}"


def possible_output(spark: SparkSession, rows: DataFrame) -> OutputMode:
    """Append if Spark can hand on every row once, otherwise the rows that have changed; append if neither goes."""
    for output in (OutputMode.APPEND, OutputMode.UPDATE):
        if output_problem(spark, rows, output) is None:
            return output
    return OutputMode.APPEND


def output_problem(spark: SparkSession, rows: DataFrame, output: OutputMode) -> str | None:
    """Why Spark cannot run these rows as a stream in this mode; None if it can."""
    jvm = spark._jvm
    assert jvm is not None
    modes = jvm.org.apache.spark.sql.streaming.OutputMode
    mode = {OutputMode.APPEND: modes.Append, OutputMode.UPDATE: modes.Update, OutputMode.COMPLETE: modes.Complete}[
        output
    ]()
    checker = jvm.org.apache.spark.sql.catalyst.analysis.UnsupportedOperationChecker
    try:
        checker.checkForStreaming(rows._jdf.queryExecution().analyzed(), mode)
    except AnalysisException as error:
        return str(error).partition(";")[0].partition("SQLSTATE")[0].strip()
    return None
