"""The DataFrames of a pipeline: each source and step as a table of its name, nothing started yet.

`Frames` builds them in order and keeps, for each source that can have bad records, what it was decoded to, so that the
query of bad records reads the same. Checking and running use the same frames, so what was checked is what runs.
"""

from __future__ import annotations

import importlib
import inspect
import sys
import sysconfig
import traceback
from pathlib import Path
from typing import Any

from pyspark import cloudpickle
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from penstock.pipelines.bad_records import TOPIC_PLACE, bad_with_reasons, counted, good, good_or_stop
from penstock.pipelines.file_headers import without_headers
from penstock.pipelines.formats import DATA, check_options, decoded, need_columns
from penstock.pipelines.reading_nodes import did_you_mean
from penstock.pipelines.running_errors import told_of
from penstock.pipelines.spark_errors import in_short
from penstock.pipelines.specification import (
    DropBadRecords,
    FileSource,
    FormatKind,
    Pipeline,
    PythonStep,
    Source,
    SqlStep,
    Step,
    StopAtBadRecord,
    TableSource,
    TopicSource,
)

TOPICS = "penstock"
TABLES = "penstock-table"
INSTALLED = frozenset({"site-packages", "dist-packages"})
RAW_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "headers")


#: What Spark's parser makes of SQL that changes something or asks about the database.
COMMANDS = tuple(
    f"org.apache.spark.sql.catalyst.{name}"
    for name in ("plans.logical.Command", "plans.logical.ParsedStatement", "analysis.UnresolvedExecuteImmediate")
)


class StepError(ValueError):
    """A Python step that cannot be used."""


class Frames:
    """See the head of this file."""

    def __init__(self, spark: SparkSession, pipeline: Pipeline) -> None:
        self.spark = spark
        self.pipeline = pipeline
        self.tables: dict[str, DataFrame] = {}

    def build(self) -> None:
        """All sources and steps, in order; the first that fails says why."""
        for source in self.pipeline.sources.values():
            with told_of(f"sources.{source.name}"):
                self.add_source(source)
        for step in self.pipeline.steps.values():
            with told_of(f"steps.{step.name}"):
                self.add_step(step)

    def add_source(self, source: Source) -> None:
        frame = self._finished(self._source(source), source)
        self._keep(source.name, frame)

    def add_step(self, step: Step) -> None:
        frame = self._sql(step) if isinstance(step, SqlStep) else self._python(step)
        self._keep(step.name, self._finished(frame, step))

    def _sql(self, step: SqlStep) -> DataFrame:
        """Spark carries out a command as soon as it sees it, so a step must be a query."""
        jvm_session: Any = self.spark._jsparkSession
        if self._is_command(jvm_session.sessionState().sqlParser().parsePlan(step.sql)):
            raise StepError("this is a command; a step is a query, such as select … from …")
        return self.spark.sql(step.sql)

    def _is_command(self, plan: Any) -> bool:
        jvm: Any = self.spark._jvm
        if any(jvm.py4j.reflection.TypeUtil.isInstanceOf(kind, plan) for kind in COMMANDS):
            return True
        children = plan.children()
        return any(self._is_command(children.apply(number)) for number in range(children.size()))

    def _keep(self, name: str, frame: DataFrame) -> None:
        frame.createOrReplaceTempView(name)
        self.tables[name] = frame

    def _source(self, source: Source) -> DataFrame:
        if not isinstance(source, TableSource):
            check_options(self.spark, source.format)
        if isinstance(source, TableSource):
            return self._table(source)
        return self._topic(source) if isinstance(source, TopicSource) else self._files(source)

    def _finished(self, frame: DataFrame, part: Source | Step) -> DataFrame:
        """With its watermark, and without what comes twice."""
        if part.watermark is not None:
            need_columns(frame, (part.watermark.column,))
            frame = frame.withWatermark(part.watermark.column, part.watermark.delay)
        if part.deduplicate:
            need_columns(frame, part.deduplicate)
            names = list(part.deduplicate)
            frame = frame.dropDuplicatesWithinWatermark(names) if part.watermark else frame.dropDuplicates(names)
        return frame

    # ── topics ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _topic(self, source: TopicSource) -> DataFrame:
        if source.format.kind is FormatKind.RAW:
            return self.raw_topic(source, RAW_COLUMNS)
        wanted = {"value", *source.include}
        if isinstance(self.pipeline.bad_records_of(source), StopAtBadRecord):
            wanted |= {"topic", "partition", "offset"}
        raw = self.raw_topic(source, tuple(name for name in RAW_COLUMNS if name in wanted))
        rows = self._without_bad(decoded(raw, source.format), source)
        return rows.select(f"{DATA}.*", *(F.col(name).alias(f"_{name}") for name in source.include))

    def raw_topic(self, source: TopicSource, columns: tuple[str, ...]) -> DataFrame:
        options = {**client_options(self.pipeline), **source.options}
        options |= {"subscribePattern": source.pattern} if source.pattern else {"subscribe": ",".join(source.topics)}
        options |= {"startingOffsets": source.start, "columns": ",".join(columns)}
        options |= {"includeHeaders": "true"} if "headers" in columns else {}
        return self.spark.readStream.format(TOPICS).options(**options).load()

    def _without_bad(self, rows: DataFrame, source: TopicSource | FileSource) -> DataFrame:
        wanted = self.pipeline.bad_records_of(source)
        if isinstance(wanted, StopAtBadRecord):
            return good_or_stop(rows, source.name)
        return good(counted(rows, source.name)) if isinstance(wanted, DropBadRecords) else good(rows)

    def bad_records(self, source: TopicSource | FileSource) -> DataFrame:
        """The bad records of a source, with reasons."""
        if isinstance(source, FileSource):
            return bad_with_reasons(self._decoded_files(source), source.format)
        raw = self.raw_topic(source, ("key", "value", *TOPIC_PLACE, "headers"))
        return bad_with_reasons(decoded(raw, source.format), source.format)

    # ── files and tables ─────────────────────────────────────────────────────────────────────────────────────────

    def _files(self, source: FileSource) -> DataFrame:
        reader: Any = self.spark.read if source.is_lookup else self.spark.readStream
        if source.format.kind is FormatKind.PARQUET:
            schema = self.spark.read.parquet(source.path).schema  # of what is there now; the stream keeps to it
            rows: DataFrame = reader.format("parquet").schema(schema).options(**source.options).load(source.path)
            return rows
        return self._without_bad(self._decoded_files(source), source).select(f"{DATA}.*")

    def _decoded_files(self, source: FileSource) -> DataFrame:
        """Lines are records: each is read, or is bad, by itself."""
        reader: Any = self.spark.read if source.is_lookup else self.spark.readStream
        lines = reader.format("text").options(**source.options).load(source.path)
        rows = lines.select("value", F.col("_metadata.file_path").alias("file"))
        if source.format.kind is FormatKind.CSV and source.format.options.get("header", "").lower() == "true":
            rows = without_headers(lines)
        return decoded(rows.where(F.trim("value") != ""), source.format)

    def _table(self, source: TableSource) -> DataFrame:
        options = {**source.options, "url": source.address}
        if source.mode is None:
            return self.spark.read.format(TABLES).options(**options).load()
        return self.spark.readStream.format(TABLES).options(**options, mode=source.mode).load()

    # ── Python ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _python(self, step: PythonStep) -> DataFrame:
        where, folder = f"{step.module}:{step.function}", self.pipeline.folder
        try:
            module = importlib.import_module(step.module)
        except ImportError as error:
            raise StepError(f"{where} cannot be imported, looking in {folder} first: {error}") from error
        except Exception as error:  # whatever the user's module does
            raise StepError(f"the module {step.module} cannot be loaded: {_told(error, folder)}") from error
        function = getattr(module, step.function, None)
        if not callable(function):
            known = [name for name, each in vars(module).items() if inspect.isfunction(each)]
            raise StepError(
                f"the module {step.module} has no function {step.function}{did_you_mean(step.function, known)}"
            )
        _send_modules_of(folder)
        try:
            result = function(*(self.tables[name] for name in step.inputs))
        except Exception as error:
            raise StepError(f"{where} failed: {_told(error, folder)}") from error
        if not isinstance(result, DataFrame):
            raise StepError(f"{where} must return a DataFrame, and returned {type(result).__name__}")
        return result


def _told(error: Exception, folder: Path) -> str:
    """An error of the user's own code, with the last place of it that is in the user's project."""
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    if isinstance(error, PySparkException):
        text = in_short(error)
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        file = Path(frame.filename)
        if file.is_relative_to(folder) and not INSTALLED.intersection(file.parts):
            return f"{text} ({file.relative_to(folder)}, line {frame.lineno})"
    return text


def _send_modules_of(folder: Path) -> None:
    """Functions of the user's project travel to the workers as they are: these need not find its modules themselves.

    What is installed (an environment may lie in the folder) is there for the workers too, and stays at home.
    """
    python = Path(sysconfig.get_path("stdlib")).resolve()
    for module in list(sys.modules.values()):
        file = Path(getattr(module, "__file__", None) or python).resolve()
        is_installed = file.is_relative_to(python) or bool(INSTALLED.intersection(file.parts))
        is_own = file.is_relative_to(folder) and file.suffix == ".py" and not is_installed
        if is_own and module.__name__.partition(".")[0] not in ("__main__", "penstock"):
            cloudpickle.register_pickle_by_value(module)  # type: ignore[no-untyped-call]


def client_options(pipeline: Pipeline) -> dict[str, str]:
    """How `format("penstock")` reaches the brokers."""
    settings = {f"kafka.{name.removeprefix('kafka.')}": value for name, value in pipeline.client.items()}
    return {"kafka.bootstrap.servers": pipeline.brokers, **settings}
