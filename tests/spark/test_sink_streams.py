"""`df.writeStream` through a real session and a real broker: each batch once, however often it is run."""

from __future__ import annotations

import os
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.columnar.cluster import Cluster
from penstock.columnar.commit_many import describe
from penstock.columnar.settings import ClientSettings
from penstock.testing.broker_process import BrokerProcess

from .committed_rows import committed_values, is_settled, settled_values
from .conftest import MakeTopic
from .moments import AFTER_COMMIT, FOLDER, LABELS, TASK_PREPARED, TASK_RUNNING, Moments, MomentsSource

pytestmark = pytest.mark.spark

RUN_S_MAX = 120


class LineStream:
    """A query that writes lines of files, a file a batch, into a topic; to be run as often as one likes."""

    def __init__(self, spark: Any, bootstrap: str, topic: str, folder: Path) -> None:
        self.spark = spark
        self.bootstrap = bootstrap
        self.topic = topic
        self.lines = folder / "lines"
        self.checkpoint = folder / "checkpoint"
        self.moments = Moments(folder / "moments")
        self.lines.mkdir()
        self.expected: list[str] = []

    def add(self, *lines: str) -> None:
        """One more batch."""
        file = self.lines / f"{len(list(self.lines.iterdir())):05}.txt"
        file.write_text("".join(f"{line}\n" for line in lines))
        self.expected = sorted([*self.expected, *lines])

    def start(self, *, partitions: int = 2, mode: str = "append", **options: str) -> Any:
        lines = self.spark.readStream.option("maxFilesPerTrigger", 1).text(str(self.lines))
        rows = self.shaped(lines, partitions)
        given = {
            "kafka.bootstrap.servers": self.bootstrap,
            "topic": self.topic,
            "checkpointLocation": str(self.checkpoint),
            FOLDER: str(self.moments.folder),
            **options,
        }
        writer = rows.writeStream.format("penstock-moments").outputMode(mode).options(**given)
        return writer.trigger(availableNow=True).start()

    def shaped(self, lines: Any, partitions: int) -> Any:
        return lines.repartition(partitions)

    def run(self, **how: Any) -> Any:
        """Write all that there is; raises what the query raises."""
        query = self.start(**how)
        try:
            assert query.awaitTermination(RUN_S_MAX), "the query does not end"
        finally:
            query.stop()
        return query

    def forget_last_commit(self) -> None:
        """The checkpoint as it is when a driver dies after its commit and before it has noted that."""
        last = max((file for file in (self.checkpoint / "commits").glob("[0-9]*")), key=lambda file: int(file.name))
        last.unlink()
        last.with_name(f".{last.name}.crc").unlink(missing_ok=True)

    def values(self) -> list[str]:
        return settled_values(self.bootstrap, self.topic)


@pytest.fixture
def stream(spark: Any, broker: BrokerProcess, new_topic: MakeTopic, tmp_path: Path) -> Iterator[LineStream]:
    spark.dataSource.register(MomentsSource)
    made = LineStream(spark, broker.bootstrap, new_topic(partitions=3), tmp_path)
    yield made
    spark.conf.unset(ROWS_AT_ONCE[0])
    for label in LABELS:
        made.moments.go(label)


def last_number(stream: LineStream, query: Any) -> int:
    with Cluster(ClientSettings.parse({"bootstrap.servers": stream.bootstrap})) as cluster:
        return describe(cluster, str(query.id)).last_number


def test_batches_are_written_once_and_counted(stream: LineStream) -> None:
    for number in range(3):
        stream.add(*(f"{number}-{line}" for line in range(100)))
    query = stream.run()
    assert stream.values() == stream.expected
    assert last_number(stream, query) == 2
    stream.add("one more")
    stream.run()
    assert stream.values() == stream.expected


@pytest.mark.parametrize("partitions", [1, 2, 5])
def test_a_batch_that_was_committed_is_recognised(stream: LineStream, partitions: int) -> None:
    stream.add("a", "b", "c", "d")
    stream.run(partitions=2)
    stream.forget_last_commit()
    stream.add("e")
    stream.run(partitions=partitions)
    assert stream.values() == stream.expected


def test_the_state_of_a_query_goes_on_after_a_batch_that_was_recognised(stream: LineStream) -> None:
    stream.shaped = lambda lines, _: lines.dropDuplicates(["value"])  # type: ignore[method-assign]
    stream.add("a", "b")
    stream.run()
    stream.forget_last_commit()
    stream.add("a", "c")
    stream.run()
    assert stream.values() == ["a", "b", "c"]


def test_batches_without_rows_count(stream: LineStream) -> None:
    stream.shaped = lambda lines, _: lines.where("value <> 'skip'")  # type: ignore[method-assign]
    stream.add("a")
    stream.add("skip")
    query = stream.run()
    assert last_number(stream, query) == 1
    assert stream.values() == ["a"]


def test_the_output_mode_complete_appends_every_result(stream: LineStream) -> None:
    stream.shaped = lambda lines, _: lines.groupBy().count().selectExpr("cast(count as string) value")  # type: ignore
    stream.add("a")
    stream.add("b")
    stream.run(mode="complete")
    assert stream.values() == ["1", "2"]


def test_a_checkpoint_from_an_older_copy(stream: LineStream) -> None:
    for number in range(2):
        stream.add(str(number))
    stream.run()
    copy = stream.checkpoint.with_name("copy")
    shutil.copytree(stream.checkpoint, copy)
    for number in range(2, 5):
        stream.add(str(number))
    query = stream.run()
    shutil.rmtree(stream.checkpoint)
    copy.rename(stream.checkpoint)
    with pytest.raises(Exception) as refused:
        stream.run()
    text = str(refused.value)
    assert f"the checkpoint of the query {query.id} is older than what the query has written" in text
    assert "it goes on with batch 2, and batch 4 is in the topic already" in text
    assert stream.values() == stream.expected


def test_at_least_once(stream: LineStream) -> None:
    stream.add("a", "b")
    query = stream.run(delivery="at-least-once")
    assert stream.values() == ["a", "b"]
    assert last_number(stream, query) == -1


def test_a_failed_batch_leaves_nothing_behind(stream: LineStream) -> None:
    stream.shaped = lambda lines, _: lines.repartition(2).selectExpr(
        "if(value = '77', raise_error('no more'), value) value"
    )  # type: ignore
    stream.add(*map(str, range(100)))
    with pytest.raises(Exception, match="no more"):
        stream.run()
    assert committed_values(stream.bootstrap, stream.topic) == []
    stream.shaped = lambda lines, _: lines  # type: ignore[method-assign]
    stream.run()
    assert stream.values() == stream.expected


# ── time ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def big_lines(count: int) -> list[str]:
    """Each task has sent some of them before it has taken all."""
    return [f"{number:04}" + os.urandom(16_000).hex() for number in range(count)]


BIG_ROWS = {"kafka.compression.type": "none", "kafka.batch.size": "200000"}
ROWS_AT_ONCE = ("spark.sql.execution.arrow.maxRecordsPerBatch", "80")


def test_a_task_that_writes_longer_than_its_transaction_may(stream: LineStream) -> None:
    stream.spark.conf.set(*ROWS_AT_ONCE)
    stream.add(*big_lines(240))
    stream.moments.stop(TASK_RUNNING)
    query = stream.start(partitions=1, **BIG_ROWS, **{"kafka.transaction.timeout.ms": "3000"})
    stream.moments.wait(TASK_RUNNING)
    wait_for(lambda: not is_settled(stream.bootstrap, stream.topic))
    wait_for(lambda: is_settled(stream.bootstrap, stream.topic))  # it was aborted
    stream.moments.go(TASK_RUNNING)
    with pytest.raises(Exception, match=r"set the option kafka.transaction.timeout.ms higher"):
        query.awaitTermination(RUN_S_MAX)
    assert committed_values(stream.bootstrap, stream.topic) == []
    stream.run(partitions=1, **BIG_ROWS)
    assert stream.values() == stream.expected


def test_what_is_prepared_waits_for_the_others_beyond_its_timeout(stream: LineStream) -> None:
    stream.add("a", "b")
    stream.moments.stop(TASK_PREPARED)
    query = stream.start(partitions=2, **{"kafka.transaction.timeout.ms": "500"})
    stream.moments.wait(TASK_PREPARED)
    until_s = time.monotonic() + 2
    wait_for(lambda: time.monotonic() > until_s)
    stream.moments.go(TASK_PREPARED)
    assert query.awaitTermination(RUN_S_MAX)
    assert stream.values() == ["a", "b"]


def test_a_timeout_that_brokers_do_not_allow(stream: LineStream) -> None:
    stream.add("a")
    with pytest.raises(Exception, match=r"set the option kafka.transaction.timeout.ms lower"):
        stream.run(**{"kafka.transaction.timeout.ms": str(10**9)})


# ── kills ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("label", LABELS)
def test_a_python_worker_is_killed(stream: LineStream, label: str) -> None:
    stream.spark.conf.set(*ROWS_AT_ONCE)
    stream.add(*big_lines(240))
    stream.moments.stop(label)
    query = stream.start(partitions=2, **BIG_ROWS)
    os.kill(stream.moments.wait(label), signal.SIGKILL)
    with pytest.raises(Exception):  # noqa: B017
        query.awaitTermination(RUN_S_MAX)
    stream.moments.go(label)
    if label == AFTER_COMMIT:
        assert stream.values() == stream.expected
    stream.run(partitions=3, **BIG_ROWS)
    assert stream.values() == stream.expected


def wait_for(condition: Any, timeout_s: float = 60) -> None:
    until_s = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < until_s
        time.sleep(0.02)
