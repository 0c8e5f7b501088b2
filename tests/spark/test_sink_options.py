"""Options of a write: what is taken, and what is said of those that cannot be."""

from __future__ import annotations

import pytest

from penstock.spark.given_options import OptionError
from penstock.spark.sink_options import TRANSACTION_TIMEOUT_MS, Delivery, Producing, SinkOptions, WriteName

BROKERS = {"kafka.bootstrap.servers": "localhost:9092"}


def test_the_least() -> None:
    options = SinkOptions.parse(BROKERS, is_stream=False)
    assert (options.topic, options.delivery, options.named) == (None, None, None)
    assert options.settings.transaction_timeout_s == TRANSACTION_TIMEOUT_MS / 1000


def test_names_come_in_any_case() -> None:
    given = {
        **BROKERS,
        "TOPIC": "orders",
        "txnappid": "backfill",
        "TxnVersion": "7",
        "KAFKA.Transaction.Timeout.MS": "60000",
    }
    options = SinkOptions.parse(given, is_stream=False)
    assert options.topic == "orders"
    assert options.named == WriteName("backfill", 7)
    assert options.delivery is Delivery.EXACTLY_ONCE
    assert options.settings.transaction_timeout_s == 60


@pytest.mark.parametrize("text", ["at-least-once", "Exactly-Once"])
def test_delivery(text: str) -> None:
    options = SinkOptions.parse({**BROKERS, "delivery": text}, is_stream=True)
    assert options.delivery == text.lower()


def test_how_rows_are_sent() -> None:
    given = {
        "kafka.acks": "1",
        "delivery": "at-least-once",
        "kafka.compression.type": "zstd",
        "kafka.batch.size": "50000",
    }
    options = SinkOptions.parse({**BROKERS, **given}, is_stream=False)
    assert options.producing == Producing(acks=1, compression="zstd", batch_bytes=50_000)
    assert SinkOptions.parse(BROKERS, is_stream=False).producing.acks == -1


def test_what_spark_adds_is_let_through() -> None:
    given = {**BROKERS, "checkpointlocation": "/somewhere", "queryname": "q"}
    assert SinkOptions.parse(given, is_stream=True).topic is None


@pytest.mark.parametrize(
    ("given", "names", "says"),
    [
        ({}, "kafka.bootstrap.servers", "needed"),
        ({**BROKERS, "topik": "x"}, "topik", "did you mean topic"),
        ({**BROKERS, "path": "x"}, "path", "option topic"),
        ({**BROKERS, "subscribe": "x"}, "subscribe", "option topic"),
        ({**BROKERS, "topic": " "}, "topic", "empty"),
        ({**BROKERS, "topic": "a b"}, "topic", "a b"),
        ({**BROKERS, "delivery": "twice"}, "delivery", "exactly-once or at-least-once"),
        ({**BROKERS, "txnAppId": "a"}, "txnVersion", "missing"),
        ({**BROKERS, "txnVersion": "1"}, "txnAppId", "missing"),
        ({**BROKERS, "txnAppId": "a/b", "txnVersion": "1"}, "txnAppId", "no '/'"),
        ({**BROKERS, "txnAppId": "", "txnVersion": "1"}, "txnAppId", "1 to 200 characters"),
        ({**BROKERS, "txnAppId": "a", "txnVersion": "-1"}, "txnVersion", "at least 0"),
        ({**BROKERS, "txnAppId": "a", "txnVersion": "1.5"}, "txnVersion", "whole number"),
        ({**BROKERS, "txnAppId": "a", "txnVersion": str(2**63)}, "txnVersion", "whole number"),
        ({**BROKERS, "txnAppId": "a", "txnVersion": "1", "delivery": "at-least-once"}, "txnAppId", "counts once"),
        ({**BROKERS, "kafka.transactional.id": "x"}, "kafka.transactional.id", "txnAppId"),
        ({**BROKERS, "kafka.key.serializer": "x"}, "kafka.key.serializer", "bytes"),
        ({**BROKERS, "group.id": "x"}, "group.id", "no group"),
        ({**BROKERS, "kafka.transaction.timeout.ms": "soon"}, "kafka.transaction.timeout.ms", "milliseconds"),
        ({**BROKERS, "kafka.acsk": "all"}, "kafka.acsk", "did you mean acks"),
        ({**BROKERS, "kafka.acks": "0"}, "kafka.acks", "all or 1"),
        ({**BROKERS, "kafka.acks": "1"}, "kafka.acks", "at-least-once"),
        ({**BROKERS, "kafka.compression.type": "zip"}, "kafka.compression.type", "lz4"),
        ({**BROKERS, "kafka.batch.size": "big"}, "kafka.batch.size", "bytes"),
        ({**BROKERS, "bootstrap.servers": "x:1"}, "bootstrap.servers", "kafka.bootstrap.servers"),
    ],
)
def test_what_is_wrong_is_named(given: dict[str, str], names: str, says: str) -> None:
    with pytest.raises(OptionError) as refused:
        SinkOptions.parse(given, is_stream=False)
    assert str(refused.value).startswith(f"option {names}: ")
    assert says in str(refused.value)


def test_a_stream_is_not_named_by_options() -> None:
    with pytest.raises(OptionError, match="the query's id"):
        SinkOptions.parse({**BROKERS, "txnAppId": "a", "txnVersion": "1"}, is_stream=True)
