"""Clicks from a topic: kept in a table, counted by page in another; those of the sale go to a topic of their own."""

import os

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

spark = SparkSession.active()
SERVERS = {"kafka.bootstrap.servers": os.environ.get("PENSTOCK_BOOTSTRAP", "127.0.0.1:9092")}

dp.create_sink("sale_clicks", "penstock", {**SERVERS, "topic": "sale-clicks"})


@dp.table
def clicks() -> DataFrame:
    rows = spark.readStream.format("penstock").options(**SERVERS, subscribe="clicks", startingOffsets="earliest").load()
    return rows.select(f.from_json(f.col("value").cast("string"), "page string, visitor long").alias("c")).select("c.*")


@dp.materialized_view
def clicks_by_page() -> DataFrame:
    return spark.read.table("clicks").groupBy("page").count()


@dp.append_flow(target="sale_clicks")
def sale_clicks_flow() -> DataFrame:
    sale = spark.readStream.table("clicks").where("page = 'sale'")
    return sale.select(f.col("visitor").cast("string").alias("key"), f.to_json(f.struct("*")).alias("value"))
