"""Copy a topic to a folder of Parquet files; run again, it goes on where it stopped.

python examples/spark/topic_to_parquet.py [HOST:PORT]          (needs penstock[spark] and Java 17)
"""

import os
import sys
import tempfile
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession

from penstock import columnar

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
BOOTSTRAP = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"
TOPIC = f"events-{uuid4().hex[:8]}"

admin = AdminClient({"bootstrap.servers": BOOTSTRAP})
admin.create_topics([NewTopic(TOPIC, num_partitions=3)])[TOPIC].result()
spark = SparkSession.builder.master("local[2]").getOrCreate()


def copy(folder: Path) -> None:
    events = (
        spark.readStream.format("penstock")
        .option("kafka.bootstrap.servers", BOOTSTRAP)
        .option("subscribe", TOPIC)
        .option("startingOffsets", "earliest")
        .load()
        .selectExpr("cast(value as string) as event", "timestamp", "partition", "offset")
    )
    query = (
        events.writeStream.format("parquet")
        .option("path", str(folder / "events"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


with tempfile.TemporaryDirectory() as scratch:
    for first in (0, 1000):
        columnar.write(
            pa.table({"event": [f"event {first + n}" for n in range(1000)]}), TOPIC, BOOTSTRAP, value="event"
        )
        copy(Path(scratch))
        table = pq.read_table(Path(scratch) / "events")
        print(f"{table.num_rows} rows in Parquet, {len(set(table['event'].to_pylist()))} different ones")
spark.stop()
