"""`penstock pipeline new`: a first pipeline that runs as it is, with a word about everything that can be said."""

from __future__ import annotations

from pathlib import Path
from string import Template
from typing import Annotated

import typer

from penstock.cli.failure import ExitCode, Failure, usage
from penstock.cli.output import print_line
from penstock.pipelines.reading import read_file
from penstock.pipelines.reading_nodes import PipelineMistakes

SUFFIXES = (".yaml", ".yml")

STARTING_FILE = Template("""\
# A pipeline: rows flow from sources through steps into sinks.
#
#   penstock pipeline check $file    finds mistakes without running it, and draws the plan
#   penstock pipeline run $file      runs it until Ctrl-C; started again, it goes on where it was
#   penstock pipeline run --once $file    processes what is there and ends
#
# $${NAME} in a value is taken from the environment: that is where passwords belong.

name: $name
brokers: $${PENSTOCK_BOOTSTRAP:-127.0.0.1:9092}

# Each source and step is a table of its name for the SQL below.
sources:
  orders:
    topic: $topic                  # make it with: penstock topic create $topic
    format: json                   # or avro, csv, string, raw
    schema: "id string, sku string, quantity int, at timestamp"
    watermark: at 2 minutes        # an order may be this late; what comes later is left out of windows
    deduplicate: id                # an order that comes twice within that time counts once

  # A table of a database, read anew in every batch, to join with:
  # items: {table: "postgresql://shop/items"}
  # Its new and changed rows as a stream, by a column that grows:
  # changed_items: {table: "postgresql://shop/items", follow: {column: updated_at, overlap: 5 minutes}}

steps:
  per_minute: |
    select window.start as minute, sku, count(*) as orders, sum(quantity) as pieces
    from orders
    where quantity > 0
    group by window(at, '1 minute'), sku

  # A function of your own project, on DataFrames: def enrich(orders): ...
  # enriched: {python: "my_project.steps:enrich", from: orders}

# Each sink has its own checkpoint and gets every row exactly once.
sinks:
  to_files: {from: per_minute, parquet: $name-output, date: minute}

  # Into a topic, where the last record of a key is the newest count:
  # to_topic: {from: per_minute, topic: $topic-per-minute, key: [minute, sku], format: json, output: update}
  # Into a table of a database, which is made if it is not there:
  # to_table: {from: per_minute, table: "sqlite:$name.db/per_minute", mode: upsert, keys: [minute, sku], create: true}

# What cannot be read: drop it, stop at it, or keep it with the reason ({topic: $topic.dead} or {parquet: a-folder}).
on_bad_record: {parquet: $name-bad-records}

# What tables call postgresql://shop/...
# connections:
#   shop: {url: "postgresql://user:$${SHOP_PASSWORD}@127.0.0.1:5432/shopdb"}

# trigger: 10 seconds              # how often a batch begins; if left out, as soon as the one before has ended
# spark: {spark.sql.shuffle.partitions: 4}
""")


def new(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="Name of the pipeline, or of its file.", show_default=False)
    ],
    topic: Annotated[str, typer.Option("--topic", "-t", metavar="TOPIC", help="The topic to read from.")] = "orders",
) -> None:
    """Write a commented file to start from."""
    path = Path(name) if name.endswith(SUFFIXES) else Path(f"{name}.yaml")
    text = STARTING_FILE.substitute(file=path, name=path.stem, topic=topic)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise Failure(f"{path} is there already, and stays as it is: choose another name", ExitCode.EXISTS) from None
    try:
        read_file(path, {})
    except PipelineMistakes as found:
        path.unlink()
        raise usage("; ".join(dict.fromkeys(mistake.text for mistake in found.mistakes))) from None
    print_line(f"wrote {path}: look into it, then try 'penstock pipeline check {path}'")
