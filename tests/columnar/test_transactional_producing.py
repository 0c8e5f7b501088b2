"""Transactions of the bulk producer: all or nothing for readers, fenced when another takes over, in both protocols."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from random import randbytes
from uuid import uuid4

import pyarrow as pa
import pytest

from penstock.base.errors import ApiError, Error
from penstock.columnar import transactions
from penstock.columnar.errors import ColumnarError, Fenced, RecordTooLarge, Refused
from penstock.columnar.produce import BulkProducer

from .producing_sites import (
    OLDER_KAFKA,
    ON_KAFKA,
    ON_OLDER_KAFKA,
    ON_PENSTOCK,
    PENSTOCK,
    ProducingSite,
    ProducingSites,
    numbered,
    texts,
    wait_until,
)

OLDER_PENSTOCK = "penstock-older-protocol"


@pytest.fixture(params=[ON_PENSTOCK, pytest.param(OLDER_PENSTOCK, marks=pytest.mark.clients), ON_KAFKA, ON_OLDER_KAFKA])
def transactions_site(
    request: pytest.FixtureRequest, producing_sites: ProducingSites, monkeypatch: pytest.MonkeyPatch
) -> ProducingSite:
    """Both protocols, on brokers of both makes."""
    kind = request.param
    if kind == OLDER_PENSTOCK:
        monkeypatch.setattr(transactions, "NEWER_SINCE", 99)
        return producing_sites.get(PENSTOCK)
    if kind != PENSTOCK:
        request.getfixturevalue("kafka_libs")
    return producing_sites.get(kind)


@contextmanager
def producer_at(site: ProducingSite, transactional_id: str | None = None, **options: int) -> Iterator[BulkProducer]:
    with (
        site.cluster() as cluster,
        BulkProducer(cluster, transactional_id=transactional_id or f"id-{uuid4().hex[:8]}", **options) as producer,  # type: ignore[arg-type]
    ):
        yield producer


def write(producer: BulkProducer, topic: str, first: int, count: int = 10) -> None:
    producer.write(topic, numbered(first, count))
    producer.flush()


def test_the_protocol_is_the_one_that_the_cluster_has_agreed_upon(
    transactions_site: ProducingSite, request: pytest.FixtureRequest
) -> None:
    kind = request.node.callspec.params["transactions_site"]
    with producer_at(transactions_site) as producer:
        assert producer._identity.is_newer == (kind not in (OLDER_PENSTOCK, OLDER_KAFKA))


def test_committed_rows_are_seen_and_aborted_ones_are_not(transactions_site: ProducingSite) -> None:
    site = transactions_site
    topic = site.new_topic()
    with producer_at(site, batch_bytes=30) as producer:
        for first, ends in ((0, True), (10, False), (20, True), (30, True), (40, False)):
            producer.begin()
            write(producer, topic, first)
            producer.commit() if ends else producer.abort()
    assert site.values(topic) == texts([*range(10), *range(20, 40)])
    assert len(site.values(topic, committed=False)) == 50


def test_nothing_is_seen_before_the_commit(transactions_site: ProducingSite) -> None:
    site = transactions_site
    topics = [site.new_topic(partitions=3), site.new_topic()]
    with producer_at(site) as producer:
        producer.begin()
        for topic in topics:
            write(producer, topic, 0, 100)
        assert [site.values(topic) for topic in topics] == [[], []]
        assert producer.has_open_transaction
        producer.commit()
        assert not producer.has_open_transaction
        for topic in topics:
            wait_until(lambda topic=topic: len(site.values(topic)) == 100, f"the rows of {topic}")  # type: ignore[misc]


def test_an_abort_takes_what_was_not_even_sent(transactions_site: ProducingSite) -> None:
    site = transactions_site
    topic = site.new_topic()
    with producer_at(site, batch_bytes=30) as producer:
        producer.begin()
        producer.write(topic, numbered(0, 1_000))  # much of it on its way
        producer.abort()
        producer.begin()
        producer.write(topic, numbered(2_000, 1_000))
        producer.commit()
    wait_until(lambda: site.values(topic), "the second transaction")
    assert site.values(topic) == texts(range(2_000, 3_000))


def test_an_empty_transaction_ends(transactions_site: ProducingSite) -> None:
    topic = transactions_site.new_topic()
    with producer_at(transactions_site) as producer:
        for end in (producer.commit, producer.abort, producer.commit):
            producer.begin()
            end()
        assert not producer.has_open_transaction
        producer.begin()
        write(producer, topic, 0, 1)
        producer.commit()
    wait_until(lambda: transactions_site.values(topic) == texts([0]), "the row")


def test_who_takes_over_fences_and_aborts(transactions_site: ProducingSite) -> None:
    site = transactions_site
    topic = site.new_topic()
    with producer_at(site, "taken-over") as first:
        first.begin()
        write(first, topic, 0)
        with producer_at(site, "taken-over") as second:
            second.begin()
            write(second, topic, 100)
            first.write(topic, numbered(10, 1))
            with pytest.raises(Fenced, match="taken-over"):
                first.commit()
            with pytest.raises(Fenced):
                first.abort()
            second.commit()
    wait_until(lambda: site.values(topic) == texts(range(100, 110)), "the rows of the second")


def test_a_fenced_one_cannot_commit_what_it_has_written(transactions_site: ProducingSite) -> None:
    site = transactions_site
    topic = site.new_topic()
    with producer_at(site, "fenced-at-commit") as first:
        first.begin()
        write(first, topic, 0)
        with producer_at(site, "fenced-at-commit"), pytest.raises(Fenced):
            first.commit()
        with pytest.raises(Fenced):
            first.begin()
    assert site.values(topic) == []


def test_a_transaction_that_takes_too_long_is_aborted(transactions_site: ProducingSite) -> None:
    site = transactions_site
    topic, probe = site.new_topic(), site.new_topic()
    with producer_at(site, transaction_timeout_ms=500) as producer:
        producer.begin()
        write(producer, topic, 0)
        with producer_at(site) as other:  # a reader that gets past the open one shows that it has ended
            other.begin()
            write(other, topic, 100)
            write(other, probe, 0)
            other.commit()
        wait_until(lambda: site.values(topic) == texts(range(100, 110)), "the end of the open transaction")
        with pytest.raises((Fenced, Refused), match=r"too long|not open any more"):
            producer.commit()


def test_after_an_error_a_transaction_can_be_aborted_and_another_begun(transactions_site: ProducingSite) -> None:
    site = transactions_site
    topic = site.new_topic(max_message_bytes="10000")
    with producer_at(site) as producer:
        producer.begin()
        write(producer, topic, 0)
        large = pa.RecordBatch.from_pydict({"value": [randbytes(50_000)]})
        with pytest.raises(RecordTooLarge):
            producer.write(topic, large)
            producer.flush()
        with pytest.raises(RecordTooLarge):
            producer.commit()
        producer.abort()
        producer.begin()
        write(producer, topic, 50)
        producer.commit()
    wait_until(lambda: site.values(topic) == texts(range(50, 60)), "the second transaction")


def test_transactions_follow_each_other_without_a_pause(transactions_site: ProducingSite) -> None:
    """The next one begins while the last one's markers are still being written."""
    site = transactions_site
    topic = site.new_topic(partitions=5)
    with producer_at(site) as producer:
        for first in range(0, 200, 10):
            producer.begin()
            producer.write(topic, numbered(first, 10))
            producer.commit()
    wait_until(lambda: sorted(map(int, filter(None, site.values(topic)))) == list(range(200)), "all rows")


def test_it_writes_in_transactions_only(transactions_site: ProducingSite) -> None:
    topic = transactions_site.new_topic()
    with producer_at(transactions_site) as producer:
        with pytest.raises(ColumnarError, match="begin"):
            producer.write(topic, numbered(0, 1))
        with pytest.raises(ColumnarError, match="begun"):
            producer.abort()
        producer.begin()
        with pytest.raises(ColumnarError, match="not ended"):
            producer.begin()


@pytest.mark.clients
def test_the_coordinator_may_be_busy(penstock_site: ProducingSite, monkeypatch: pytest.MonkeyPatch) -> None:
    """CONCURRENT_TRANSACTIONS and coordinators that move are asked again."""
    topic = penstock_site.new_topic()
    refusals = iter([Error.CONCURRENT_TRANSACTIONS, Error.NOT_COORDINATOR, Error.COORDINATOR_LOAD_IN_PROGRESS])
    real = transactions._check

    def check(answer: object) -> None:
        for error in refusals:
            raise ApiError(error)
        real(answer)

    with producer_at(penstock_site) as producer:
        producer.begin()
        write(producer, topic, 0)
        monkeypatch.setattr(transactions, "_check", check)
        producer.commit()
    wait_until(lambda: penstock_site.values(topic) == texts(range(10)), "the rows")
