"""A program as a user writes it, run as a process of its own: it reads a topic, and streams it into another.

Its arguments are the master (`spark://…`, `local[2]`) or a Spark Connect address (`connect:local[2]`), the brokers, the
two topics and a folder for the checkpoint. It prints what it found as one line of JSON, the last.
"""

from __future__ import annotations

import json
import sys
from typing import Any

STREAM_S_MAX = 300


def main(where: str, bootstrap: str, topic: str, copy: str, folder: str) -> None:
    from pyspark.sql import SparkSession

    builder: Any = SparkSession.builder.appName("topic program")
    builder = builder.remote(where[8:]) if where.startswith("connect:") else builder.master(where)
    spark = builder.config(map=SETTINGS).getOrCreate()
    brokers = {"kafka.bootstrap.servers": bootstrap}
    read = spark.read.format("penstock").options(subscribe=topic, minPartitions="4", **brokers).load()
    found: dict[str, Any] = {"rows": read.count(), "numbers": read.selectExpr("sum(int(string(value))) n").first().n}
    read.select("key", "value").write.format("penstock").mode("append").options(topic=copy, **brokers).save()
    stream = spark.readStream.format("penstock").options(subscribe=topic, startingOffsets="earliest", **brokers).load()
    writer = stream.select("key", "value").writeStream.format("penstock").options(topic=copy, **brokers)
    query = writer.option("checkpointLocation", folder).trigger(availableNow=True).start()
    query.awaitTermination(STREAM_S_MAX)
    found["copied"] = spark.read.format("penstock").options(subscribe=copy, **brokers).load().count()
    try:
        spark.read.format("penstock").options(subscribe="no-such-topic", **brokers).load().collect()
    except Exception as error:
        found["refusal"] = str(error)
    found["kind"] = type(spark).__module__
    print(json.dumps(found))
    spark.stop()


SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.executor.memory": "512m",
}

if __name__ == "__main__":
    main(*sys.argv[1:])
