"""A program with a streaming query into a table, to be killed: lines of files, one file a batch.

    python -m tests.pipelines.relational.table_moments '{"url": …}'

Its writer comes by the labelled moments of `tests.spark.moments`, at which a test can hold it up.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from penstock.pipelines.relational.data_source import RelationalTable
from penstock.pipelines.relational.table_sink import TableStreamWriter
from tests.spark.moments import AFTER_COMMIT, BEFORE_COMMIT, FOLDER, TASK_PREPARED, TASK_RUNNING, Moments


class MomentsTableWriter(TableStreamWriter):
    """The writer of a stream, which comes by all moments."""

    def __init__(self, options: dict[str, str], schema: StructType, overwrite: bool) -> None:
        others = dict(options)
        self.moments = Moments(Path(others.pop(FOLDER)))
        super().__init__(others, schema, overwrite)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        number = self.batch().number
        report = super().write(self._watched(iterator, number))
        self.moments.come_by(TASK_PREPARED, number)
        return report

    def _watched(self, rows: Iterator[pa.RecordBatch], number: int) -> Iterator[pa.RecordBatch]:
        for batch in rows:
            yield batch
            self.moments.come_by(TASK_RUNNING, number)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        self.moments.come_by(BEFORE_COMMIT, batchId)
        super().commit(messages, batchId)
        self.moments.come_by(AFTER_COMMIT, batchId)


class MomentsTable(RelationalTable):
    @classmethod
    def name(cls) -> str:
        return "penstock-table-moments"

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return MomentsTableWriter(dict(self.options), schema, overwrite)


@dataclass
class TablePlan:
    """What the program is to do."""

    lines: str
    checkpoint: str
    options: dict[str, str] = field(default_factory=dict)
    partitions: int = 2

    def text(self) -> str:
        return json.dumps(asdict(self))


def main() -> None:
    plan = TablePlan(**json.loads(sys.argv[1]))
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "512m",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.execution.arrow.maxRecordsPerBatch": "50",
    }
    spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    spark.dataSource.register(MomentsTable)
    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(plan.lines).repartition(plan.partitions)
    rows = lines.selectExpr("cast(split(value, ' ')[0] as bigint) as id", "split(value, ' ')[1] as name")
    options = {**plan.options, "checkpointLocation": plan.checkpoint}
    query = rows.writeStream.format("penstock-table-moments").options(**options).trigger(availableNow=True).start()
    query.awaitTermination()
    print("done", flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
