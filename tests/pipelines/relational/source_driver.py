"""A program with a streaming query over a table, to be killed at labelled moments: rows into files, one for each batch.

    python -m tests.pipelines.relational.source_driver '{"options": …}'

It reads everything there is (AvailableNow) and ends. The moments are those of `tests.spark.moments`, in the life of a
source: planned, tasks reading, and the sink before and after it has taken the batch.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from penstock.pipelines.relational.changes import ChangesReader
from penstock.pipelines.relational.data_source import RelationalTable
from penstock.pipelines.relational.growing import GrowingReader
from penstock.pipelines.relational.source_options import parse_source_options
from penstock.pipelines.relational.table_source import source_schema
from tests.pipelines.relational.batch_files import into_files
from tests.spark.moments import Moments

PLANNED, READING, BEFORE_SINK, AFTER_SINK = "planned", "reading", "before-sink", "after-sink"
LABELS = (PLANNED, READING, BEFORE_SINK, AFTER_SINK)
MOMENTS = "moments"


class MomentsGrowing(GrowingReader):
    """Comes by moments; a stop counts for whichever batch comes first."""

    moments: Moments

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Any:
        self.moments.come_by(PLANNED, 0)
        return super().partitions(start, end)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        for batch in super().read(partition):
            self.moments.come_by(READING, 0)
            yield batch


class MomentsChanges(ChangesReader):
    """The same for changes."""

    moments: Moments

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Any:
        self.moments.come_by(PLANNED, 0)
        return super().partitions(start, end)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        for batch in super().read(partition):
            self.moments.come_by(READING, 0)
            yield batch


class MomentsTable(RelationalTable):
    """The data source with readers that come by moments."""

    @classmethod
    def name(cls) -> str:
        return "penstock-table-moments"

    def _given(self) -> dict[str, str]:
        return {name: value for name, value in self.options.items() if name.lower() != MOMENTS}

    def schema(self) -> StructType:
        return source_schema(self._given())

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        options = parse_source_options(self._given())
        kind = MomentsChanges if options.mode == "changes" else MomentsGrowing
        reader = kind(options, schema)
        reader.moments = Moments(Path(self.options[MOMENTS]))
        return reader


def main() -> None:
    plan = json.loads(sys.argv[1])
    settings = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.driver.memory": "512m"}
    spark = SparkSession.builder.master("local[2]").config(map=settings).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    spark.dataSource.register(MomentsTable)
    moments, into = Moments(Path(plan[MOMENTS])), into_files(Path(plan["out"]))

    def sink(frame: Any, batch: int) -> None:
        moments.come_by(BEFORE_SINK, 0)
        into(frame, batch)
        moments.come_by(AFTER_SINK, 0)

    frame = spark.readStream.format("penstock-table-moments").options(**plan["options"], moments=plan[MOMENTS]).load()
    writer = frame.writeStream.option("checkpointLocation", plan["checkpoint"]).foreachBatch(sink)
    writer.trigger(availableNow=True).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main()
