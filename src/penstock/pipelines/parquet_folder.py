"""A folder of Parquet files that a stream adds to, each batch once, for every reader.

Spark's own file sink keeps a list of the files that count, which only Spark reads: others see what a failed batch left
behind. Here the name of a file says which query and batch it belongs to. A batch is written to a hidden folder first;
then the files that an earlier attempt at the same batch left are removed, and the new ones are moved to their place. A
batch that is run again replaces itself. Between a crash and the next start a part of one batch may be seen.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

STAGING = ".penstock-staging"
DATE = "date"
QUERY_ID = "sql.streaming.queryId"
ID_CHARACTERS = 8


@dataclass(frozen=True, slots=True)
class ParquetFolder:
    """See the head of this file."""

    path: str
    name: str
    date_column: str | None
    partition_by: tuple[str, ...]

    def write(self, rows: DataFrame, batch_id: int) -> None:
        """What `foreachBatch` calls."""
        spark = rows.sparkSession
        query_id = (spark.sparkContext.getLocalProperty(QUERY_ID) or "")[:ID_CHARACTERS]
        prefix = f"{self.name}-{query_id}-{batch_id:010}-"
        jvm: Any = spark._jvm
        paths = jvm.org.apache.hadoop.fs.Path
        files = paths(self.path).getFileSystem(spark._jsc.hadoopConfiguration())
        staging = paths(f"{self.path}/{STAGING}/{self.name}-{query_id}")
        files.delete(staging, True)
        by = ([DATE] if self.date_column else []) + list(self.partition_by)
        if self.date_column:
            rows = rows.withColumn(DATE, F.to_date(F.col(f"`{self.date_column}`")))
        rows.write.mode("overwrite").partitionBy(*by).parquet(staging.toString())
        target = files.makeQualified(paths(self.path))
        for old in list(_files(files, target, with_staging=False)):
            if old.getName().startswith(prefix):
                files.delete(old, False)
        root = files.makeQualified(staging).toString()
        for number, new in enumerate(list(_files(files, files.makeQualified(staging), with_staging=True))):
            inner = new.getParent().toString().removeprefix(root).strip("/")
            place = paths(f"{target.toString()}/{inner}".rstrip("/"))
            files.mkdirs(place)
            if not files.rename(new, paths(place, f"{prefix}{number:05}.parquet")):
                raise OSError(f"{new.toString()} cannot be moved to {place.toString()}")
        files.delete(staging, True)


def _files(files: Any, folder: Any, *, with_staging: bool) -> Iterator[Any]:
    """The Parquet files below a folder."""
    if not files.exists(folder):
        return
    found = files.listFiles(folder, True)
    while found.hasNext():
        path = found.next().getPath()
        if path.getName().endswith(".parquet") and (with_staging or STAGING not in path.toString()):
            yield path
