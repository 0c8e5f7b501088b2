"""What `penstock demo` runs: the pipeline's file as a user would write it, and the shop's database it joins with."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from penstock.cli.demo_orders import ITEMS

ORDERS_TOPIC = "orders"
REVENUE_TOPIC = "revenue"
DEAD_TOPIC = "orders.dead"
TOPICS = (ORDERS_TOPIC, REVENUE_TOPIC, DEAD_TOPIC)
PIPELINE_FILE = "shop.yaml"
DATABASE = "shop.db"
PARQUET_FOLDER = "orders-by-day"
BUSY_S_MAX = 5.0

PIPELINE = f"""\
# The orders of a shop: cleaned, joined with its items, and summed up every ten seconds.
name: shop
brokers: ${{PENSTOCK_BOOTSTRAP}}

sources:
  orders:
    topic: {ORDERS_TOPIC}
    format: json
    schema: "id string, customer string, sku string, quantity int, at timestamp"
    watermark: at 20 seconds       # who comes later than that is left out
    deduplicate: id                # who comes twice counts once
  items: {{table: "sqlite:{DATABASE}/items"}}

steps:
  priced: |
    select /*+ broadcast(items) */
      id, customer, sku, category, quantity, round(quantity * price, 2) as amount, at
    from orders join items using (sku)
    where quantity > 0
  revenue: |
    select window.start as since, category, count(*) as orders, round(sum(amount), 2) as revenue
    from priced
    group by window(at, '10 seconds'), category

sinks:
  to_topic: {{from: revenue, topic: {REVENUE_TOPIC}, key: category, format: json, output: update}}
  to_table:
    from: revenue
    table: "sqlite:{DATABASE}/revenue"
    mode: upsert
    keys: [since, category]
    create: true
    output: update
  to_files: {{from: priced, parquet: {PARQUET_FOLDER}, date: at}}

on_bad_record: {{topic: {DEAD_TOPIC}}}

# For few rows on a small machine that is to begin soon; leave these out for more.
spark:
  spark.sql.shuffle.partitions: 1
  spark.driver.extraJavaOptions: "-Xss4m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""


def lay_out(folder: Path) -> Path:
    """Write the pipeline and fill the shop's database, unless they are there from an earlier time; the file."""
    file = folder / PIPELINE_FILE
    if not file.exists():
        file.write_text(PIPELINE, "utf-8")
    with closing(sqlite3.connect(folder / DATABASE, timeout=BUSY_S_MAX)) as database, database:
        database.execute(
            "create table if not exists items (sku text primary key, title text, category text, price real)"
        )
        database.executemany("insert or replace into items values (?, ?, ?, ?)", ITEMS)
    return file


def newest_revenue(folder: Path, rows_max: int) -> list[tuple[object, ...]]:
    """The last rows of the table that the pipeline writes; none while it is not there."""
    address = f"file:{folder / DATABASE}?mode=ro"
    query = "select since, category, orders, revenue from revenue order by since desc, revenue desc limit ?"
    try:
        with closing(sqlite3.connect(address, uri=True, timeout=BUSY_S_MAX)) as database:
            return database.execute(query, (rows_max,)).fetchall()
    except sqlite3.OperationalError:
        return []


def parquet_size(folder: Path) -> tuple[int, int]:
    """How many Parquet files there are, and their bytes."""
    sizes = [path.stat().st_size for path in (folder / PARQUET_FOLDER).rglob("*.parquet") if path.is_file()]
    return len(sizes), sum(sizes)
