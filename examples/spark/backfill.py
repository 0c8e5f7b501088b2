"""Write history into a topic, all or nothing, and only once: a batch that is named (`txnAppId`, `txnVersion`) and was
written before is not written again, however often the job is run.

python examples/spark/backfill.py [HOST:PORT]          (needs penstock[spark] and Java 17)
"""

import os
import sys
from uuid import uuid4

from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession

from penstock import columnar

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
BOOTSTRAP = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"
TOPIC = f"history-{uuid4().hex[:8]}"

admin = AdminClient({"bootstrap.servers": BOOTSTRAP})
admin.create_topics([NewTopic(TOPIC, num_partitions=3)])[TOPIC].result()
spark = SparkSession.builder.master("local[2]").getOrCreate()
history = spark.range(10_000).selectExpr(
    "cast(id % 100 as string) as key",
    "concat('{\"id\": ', id, '}') as value",
    "timestamp '2020-01-01 00:00:00' + make_interval(0, 0, 0, 0, 0, cast(id as int)) as timestamp",
)
for attempt in ("first", "second"):
    (
        history.write.format("penstock")
        .mode("append")
        .option("kafka.bootstrap.servers", BOOTSTRAP)
        .option("topic", TOPIC)
        .option("txnAppId", f"backfill of {TOPIC}")
        .option("txnVersion", 1)
        .save()
    )
    print(f"after the {attempt} run: {columnar.read(BOOTSTRAP, TOPIC).read_all().num_rows} rows")
spark.stop()
