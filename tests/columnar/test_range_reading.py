"""Ranges of one partition: gaps, ends that are not there yet, connections that break, and how little is held."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import suppress

import pyarrow as pa
import pytest
from confluent_kafka import Consumer
from confluent_kafka import TopicPartition as ConfluentPartition

from penstock.base.errors import Error
from penstock.base.identifiers import TopicPartition
from penstock.columnar import connecting
from penstock.columnar.cluster import Cluster
from penstock.columnar.decode import ColumnChoice
from penstock.columnar.errors import NotWrittenYet, OffsetsGone, Refused, TopicGone
from penstock.columnar.fetch import RangeReader
from penstock.columnar.groups import commit_offsets
from penstock.columnar.offsets import EARLIEST, LATEST, offsets_at
from penstock.wire.messages.k18_api_versions import ApiVersionsResponse

from .producing_sites import DEADLINE_S, ProducingSite, cluster_at, wait_until
from .topic_filling import delete_records, fill, numbers, transaction


@pytest.fixture
def cluster(site: ProducingSite) -> Iterator[Cluster]:
    with site.cluster(fetch_max_wait_ms="50") as cluster:
        yield cluster


def values(batches: Iterator[pa.RecordBatch] | RangeReader) -> list[bytes]:
    return [value for batch in batches for value in batch.column("value").to_pylist()]


def test_just_the_range(site: ProducingSite, cluster: Cluster) -> None:
    where = TopicPartition(site.new_topic(), 0)
    fill(site.bootstrap, where.topic, numbers(0, 1000), batch_size=2000)
    for start, end in ((0, 1000), (0, 1), (999, 1000), (123, 456), (5, 5)):
        reader = RangeReader(cluster, where, start, end, ColumnChoice(), committed=True)
        assert values(reader) == numbers(start, end)
        assert reader.position >= end


def test_a_gap_at_the_end_is_passed_over(site: ProducingSite, cluster: Cluster) -> None:
    where = TopicPartition(site.new_topic(), 0)
    fill(site.bootstrap, where.topic, numbers(0, 3))
    with transaction(site.bootstrap) as aborted:
        aborted.produce(where.topic, b"never", partition=0)
        aborted.flush(DEADLINE_S)
        aborted.abort_transaction(DEADLINE_S)
    end = 5  # with the marker, which may take a moment
    wait_until(lambda: offsets_at(cluster, [where], LATEST, committed=True)[where] == end, "the marker")
    assert values(RangeReader(cluster, where, 0, end, ColumnChoice(), committed=True)) == numbers(0, 3)
    assert values(RangeReader(cluster, where, 3, end, ColumnChoice(), committed=True)) == []


def test_an_end_that_is_not_there_yet_is_waited_for(site: ProducingSite, cluster: Cluster) -> None:
    where = TopicPartition(site.new_topic(), 0)
    fill(site.bootstrap, where.topic, numbers(0, 3))
    reading = iter(RangeReader(cluster, where, 0, 6, ColumnChoice(), committed=True, rows_max=1))
    assert next(reading).column("value").to_pylist() == numbers(0, 1)
    fill(site.bootstrap, where.topic, numbers(3, 6))
    assert values(reading) == numbers(1, 6)


def test_an_end_that_never_comes(site: ProducingSite) -> None:
    where = TopicPartition(site.new_topic(), 0)
    fill(site.bootstrap, where.topic, numbers(0, 3))
    with site.cluster(default_api_timeout_ms="400", fetch_max_wait_ms="50") as cluster:
        with pytest.raises(NotWrittenYet, match="before offset 9, but only those before 3 are written"):
            values(RangeReader(cluster, where, 0, 9, ColumnChoice(), committed=False))
        with transaction(site.bootstrap) as left_open:
            left_open.produce(where.topic, b"open", partition=0)
            left_open.flush(DEADLINE_S)
            with pytest.raises(NotWrittenYet, match="before 3 are committed"):
                values(RangeReader(cluster, where, 0, 4, ColumnChoice(), committed=True))
            left_open.abort_transaction(DEADLINE_S)


def test_offsets_and_topics_that_are_not_there(site: ProducingSite, cluster: Cluster) -> None:
    where = TopicPartition(site.new_topic(), 0)
    fill(site.bootstrap, where.topic, numbers(0, 3))
    with pytest.raises(OffsetsGone) as gone:
        values(RangeReader(cluster, where, 50, 60, ColumnChoice(), committed=True))
    assert (gone.value.where, gone.value.asked, gone.value.first, gone.value.last) == (where, 50, 0, 3)
    with pytest.raises(TopicGone, match="none is 7"):
        values(RangeReader(cluster, TopicPartition(where.topic, 7), 0, 1, ColumnChoice(), committed=True))


def test_what_was_received_before_an_error_is_handed_out(site: ProducingSite, cluster: Cluster) -> None:
    where = TopicPartition(site.new_topic(), 0)
    fill(site.bootstrap, where.topic, numbers(0, 3000), batch_size=2000)
    reading = iter(RangeReader(cluster, where, 0, 3000, ColumnChoice(), committed=True, rows_max=10, fetch_bytes=2000))
    found = next(reading).column("value").to_pylist()
    delete_records(site.bootstrap, where.topic, 2900)
    with pytest.raises(OffsetsGone) as gone:
        for batch in reading:
            found += batch.column("value").to_pylist()
    assert 10 < len(found) < 2900
    assert found == numbers(0, gone.value.asked)


#: The highest versions of Fetch, ListOffsets, Metadata, OffsetCommit and FindCoordinator that a release has.
RELEASES = {
    "0.11": (5, 2, 4, 3, 1),
    "1.1": (7, 2, 5, 3, 1),
    "2.0": (8, 3, 6, 4, 2),
    "2.3": (11, 5, 8, 7, 2),
    "2.8": (12, 6, 11, 8, 3),
    "3.1": (13, 7, 12, 8, 4),
    "3.7": (16, 8, 12, 9, 5),
}


@pytest.mark.clients
@pytest.mark.parametrize("release", RELEASES)
def test_brokers_of_former_releases(
    penstock_site: ProducingSite, monkeypatch: pytest.MonkeyPatch, release: str
) -> None:
    """As far as versions go: the broker shows no newer ones than such a release had."""
    highest = dict(zip((1, 2, 3, 8, 10), RELEASES[release], strict=True))
    served = connecting._served

    def older(answer: ApiVersionsResponse) -> dict[int, tuple[int, int]]:
        return {key: (low, min(high, highest.get(key, high))) for key, (low, high) in served(answer).items()}

    monkeypatch.setattr(connecting, "_served", older)
    where = TopicPartition(penstock_site.new_topic(), 0)
    fill(penstock_site.bootstrap, where.topic, numbers(0, 100))
    with penstock_site.cluster() as cluster:
        assert cluster.any().versions[1][1] == highest[1]
        end = offsets_at(cluster, [where], LATEST, committed=True)[where]
        assert end == 100
        assert values(RangeReader(cluster, where, 0, end, ColumnChoice(), committed=True)) == numbers(0, 100)
        commit_offsets(cluster, f"group-{release}", {where: 7})


def test_a_record_larger_than_what_is_asked_for(site: ProducingSite, cluster: Cluster) -> None:
    where = TopicPartition(site.new_topic(), 0)
    large = [b"x" * 500_000, b"y" * 700_000, b"z"]
    fill(site.bootstrap, where.topic, large)
    assert values(RangeReader(cluster, where, 0, 3, ColumnChoice(), committed=True, fetch_bytes=1000)) == large


def test_reading_that_is_left_half_way_leaves_the_connection_usable(site: ProducingSite, cluster: Cluster) -> None:
    where = TopicPartition(site.new_topic(), 0)
    fill(site.bootstrap, where.topic, numbers(0, 3000), batch_size=2000)
    reading = iter(RangeReader(cluster, where, 0, 3000, ColumnChoice(), committed=True, rows_max=10, fetch_bytes=2000))
    next(reading)
    reading.close()  # type: ignore[attr-defined]
    assert values(RangeReader(cluster, where, 7, 2000, ColumnChoice(), committed=True)) == numbers(7, 2000)


def test_two_readers_take_turns_on_one_connection(site: ProducingSite, cluster: Cluster) -> None:
    topic = site.new_topic(2)
    for partition in range(2):
        fill(site.bootstrap, topic, numbers(0, 2000), partition=partition, batch_size=2000)
    readings = [
        iter(RangeReader(cluster, TopicPartition(topic, n), 0, 2000, ColumnChoice(), committed=True, rows_max=100))
        for n in range(2)
    ]
    pairs = list(zip(*readings, strict=True))
    for index in range(2):
        assert [value for pair in pairs for value in pair[index].column("value").to_pylist()] == numbers(0, 2000)


def test_offsets_of_times(site: ProducingSite, cluster: Cluster) -> None:
    topic = site.new_topic(3)
    places = [TopicPartition(topic, number) for number in range(3)]
    fill(site.bootstrap, topic, numbers(0, 4), partition=1)
    assert offsets_at(cluster, places, EARLIEST, committed=False) == dict.fromkeys(places, 0)
    assert offsets_at(cluster, places, LATEST, committed=False) == {places[0]: 0, places[1]: 4, places[2]: 0}
    assert offsets_at(cluster, places, 0, committed=False) == {places[0]: None, places[1]: 0, places[2]: None}
    assert offsets_at(cluster, [], LATEST, committed=False) == {}


def test_offsets_are_committed_to_a_group(site: ProducingSite, cluster: Cluster) -> None:
    topic = site.new_topic(2)
    group = f"group-of-{topic}"
    offsets = {TopicPartition(topic, 0): 3, TopicPartition(topic, 1): 0}
    commit_offsets(cluster, group, {})
    commit_offsets(cluster, group, offsets)
    consumer = Consumer({"bootstrap.servers": site.bootstrap, "group.id": group, "auto.offset.reset": "earliest"})
    try:
        committed = consumer.committed([ConfluentPartition(topic, number) for number in range(2)], timeout=DEADLINE_S)
        assert [partition.offset for partition in committed] == [3, 0]
        consumer.subscribe([topic])
        wait_until(lambda: consumer.poll(0.05) or consumer.assignment(), "a member")
        with pytest.raises(Refused, match=f"group {group} has members") as refused:
            commit_offsets(cluster, group, offsets)
        assert refused.value.error == Error.UNKNOWN_MEMBER_ID
    finally:
        consumer.close()


@pytest.mark.clients
def test_broken_connections_lose_and_double_nothing(penstock_site: ProducingSite) -> None:
    where = TopicPartition(penstock_site.new_topic(), 0)
    fill(penstock_site.bootstrap, where.topic, numbers(0, 5000), batch_size=2000)
    with cluster_at(penstock_site.bootstrap) as cluster:
        reader = RangeReader(cluster, where, 0, 5000, ColumnChoice(), committed=True, rows_max=500, fetch_bytes=10_000)
        found = []
        for batch in reader:
            found += batch.column("value").to_pylist()
            for connection in list(cluster._connections.values()):
                with suppress(OSError):  # this one is broken already
                    connection._socket.shutdown(socket.SHUT_RDWR)
        assert found == numbers(0, 5000)
