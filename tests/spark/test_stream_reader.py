"""The stream reader with a dictionary for a cluster: what it decides as topics grow, go away and are made anew."""

from __future__ import annotations

import json
import pickle
from collections.abc import Sequence
from typing import Any
from uuid import UUID, uuid4

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows, ReadMinRows

from penstock.base.identifiers import TopicPartition
from penstock.spark import stream
from penstock.spark.losses import DataLoss
from penstock.spark.options import parse_stream_options
from penstock.spark.sizes import Look
from penstock.spark.stream import PenstockStreamReader
from penstock.spark.topic_view import Seen, TopicView

ALL = ReadAllAvailable()


class FakeTopic:
    """Partitions as (first offset, end)."""

    def __init__(self, *partitions: tuple[int, int]) -> None:
        self.id: UUID = uuid4()
        self.partitions = list(partitions)


class FakeView(TopicView):
    """What brokers would say of `topics`."""

    def __init__(self, topics: dict[str, FakeTopic], options: Any) -> None:
        self.topics = topics
        self._options = options
        self.asked = 0

    def look(self) -> Seen:
        subscription = self._options.subscription
        counts = {name: len(topic.partitions) for name, topic in self.topics.items()}
        partitions = subscription.partitions(counts)
        ids = {name: topic.id for name, topic in self.topics.items()}
        return Seen(partitions, ids, subscription.missing(counts))

    def ask(self, partitions: Sequence[TopicPartition], when: int) -> dict[TopicPartition, int | None]:
        self.asked += 1
        bounds = {where: self.topics[where.topic].partitions[where.partition] for where in partitions}
        return {where: first if when == -2 else end for where, (first, end) in bounds.items()}


class Query:
    """What Spark does with a reader: positions travel as JSON, a batch is planned and then finished."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, topics: dict[str, FakeTopic], **given: str) -> None:
        self.topics = topics
        self.now_s = 5000.0
        self.pauses = 0
        self.commits: list[dict[TopicPartition, int]] = []
        values = {"kafka.bootstrap.servers": "x:1", "subscribe": "a", "startingOffsets": "earliest", **given}
        self.values = {name: value for name, value in values.items() if value}
        self.position: dict[str, dict[str, int]] | None = None
        monkeypatch.setattr(stream.time, "monotonic", lambda: self.now_s)
        monkeypatch.setattr(stream.time, "sleep", self._pause)
        monkeypatch.setattr(stream, "commit_offsets", lambda _cluster, _group, offsets: self.commits.append(offsets))
        monkeypatch.setattr(stream, "look_at", lambda _cluster, _options, piece: Look(100 * piece.size, piece.size))
        monkeypatch.setattr(stream, "TopicView", lambda _cluster, options: FakeView(self.topics, options))
        self.restart()

    def restart(self) -> None:
        self.reader = PenstockStreamReader(parse_stream_options(self.values))

    def _pause(self, _time_s: float) -> None:
        self.pauses += 1

    def begin(self) -> dict[str, dict[str, int]]:
        return self.position if self.position is not None else self._json(self.reader.initialOffset())

    def latest(self, limit: Any = ALL) -> dict[str, dict[str, int]]:
        return self._json(self.reader.latestOffset(self.begin(), limit))

    def plan(self, end: dict[str, dict[str, int]]) -> list[tuple[str, int, int, int]]:
        pieces = pickle.loads(pickle.dumps(self.reader.partitions(self.begin(), end)))  # noqa: S301
        return [(each.topic, each.partition, each.start, each.end) for each in pieces]

    def batch(self, limit: Any = ALL) -> list[tuple[str, int, int, int]]:
        end = self.latest(limit)
        pieces = self.plan(end)
        self.position = end
        return pieces

    @staticmethod
    def _json(value: Any) -> Any:
        return json.loads(json.dumps(value))


@pytest.fixture
def make_query(monkeypatch: pytest.MonkeyPatch) -> Any:
    return lambda topics, **given: Query(monkeypatch, topics, **given)


def test_each_record_once_while_a_topic_grows(make_query: Any) -> None:
    query = make_query({"a": FakeTopic((0, 10), (5, 5))})
    assert query.batch() == [("a", 0, 0, 10)]
    query.topics["a"].partitions[:] = [(0, 12), (5, 9)]
    assert query.batch() == [("a", 0, 10, 12), ("a", 1, 5, 9)]
    assert query.batch() == []
    assert query.reader.reportLatestOffset() == {"a": {"0": 12, "1": 9}}


def test_the_reader_can_be_sent_to_tasks_before_it_is_used(make_query: Any) -> None:
    query = make_query({"a": FakeTopic((0, 10))})
    assert pickle.loads(pickle.dumps(query.reader))._options == query.reader._options  # noqa: S301


def test_new_partitions_begin_at_their_beginning(make_query: Any) -> None:
    query = make_query({"a": FakeTopic((0, 10))})
    query.batch()
    query.topics["a"].partitions.append((0, 7))
    assert query.batch() == [("a", 1, 0, 7)]


def test_new_topics_of_a_pattern(make_query: Any) -> None:
    query = make_query({}, subscribe="", subscribePattern="a.*")
    assert query.batch() == []
    query.topics["a2"] = FakeTopic((3, 10))
    query.topics["b"] = FakeTopic((0, 10))
    assert query.batch() == [("a2", 0, 3, 10)]


def test_empty_positions_need_no_broker(make_query: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    query = make_query({"a": FakeTopic((0, 10))})
    monkeypatch.setattr(query.reader, "_view", lambda: pytest.fail("it asked"))
    assert query.reader.partitions({"a": {"0": 5}}, {"a": {"0": 5}}) == []


# ── the first batch ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_query_that_begins_at_the_end_loses_nothing_when_its_first_batch_dies(make_query: Any) -> None:
    query = make_query({"a": FakeTopic((0, 10))}, startingOffsets="latest")
    first_end = query.latest()
    assert first_end == {"a": {"0": 10}}, "the first batch is empty"
    query.topics["a"].partitions[0] = (0, 15)
    query.restart()  # the checkpoint has only where the first batch ended
    assert query.begin() == {"a": {"0": 15}}
    assert query.plan(first_end) == []
    query.position = first_end
    assert query.batch() == [("a", 0, 10, 15)]


def test_the_second_batch_is_not_empty(make_query: Any) -> None:
    query = make_query({"a": FakeTopic((0, 10))}, startingOffsets="latest")
    assert query.batch() == []
    query.topics["a"].partitions[0] = (0, 15)
    assert query.batch() == [("a", 0, 10, 15)]


def test_the_beginning_is_asked_for_once(make_query: Any) -> None:
    query = make_query({"a": FakeTopic((0, 10))}, startingOffsets="latest")
    begin = query.begin()
    query.topics["a"].partitions[0] = (0, 15)
    assert query.begin() == begin


def test_a_first_batch_that_begins_at_the_beginning_is_run_again_whole(make_query: Any) -> None:
    query = make_query({"a": FakeTopic((0, 10))})
    end = query.latest()
    query.topics["a"].partitions[0] = (0, 15)
    query.restart()
    assert query.plan(end) == [("a", 0, 0, 10)]


@pytest.mark.parametrize("starting", ["earliest", "latest"])
def test_partitions_that_came_after_a_first_batch_that_died(make_query: Any, starting: str) -> None:
    query = make_query({"a": FakeTopic((0, 10))}, startingOffsets=starting)
    end = query.latest()
    query.topics["a"].partitions.append((0, 7))
    query.restart()
    assert query.plan(end) == ([("a", 0, 0, 10)] if starting == "earliest" else [])
    query.position = end
    assert query.batch() == [("a", 1, 0, 7)]


def test_a_topic_made_anew_between_two_looks(make_query: Any) -> None:
    query = make_query({"a": FakeTopic((0, 10))}, subscribe="a,b")
    query.topics["b"] = FakeTopic((0, 1))
    query.batch()
    query.topics["a"] = FakeTopic((0, 50))
    query.topics["c"] = FakeTopic((0, 1))
    query.reader.partitions(query.begin(), {"a": {"0": 10}, "b": {"0": 1}, "c": {"0": 1}})
    with pytest.raises(DataLoss, match="topic a was deleted and made anew"):
        query.batch()


@pytest.mark.parametrize(("offset", "words"), [(3, "begins at offset 5"), (11, "ends at offset 10")])
def test_offsets_that_are_not_there(make_query: Any, offset: int, words: str) -> None:
    given = {"startingOffsets": json.dumps({"a": {"0": offset}})}
    with pytest.raises(DataLoss, match=words):
        make_query({"a": FakeTopic((5, 10))}, **given).begin()
    lenient = make_query({"a": FakeTopic((5, 10))}, failOnDataLoss="false", **given)
    assert lenient.begin() == {"a": {"0": 5 if offset < 5 else 10}}


# ── limits ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_limits_by_offsets(make_query: Any) -> None:
    query = make_query({"a": FakeTopic((0, 90), (0, 10))}, maxOffsetsPerTrigger="10")
    limit = query.reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(10)
    assert query.batch(limit) == [("a", 0, 0, 9), ("a", 1, 0, 1)]
    assert query.reader.reportLatestOffset() == {"a": {"0": 90, "1": 10}}
    assert query.batch(ALL) == [("a", 0, 9, 90), ("a", 1, 1, 10)], "Trigger.Once takes all"


def test_limits_by_bytes(make_query: Any) -> None:
    query = make_query({"a": FakeTopic((0, 90), (0, 10))}, maxBytesPerTrigger="1000")
    limit = query.reader.getDefaultReadLimit()
    assert limit == ReadMaxBytes(1000)
    assert query.batch(limit) == [("a", 0, 0, 9), ("a", 1, 0, 1)]


def test_a_new_partition_within_limits(make_query: Any) -> None:
    query = make_query({"a": FakeTopic((0, 10))}, maxOffsetsPerTrigger="10")
    query.batch(ALL)
    query.topics["a"].partitions.append((0, 100))
    assert query.batch(ReadMaxRows(10)) == [("a", 1, 0, 10)]


def test_waiting_for_enough(make_query: Any) -> None:
    query = make_query({"a": FakeTopic((0, 5))}, minOffsetsPerTrigger="10", maxTriggerDelay="1m")
    limit = query.reader.getDefaultReadLimit()
    assert limit == ReadMinRows(10)
    assert query.batch(limit) == [("a", 0, 0, 5)], "the first goes ahead"
    query.topics["a"].partitions[0] = (0, 14)
    assert query.batch(limit) == []
    query.topics["a"].partitions[0] = (0, 15)
    assert query.batch(limit) == [("a", 0, 5, 15)]
    query.topics["a"].partitions[0] = (0, 16)
    query.now_s += 59
    assert query.batch(limit) == []
    query.now_s += 1
    assert query.batch(limit) == [("a", 0, 15, 16)]


def test_available_now_reads_what_there_was_and_ends(make_query: Any) -> None:
    query = make_query({"a": FakeTopic((0, 25))}, maxOffsetsPerTrigger="10", minOffsetsPerTrigger="8")
    query.reader.prepareForTriggerAvailableNow()
    limit = query.reader.getDefaultReadLimit()
    assert query.batch(limit) == [("a", 0, 0, 10)]
    query.topics["a"].partitions[:] = [(0, 99), (0, 5)]
    assert query.batch(limit) == [("a", 0, 10, 20)]
    assert query.batch(limit) == [("a", 0, 20, 25)], "fewer than the least, but there will be no more"
    assert query.latest(limit) == query.begin()


def test_available_now_ends_when_it_begins_at_the_end(make_query: Any) -> None:
    query = make_query({"a": FakeTopic((0, 25))}, startingOffsets="latest")
    query.reader.prepareForTriggerAvailableNow()
    assert query.batch() == []
    query.topics["a"].partitions[0] = (0, 30)
    assert query.latest() == query.begin()


# ── what is gone ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_records_that_were_deleted(make_query: Any) -> None:
    for strict in (True, False):
        query = make_query({"a": FakeTopic((0, 10))}, failOnDataLoss=str(strict))
        query.batch()
        query.topics["a"].partitions[0] = (15, 20)
        if strict:
            with pytest.raises(DataLoss, match=r"offsets 10 to 14 were deleted.*failOnDataLoss"):
                query.batch()
        else:
            assert query.batch() == [("a", 0, 15, 20)]


def test_a_topic_that_was_made_anew_and_has_grown_past_the_old(make_query: Any) -> None:
    query = make_query({"a": FakeTopic((0, 10))})
    query.batch()
    query.topics["a"] = FakeTopic((0, 50))
    with pytest.raises(DataLoss, match="topic a was deleted and made anew"):
        query.batch()


def test_a_topic_that_was_made_anew_is_read_from_its_beginning_if_losses_are_allowed(make_query: Any) -> None:
    query = make_query({"a": FakeTopic((0, 10), (0, 4))}, failOnDataLoss="false")
    query.batch()
    query.topics["a"] = FakeTopic((0, 10), (0, 7))
    assert query.batch() == [("a", 0, 0, 10), ("a", 1, 0, 7)]
    query.topics["a"].partitions[:] = [(0, 12), (0, 7)]
    assert query.batch() == [("a", 0, 10, 12)]


def test_a_position_past_the_end(make_query: Any) -> None:
    for strict in (True, False):
        query = make_query({"a": FakeTopic((0, 10))}, failOnDataLoss=str(strict))
        query.position = {"a": {"0": 30}}
        if strict:
            with pytest.raises(DataLoss, match="read up to offset 30 and now ends at 10"):
                query.latest()
            assert query.pauses == 2
        else:
            assert query.batch() == []
            query.topics["a"].partitions[0] = (0, 12)
            assert query.batch() == [("a", 0, 10, 12)]


def test_an_end_that_comes_back_is_waited_for(make_query: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    query = make_query({"a": FakeTopic((0, 10))})
    query.batch()
    query.topics["a"].partitions[0] = (0, 8)

    def grow(_time_s: float) -> None:
        query.topics["a"].partitions[0] = (0, 11)

    monkeypatch.setattr(stream.time, "sleep", grow)
    assert query.batch() == [("a", 0, 10, 11)]


def test_a_topic_that_is_gone(make_query: Any) -> None:
    for strict in (True, False):
        query = make_query(
            {"a": FakeTopic((0, 10)), "b": FakeTopic((0, 1))}, subscribe="a,b", failOnDataLoss=str(strict)
        )
        query.batch()
        del query.topics["b"]
        query.topics["a"].partitions[0] = (0, 12)
        if strict:
            with pytest.raises(DataLoss, match="topic b does not exist any more"):
                query.batch()
        else:
            assert query.batch() == [("a", 0, 10, 12)]
            assert query.begin() == {"a": {"0": 12}}


def test_ranges_carry_the_id_of_their_topic(make_query: Any) -> None:
    query = make_query({"a": FakeTopic((0, 10))})
    query.position = {"a": {"0": 3}}
    (piece,) = query.reader.partitions(query.position, {"a": {"0": 10}})  # as after a restart
    assert piece.topic_id == query.topics["a"].id.bytes


# ── the group ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_finished_batches_are_committed_to_the_group(make_query: Any) -> None:
    query = make_query({"a": FakeTopic((0, 10))}, commitOffsetsToGroup="true", **{"kafka.group.id": "g"})
    where = TopicPartition("a", 0)
    query.batch()
    assert query.commits == [{where: 0}]
    query.topics["a"].partitions[0] = (0, 12)
    query.batch()
    query.batch()
    query.batch()
    assert query.commits == [{where: 0}, {where: 10}, {where: 12}]


def test_nothing_is_committed_unasked(make_query: Any) -> None:
    query = make_query({"a": FakeTopic((0, 10))}, **{"kafka.group.id": "g"})
    query.batch()
    query.batch()
    assert query.commits == []
