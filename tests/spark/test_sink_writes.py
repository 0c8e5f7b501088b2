"""`df.write` through a real session and a real broker: every column and option, all or nothing, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from penstock.columnar.cluster import Cluster
from penstock.columnar.commit_many import describe
from penstock.columnar.settings import ClientSettings
from penstock.testing.broker_process import BrokerProcess
from penstock.testing.raw_client import RawClient
from penstock.wire.messages.k20002_describe_commits import DescribeCommitsRequest

from .committed_rows import committed_messages, committed_values, is_settled
from .conftest import MakeTopic

pytestmark = pytest.mark.spark

Save = Callable[..., None]


@pytest.fixture
def save(broker: BrokerProcess) -> Save:
    """Writes a DataFrame with these options."""

    def save(rows: Any, *, mode: str = "append", **options: object) -> None:
        given = {"kafka.bootstrap.servers": broker.bootstrap, **options}
        rows.write.format("penstock").mode(mode).options(**given).save()

    return save


def numbers(spark: Any, count: int, *, partitions: int = 2, start: int = 0) -> Any:
    return spark.range(start, start + count, 1, partitions).selectExpr("cast(id as string) value")


def texts(count: int, start: int = 0) -> list[str]:
    return sorted(str(number) for number in range(start, start + count))


def names_on(broker: BrokerProcess) -> set[str]:
    """All names that something was committed under."""
    host, _, port = broker.bootstrap.rpartition(":")
    with RawClient(host, int(port)) as client:
        return {name.name for name in client.call(DescribeCommitsRequest(names=None)).names}


def last_number(broker: BrokerProcess, name: str) -> int:
    with Cluster(ClientSettings.parse({"bootstrap.servers": broker.bootstrap})) as cluster:
        return describe(cluster, name).last_number


def test_rows_are_there_when_save_returns(spark: Any, broker: BrokerProcess, new_topic: MakeTopic, save: Save) -> None:
    topic = new_topic(partitions=3)
    save(numbers(spark, 1000), topic=topic)
    assert committed_values(broker.bootstrap, topic) == texts(1000)
    assert is_settled(broker.bootstrap, topic)


def test_every_column(spark: Any, broker: BrokerProcess, new_topic: MakeTopic, save: Save) -> None:
    topic = new_topic(partitions=4)
    when = datetime(2024, 2, 29, 12, 30, 15, 123000, tzinfo=UTC)
    row = ("k", b"v", topic, 2, when, [("a", b"1"), ("a", None)])
    schema = (
        "key string, value binary, topic string, partition int, timestamp timestamp, "
        "headers array<struct<key: string, value: binary>>"
    )
    save(spark.createDataFrame([row, (None, None, topic, None, None, None)], schema).coalesce(1))
    messages = committed_messages(broker.bootstrap, topic)
    (full,) = [message for message in messages if message.key() is not None]
    (empty,) = [message for message in messages if message.key() is None]
    assert (full.key(), full.value(), full.partition()) == (b"k", b"v", 2)
    assert full.timestamp()[1] == int(when.timestamp() * 1000)
    assert full.headers() == [("a", b"1"), ("a", None)]
    assert (empty.value(), empty.headers()) == (None, None)
    assert empty.timestamp()[1] > full.timestamp()[1]


def test_keys_choose_partitions_as_the_java_client_does(
    spark: Any, broker: BrokerProcess, new_topic: MakeTopic, save: Save
) -> None:
    topic = new_topic(partitions=5)
    save(spark.createDataFrame([("21", "x"), ("foobar", "y")], "key string, value string"), topic=topic)
    found = {message.key(): message.partition() for message in committed_messages(broker.bootstrap, topic)}
    assert found == {b"21": (-973932308 & 0x7FFFFFFF) % 5, b"foobar": (-790332482 & 0x7FFFFFFF) % 5}


def test_each_row_to_its_topic(spark: Any, broker: BrokerProcess, new_topic: MakeTopic, save: Save) -> None:
    topics = [new_topic(), new_topic()]
    rows = spark.createDataFrame(
        [(str(number), topics[number % 2]) for number in range(100)], "value string, topic string"
    )
    save(rows)
    for odd, topic in enumerate(topics):
        assert committed_values(broker.bootstrap, topic) == sorted(str(number) for number in range(odd, 100, 2))


def test_the_option_topic_overrides_the_column(
    spark: Any, broker: BrokerProcess, new_topic: MakeTopic, save: Save
) -> None:
    topic = new_topic()
    save(spark.createDataFrame([("a", "elsewhere"), ("b", None)], "value string, topic string"), topic=topic)
    assert committed_values(broker.bootstrap, topic) == ["a", "b"]


@pytest.mark.parametrize("empty", ["no rows", "no partitions"])
def test_nothing_to_write(spark: Any, new_topic: MakeTopic, save: Save, empty: str) -> None:
    rows = (
        numbers(spark, 0)
        if empty == "no rows"
        else spark.createDataFrame(spark.sparkContext.emptyRDD(), "value string")
    )
    save(rows, topic=new_topic(), txnAppId=f"nothing of {empty}", txnVersion=3)


def test_names_that_were_made_up_are_forgotten(
    spark: Any, broker: BrokerProcess, new_topic: MakeTopic, save: Save
) -> None:
    before = names_on(broker)
    save(numbers(spark, 10), topic=new_topic())
    assert names_on(broker) == before


def test_at_least_once_leaves_no_transaction(
    spark: Any, broker: BrokerProcess, new_topic: MakeTopic, save: Save
) -> None:
    topic = new_topic()
    save(numbers(spark, 100), topic=topic, delivery="at-least-once")
    assert committed_values(broker.bootstrap, topic) == texts(100)
    offsets = [message.offset() for message in committed_messages(broker.bootstrap, topic)]
    assert offsets == list(range(100))


# ── all or nothing ───────────────────────────────────────────────────────────────────────────────────────────────


def failing(spark: Any, count: int, bad: int) -> Any:
    return spark.range(0, count, 1, 2).selectExpr(f"if(id = {bad}, raise_error('no more'), cast(id as string)) value")


def test_a_write_that_fails_leaves_nothing(spark: Any, broker: BrokerProcess, new_topic: MakeTopic, save: Save) -> None:
    topic = new_topic(partitions=2)
    with pytest.raises(Exception, match="no more"):
        save(failing(spark, 1000, 900), topic=topic)
    assert committed_values(broker.bootstrap, topic) == []
    save(numbers(spark, 10), topic=topic)
    assert committed_values(broker.bootstrap, topic) == texts(10)


def test_what_failed_does_not_hold_up_readers(
    spark: Any, broker: BrokerProcess, new_topic: MakeTopic, save: Save
) -> None:
    topic = new_topic(partitions=2)
    with pytest.raises(Exception, match="no more"):
        save(failing(spark, 1000, 900), topic=topic)
    assert is_settled(broker.bootstrap, topic)


# ── writes that the user named ───────────────────────────────────────────────────────────────────────────────────


def test_a_named_write_counts_once(spark: Any, broker: BrokerProcess, new_topic: MakeTopic, save: Save) -> None:
    topic = new_topic(partitions=2)
    for partitions in (2, 1, 3):
        save(numbers(spark, 100, partitions=partitions), topic=topic, txnAppId=topic, txnVersion=7)
    assert committed_values(broker.bootstrap, topic) == texts(100)
    save(numbers(spark, 100, start=100), topic=topic, txnAppId=topic, txnVersion=8)
    assert committed_values(broker.bootstrap, topic) == texts(200)
    assert last_number(broker, topic) == 8


def test_a_number_below_the_last_is_refused(
    spark: Any, broker: BrokerProcess, new_topic: MakeTopic, save: Save
) -> None:
    topic = new_topic()
    save(numbers(spark, 10), topic=topic, txnAppId=topic, txnVersion=7)
    with pytest.raises(Exception, match="7 has been written already, and txnVersion must grow"):
        save(numbers(spark, 10), topic=topic, txnAppId=topic, txnVersion=6)
    assert committed_values(broker.bootstrap, topic) == texts(10)


def test_a_named_write_can_fail_and_be_tried_again(
    spark: Any, broker: BrokerProcess, new_topic: MakeTopic, save: Save
) -> None:
    topic = new_topic()
    with pytest.raises(Exception, match="no more"):
        save(failing(spark, 100, 90), topic=topic, txnAppId=topic, txnVersion=1)
    save(numbers(spark, 100), topic=topic, txnAppId=topic, txnVersion=1)
    assert committed_values(broker.bootstrap, topic) == texts(100)


# ── what is refused ──────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("expression", "options", "says"),
    [
        ("id", {"topic": "t"}, "there is no column value"),
        ("id value", {"topic": "t"}, "column value has the type bigint"),
        ("'a' value", {}, "set the option topic, or have a column topic"),
        ("'a' value, cast(null as string) topic", {}, "rows have no topic: their column topic is null"),
        ("'a' value, id partition", {"topic": "t"}, "column partition has the type bigint"),
        ("'a' value", {"topic": "nobody-made-this"}, "nobody-made-this"),
        ("'a' value", {"topic": "t", "topik": "t"}, "option topik: is unknown; did you mean topic"),
        ("'a' value", {"topic": "t", "kafka.bootstrap.servers": ""}, "kafka.bootstrap.servers"),
        ("'a' value", {"topic": "t", "mode": "overwrite"}, "topics are only appended to"),
    ],
)
def test_what_is_wrong_is_named(spark: Any, save: Save, expression: str, options: dict[str, str], says: str) -> None:
    with pytest.raises(Exception) as refused:
        save(spark.range(3).selectExpr(*expression.split(", ")), **options)
    assert says in str(refused.value)


def test_a_row_too_large(spark: Any, broker: BrokerProcess, new_topic: MakeTopic, save: Save) -> None:
    topic = new_topic(settings={"max.message.bytes": "10000"})
    rows = numbers(spark, 10).unionByName(spark.range(1).selectExpr("repeat(uuid(), 1000) value"))
    with pytest.raises(Exception, match=f"(?s){topic}.*larger than"):
        save(rows, topic=topic, **{"kafka.compression.type": "none"})
    assert committed_values(broker.bootstrap, topic) == []


def test_a_partition_that_is_not_there(spark: Any, broker: BrokerProcess, new_topic: MakeTopic, save: Save) -> None:
    topic = new_topic(partitions=2)
    with pytest.raises(Exception, match=f"(?s){topic}.*partition"):
        save(spark.range(3).selectExpr("'a' value", "2 partition"), topic=topic)
    assert committed_values(broker.bootstrap, topic) == []


# ── foreachBatch ─────────────────────────────────────────────────────────────────────────────────────────────────


def test_two_writes_in_one_foreach_batch(
    spark: Any, broker: BrokerProcess, new_topic: MakeTopic, save: Save, tmp_path: Any
) -> None:
    first, second, named = new_topic(), new_topic(), new_topic()
    folder = tmp_path / "lines"
    folder.mkdir()
    for number in range(3):
        (folder / f"{number}.txt").write_text(f"{number}\n")

    def write_all(rows: Any, batch_id: int) -> None:
        save(rows, topic=first)
        save(rows, topic=second)
        save(rows, topic=named, txnAppId=named, txnVersion=batch_id)

    def run(checkpoint: str) -> None:
        lines = spark.readStream.option("maxFilesPerTrigger", 1).text(str(folder))
        written = lines.writeStream.foreachBatch(write_all).option("checkpointLocation", str(tmp_path / checkpoint))
        written.trigger(availableNow=True).start().awaitTermination()

    run("one")
    for topic in (first, second, named):
        assert committed_values(broker.bootstrap, topic) == ["0", "1", "2"]
    with pytest.raises(Exception, match="txnVersion must grow"):
        run("another")
    again = committed_values(broker.bootstrap, first)  # which file came first is up to Spark
    assert (len(again), set(again)) == (4, {"0", "1", "2"})
    assert committed_values(broker.bootstrap, named) == ["0", "1", "2"]
