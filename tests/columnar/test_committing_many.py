"""Many producers committed as one: all or nothing, again, too late, by a zombie, never."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

from penstock.columnar import commit_many
from penstock.columnar.cluster import Cluster
from penstock.columnar.commit_many import BatchLost, PreparedTransaction
from penstock.columnar.errors import ColumnarError, Fenced, StaleNumber
from penstock.columnar.produce import BulkProducer
from penstock.testing.broker_process import BrokerProcess
from penstock.testing.pytest_plugin import StartPenstock, start_penstock  # noqa: F401
from penstock.testing.raw_client import RawClient
from penstock.wire.messages.k20002_describe_commits import DescribeCommitsRequest, DescribeCommitsResponseName

from .producing_sites import SETTINGS, ProducingSite, Proxied, numbered, texts, wait_until

pytestmark = pytest.mark.clients


class Batches:
    """A name, and the tasks that write under it."""

    def __init__(self, site: ProducingSite, cluster: Cluster) -> None:
        self.site = site
        self.cluster = cluster
        self.name = f"query-{uuid4().hex[:8]}"
        self.topic = site.new_topic(partitions=2)

    def write(self, member: str, first: int, count: int = 10) -> PreparedTransaction:
        """One task writes, and leaves its transaction open."""
        transactional_id = commit_many.transactional_id(self.name, member)
        with BulkProducer(self.cluster, transactional_id=transactional_id) as producer:
            producer.begin()
            producer.write(self.topic, numbered(first, count))
            producer.flush()
            assert producer.has_open_transaction
            return PreparedTransaction(transactional_id, *producer.producer)

    def task(self, member: str, number: int, run: int, first: int) -> PreparedTransaction:
        """One task writes and prepares."""
        written = self.write(member, first)
        commit_many.prepare(self.cluster, self.name, number, run, [written])
        return written

    def commit(self, number: int, transactions: list[PreparedTransaction]) -> bool:
        return commit_many.commit(self.cluster, self.name, number, transactions)

    def announce(self, number: int, run: int) -> int:
        return commit_many.announce(self.cluster, self.name, number, run)

    def describe(self) -> commit_many.CommitState:
        return commit_many.describe(self.cluster, self.name)

    def are_seen(self, numbers: list[int]) -> None:
        """These rows and no others can be read, once the last commit is complete and nothing is open."""
        wait_until(lambda: self.describe().is_complete and not self.describe().open_transactions, "the end of it all")
        wait_until(lambda: sorted(self.site.values(self.topic)) == sorted(texts(numbers)), f"rows {numbers}")  # type: ignore[type-var]


@pytest.fixture
def batches(penstock_site: ProducingSite) -> Iterator[Batches]:
    with penstock_site.cluster() as cluster:
        yield Batches(penstock_site, cluster)


def test_the_extension_is_offered(batches: Batches) -> None:
    assert commit_many.is_offered(batches.cluster.any())


def test_all_of_a_batch_are_committed_and_nothing_before(batches: Batches) -> None:
    tasks = [batches.task(str(number), 0, 1, number * 100) for number in range(3)]
    assert batches.site.values(batches.topic) == []
    assert batches.commit(0, tasks) is False
    batches.are_seen([*range(10), *range(100, 110), *range(200, 210)])


def test_what_is_not_named_is_aborted(batches: Batches) -> None:
    counts = batches.task("0", 0, 1, 0)
    batches.task("0-speculative", 0, 1, 100)
    batches.write("1-given-up", 200)
    batches.commit(0, [counts])
    batches.are_seen([*range(10)])


def test_the_same_number_again_counts_once(batches: Batches) -> None:
    first = [batches.task("0", 7, 1, 0)]
    assert batches.commit(7, first) is False
    assert batches.commit(7, first) is True
    again = [batches.task("0", 7, 2, 100), batches.task("1", 7, 2, 200)]
    assert batches.commit(7, again) is True
    batches.are_seen([*range(10)])
    assert batches.describe().last_number == 7


def test_numbers_follow_each_other(batches: Batches) -> None:
    for number in (0, 1, 5):
        batches.commit(number, [batches.task("0", number, number, number * 100)])
    batches.commit(6, [])
    batches.are_seen([*range(10), *range(100, 110), *range(500, 510)])
    assert batches.describe().last_number == 6


def test_a_lower_number_is_a_stale_checkpoint(batches: Batches) -> None:
    batches.commit(5, [batches.task("0", 5, 1, 0)])
    with pytest.raises(StaleNumber, match=rf"{batches.name}.*4.*5") as caught:
        batches.commit(4, [])
    assert (caught.value.number, caught.value.last) == (4, 5)
    with pytest.raises(StaleNumber):
        batches.announce(3, 9)
    written = batches.write("0", 100)
    with pytest.raises(StaleNumber):
        commit_many.prepare(batches.cluster, batches.name, 4, 9, [written])


def test_a_zombie_is_refused(batches: Batches) -> None:
    """A driver and its tasks, whose successor has begun."""
    batches.announce(3, 100)
    old = batches.task("0", 3, 100, 0)
    batches.announce(3, 200)
    with pytest.raises(Fenced, match="run 100"):
        batches.announce(3, 100)
    late = batches.write("1", 50)
    with pytest.raises(Fenced, match="run 100"):
        commit_many.prepare(batches.cluster, batches.name, 3, 100, [late])
    with pytest.raises(BatchLost, match=batches.name):
        batches.commit(3, [old])
    assert batches.commit(3, [batches.task("0", 3, 200, 300)]) is False
    assert batches.commit(3, [old]) is True
    batches.are_seen([*range(300, 310)])


def test_an_id_that_another_attempt_took_over_is_not_committed(batches: Batches) -> None:
    first = batches.task("0", 0, 1, 0)
    other = batches.task("1", 0, 1, 100)
    second = batches.task("0", 0, 1, 200)
    with pytest.raises(BatchLost, match="written again"):
        batches.commit(0, [first, other])
    with pytest.raises(Fenced):
        commit_many.prepare(batches.cluster, batches.name, 0, 1, [first])
    batches.commit(0, [second, other])
    batches.are_seen([*range(100, 110), *range(200, 210)])


def test_a_run_that_begins_ends_what_was_left(batches: Batches) -> None:
    batches.task("0", 0, 1, 0)
    batches.write("1", 100)
    assert batches.announce(0, 2) == commit_many.NO_NUMBER
    batches.are_seen([])


def test_nothing_is_prepared_without_transactions(batches: Batches) -> None:
    open_one = batches.write("0", 0)
    commit_many.prepare(batches.cluster, batches.name, 0, 5, [])
    assert batches.describe().open_transactions == (open_one,)


def test_a_name_that_was_never_used(batches: Batches) -> None:
    assert batches.describe() == (-1, True, -1, -1, ())


def test_names_and_members_are_checked() -> None:
    assert commit_many.transactional_id("q", "0/1") == "penstock-many:q/0/1"
    for name, member in (("", "0"), ("a/b", "0"), ("q" * 201, "0"), ("q", ""), ("q", "m" * 101)):
        with pytest.raises(ColumnarError, match="characters"):
            commit_many.transactional_id(name, member)


def test_there_are_not_too_many(batches: Batches) -> None:
    with pytest.raises(ColumnarError, match="10000"):
        batches.commit(0, [PreparedTransaction(f"penstock-many:{batches.name}/{each}", 1, 0) for each in range(10_001)])


def test_a_task_cannot_commit_alone(batches: Batches) -> None:
    transactional_id = commit_many.transactional_id(batches.name, "0")
    with BulkProducer(batches.cluster, transactional_id=transactional_id) as producer:
        producer.begin()
        producer.write(batches.topic, numbered(0, 5))
        with pytest.raises(ColumnarError, match="INVALID_TXN_STATE"):
            producer.commit()
        producer.abort()
    batches.are_seen([])


def test_what_is_prepared_ends_with_the_names_timeout(start_penstock: StartPenstock) -> None:  # noqa: F811
    broker = start_penstock(settings={**SETTINGS, "transaction.prepared.timeout.ms": "300"})
    with ProducingSite(broker.bootstrap).cluster() as cluster:
        batches = Batches(ProducingSite(broker.bootstrap), cluster)
        prepared = batches.task("0", 0, 1, 0)
        wait_until(lambda: not batches.describe().open_transactions, "the timeout")
        with pytest.raises(BatchLost):
            batches.commit(0, [prepared])
        batches.are_seen([])


def test_what_is_prepared_outlives_its_own_timeout_and_the_broker(start_penstock: StartPenstock) -> None:  # noqa: F811
    broker: BrokerProcess = start_penstock(settings=SETTINGS)
    site = ProducingSite(broker.bootstrap)
    with site.cluster() as cluster:
        batches = Batches(site, cluster)
        transactional_id = commit_many.transactional_id(batches.name, "0")
        with BulkProducer(cluster, transactional_id=transactional_id, transaction_timeout_ms=300) as producer:
            producer.begin()
            producer.write(batches.topic, numbered(0, 10))
            producer.flush()
            prepared = PreparedTransaction(transactional_id, *producer.producer)
        commit_many.prepare(cluster, batches.name, 0, 1, [prepared])
        open_one = batches.write("1", 100)
        wait_until(lambda: _age_out(site, cluster), "a transaction of the same timeout has been aborted")
        broker.kill()
        broker.start()
        assert batches.commit(0, [prepared, open_one]) is False
        batches.are_seen([*range(10), *range(100, 110)])


def _age_out(site: ProducingSite, cluster: Cluster) -> bool:
    """Write a transaction with the short timeout, and wait until the coordinator has ended it."""
    topic = site.new_topic()
    with BulkProducer(cluster, transactional_id="short", transaction_timeout_ms=300) as producer:
        producer.begin()
        producer.write(topic, numbered(0, 1))
        producer.flush()
    with BulkProducer(cluster, transactional_id="behind") as producer:
        producer.begin()
        producer.write(topic, numbered(1, 1))
        producer.commit()
    wait_until(lambda: site.values(topic) == texts([1]), "the end of the short one")
    return True


def test_answers_that_get_lost_are_asked_for_again(proxied: Proxied) -> None:
    def known() -> DescribeCommitsResponseName:
        """What the broker says to one who asks it directly."""
        with RawClient("127.0.0.1", proxied.port) as direct:
            found: DescribeCommitsResponseName = direct.call(DescribeCommitsRequest(names=[batches.name])).names[0]
            return found

    with proxied.cluster() as cluster:
        batches = Batches(proxied, cluster)
        written = batches.write("0", 0)
        assert batches.describe().open_transactions == (written,)  # and the coordinator is known
        proxied.while_answers_are_lost(
            lambda: commit_many.prepare(cluster, batches.name, 0, 1, [written]),
            until=lambda: any(each.prepared_number == 0 for each in known().transactions),
        )
        assert batches.describe().number == 0
        is_repeated = proxied.while_answers_are_lost(
            lambda: batches.commit(0, [written]), until=lambda: known().last_number == 0
        )
        assert is_repeated
        batches.are_seen([*range(10)])
