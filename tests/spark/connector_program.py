"""A program of its own, because the jars have to be there when the JVM starts: Spark's own Kafka connector at work.

Writes rows to a topic, copies that topic to another one with a streaming query, stopped in the middle and started
again from its checkpoint, and reads the copy. Prints what it found as one line of JSON.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pyspark.sql import DataFrame, SparkSession

ROWS = 20_000
ROWS_PER_BATCH = 6_000


def main(bootstrap: str, jars: str, folder: str) -> None:
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", jars)
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .getOrCreate()
    )
    servers = {"kafka.bootstrap.servers": bootstrap}
    rows = session.range(ROWS).selectExpr("cast(id as string) as key", "concat('value ', id) as value")
    rows.write.format("kafka").options(**servers, topic="source").save()
    written = read(session, servers, "source")
    first = copy(session, servers, folder, limit=True)
    second = copy(session, servers, folder, limit=False)
    found = {
        "written": written.count(),
        "partitions": sorted(row.partition for row in written.select("partition").distinct().collect()),
        "batches": [first, second],
        "copied": read(session, servers, "copy").select("value").distinct().count(),
        "starts": starting(session, servers),
    }
    print(json.dumps(found))
    session.stop()


def read(session: SparkSession, servers: dict[str, str], topic: str, **options: Any) -> DataFrame:
    return session.read.format("kafka").options(**servers, subscribe=topic, **options).load()


def starting(session: SparkSession, servers: dict[str, str]) -> int:
    """How many rows there are when the first five of one partition are left out."""
    offsets = json.dumps({"source": {"0": 5, "1": -2, "2": -2}})
    return read(session, servers, "source", startingOffsets=offsets).count()


def copy(session: SparkSession, servers: dict[str, str], folder: str, *, limit: bool) -> int:
    """Copy what is there, or a part of it; how many batches that took."""
    source = session.readStream.format("kafka").options(**servers, subscribe="source", startingOffsets="earliest")
    if limit:
        source = source.option("maxOffsetsPerTrigger", ROWS_PER_BATCH)
    sink = source.load().select("key", "value").writeStream.format("kafka").options(**servers, topic="copy")
    sink = sink.option("checkpointLocation", f"{folder}/checkpoint")
    query = (sink.trigger(once=True) if limit else sink.trigger(availableNow=True)).start()
    query.awaitTermination()
    return len(query.recentProgress)


if __name__ == "__main__":
    main(*sys.argv[1:])
