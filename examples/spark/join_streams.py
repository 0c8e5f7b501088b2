"""Orders and their payments come in two topics; those that are paid within an hour go to a third one, exactly once.

Watermarks tell Spark how long it has to remember what has not found its other half yet.

python examples/spark/join_streams.py [HOST:PORT]          (needs penstock[spark] and Java 17)
"""

import os
import sys
import tempfile
from uuid import uuid4

import pyarrow as pa
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from penstock import columnar

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
BOOTSTRAP = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"
RUN = uuid4().hex[:8]
ORDERS, PAYMENTS, PAID = (f"{name}-{RUN}" for name in ("orders", "payments", "paid"))

admin = AdminClient({"bootstrap.servers": BOOTSTRAP})
made = admin.create_topics([NewTopic(topic, num_partitions=2) for topic in (ORDERS, PAYMENTS, PAID)])
for done in made.values():
    done.result()
orders = [f'{{"id": {n}, "amount": {n * 10}, "at": "2026-01-01T10:00:00"}}' for n in range(100)]
payments = [f'{{"id": {n}, "at": "2026-01-01T10:{n % 60:02}:00"}}' for n in range(0, 100, 2)]
columnar.write(pa.table({"json": orders}), ORDERS, BOOTSTRAP, value="json")
columnar.write(pa.table({"json": payments}), PAYMENTS, BOOTSTRAP, value="json")

spark = SparkSession.builder.master("local[2]").config("spark.sql.shuffle.partitions", "2").getOrCreate()


def stream(topic: str, schema: str) -> DataFrame:
    options = {"kafka.bootstrap.servers": BOOTSTRAP, "subscribe": topic, "startingOffsets": "earliest"}
    rows = spark.readStream.format("penstock").options(**options).load()
    return rows.select(f.from_json(f.col("value").cast("string"), schema).alias("row")).select("row.*")


ordered = stream(ORDERS, "id long, amount long, at timestamp").withWatermark("at", "10 minutes").alias("o")
paid = stream(PAYMENTS, "id long, at timestamp").withWatermark("at", "10 minutes").alias("p")
joined = ordered.join(paid, f.expr("o.id = p.id and p.at between o.at and o.at + interval 1 hour"))
result = joined.select(
    f.col("o.id").cast("string").alias("key"),
    f.to_json(f.struct("o.id", "amount", f.col("p.at").alias("paid_at"))).alias("value"),
)
with tempfile.TemporaryDirectory() as checkpoint:
    query = (
        result.writeStream.format("penstock")
        .option("kafka.bootstrap.servers", BOOTSTRAP)
        .option("topic", PAID)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
spark.stop()
print(f"{columnar.read(BOOTSTRAP, PAID).read_all().num_rows} of {len(orders)} orders are paid")
