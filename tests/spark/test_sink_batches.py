"""Batches that count once, without Spark: tasks and drivers in every order, against a real broker.

What Spark does is done by hand here: attempts at tasks that are given up, drivers that are replaced and come back,
answers that are lost. `test_sink_streams` and `test_sink_kills` do some of it with Spark itself.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from penstock.columnar.cluster import Cluster
from penstock.columnar.commit_many import PreparedTransaction, describe
from penstock.columnar.errors import ColumnarError, TopicGone
from penstock.columnar.produce import BulkProducer
from penstock.spark.batch_ending import abort_batch, commit_batch, settle
from penstock.spark.named_batch import NamedBatch, SinkError, used_once
from penstock.spark.sink_options import SinkOptions
from penstock.spark.sink_task import write_once
from penstock.testing.broker_process import BrokerProcess

from .committed_rows import committed_values, is_settled, settled_values, wait_until_settled
from .conftest import BROKER_SETTINGS, MakeTopic, create_topic

pytestmark = pytest.mark.clients


class Sink:
    """A topic, and tasks that write to it."""

    def __init__(self, bootstrap: str, topic: str, **settings: str) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        given = {f"kafka.{name}": value for name, value in settings.items()}
        self.options = SinkOptions.parse(
            {"kafka.bootstrap.servers": bootstrap, "topic": topic, **given}, is_stream=True
        )
        self.cluster = Cluster(self.options.settings)

    def write(
        self, batch: NamedBatch, values: list[str], *, partition: int = 0, attempt: int = 0
    ) -> PreparedTransaction:
        """A task from its begin to its end."""
        transactional_id = batch.transactional_id(partition, attempt)
        count, transaction = write_once(self.cluster, self.options, batch, transactional_id, rows_of(values))
        assert count == len(values)
        assert transaction is not None
        return transaction

    def leave_open(self, batch: NamedBatch, values: list[str], *, partition: int = 0, attempt: int = 0) -> None:
        """A task that is killed after it has sent rows."""
        producer = BulkProducer(self.cluster, transactional_id=batch.transactional_id(partition, attempt))
        producer.begin()
        for rows in rows_of(values):
            producer.write(self.topic, rows)
        producer.flush()
        producer.close()

    def values(self) -> list[str]:
        return settled_values(self.bootstrap, self.topic)


def rows_of(values: list[str]) -> Iterator[pa.RecordBatch]:
    yield pa.record_batch({"value": [value.encode() for value in values]})


@pytest.fixture
def sink(broker: BrokerProcess, new_topic: MakeTopic) -> Iterator[Sink]:
    made = Sink(broker.bootstrap, new_topic(partitions=2))
    with made.cluster:
        yield made


def batch_of(sink: Sink, number: int = 0, run: int = 1) -> NamedBatch:
    return NamedBatch(f"query of {sink.topic}", number, run, is_stream=True)


# ── tasks ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_of_two_attempts_the_one_that_is_named_counts(sink: Sink) -> None:
    batch = batch_of(sink)
    first = sink.write(batch, ["a", "b"], attempt=0)
    sink.write(batch, ["a", "b"], attempt=1)
    other = sink.write(batch, ["c"], partition=1)
    assert commit_batch(sink.cluster, batch, [first, other]) is False
    assert sink.values() == ["a", "b", "c"]


def test_ids_are_used_again() -> None:
    batch = NamedBatch("q", 0, 1, is_stream=True)
    assert batch.transactional_id(7, 5) == batch.transactional_id(7, 1) == "penstock-many:q/7/1"
    assert len({batch.transactional_id(7, attempt) for attempt in range(100)}) == 4


def test_a_task_without_rows_takes_no_id(sink: Sink) -> None:
    batch = batch_of(sink)
    empty = iter([pa.record_batch({"value": pa.array([], pa.binary())})])
    assert write_once(sink.cluster, sink.options, batch, batch.transactional_id(0, 0), empty) == (0, None)
    assert describe(sink.cluster, batch.name).open_transactions == ()
    assert commit_batch(sink.cluster, batch, []) is False
    assert commit_batch(sink.cluster, batch, []) is True


def test_a_batch_that_is_written_is_taken_to_its_end_and_not_written(sink: Sink) -> None:
    batch = batch_of(sink)
    commit_batch(sink.cluster, batch, [sink.write(batch, ["a"])])
    again, taken = batch_of(sink, run=2), []

    def rows() -> Iterator[pa.RecordBatch]:
        for value in ("a", "b"):
            taken.append(value)
            yield from rows_of([value])

    assert write_once(sink.cluster, sink.options, again, again.transactional_id(0, 0), rows()) == (2, None)
    assert taken == ["a", "b"]
    assert commit_batch(sink.cluster, again, []) is True
    assert sink.values() == ["a"]


def test_a_task_that_fails_ends_its_transaction_at_once(sink: Sink) -> None:
    batch = batch_of(sink)

    def rows() -> Iterator[pa.RecordBatch]:
        yield from rows_of([str(number) * 1000 for number in range(5000)])
        raise RuntimeError("no more")

    with pytest.raises(RuntimeError, match="no more"):
        write_once(sink.cluster, sink.options, batch, batch.transactional_id(0, 0), rows())
    wait_until_settled(sink.bootstrap, sink.topic)
    assert committed_values(sink.bootstrap, sink.topic) == []


def test_a_topic_that_is_not_there(broker: BrokerProcess) -> None:
    missing = Sink(broker.bootstrap, "nobody-made-this")
    with missing.cluster, pytest.raises(TopicGone, match="nobody-made-this"):
        missing.write(batch_of(missing), ["a"])


# ── drivers ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_late_duplicate_of_a_commit_does_not_touch_the_next_batch(sink: Sink) -> None:
    first, second = batch_of(sink, 0, run=1), batch_of(sink, 1, run=2)
    written = [sink.write(first, ["a"])]
    commit_batch(sink.cluster, first, written)
    following = [sink.write(second, ["b"]), sink.write(second, ["c"], partition=1)]
    assert commit_batch(sink.cluster, first, written) is True
    assert commit_batch(sink.cluster, second, following) is False
    with pytest.raises(SinkError, match="it goes on with batch 0, and batch 1 is in the topic already"):
        commit_batch(sink.cluster, first, written)
    assert sink.values() == ["a", "b", "c"]


def test_a_run_with_fewer_tasks_clears_up_after_the_one_before(sink: Sink) -> None:
    lost, again = batch_of(sink, run=1), batch_of(sink, run=2)
    for partition in range(4):
        sink.write(lost, [f"{partition}"], partition=partition)
    sink.leave_open(lost, ["open"], partition=5)
    written = [sink.write(again, ["0", "1", "2", "3"])]
    assert commit_batch(sink.cluster, again, written) is False
    assert sink.values() == ["0", "1", "2", "3"]


def test_a_driver_that_was_replaced_commits_nothing(sink: Sink) -> None:
    zombie, successor = batch_of(sink, run=1), batch_of(sink, run=2)
    late = [sink.write(zombie, ["a"]), sink.write(zombie, ["b"], partition=1)]
    written = [sink.write(successor, ["a", "b"], partition=2)]
    with pytest.raises(SinkError, match="could not be committed, and nothing of it is visible"):
        commit_batch(sink.cluster, zombie, late)
    assert commit_batch(sink.cluster, successor, written) is False
    assert sink.values() == ["a", "b"]


def test_a_driver_that_was_replaced_does_not_take_the_ids_of_its_successor(sink: Sink) -> None:
    zombie, successor = batch_of(sink, run=1), batch_of(sink, run=2)
    written = [sink.write(successor, ["a"])]
    with pytest.raises(SinkError, match="is being written by somebody else who began later"):
        sink.write(zombie, ["a"])
    assert commit_batch(sink.cluster, successor, written) is False
    assert sink.values() == ["a"]


def test_a_driver_that_was_replaced_aborts_only_what_is_its_own(sink: Sink) -> None:
    zombie, successor = batch_of(sink, run=1), batch_of(sink, run=2)
    late = [sink.write(zombie, ["a"], partition=7)]
    written = [sink.write(successor, ["a"])]
    abort_batch(sink.cluster, zombie, late)
    assert commit_batch(sink.cluster, successor, written) is False
    assert sink.values() == ["a"]


def test_abort_ends_what_was_reported_and_what_was_not(sink: Sink) -> None:
    batch = batch_of(sink)
    reported = [sink.write(batch, ["a"])]
    sink.write(batch, ["b"], partition=1)
    abort_batch(sink.cluster, batch, reported)
    wait_until_settled(sink.bootstrap, sink.topic)
    assert committed_values(sink.bootstrap, sink.topic) == []


def test_abort_of_a_write_of_its_own_name_ends_all_and_keeps_stragglers_out(sink: Sink) -> None:
    batch = used_once(run=1)
    sink.write(batch, ["a"])
    sink.leave_open(batch, ["b"], partition=1)
    abort_batch(sink.cluster, batch, [])
    with pytest.raises(SinkError, match="began later"):
        sink.write(batch, ["c"], partition=2)
    assert sink.values() == []


def test_a_name_of_its_own_is_forgotten_when_all_can_be_seen(sink: Sink) -> None:
    batch = used_once(run=1)
    commit_batch(sink.cluster, batch, [sink.write(batch, ["a"])])
    settle(sink.cluster, batch)
    assert is_settled(sink.bootstrap, sink.topic)
    assert committed_values(sink.bootstrap, sink.topic) == ["a"]
    assert describe(sink.cluster, batch.name).last_number == -1


def test_the_same_name_on_two_clusters(sink: Sink, tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", settings=BROKER_SETTINGS) as other_broker:
        other = Sink(other_broker.bootstrap, create_topic(other_broker.bootstrap))
        with other.cluster:
            batch = batch_of(sink)
            assert commit_batch(sink.cluster, batch, [sink.write(batch, ["a"])]) is False
            assert commit_batch(other.cluster, batch, [other.write(batch, ["a"])]) is False
            assert sink.values() == other.values() == ["a"]


def test_a_commit_without_an_answer(tmp_path: Path) -> None:
    with BrokerProcess(tmp_path / "data", settings=BROKER_SETTINGS) as alone:
        sink = Sink(alone.bootstrap, create_topic(alone.bootstrap), **{"default.api.timeout.ms": "500"})
        with sink.cluster:
            batch = batch_of(sink)
            written = [sink.write(batch, ["a"])]
            alone.kill()
            with pytest.raises(SinkError, match=r"it is not known whether batch 0 .* was committed") as unknown:
                commit_batch(sink.cluster, batch, written)
            assert "Start the query again: it finds out" in str(unknown.value)
            alone.start()
            commit_batch(sink.cluster, batch, written)
            assert sink.values() == ["a"]


# ── all of it in any order ───────────────────────────────────────────────────────────────────────────────────────


class Driver:
    """A driver that goes on from the checkpoint, one step at a time; a step may fail, and then it is dead."""

    def __init__(
        self, sink: Sink, chance: random.Random, checkpoint: set[int], run: int, batches: list[list[str]]
    ) -> None:
        self.number = len(checkpoint)
        self.batch = batch_of(sink, self.number, run)
        self.steps = self._steps(sink, chance, checkpoint, batches)

    def _steps(
        self, sink: Sink, chance: random.Random, checkpoint: set[int], batches: list[list[str]]
    ) -> Iterator[None]:
        values, tasks, written = batches[self.number], chance.randint(1, 4), []
        for partition in range(tasks):
            part, attempt = values[partition::tasks], 0
            while chance.random() < 0.3:
                if chance.random() < 0.5:
                    sink.leave_open(self.batch, part, partition=partition, attempt=attempt)
                else:
                    self._run_task(sink, part, partition, attempt)
                attempt += 1
                yield
            written += self._run_task(sink, part, partition, attempt)
            yield
        if chance.random() < 0.1:
            abort_batch(sink.cluster, self.batch, written)
            raise SinkError("a failure elsewhere")
        commit_batch(sink.cluster, self.batch, written)
        yield
        if chance.random() < 0.3:
            commit_batch(sink.cluster, self.batch, written)
            yield
        checkpoint.add(self.number)

    def _run_task(self, sink: Sink, part: list[str], partition: int, attempt: int) -> list[PreparedTransaction]:
        transactional_id = self.batch.transactional_id(partition, attempt)
        _, transaction = write_once(sink.cluster, sink.options, self.batch, transactional_id, rows_of(part))
        return [] if transaction is None else [transaction]


@pytest.mark.parametrize("seed", range(12))
def test_any_order_of_drivers(broker: BrokerProcess, new_topic: MakeTopic, seed: int) -> None:
    """Drivers are replaced at any step, and come back at any step. Each batch is there once."""
    chance = random.Random(seed)
    batches = [[f"{number}-{row}" for row in range(8)] for number in range(6)]
    checkpoint: set[int] = set()
    sink = Sink(broker.bootstrap, new_topic(partitions=3))
    drivers: list[Driver] = []
    run = 0
    with sink.cluster:
        while len(checkpoint) < len(batches):
            if not drivers or chance.random() < 0.1:
                run += 1
                drivers.append(Driver(sink, chance, checkpoint, run, batches))
            driver = drivers[-1] if chance.random() < 0.8 else chance.choice(drivers)
            try:
                next(driver.steps)
            except (StopIteration, ColumnarError):
                drivers.remove(driver)
        last = NamedBatch(batch_of(sink).name, len(batches), run + 1, is_stream=True)
        commit_batch(sink.cluster, last, [])
        assert sink.values() == sorted(value for batch in batches for value in batch)
