"""Makes `format("penstock")` known to Spark, which looks for `DefaultSource` in every package called `pyspark_…`."""

from penstock.spark.data_source import PenstockDataSource as DefaultSource

__all__ = ["DefaultSource"]
