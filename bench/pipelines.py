"""`python -m bench.pipelines`: rows per second of what pipelines are made of, on this machine.

topic → PostgreSQL (beside foreachBatch with psycopg's executemany, as one writes it without a sink), topic → SQL →
topic, and a snapshot of PostgreSQL → topic. Then how the same grows with tasks at a time (`local[1]`, `local[2]`) and
with partitions. Needs Java and Debian's PostgreSQL. `--part` runs one half.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from rich.console import Console
from rich.table import Table

from bench import machine
from bench.topics import Topics
from bench.ways import Row, Ways, as_range
from penstock import columnar
from penstock.pipelines.relational.data_source import RelationalTable
from penstock.testing.broker_process import BrokerProcess
from penstock.testing.database_servers import PASSWORD, USER, PostgreSQLServer

ROOT = Path(__file__).resolve().parents[1]
OURS, PLAIN = "penstock", "foreachBatch + executemany"
PARTITIONS = 4
GROWING_PARTITIONS = (1, 2, 4)
GROWING_CORES = (1, 2)
FILLED_AT_ONCE = 100_000
ROW_BYTES = 200
ROWS = (
    Row("topic → postgresql", "rows_s", "thousand rows/s", 1e-3),
    Row("topic → postgresql, upsert", "rows_s", "thousand rows/s", 1e-3),
    Row("topic → sql → topic", "rows_s", "thousand rows/s", 1e-3),
    Row("postgresql → topic", "rows_s", "thousand rows/s", 1e-3),
)
COLUMNS = ("cast(cast(key as string) as bigint) as id", "partition", "offset as place", "cast(value as string) as text")
_NUMBERS = count(1)
TABLE = "(id bigint, partition integer, place bigint, text text)"


class Work:
    """The session, and the pieces of work."""

    def __init__(self, cores: int, broker: BrokerProcess, server: PostgreSQLServer, folder: Path, rows: int) -> None:
        environment = {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
        paths = [str(ROOT / "src"), str(ROOT), os.environ.get("PYTHONPATH", "")]
        os.environ.update(environment, PYTHONPATH=os.pathsep.join(filter(None, paths)))
        builder = SparkSession.builder.master(f"local[{cores}]").config("spark.ui.enabled", "false")
        builder = builder.config("spark.ui.showConsoleProgress", "false")
        self.session = builder.config("spark.driver.memory", "2g").getOrCreate()
        self.session.sparkContext.setLogLevel("ERROR")
        self.session.dataSource.register(RelationalTable)
        self.servers = {"kafka.bootstrap.servers": broker.bootstrap}
        self.server = server
        self.url = server.new_database()
        self.database = self.url.rpartition("/")[2]
        self.folder = folder
        self.rows = rows
        self._topics = Topics(broker.port)

    def new(self) -> str:
        """A name for a table, a topic or a checkpoint."""
        return f"t{next(_NUMBERS)}"

    def new_table(self, rest: str = "") -> str:
        name = self.new()
        with self.server.connect(self.database) as connection:
            connection.execute(f"CREATE TABLE {name} {TABLE}{rest}".encode())
        return name

    def stream(self, partitions: int = PARTITIONS) -> DataFrame:
        reader = self.session.readStream.format("penstock").options(**self.servers, startingOffsets="earliest")
        return reader.option("subscribe", f"rows-{partitions}").load()

    def run(self, writer: Any) -> float:
        """Everything there is; seconds."""
        began_s = time.perf_counter()
        options = {"checkpointLocation": str(self.folder / self.new())}
        writer.options(**options).trigger(availableNow=True).start().awaitTermination()
        return time.perf_counter() - began_s

    def to_table(self, partitions: int = PARTITIONS) -> float:
        rows = self.stream(partitions).selectExpr(*COLUMNS)
        return self.run(rows.writeStream.format("penstock-table").option("url", f"{self.url}/{self.new_table()}"))

    def to_table_upsert(self) -> float:
        table = self.new_table()
        with self.server.connect(self.database) as connection:
            connection.execute(f"ALTER TABLE {table} ADD PRIMARY KEY (id)".encode())
        rows = self.stream().selectExpr(*COLUMNS).writeStream.format("penstock-table")
        return self.run(rows.options(url=f"{self.url}/{table}", mode="upsert", keys="id", orderBy="place"))

    def to_table_plainly(self) -> float:
        insert = executemany(self.server.port, self.database, self.new_table())
        rows = self.stream().selectExpr(*COLUMNS)
        return self.run(rows.writeStream.foreachBatch(lambda batch, number: batch.foreachPartition(insert)))

    def through_sql(self, partitions: int = PARTITIONS) -> float:
        topic = self.new()
        self._topics.create(topic, partitions)
        self.stream(partitions).createOrReplaceTempView("records")
        rows = self.session.sql(
            "select key, cast(upper(cast(value as string)) as binary) as value from records "
            "where cast(cast(key as string) as bigint) % 10 > 0"
        )
        return self.run(rows.writeStream.format("penstock").options(**self.servers, topic=topic))

    def from_table(self, table: str, partitions: int = PARTITIONS) -> float:
        topic = self.new()
        self._topics.create(topic, partitions)
        began_s = time.perf_counter()
        reader = self.session.read.format("penstock-table").options(url=f"{self.url}/{table}", partitions=partitions)
        rows = reader.load().selectExpr("cast(cast(id as string) as binary) as key", "cast(text as binary) as value")
        rows.write.format("penstock").options(**self.servers, topic=topic).mode("append").save()
        return time.perf_counter() - began_s

    def filled_table(self) -> str:
        table = self.new_table()
        with self.server.connect(self.database) as connection:
            statement = f"INSERT INTO {table} SELECT n, 0, n, lpad(n::text, 200, 'x') FROM generate_series(1, %s) n"
            connection.execute(statement.encode(), (self.rows,))
            connection.execute(f"ALTER TABLE {table} ADD PRIMARY KEY (id)".encode())
        return table


def executemany(port: int, database: str, table: str) -> Callable[[Iterator[Any]], None]:
    """What a task does in the plain way."""

    def insert(rows: Iterator[Any]) -> None:
        connection = psycopg.connect(host="127.0.0.1", port=port, dbname=database, user=USER, password=PASSWORD)
        with connection, connection.cursor() as cursor:
            cursor.executemany(f"INSERT INTO {table} VALUES (%s, %s, %s, %s)".encode(), (tuple(row) for row in rows))

    return insert


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.pipelines", description=__doc__.partition("\n\n")[0])
    parser.add_argument("--rows", type=int, default=500_000, help="of 200 bytes (500,000)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cores", type=int, default=2, help="tasks at a time of the first part (2)")
    parser.add_argument("--part", choices=("ways", "growth"), help="only this one")
    options = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 140)
    with (
        tempfile.TemporaryDirectory(prefix="penstock-bench-", ignore_cleanup_errors=True) as scratch,
        BrokerProcess(Path(scratch) / "data") as broker,
        PostgreSQLServer(settings={"shared_buffers": "256MB", "max_wal_size": "4GB"}) as server,
    ):
        for partitions in GROWING_PARTITIONS if options.part != "ways" else (PARTITIONS,):
            _fill(broker, options.rows, partitions)

        def work(cores: int) -> Work:
            return Work(cores, broker, server, Path(scratch), options.rows)

        if options.part != "growth":
            measure_ways(work(options.cores), options.cores, options.rounds, console)
        if options.part != "ways":
            measure_growth(work, options.rounds, console)
    console.print(" · ".join(str(value) for value in machine.description().values()))
    return 0


def measure_ways(work: Work, cores: int, rounds: int, console: Console) -> None:
    """Each piece of work in turn, over and over, beside the plain way where there is one."""
    ways, table = Ways(OURS), work.filled_table()
    pieces: list[tuple[str, str, Callable[[], float]]] = [
        (ROWS[0].item, OURS, work.to_table),
        (ROWS[0].item, PLAIN, work.to_table_plainly),
        (ROWS[1].item, OURS, work.to_table_upsert),
        (ROWS[2].item, OURS, work.through_sql),
        (ROWS[3].item, OURS, lambda: work.from_table(table)),
    ]
    for _, _, piece in pieces:
        piece()  # the first of each waits for Spark, Java and Python's workers to warm up
    for number in range(rounds):
        for item, way, piece in pieces:
            _tell(f"round {number + 1} · {item} · {way}")
            ways.add(item, way, number, {"rows_s": work.rows / piece()})
    work.session.stop()
    ways.show(f"Pipelines, {ROW_BYTES}-byte rows, local[{cores}]", ROWS, [PLAIN], console)


def measure_growth(make: Callable[[int], Work], rounds: int, console: Console) -> None:
    """The same work with one and two tasks at a time, on topics and ranges of one, two and four."""
    found: dict[tuple[str, int, int], dict[int, float]] = defaultdict(dict)
    for cores in GROWING_CORES:
        work = make(cores)
        table = work.filled_table()
        pieces: dict[str, Callable[[int], float]] = {
            ROWS[0].item: work.to_table,
            ROWS[2].item: work.through_sql,
            ROWS[3].item: lambda partitions, work=work, table=table: work.from_table(table, partitions),  # type: ignore[misc]
        }
        for piece in pieces.values():
            piece(PARTITIONS)  # warms up
        for number in range(rounds):
            for item, piece in pieces.items():
                for partitions in GROWING_PARTITIONS:
                    _tell(f"local[{cores}] · round {number + 1} · {item} · {partitions} partitions")
                    found[item, cores, partitions][number] = work.rows / piece(partitions)
        work.session.stop()
    shown = Table(title="Growth, thousand rows/s", title_justify="left")
    for heading in ("work", "tasks at a time", *(f"partitions: {each}" for each in GROWING_PARTITIONS)):
        shown.add_column(heading, justify="left" if heading == "work" else "right")
    for item in dict.fromkeys(each for each, _, _ in found):
        for cores in GROWING_CORES:
            figures = [as_range(found[item, cores, partitions], 1e-3) for partitions in GROWING_PARTITIONS]
            shown.add_row(item, str(cores), *figures)
    console.print(shown)


def _tell(text: str) -> None:
    Console(stderr=True).print(text, highlight=False)


def _fill(broker: BrokerProcess, rows: int, partitions: int) -> None:
    topic = f"rows-{partitions}"
    Topics(broker.port).create(topic, partitions)

    def made() -> Iterator[pa.RecordBatch]:
        for first in range(0, rows, FILLED_AT_ONCE):
            numbers = range(first, min(first + FILLED_AT_ONCE, rows))
            keys = pa.array([b"%d" % number for number in numbers], pa.binary())
            values = pa.array([b"%020d" % number + b"x" * (ROW_BYTES - 20) for number in numbers], pa.binary())
            yield pa.record_batch({"key": keys, "value": values})

    columnar.write(made(), topic, broker.bootstrap, key="key", value="value")


if __name__ == "__main__":
    sys.exit(main())
