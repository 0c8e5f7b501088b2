"""The sink: what tasks and the driver do when a DataFrame is written to a table."""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter
from pyspark.sql.types import StructType


class TableWriter(DataSourceArrowWriter):
    """`df.write`: all or nothing."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        raise NotImplementedError


class TableStreamWriter(DataSourceStreamArrowWriter):
    """`df.writeStream`: each batch once, whatever is killed and started again."""

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        raise NotImplementedError
