"""A program of its own, because the jars have to be there when the JVM starts: Spark's own connector beside our source.

Reads the same topic with both, with the same options, and says where they differ. Then a query begins with Spark's
connector and goes on with our source, from the same checkpoint. Prints what it found as one line of JSON.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from pyspark.sql import SparkSession

TOPIC = "beside"
OTHER = "beside-other"
#: Where Spark's connector reads uncommitted records by itself.
COMMITTED = {"kafka.isolation.level": "read_committed"}
CHOICES: dict[str, dict[str, str]] = {
    "all": {"subscribe": TOPIC},
    "headers": {"subscribe": TOPIC, "includeHeaders": "true"},
    "several topics": {"subscribe": f"{TOPIC},{OTHER}"},
    "pattern": {"subscribePattern": "beside.*"},
    "pattern of one": {"subscribePattern": "beside"},
    "assigned": {"assign": json.dumps({TOPIC: [1]})},
    "offsets": {
        "subscribe": TOPIC,
        "startingOffsets": json.dumps({TOPIC: {"0": 3, "1": -2}}),
        "endingOffsets": json.dumps({TOPIC: {"0": 9, "1": -1}}),
    },
    "times": {"subscribe": TOPIC, "startingTimestamp": "1000005", "endingTimestamp": "1000015"},
    "times of partitions": {
        "subscribe": TOPIC,
        "startingOffsetsByTimestamp": json.dumps({TOPIC: {"0": 1_000_003, "1": 1_000_000}}),
    },
    "split": {"subscribe": TOPIC, "minPartitions": "7"},
}


def main(bootstrap: str, jars: str, folder: str) -> None:
    session = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", jars)
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.driver.host", "127.0.0.1")
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    servers = {"kafka.bootstrap.servers": bootstrap, **COMMITTED}
    found: dict[str, Any] = {name: compared(session, {**servers, **options}) for name, options in CHOICES.items()}
    begun = streamed(session, "kafka", {**servers, "maxOffsetsPerTrigger": "8"}, folder, once=True)
    gone_on = streamed(session, "penstock", {**servers, "maxOffsetsPerTrigger": "8"}, folder, once=False)
    rows = session.read.parquet(f"{folder}/rows")
    found["stream"] = [begun, gone_on, rows.count(), rows.select("topic", "partition", "offset").distinct().count()]
    print(json.dumps(found))
    session.stop()


def compared(session: SparkSession, options: dict[str, str]) -> list[int]:
    """How many rows each has that the other has not, and how many there are."""
    theirs, ours = (session.read.format(name).options(**options).load() for name in ("kafka", "penstock"))
    assert theirs.schema.simpleString() == ours.schema.simpleString()
    return [theirs.exceptAll(ours).count(), ours.exceptAll(theirs).count(), ours.count()]


def streamed(session: SparkSession, name: str, options: dict[str, str], folder: str, *, once: bool) -> int:
    """How many batches with rows it took: one, or those of all that is left."""
    source = session.readStream.format(name).options(**options, subscribe=TOPIC, startingOffsets="earliest").load()
    sink = source.writeStream.format("parquet").option("path", f"{folder}/rows")
    sink = sink.option("checkpointLocation", f"{folder}/checkpoint")
    if not once:
        query = sink.trigger(availableNow=True).start()
        query.awaitTermination()
    else:
        query = sink.trigger(processingTime="1 hour").start()  # one batch, and then nothing for long
        while not [each for each in query.recentProgress if each["numInputRows"]]:
            query.awaitTermination(0.2)
        query.stop()
    return len([each for each in query.recentProgress if each["numInputRows"]])


if __name__ == "__main__":
    main(*sys.argv[1:])
