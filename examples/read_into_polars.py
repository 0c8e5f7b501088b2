"""Write a Polars frame to a topic, and read the topic into another one, JSON unpacked.

python examples/read_into_polars.py [HOST:PORT]          (needs penstock[columns] and polars)
"""

import sys
from uuid import uuid4

import polars as pl
from confluent_kafka.admin import AdminClient, NewTopic

from penstock import columnar

BOOTSTRAP = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"
TOPIC = f"example-{uuid4().hex[:8]}"
COUNT = 10_000

admin = AdminClient({"bootstrap.servers": BOOTSTRAP})
admin.create_topics([NewTopic(TOPIC, num_partitions=3)])[TOPIC].result()

orders = pl.DataFrame({"id": range(COUNT)}).select(
    customer=pl.format("customer-{}", pl.col("id") % 4),
    order=pl.struct("id", amount=pl.col("id") % 100).struct.json_encode(),
)
written = columnar.write(orders, TOPIC, BOOTSTRAP, key="customer", value="order")
print(f"wrote {written.rows} rows to {written.partitions} partitions")

frame = pl.DataFrame(columnar.read(BOOTSTRAP, TOPIC, columns=["key", "value"]))
order = pl.Struct({"id": pl.Int64, "amount": pl.Int64})
revenue = (
    frame.select(customer=pl.col("key").cast(pl.String), order=pl.col("value").cast(pl.String).str.json_decode(order))
    .unnest("order")
    .group_by("customer")
    .agg(pl.len().alias("orders"), pl.sum("amount"))
    .sort("customer")
)
print(revenue)
print(f"{frame.height} rows came back")
