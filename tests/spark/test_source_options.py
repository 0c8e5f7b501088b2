"""Every option of the source: defaults, meanings in any case of letters, and refusals that name the option."""

from __future__ import annotations

import pickle

import pytest

from penstock.base.identifiers import TopicPartition
from penstock.spark.given_options import GivenOptions, OptionError
from penstock.spark.options import (
    SourceOptions,
    parse_batch_options,
    parse_options,
    parse_stream_options,
)
from penstock.spark.planning import Limits, Splits

NEEDED = {"kafka.bootstrap.servers": "localhost:9092", "subscribe": "orders"}
EARLIEST, LATEST = -2, -1


def parsed(**given: str) -> SourceOptions:
    return parse_options({**NEEDED, **given})


def refusal(given: dict[str, str], parse: object = parse_options) -> str:
    with pytest.raises(OptionError) as raised:
        parse(given)  # type: ignore[operator]
    return str(raised.value)


def test_defaults_are_those_of_the_contract() -> None:
    options = parse_batch_options(NEEDED)
    assert options.start.offset == EARLIEST
    assert options.end.offset == LATEST
    assert options.fail_on_data_loss
    assert options.committed
    assert options.limits.are_none
    assert options.limits.delay_s_max == 15 * 60
    assert options.splits == Splits(None, None)
    assert options.group is None
    assert options.pushdown
    assert options.columns == ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")


def test_a_stream_begins_with_what_is_new() -> None:
    assert parse_stream_options(NEEDED).start.offset == LATEST
    assert parse_stream_options({**NEEDED, "startingOffsets": "earliest"}).start.offset == EARLIEST


@pytest.mark.parametrize("change", [str.lower, str.upper, str.swapcase])
def test_names_are_understood_in_any_case(change: type[str]) -> None:
    given = {
        "kafka.bootstrap.servers": "localhost:9092",
        "subscribePattern": "a.*",
        "startingTimestamp": "5",
        "maxOffsetsPerTrigger": "7",
        "includeHeaders": "TRUE",
    }
    options = parse_options({change(name): value for name, value in given.items()})
    assert options.subscription.pattern == "a.*"
    assert options.start.time_ms == 5
    assert options.limits.offsets_max == 7
    assert options.columns[-1] == "headers"


def test_the_result_can_be_sent_to_tasks() -> None:
    options = parsed(**{"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "PLAIN",
                        "kafka.sasl.username": "u", "kafka.sasl.password": "top-secret"})  # fmt: skip
    assert pickle.loads(pickle.dumps(options)) == options  # noqa: S301
    assert "top-secret" not in repr(options)


def test_topics_by_name() -> None:
    assert parse_options({**NEEDED, "subscribe": " a, b ,,a"}).subscription.topics == ("a", "b")


def test_partitions_one_by_one() -> None:
    options = parse_options({"kafka.bootstrap.servers": "x:1", "assign": '{"a": [1, 0], "b": [3]}'})
    assert options.subscription.assigned == (TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 3))


@pytest.mark.parametrize(
    "given",
    [{}, {"subscribe": "a", "assign": '{"a": [0]}'}, {"subscribe": "a", "subscribePattern": "b"}],
)
def test_exactly_one_way_to_say_what_is_read(given: dict[str, str]) -> None:
    text = refusal({"kafka.bootstrap.servers": "x:1", **given})
    assert "subscribe · subscribePattern · assign" in text and "exactly one" in text


REFUSALS = [
    ({"kafka.bootstrap.servers": ""}, "kafka.bootstrap.servers", "is needed"),
    ({"kafka.bootstrap.servers": "nowhere"}, "kafka.bootstrap.servers", "host:port"),
    ({"kafka.auto.offset.reset": "earliest"}, "auto.offset.reset", "startingOffsets"),
    ({"auto.offset.reset": "earliest"}, "auto.offset.reset", "startingOffsets"),
    ({"kafka.enable.auto.commit": "true"}, "enable.auto.commit", "commitOffsetsToGroup"),
    ({"kafka.key.deserializer": "x"}, "key.deserializer", "bytes"),
    ({"kafka.value.deserializer": "x"}, "value.deserializer", "bytes"),
    ({"kafka.key.serializer": "x"}, "key.serializer", "bytes"),
    ({"kafka.value.serializer": "x"}, "value.serializer", "bytes"),
    ({"kafka.interceptor.classes": "x"}, "interceptor.classes", "Java"),
    ({"group.id": "g"}, "group.id", "kafka.group.id"),
    ({"security.protocol": "SSL"}, "security.protocol", "kafka.security.protocol"),
    ({"bootstrap.servers": "x:1"}, "bootstrap.servers", "kafka.bootstrap.servers"),
    ({"topic": "orders"}, "topic", "subscribe"),
    ({"path": "orders"}, "path", "subscribe"),
    ({"startingOffset": "earliest"}, "startingoffset", "did you mean startingOffsets?"),
    ({"maxOffsetPerTrigger": "1"}, "maxoffsetpertrigger", "did you mean maxOffsetsPerTrigger?"),
    ({"somethingElse": "1"}, "somethingelse", "is unknown"),
    ({"kafka.securty.protocol": "SSL"}, "kafka.securty.protocol", "did you mean security.protocol?"),
    ({"kafka.ssl.truststore.password": "x"}, "kafka.ssl.truststore.password", "PEM"),
    ({"kafka.sasl.kerberos.keytab": "x"}, "kafka.sasl.kerberos.keytab", "Kerberos"),
    ({"subscribe": " , "}, "subscribe", "names no topic"),
    ({"subscribe": "a b"}, "subscribe", "characters"),
    ({"startingOffsets": "begin"}, "startingOffsets", "earliest, latest or JSON"),
    ({"startingOffsets": "{not json"}, "startingOffsets", "expected JSON"),
    ({"startingOffsets": '{"a": [1]}'}, "startingOffsets", "expected JSON"),
    ({"startingOffsets": '{"a": {"x": 1}}'}, "startingOffsets", "expected JSON"),
    ({"startingOffsets": '{"a": {"0": true}}'}, "startingOffsets", "expected JSON"),
    ({"startingOffsets": '{"a": {"0": -3}}'}, "startingOffsets", "-2 is the earliest"),
    ({"endingOffsets": "[]"}, "endingOffsets", "earliest, latest or JSON"),
    ({"startingTimestamp": "yesterday"}, "startingTimestamp", "whole number"),
    ({"endingTimestamp": "-1"}, "endingTimestamp", "whole number"),
    ({"startingOffsetsByTimestamp": "{}x"}, "startingOffsetsByTimestamp", "expected JSON"),
    ({"endingOffsetsByTimestamp": '{"a": {"0": -5}}'}, "endingOffsetsByTimestamp", "milliseconds"),
    ({"startingOffsetsByTimestampStrategy": "skip"}, "startingOffsetsByTimestampStrategy", "error or latest"),
    ({"failOnDataLoss": "maybe"}, "failOnDataLoss", "true or false"),
    ({"maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger", "at least 1"),
    ({"maxOffsetsPerTrigger": "many"}, "maxOffsetsPerTrigger", "whole number"),
    ({"maxOffsetsPerTrigger": "9" * 30}, "maxOffsetsPerTrigger", "whole number"),
    ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, "minOffsetsPerTrigger", "more than"),
    ({"maxTriggerDelay": "soon"}, "maxTriggerDelay", "15m"),
    ({"maxBytesPerTrigger": "1 MB"}, "maxBytesPerTrigger", "whole number"),
    ({"minPartitions": "0"}, "minPartitions", "at least 1"),
    ({"maxRecordsPerPartition": "-1"}, "maxRecordsPerPartition", "at least 1"),
    ({"commitOffsetsToGroup": "true"}, "commitOffsetsToGroup", "kafka.group.id"),
    ({"kafka.isolation.level": "read_most"}, "kafka.isolation.level", "read_committed or read_uncommitted"),
    ({"pushdown": "sometimes"}, "pushdown", "true or false"),
    ({"columns": "value, colour"}, "columns", "'colour'"),
    ({"columns": ""}, "columns", "key, value"),
    ({"columns": "value", "includeHeaders": "true"}, "columns", "headers"),
]


@pytest.mark.parametrize(("given", "option", "words"), REFUSALS, ids=[str(row[0])[:60] for row in REFUSALS])
def test_refusals_name_the_option(given: dict[str, str], option: str, words: str) -> None:
    text = refusal({**NEEDED, **given})
    assert text.startswith(f"option {option}") or f"option kafka.{option}" in text
    assert words in text


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"startingOffsets": "latest"}, "cannot start at the latest"),
        ({"startingOffsets": '{"orders": {"0": -1}}'}, "orders-0"),
        ({"endingOffsets": "earliest"}, "cannot end at the earliest"),
        ({"endingOffsets": '{"orders": {"0": -2}}'}, "orders-0"),
    ],
)
def test_a_batch_must_have_something_to_read(given: dict[str, str], words: str) -> None:
    text = refusal({**NEEDED, **given}, parse_batch_options)
    assert words in text and next(iter(given)) in text


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end(name: str) -> None:
    assert name in refusal({**NEEDED, name: "latest"}, parse_stream_options)


def test_the_first_way_to_say_where_to_begin_counts() -> None:
    offsets, times = '{"orders": {"0": 3}}', '{"orders": {"0": 400}}'
    assert parsed(startingOffsets=offsets).start.offsets == ((TopicPartition("orders", 0), 3),)
    by_partition = parsed(startingOffsets=offsets, startingOffsetsByTimestamp=times).start
    assert by_partition.times_ms == ((TopicPartition("orders", 0), 400),) and by_partition.offsets is None
    for_all = parsed(startingOffsets=offsets, startingOffsetsByTimestamp=times, startingTimestamp="500").start
    assert for_all.time_ms == 500 and for_all.times_ms is None


def test_what_happens_without_records_so_late() -> None:
    assert parsed(startingTimestamp="1").start.nothing_so_late is None
    assert parsed(startingTimestamp="1", startingOffsetsByTimestampStrategy="LATEST").start.nothing_so_late == LATEST
    assert parsed(endingTimestamp="1").end.nothing_so_late == LATEST


def test_limits_and_splits() -> None:
    options = parsed(
        maxOffsetsPerTrigger="100", minOffsetsPerTrigger="10", maxTriggerDelay="2m", maxBytesPerTrigger="5000",
        minPartitions="4", maxRecordsPerPartition="1000",
    )  # fmt: skip
    assert options.limits == Limits(offsets_max=100, offsets_min=10, delay_s_max=120, bytes_max=5000)
    assert options.splits == Splits(tasks_min=4, records_max=1000)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("1500", 1.5), ("1500ms", 1.5), ("2s", 2), ("3m", 180), ("3min", 180), ("1h", 3600), ("1 d", 86400)],
)
def test_times(text: str, seconds: float) -> None:
    assert GivenOptions({"maxTriggerDelay": text}).duration_s("maxTriggerDelay", 0) == pytest.approx(seconds)


def test_isolation_and_group() -> None:
    options = parsed(
        **{"kafka.isolation.level": "READ_UNCOMMITTED", "kafka.group.id": "g", "commitOffsetsToGroup": "true"}
    )
    assert not options.committed
    assert options.group == "g"
    assert parsed(**{"kafka.group.id": "g"}).group is None


def test_columns_keep_the_order_of_the_schema() -> None:
    assert parsed(columns="OFFSET, headers,value").columns == ("value", "offset", "headers")
    assert parsed(includeHeaders="true").columns[-1] == "headers"


def test_client_settings_pass_through() -> None:
    options = parsed(**{"kafka.request.timeout.ms": "1234", "kafka.session.timeout.ms": "1"})
    assert options.settings.request_timeout_s == pytest.approx(1.234)


def test_offset_retries() -> None:
    options = parsed(**{"fetchOffset.numRetries": "5", "fetchOffset.retryIntervalMs": "20"})
    assert (options.offset_attempts, options.offset_pause_s) == (5, 0.02)
