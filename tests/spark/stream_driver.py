"""A program with a streaming query, to be killed: lines of files, one file a batch, into a topic.

    python stream_driver.py '{"bootstrap": …}'

It prints a line when the session is there, one for each failure of the query, and `done` when all files are written.
After a failure it starts the query again from its checkpoint, as a supervisor would, a limited number of times.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass, field

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from tests.spark.moments import FOLDER, MomentsSource


@dataclass
class DriverPlan:
    """What the program is to do."""

    bootstrap: str
    topic: str
    lines: str
    checkpoint: str
    moments: str
    partitions: int = 2
    restarts: int = 0
    master: str = "local[2]"
    session: dict[str, str] = field(default_factory=dict)
    options: dict[str, str] = field(default_factory=dict)

    def text(self) -> str:
        return json.dumps(asdict(self))


def main() -> None:
    plan = DriverPlan(**json.loads(sys.argv[1]))
    settings = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.driver.memory": "512m"}
    spark = SparkSession.builder.master(plan.master).config(map={**settings, **plan.session}).getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    spark.dataSource.register(MomentsSource)
    _say("ready")
    for left in reversed(range(plan.restarts + 1)):
        try:
            _run_query(spark, plan)
            break
        except StreamingQueryException as error:
            _say(f"failed {str(error)[:4000]!r}")
            if not left:
                sys.exit(1)
    _say("done")
    spark.stop()


def _run_query(spark: SparkSession, plan: DriverPlan) -> None:
    lines = spark.readStream.option("maxFilesPerTrigger", 1).text(plan.lines).repartition(plan.partitions)
    options = {
        "kafka.bootstrap.servers": plan.bootstrap,
        "topic": plan.topic,
        "checkpointLocation": plan.checkpoint,
        FOLDER: plan.moments,
        **plan.options,
    }
    query = lines.writeStream.format("penstock-moments").options(**options).trigger(availableNow=True).start()
    query.awaitTermination()


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    main()
