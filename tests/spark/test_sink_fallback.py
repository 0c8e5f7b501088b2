"""Apache Kafka as the target: rows are delivered at least once, that is said once, and more than that is refused."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.spark.given_options import OptionError
from penstock.spark.sink import PenstockStreamWriter, PenstockWriter
from penstock.testing.apache_kafka import ApacheKafka

from .committed_rows import committed_values
from .conftest import create_topic

pytestmark = pytest.mark.kafka


@pytest.fixture(scope="module")
def kafka(kafka_libs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    settings = {"auto.create.topics.enable": "false"}
    with ApacheKafka(kafka_libs, tmp_path_factory.mktemp("kafka"), settings=settings) as node:
        yield node


def options(kafka: ApacheKafka, **more: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": kafka.bootstrap, "topic": "orders", **more}


def schema() -> Any:
    from pyspark.sql.types import StringType, StructField, StructType

    return StructType([StructField("value", StringType())])


def test_the_fall_back_is_said_once(kafka: ApacheKafka, caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(3):
        assert PenstockWriter(options(kafka), schema(), False).batch is None
        PenstockStreamWriter(options(kafka), schema(), False)
    (warning,) = [record for record in caplog.records if record.name == "penstock.spark.sink"]
    assert warning.levelno == logging.WARNING
    assert "rows are delivered at least once, and after a failure some of them twice" in warning.getMessage()


def test_at_least_once_that_was_asked_for_is_not_warned_of(
    kafka: ApacheKafka, caplog: pytest.LogCaptureFixture
) -> None:
    PenstockWriter(options(kafka, delivery="at-least-once"), schema(), False)
    assert not caplog.records


def test_more_cannot_be_asked_for(kafka: ApacheKafka) -> None:
    with pytest.raises(
        OptionError, match=r"option delivery: exactly-once cannot be: .*Use Penstock brokers, or at-least"
    ):
        PenstockStreamWriter(options(kafka, delivery="exactly-once"), schema(), False)
    with pytest.raises(OptionError, match=r"option txnAppId: .*leave out txnAppId and txnVersion"):
        PenstockWriter(options(kafka, txnAppId="a", txnVersion="1"), schema(), False)


@pytest.mark.spark
def test_rows_are_written_by_batches_and_streams(spark: Any, kafka: ApacheKafka, tmp_path: Path) -> None:
    topic = create_topic(kafka.bootstrap, partitions=2)
    given = {**options(kafka), "topic": topic}
    spark.range(0, 100, 1, 2).selectExpr("cast(id as string) value").write.format("penstock").mode("append").options(
        **given
    ).save()
    (tmp_path / "lines").mkdir()
    (tmp_path / "lines" / "one.txt").write_text("".join(f"{number}\n" for number in range(100, 200)))
    lines = spark.readStream.text(str(tmp_path / "lines")).writeStream.format("penstock").options(**given)
    lines.option("checkpointLocation", str(tmp_path / "checkpoint")).trigger(
        availableNow=True
    ).start().awaitTermination()
    assert committed_values(kafka.bootstrap, topic) == sorted(map(str, range(200)))
