"""What can be found wrong with a pipeline without running it, and its plan as text.

Reading has looked at the text. Here brokers are asked for topics, databases for tables, and Spark for the SQL: the
frames are built as they would run, and not started. What fails does not end the check; what depends on it is left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from penstock.columnar.cluster import Cluster
from penstock.columnar.commit_many import is_offered
from penstock.columnar.errors import ColumnarError
from penstock.columnar.settings import ClientSettings
from penstock.pipelines.reading_loops import reads_topic
from penstock.pipelines.reading_nodes import Mistake, did_you_mean
from penstock.pipelines.relational.failures import RelationalError
from penstock.pipelines.relational.table_sink_options import parse_sink_options
from penstock.pipelines.relational.target import check_target
from penstock.pipelines.running_errors import explained
from penstock.pipelines.running_frames import Frames
from penstock.pipelines.running_sinks import (
    PlannedQuery,
    bad_records_query,
    check_slots,
    output_problem,
    sink_query,
    table_options,
)
from penstock.pipelines.spark_errors import in_short
from penstock.pipelines.specification import (
    BadRecordsToTopic,
    FileSource,
    Guarantee,
    OutputMode,
    Pipeline,
    PythonStep,
    Sink,
    Source,
    SqlStep,
    Step,
    TableSink,
    TableSource,
    TopicSink,
    TopicSource,
)

#: Where Spark sees a mistake: `pos` counts from 0, `position` from 1.
_PLACE = re.compile(r"line (?P<line>\d+),? pos(?P<counts_from_1>ition)? (?P<column>\d+)")
NO_TABLE = "TABLE_OR_VIEW_NOT_FOUND"
AGGREGATE_HINT = " (give the source a watermark and group by window(…) itself, or use a sink that takes output: update)"
ASK_TIMEOUT_MS = "10000"


@dataclass(slots=True)
class Findings:
    """What a check found."""

    pipeline: Pipeline
    mistakes: list[Mistake] = field(default_factory=list)
    warnings: list[Mistake] = field(default_factory=list)
    plan: str = ""

    def wrong(self, key: str, text: str, line: int = 0) -> None:
        self.mistakes.append(Mistake(line or self.pipeline.line_of(key), key, text))

    def worth_knowing(self, key: str, text: str) -> None:
        self.warnings.append(Mistake(self.pipeline.line_of(key), key, text))


def check_pipeline(spark: SparkSession, pipeline: Pipeline) -> Findings:
    """See the head of this file."""
    findings = Findings(pipeline)
    best = _check_topics(pipeline, findings)
    frames = Frames(spark, pipeline)
    missing: set[str] = set()
    for source in pipeline.sources.values():
        if not _tried(findings, f"sources.{source.name}", lambda source=source: frames.add_source(source)):  # type: ignore[misc]
            missing.add(source.name)
    for step in pipeline.steps.values():
        _check_step(frames, step, missing, findings)
    queries = _check_sinks(frames, missing, findings)
    findings.plan = draw_plan(pipeline, frames, queries, best)
    return findings


def _tried(findings: Findings, key: str, attempt: Callable[[], object]) -> bool:
    try:
        attempt()
    except (PySparkException, RelationalError, ValueError) as error:
        findings.wrong(key, _problem(error))
        return False
    return True


def _problem(error: Exception) -> str:
    """Spark's errors without their code and the plan behind them; ours as they are."""
    if not isinstance(error, PySparkException):
        return str(error)
    if "Traceback" in str(error):
        return explained(error)
    return in_short(error)


def _check_step(frames: Frames, step: Step, missing: set[str], findings: Findings) -> None:
    if _needs(step, missing):
        missing.add(step.name)
        return
    try:
        frames.add_step(step)
    except (PySparkException, ValueError) as error:
        missing.add(step.name)
        text = _no_table(error, frames) or _problem(error)
        found = _PLACE.search(str(error)) if isinstance(step, SqlStep) else None
        line = step.line + int(found["line"]) - 1 if found and isinstance(step, SqlStep) and step.line else 0
        findings.wrong(f"steps.{step.name}", f"{text}{_place_in_sql(found)}", line)


def _place_in_sql(found: re.Match[str] | None) -> str:
    if found is None:
        return ""
    column = int(found["column"]) + (0 if found["counts_from_1"] else 1)
    return f" (line {found['line']}, position {column} of the SQL)"


def _no_table(error: Exception, frames: Frames) -> str | None:
    """What Spark says of a table that is not there is about databases of its own."""
    if not isinstance(error, PySparkException) or error.getCondition() != NO_TABLE:
        return None
    name = (error.getMessageParameters() or {}).get("relationName", "").replace("`", "")
    hint = did_you_mean(name, list(frames.tables)) or f"; there are {', '.join(frames.tables) or 'none'}"
    return f"there is no source or earlier step {name!r}{hint}"


def _needs(step: Step, missing: Iterable[str]) -> bool:
    """Whether it uses something that could not be built: then what is wrong has been told already."""
    if isinstance(step, PythonStep):
        return any(name in missing for name in step.inputs)
    return any(re.search(rf"\b{name}\b", step.sql) for name in missing)


def _check_sinks(frames: Frames, missing: set[str], findings: Findings) -> list[PlannedQuery]:
    queries: list[PlannedQuery] = []
    for sink in frames.pipeline.sinks.values():
        key = f"sinks.{sink.name}"
        if sink.input in missing:
            continue
        if _tried(findings, key, lambda sink=sink: queries.append(sink_query(frames, sink))):  # type: ignore[misc]
            _check_output(frames, queries[-1], key, sink, findings)
            _tried(findings, key, partial(check_slots, queries[-1], queries))
            if isinstance(sink, TableSink):
                rows, options = frames.tables[sink.input], parse_sink_options(table_options(sink), is_stream=True)
                _tried(findings, f"{key}.table", partial(check_target, options, rows.schema))
    for source in frames.pipeline.sources.values():
        if source.name not in missing and not isinstance(source, TableSource):
            key = f"sources.{source.name}"
            _tried(findings, key, lambda name=source.name: bad_records_query(frames, name))  # type: ignore[misc]
    return queries


def _check_output(frames: Frames, query: PlannedQuery, key: str, sink: Sink, findings: Findings) -> None:
    rows = frames.tables[sink.input]
    problem = output_problem(frames.spark, rows, query.output)
    if problem is not None:
        hint = AGGREGATE_HINT if "aggregations without watermark" in problem else ""
        findings.wrong(key, f"{in_short(problem)}{hint}")
    elif query.output is OutputMode.UPDATE and sink.output is None:
        text = "rows change while they are counted, so each batch writes those that changed (output: update)"
        findings.worth_knowing(key, f"{text}; with a watermark and group by window(…) they come once")


# ── topics and guarantees ────────────────────────────────────────────────────────────────────────────────────────────


def _check_topics(pipeline: Pipeline, findings: Findings) -> Guarantee | None:
    """Looks for the topics. What these brokers can promise to sinks; None if it is not known."""
    wanted, patterns = _topics_of(pipeline), _patterns_of(pipeline)
    if not wanted and not patterns:
        return None
    settings = {"default.api.timeout.ms": ASK_TIMEOUT_MS, **pipeline.client, "bootstrap.servers": pipeline.brokers}
    try:
        with Cluster(ClientSettings.parse(settings)) as cluster:
            there = cluster.topics()
            commits_many = is_offered(cluster.any())
    except (ColumnarError, OSError, ValueError) as error:
        findings.wrong("brokers", f"{pipeline.brokers}: {error}")
        return None
    for key, topic in wanted:
        if topic not in there:
            hint = did_you_mean(topic, list(there)) or f"; make it with 'penstock topic create {topic}'"
            findings.wrong(key, f"the topic {topic} does not exist{hint}")
    for source in patterns:
        if not any(reads_topic(source, topic) for topic in there):
            findings.worth_knowing(f"sources.{source.name}.pattern", f"no topic matches {source.pattern} yet")
    for sink in pipeline.sinks.values():
        asked = pipeline.guarantee_of(sink)
        if isinstance(sink, TopicSink) and asked is Guarantee.EXACTLY_ONCE and not commits_many:
            text = "exactly once is asked for, and these brokers can only be written to at least once"
            findings.wrong(f"sinks.{sink.name}.guarantee", f"{text}: use Penstock brokers, or ask for at least once")
    return Guarantee.EXACTLY_ONCE if commits_many else Guarantee.AT_LEAST_ONCE


def _patterns_of(pipeline: Pipeline) -> list[TopicSource]:
    return [each for each in pipeline.sources.values() if isinstance(each, TopicSource) and each.pattern is not None]


def _topics_of(pipeline: Pipeline) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    for source in pipeline.sources.values():
        if isinstance(source, TopicSource):
            found += [(f"sources.{source.name}.topic", topic) for topic in source.topics]
        if isinstance(source, TopicSource | FileSource):
            kept = pipeline.bad_records_of(source)
            if isinstance(kept, BadRecordsToTopic):
                found.append(("on_bad_record.topic", kept.topic))
    found += [
        (f"sinks.{each.name}.topic", each.topic) for each in pipeline.sinks.values() if isinstance(each, TopicSink)
    ]
    return list(dict.fromkeys(found))


# ── the plan ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def draw_plan(pipeline: Pipeline, frames: Frames, queries: list[PlannedQuery], best: Guarantee | None) -> str:
    """Sources, steps and sinks with their columns, as text."""
    lines = [pipeline.name]
    for source in pipeline.sources.values():
        lines += [f"  source {source.name}  ← {_source_text(source)}", *_columns(frames, source.name)]
    for step in pipeline.steps.values():
        kind = f"{step.module}:{step.function}" if isinstance(step, PythonStep) else "sql"
        lines += [f"  step {step.name}  ({kind})", *_columns(frames, step.name)]
    for query in queries:
        sink = pipeline.sinks[query.name]
        promise = _promise(pipeline, sink, best)
        lines.append(f"  sink {query.name}  {sink.input} → {query.target}  ({query.output.value}, {promise})")
    return "\n".join(lines)


def _promise(pipeline: Pipeline, sink: Sink, best: Guarantee | None) -> str:
    """What holds for a sink: tables and files always count batches, topics as the brokers can and as was asked."""
    if not isinstance(sink, TopicSink):
        return Guarantee.EXACTLY_ONCE.value
    if best is None:
        return "guarantee not known"
    return min(best, pipeline.guarantee_of(sink) or best, key=lambda each: each is Guarantee.EXACTLY_ONCE).value


def _columns(frames: Frames, name: str) -> list[str]:
    if name not in frames.tables:
        return []
    return [f"      {', '.join(f'{each.name} {each.dataType.simpleString()}' for each in frames.tables[name].schema)}"]


def _source_text(source: Source) -> str:
    if isinstance(source, TopicSource):
        return f"topic {source.pattern or ', '.join(source.topics)} ({source.format.kind.value})"
    if isinstance(source, FileSource):
        return f"files {source.path} ({source.format.kind.value}{', lookup' if source.is_lookup else ''})"
    return f"table {source.shown} ({source.mode or 'lookup'})"
