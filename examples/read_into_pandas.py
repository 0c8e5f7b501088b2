"""Write a pandas frame to a topic, and read the topic into another one.

python examples/read_into_pandas.py [HOST:PORT]          (needs penstock[columns] and pandas)
"""

import sys
from uuid import uuid4

import pandas as pd
from confluent_kafka.admin import AdminClient, NewTopic

from penstock import columnar

BOOTSTRAP = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"
TOPIC = f"example-{uuid4().hex[:8]}"
COUNT = 10_000

admin = AdminClient({"bootstrap.servers": BOOTSTRAP})
admin.create_topics([NewTopic(TOPIC, num_partitions=3)])[TOPIC].result()

orders = pd.DataFrame({"customer": [f"customer-{number % 4}" for number in range(COUNT)]})
orders["order"] = [f'{{"id": {number}, "amount": {number % 100}}}' for number in range(COUNT)]
written = columnar.write(orders, TOPIC, BOOTSTRAP, key="customer", value="order")
print(f"wrote {written.rows} rows to {written.partitions} partitions")

frame = columnar.read(BOOTSTRAP, TOPIC, columns=["key", "value", "partition", "offset", "timestamp"]).read_pandas()
frame["key"] = frame["key"].str.decode("utf-8")
print(frame.head())
print(frame.groupby("key").agg(rows=("value", "size"), partitions=("partition", "nunique")))
print(f"{len(frame)} rows came back")
