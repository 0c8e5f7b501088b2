"""Topics as Spark sees them: `format("penstock")`, batch and streaming, source and sink.

Spark finds the data source by itself through the package `pyspark_penstock`; nothing has to be registered. The source
is `data_source` → `source` or `stream` (which talk to brokers through `penstock.columnar`) → `planning` and its
neighbours (which decide what is read, and are pure). Options, columns and meanings are those of Spark's own Kafka
connector; where they differ `docs/guides/spark.md` says so.
"""
