"""Ask a topic questions in SQL: DuckDB reads it batch by batch, so it may be larger than memory.

python examples/read_into_duckdb.py [HOST:PORT]          (needs penstock[columns] and duckdb)
"""

import sys
from uuid import uuid4

import duckdb
from confluent_kafka.admin import AdminClient, NewTopic

from penstock import columnar

BOOTSTRAP = sys.argv[1] if len(sys.argv) > 1 else "127.0.0.1:9092"
TOPIC = f"example-{uuid4().hex[:8]}"
COUNT = 10_000

admin = AdminClient({"bootstrap.servers": BOOTSTRAP})
admin.create_topics([NewTopic(TOPIC, num_partitions=3)])[TOPIC].result()

made = duckdb.sql(
    f"""
    select 'customer-' || id % 4 as customer, to_json({{id: id, amount: id % 100}})::varchar as "order"
    from range({COUNT}) numbers(id)
    """
)
written = columnar.write(made, TOPIC, BOOTSTRAP, key="customer", value="order")
print(f"wrote {written.rows} rows to {written.partitions} partitions")

orders = columnar.read(BOOTSTRAP, TOPIC)
revenue = duckdb.sql(
    """
    select decode(key) as customer, count(*) as orders, sum((decode(value)->>'amount')::int) as amount
    from orders group by all order by all
    """
)
print(revenue)
