"""What Spark tells whoever may not read or write a topic, or cannot log in. Against Apache Kafka's own authorizer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ..columnar.secure_kafka import NOT_TO_BE_READ, NOT_TO_BE_WRITTEN, PASSWORD, USER, SecureKafka, secure_kafka
from ..columnar.topic_filling import fill, numbers

pytestmark = [pytest.mark.spark, pytest.mark.kafka]


@pytest.fixture(scope="module")
def kafka(kafka_libs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureKafka]:
    with secure_kafka(kafka_libs, tmp_path_factory.mktemp("secure")) as kafka:
        yield kafka


def options(kafka: SecureKafka, password: str = PASSWORD) -> dict[str, str]:
    login = {"sasl_mechanism": "SCRAM-SHA-512", "sasl_username": USER, "sasl_password": password}
    settings = kafka.settings("SASL_SSL", default_api_timeout_ms="15000", **login)
    named = {f"kafka.{name}": value for name, value in settings.items()}
    return {**named, "kafka.bootstrap.servers": kafka.address("SASL_SSL")}


def read(spark: Any, kafka: SecureKafka, topic: str, password: str = PASSWORD) -> list[bytes]:
    rows = spark.read.format("penstock").options(**options(kafka, password)).option("subscribe", topic).load()
    return sorted(bytes(row.value) for row in rows.select("value").collect())


def write(spark: Any, kafka: SecureKafka, topic: str, values: list[bytes]) -> None:
    rows = spark.createDataFrame([(value,) for value in values], "value binary")
    rows.write.format("penstock").options(**options(kafka)).option("topic", topic).mode("append").save()


def test_rows_go_there_and_back_after_a_login(spark: Any, kafka: SecureKafka) -> None:
    fill(kafka.plain, "there-and-back", [b"first"])
    write(spark, kafka, "there-and-back", numbers(0, 100))
    assert read(spark, kafka, "there-and-back") == sorted([b"first", *numbers(0, 100)])


def test_a_topic_that_may_not_be_read(spark: Any, kafka: SecureKafka) -> None:
    with pytest.raises(Exception, match=f"(?s){NOT_TO_BE_READ}.*TOPIC_AUTHORIZATION_FAILED"):
        read(spark, kafka, NOT_TO_BE_READ)


def test_a_topic_that_may_not_be_written(spark: Any, kafka: SecureKafka) -> None:
    with pytest.raises(Exception, match=f"(?s){NOT_TO_BE_WRITTEN}.*TOPIC_AUTHORIZATION_FAILED"):
        write(spark, kafka, NOT_TO_BE_WRITTEN, [b"x"])


def test_a_wrong_password(spark: Any, kafka: SecureKafka) -> None:
    with pytest.raises(Exception, match=r"(?s)logging in at localhost.*SASL_AUTHENTICATION_FAILED") as error:
        read(spark, kafka, NOT_TO_BE_READ, "not-the-password")
    assert "not-the-password" not in str(error.value)
