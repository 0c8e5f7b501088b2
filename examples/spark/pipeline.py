"""A pipeline written in Python: the same keys as in a pipeline's YAML file, checked, run once, and looked at.

python examples/spark/pipeline.py [HOST:PORT]          (needs penstock[pipelines] and Java 17)
"""

import sqlite3
import sys
import tempfile
from pathlib import Path
from uuid import uuid4

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from penstock.pipelines.checking import check_pipeline
from penstock.pipelines.reading import read_document
from penstock.pipelines.running import Run
from penstock.pipelines.running_session import make_session
from penstock.pipelines.status import held_lock

BOOTSTRAP = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"
TOPIC = f"orders-{uuid4().hex[:8]}"

admin = AdminClient({"bootstrap.servers": BOOTSTRAP})
admin.create_topics([NewTopic(TOPIC, num_partitions=2)])[TOPIC].result()
producer = Producer({"bootstrap.servers": BOOTSTRAP})
for value in ('{"sku": "tea", "pieces": 2}', '{"sku": "cup", "pieces": 1}', '{"sku": "tea", "pieces": 3}', "no order"):
    producer.produce(TOPIC, value)
producer.flush()

with tempfile.TemporaryDirectory() as folder:
    pipeline = read_document(
        {
            "name": "sales",
            "brokers": BOOTSTRAP,
            "sources": {"orders": {"topic": TOPIC, "format": "json", "schema": "sku string, pieces int"}},
            "steps": {"sales": "select sku, sum(pieces) as pieces from orders group by sku"},
            "sinks": {
                "to_table": {
                    "from": "sales",
                    "table": f"sqlite://{folder}/shop.db/sales",
                    "mode": "upsert",
                    "keys": "sku",
                    "create": True,
                }
            },
            "on_bad_record": "drop",
        }
    )
    state = Path(folder) / "state"
    spark = make_session(pipeline, "local[2]")
    found = check_pipeline(spark, pipeline)
    print(found.plan, *found.mistakes, sep="\n")
    with held_lock(state, pipeline.name):  # a pipeline runs once at a time
        last = Run(spark, pipeline, state).run(once=True)  # without once it goes on; stop() ends it
    print(last.state, "with bad records:", last.bad_records, last.last_error or "")
    with sqlite3.connect(f"{folder}/shop.db") as database:
        print(database.execute("select sku, pieces from sales order by sku").fetchall())
    database.close()
    spark.stop()
