"""Count words as they come: a streaming query over a topic, with counts in a table that is complete after each batch.

python examples/spark/word_count.py [HOST:PORT]          (needs penstock[spark] and Java 17)
"""

import os
import sys
import tempfile
from uuid import uuid4

import pyarrow as pa
from confluent_kafka.admin import AdminClient, NewTopic
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from penstock import columnar

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # the workers use this Python
BOOTSTRAP = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"
TOPIC = f"lines-{uuid4().hex[:8]}"
LINES = ["a log is a list", "a list that only grows", "and a log that is read by many"]

admin = AdminClient({"bootstrap.servers": BOOTSTRAP})
admin.create_topics([NewTopic(TOPIC, num_partitions=2)])[TOPIC].result()
columnar.write(pa.table({"line": LINES * 100}), TOPIC, BOOTSTRAP, value="line")

spark = SparkSession.builder.master("local[2]").config("spark.sql.shuffle.partitions", "2").getOrCreate()
lines = (
    spark.readStream.format("penstock")
    .option("kafka.bootstrap.servers", BOOTSTRAP)
    .option("subscribe", TOPIC)
    .option("startingOffsets", "earliest")
    .load()
)
words = lines.select(f.explode(f.split(f.col("value").cast("string"), " ")).alias("word"))
with tempfile.TemporaryDirectory() as checkpoint:
    query = (
        words.groupBy("word")
        .count()
        .writeStream.format("memory")
        .queryName("counts")
        .outputMode("complete")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)  # without this line it goes on with whatever comes
        .start()
    )
    query.awaitTermination()
spark.sql("select * from counts order by count desc, word limit 5").show()
spark.stop()
