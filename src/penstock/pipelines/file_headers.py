"""CSV files without their first lines, whatever stands in these.

A file may be cut into several pieces, each read by a task, and a task may read many small files. The header is the
first line that a task sees of the piece at which a file begins; lines of a piece come in order.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def without_headers(lines: DataFrame) -> DataFrame:
    """Columns value and file of what Spark's format text has read."""
    begins = (F.col("_metadata.file_block_start") == 0).alias("begins")
    rows = lines.select("value", F.col("_metadata.file_path").alias("file"), begins)
    return rows.mapInArrow(_drop_headers, rows.drop("begins").schema)


def _drop_headers(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    file_before: str | None = None
    for batch in batches:
        kept = []
        for begins, file in zip(batch.column("begins").to_pylist(), batch.column("file").to_pylist(), strict=True):
            is_header = begins and file != file_before
            kept.append(not is_header)
            if begins:
                file_before = file
        yield batch.select(["value", "file"]).filter(pa.array(kept, pa.bool_()))
