"""What `bench/spark.py` measures, as a program of its own: one Spark session in which both connectors take turns.

    python -m bench.spark_program BOOTSTRAP JARS FOLDER ROWS ROUNDS

`JARS` is Spark's own Kafka connector, or empty. The topic `rows` is filled. Prints one JSON object a line:
{"item": …, "way": …, "round": …, "figures": {…}}.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from bench.topics import Topics

OURS, THEIRS = "penstock", "kafka"
PARTITIONS = 4
VALUE = "concat(lpad(cast(id as string), 20, '0'), repeat('x', 180)) as value"
TRICKLED_BATCHES = 12
BATCH_WITHIN_S = 60


class Program:
    """The session, and the pieces of work."""

    def __init__(self, bootstrap: str, jars: str, folder: str, rows: int) -> None:
        builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
        builder = builder.config("spark.sql.shuffle.partitions", "2").config("spark.driver.memory", "3g")
        if jars:
            builder = builder.config("spark.jars", jars)
        self.session = builder.getOrCreate()
        self.session.sparkContext.setLogLevel("ERROR")
        self.servers = {"kafka.bootstrap.servers": bootstrap}
        self.folder = Path(folder)
        self.rows = rows
        self._topics = Topics(int(bootstrap.rpartition(":")[2]))
        self._number = 0

    def _new(self, name: str) -> str:
        self._number += 1
        return f"{name}-{self._number}"

    def _new_topic(self, name: str) -> str:
        topic = self._new(name)
        self._topics.create(topic, PARTITIONS)
        return topic

    def _timed(self, work: Callable[[], object]) -> dict[str, float]:
        began_s = time.perf_counter()
        work()
        took_s = time.perf_counter() - began_s
        return {"rows_s": self.rows / took_s, "seconds": took_s}

    # ── reading ──────────────────────────────────────────────────────────────────────────────────────────────────

    def read(self, way: str) -> dict[str, float]:
        """All rows of the topic, every column, into nothing."""
        found = self.session.read.format(way).options(**self.servers, subscribe="rows").load()
        return self._timed(lambda: found.write.format("noop").mode("overwrite").save())

    def stream(self, way: str) -> dict[str, float]:
        """The same as a stream that ends when it has read what is there."""
        options = {**self.servers, "subscribe": "rows", "startingOffsets": "earliest"}
        found = self.session.readStream.format(way).options(**options).load()

        def run() -> None:
            query = self._sink(found.writeStream.format("noop"), "stream").trigger(availableNow=True).start()
            query.awaitTermination()

        return self._timed(run)

    def _sink(self, writer, name: str):  # type: ignore[no-untyped-def]
        return writer.option("checkpointLocation", str(self.folder / self._new(name)))

    def trickle(self, way: str) -> dict[str, float]:
        """Batches with one row each: what one costs, and how much of that is spent on asking for offsets."""
        topic = self._new_topic("trickle")
        options = {**self.servers, "subscribe": topic, "startingOffsets": "earliest"}
        found = self.session.readStream.format(way).options(**options).load()
        query: StreamingQuery = self._sink(found.writeStream.format("noop"), "trickle").start()
        took = []
        try:
            for _ in range(TRICKLED_BATCHES):
                self._write(self._made(1), way, topic)
                took.append(self._next_batch(query))
        finally:
            query.stop()
        took = took[2:]  # the first ones are not usual
        return {
            "batch_ms": statistics.median(each["triggerExecution"] for each in took),
            "offsets_ms": statistics.median(each.get("latestOffset", 0) for each in took),
        }

    def _next_batch(self, query: StreamingQuery) -> dict[str, float]:
        """The times of the batch that has the row that was just written."""
        seen = {each["batchId"] for each in query.recentProgress if each["numInputRows"]}
        ends_s = time.monotonic() + BATCH_WITHIN_S
        while time.monotonic() < ends_s:
            for each in query.recentProgress:
                if each["numInputRows"] and each["batchId"] not in seen:
                    return dict(each["durationMs"])
            if query.exception() is not None:
                raise RuntimeError(str(query.exception()))
            time.sleep(0.01)
        raise TimeoutError("no batch came")

    # ── writing ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _made(self, rows: int) -> DataFrame:
        return self.session.range(rows).selectExpr("cast(id as string) as key", VALUE)

    def _write(self, rows: DataFrame, way: str, topic: str, **options: str) -> None:
        rows.write.format(way).mode("append").options(**self.servers, topic=topic, **options).save()

    def write(self, way: str) -> dict[str, float]:
        topic, rows = self._new_topic("written"), self._made(self.rows)
        options = {"delivery": "at-least-once"} if way == OURS else {}
        return self._timed(lambda: self._write(rows, way, topic, **options))

    def write_once(self, way: str) -> dict[str, float]:
        """Exactly once; the other connector has nothing of the kind, and writes at least once."""
        topic, rows = self._new_topic("once"), self._made(self.rows)
        options = {"delivery": "exactly-once"} if way == OURS else {}
        return self._timed(lambda: self._write(rows, way, topic, **options))


def main(bootstrap: str, jars: str, folder: str, rows: str, rounds: str) -> None:
    program = Program(bootstrap, jars, folder, int(rows))
    ways = [OURS, THEIRS] if jars else [OURS]
    items = {
        "spark-read": program.read,
        "spark-stream": program.stream,
        "spark-write": program.write,
        "spark-write-once": program.write_once,
        "spark-small-batch": program.trickle,
    }
    for number in range(-1, int(rounds)):  # the first one warms up
        for item, measure in items.items():
            for way in ways if number % 2 else ways[::-1]:
                figures = measure(way)
                if number >= 0:
                    print(json.dumps({"item": item, "way": way, "round": number, "figures": figures}), flush=True)
    program.session.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
