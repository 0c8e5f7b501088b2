"""TransactionsCommand (kafka-transactions.sh), and what other tools see of transactions."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import KafkaException, Producer

from penstock.base.errors import Error
from penstock.testing.raw_client import RawClient
from penstock.wire.messages.k00_produce import ProduceRequest, ProduceRequestPartition, ProduceRequestTopic
from penstock.wire.messages.k22_init_producer_id import InitProducerIdRequest
from penstock.wire.records import Record, build_batch

pytestmark = pytest.mark.kafka

ON_APACHE_KAFKA_TOO = True

Tool = Callable[..., Any]
Row = dict[str, str]
WAIT_S = 30.0
HOUR_MS = 3_600_000


@pytest.fixture
def transactions(tool_runner: Any, bootstrap: str) -> Tool:
    """Runs TransactionsCommand, whose options come before the command."""
    return lambda *words: tool_runner.run("TransactionsCommand", "--bootstrap-server", bootstrap, *words)


@pytest.fixture
def transactional_id() -> str:
    return f"tx-{uuid4().hex[:8]}"


@pytest.fixture
def producer(bootstrap: str, transactional_id: str) -> Producer:
    settings = {"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "log_level": 0}
    producer = Producer({**settings, "transaction.timeout.ms": 45_000})
    producer.init_transactions(WAIT_S)
    return producer


@pytest.fixture
def begun(producer: Producer, topic: str) -> Producer:
    """A transaction with ten records in partition 0."""
    producer.begin_transaction()
    for number in range(10):
        producer.produce(topic, str(number), partition=0)
    assert producer.flush(WAIT_S) == 0
    return producer


def rows(outcome: Any) -> list[Row]:
    assert outcome.code == 0, outcome
    head, *lines = [[cell.strip() for cell in line.split("\t")][:-1] for line in outcome.lines]
    return [dict(zip(head, cells, strict=True)) for cells in lines]


def listed(transactions: Tool, transactional_id: str, *filters: str) -> list[Row]:
    table = rows(transactions("list", *filters))
    return [row for row in table if row["TransactionalId"] == transactional_id]


def described(transactions: Tool, transactional_id: str) -> Row:
    (row,) = rows(transactions("describe", "--transactional-id", transactional_id))
    return row


def producers(transactions: Tool, topic: str) -> list[Row]:
    return rows(transactions("describe-producers", "--topic", topic, "--partition", "0"))


# Looking


def test_before_a_transaction(transactions: Tool, producer: Producer, transactional_id: str) -> None:
    (row,) = listed(transactions, transactional_id)
    assert (row["Coordinator"], row["TransactionState"]) == ("0", "Empty")
    described_row = described(transactions, transactional_id)
    assert described_row == {
        "CoordinatorId": "0",
        "TransactionalId": transactional_id,
        "ProducerId": row["ProducerId"],
        "ProducerEpoch": "0",
        "TransactionState": "Empty",
        "TransactionTimeoutMs": "45000",
        "CurrentTransactionStartTimeMs": "None",
        "TransactionDurationMs": "None",
        "TopicPartitions": "",
    }


def test_an_open_transaction(transactions: Tool, begun: Producer, transactional_id: str, topic: str) -> None:
    now_ms = int(time.time() * 1000)
    row = described(transactions, transactional_id)
    assert (row["TransactionState"], row["TopicPartitions"]) == ("Ongoing", f"{topic}-0")
    assert abs(now_ms - int(row["CurrentTransactionStartTimeMs"])) < HOUR_MS
    assert 0 <= int(row["TransactionDurationMs"]) < HOUR_MS
    (state,) = producers(transactions, topic)
    assert abs(now_ms - int(state.pop("LastTimestamp"))) < HOUR_MS
    assert state == {
        "ProducerId": row["ProducerId"],
        "ProducerEpoch": "0",
        "LatestCoordinatorEpoch": "-1",
        "LastSequence": "9",
        "CurrentTransactionStartOffset": "0",
    }
    assert rows(transactions("describe-producers", "--topic", topic, "--partition", "1")) == []
    on_broker = transactions("describe-producers", "--topic", topic, "--partition", "0", "--broker-id", "0")
    assert len(rows(on_broker)) == 1
    begun.commit_transaction(WAIT_S)


def test_list_with_filters(transactions: Tool, begun: Producer, transactional_id: str) -> None:
    assert listed(transactions, transactional_id)[0]["TransactionState"] == "Ongoing"
    for pattern in ("tx-.*", transactional_id, f".*{transactional_id[4:]}"):
        assert listed(transactions, transactional_id, "--transactional-id-pattern", pattern)
    for pattern in ("tx-", "other.*", transactional_id[1:]):
        assert not listed(transactions, transactional_id, "--transactional-id-pattern", pattern)
    assert transactions("list", "--transactional-id-pattern", "(").code == 1
    assert listed(transactions, transactional_id, "--duration-filter", "0")
    assert listed(transactions, transactional_id, "--duration-filter", "-1")
    assert not listed(transactions, transactional_id, "--duration-filter", str(HOUR_MS))
    begun.abort_transaction(WAIT_S)


@pytest.mark.parametrize("end", ["commit", "abort"])
def test_after_a_transaction(transactions: Tool, begun: Producer, transactional_id: str, topic: str, end: str) -> None:
    begun.commit_transaction(WAIT_S) if end == "commit" else begun.abort_transaction(WAIT_S)
    row = described(transactions, transactional_id)
    assert row["TransactionState"] == f"Complete{end.capitalize()}"
    assert row["TopicPartitions"] == ""
    (state,) = producers(transactions, topic)
    assert (state["LatestCoordinatorEpoch"], state["CurrentTransactionStartOffset"]) == ("0", "None")


def test_what_is_not_there(transactions: Tool, topic: str) -> None:
    unknown = transactions("describe", "--transactional-id", "no-such-id")
    assert unknown.code == 1 and "the ID could not be found" in unknown.err
    assert listed(transactions, "no-such-id") == []


# Mending


def test_an_open_transaction_is_not_hanging(transactions: Tool, begun: Producer, topic: str) -> None:
    for where in (["--topic", topic], ["--topic", topic, "--partition", "0"], ["--broker-id", "0"]):
        table = rows(transactions("find-hanging", *where, "--max-transaction-timeout", "0"))
        assert not [row for row in table if row["Topic"] == topic]
    begun.abort_transaction(WAIT_S)


def test_abort_by_offset(transactions: Tool, begun: Producer, topic: str) -> None:
    wrong = transactions("abort", "--topic", topic, "--partition", "0", "--start-offset", "3")
    assert wrong.code == 1 and "Could not find any open transactions starting at offset 3" in wrong.err
    assert transactions("abort", "--topic", topic, "--partition", "0", "--start-offset", "0").code == 0
    (state,) = producers(transactions, topic)
    assert state["CurrentTransactionStartOffset"] == "None"


@pytest.fixture
def unverified(tool: Tool) -> Iterator[None]:
    """Transactions that the coordinator does not know may be appended, as it was before Kafka 3.6."""
    everywhere = ["--entity-type", "brokers", "--entity-default", "--alter"]
    name = "transaction.partition.verification.enable"
    assert tool("ConfigCommand", *everywhere, "--add-config", f"{name}=false").code == 0
    yield
    assert tool("ConfigCommand", *everywhere, "--delete-config", name).code == 0


@pytest.mark.usefixtures("unverified")
def test_find_and_abort_a_hanging_transaction(
    transactions: Tool, tool: Tool, transactional_id: str, topic: str, bootstrap: str
) -> None:
    append_without_telling_the_coordinator(bootstrap, transactional_id, topic)
    for where in (["--topic", topic], ["--topic", topic, "--partition", "0"], ["--broker-id", "0"]):
        (found,) = [row for row in rows(transactions("find-hanging", *where)) if row["Topic"] == topic]
        assert (found["Partition"], found["ProducerEpoch"], found["StartOffset"]) == ("0", "0", "0")
        assert (found["CoordinatorEpoch"], found["Duration(min)"]) == ("-1", "120")
    reading = ["--topic", topic, "--partition", "0", "--offset", "earliest", "--isolation-level", "read_committed"]
    later = Producer({"bootstrap.servers": bootstrap})
    later.produce(topic, "later", partition=0)
    assert later.flush(WAIT_S) == 0
    assert tool("ConsoleConsumer", *reading, "--timeout-ms", "1500").lines == []
    assert transactions("abort", "--topic", topic, "--partition", "0", "--start-offset", "0").code == 0
    assert rows(transactions("find-hanging", "--topic", topic)) == []
    read = tool("ConsoleConsumer", *reading, "--max-messages", "1", "--timeout-ms", "20000")
    assert read.lines == ["later"]


def append_without_telling_the_coordinator(bootstrap: str, transactional_id: str, topic: str) -> None:
    """A batch of a transaction, two hours old, that no transaction of the coordinator has."""
    host, _, port = bootstrap.rpartition(":")
    deadline_s = time.monotonic() + WAIT_S
    with RawClient(host, int(port)) as client:
        asked = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=60_000)
        while (given := client.call(asked, 4)).error_code != Error.NONE:
            assert time.monotonic() < deadline_s, given
        record = Record(0, int(time.time() * 1000) - 2 * HOUR_MS, None, b"hanging")
        batch = build_batch(
            [record], transactional=True, producer_id=given.producer_id, producer_epoch=0, base_sequence=0
        )
        data = ProduceRequestTopic(name=topic, partition_data=[ProduceRequestPartition(index=0, records=batch)])
        request = ProduceRequest(transactional_id=transactional_id, acks=-1, timeout_ms=10_000, topic_data=[data])
        while (answer := client.call(request, 9).responses[0].partition_responses[0]).error_code != Error.NONE:
            assert time.monotonic() < deadline_s, answer


def test_force_the_end(transactions: Tool, begun: Producer, transactional_id: str, topic: str) -> None:
    assert transactions("forceTerminateTransaction", "--transactionalId", transactional_id).code == 0
    assert described(transactions, transactional_id)["TransactionState"] in ("Empty", "CompleteAbort")
    (state,) = producers(transactions, topic)
    assert state["CurrentTransactionStartOffset"] == "None"
    with pytest.raises(KafkaException) as fenced:
        begun.commit_transaction(WAIT_S)
    assert fenced.value.args[0].fatal()


# What other tools see


def test_console_consumer_with_isolation(tool: Tool, begun: Producer, topic: str) -> None:
    where = ["ConsoleConsumer", "--topic", topic, "--partition", "0", "--offset", "earliest"]
    committed_only = ["--isolation-level", "read_committed"]

    def first(count: int, *options: str) -> list[str]:
        lines: list[str] = tool(*where, "--max-messages", str(count), "--timeout-ms", "20000", *options).lines
        return lines

    values = list(map(str, range(10)))
    assert first(10) == values
    assert tool(*where, "--timeout-ms", "1500", *committed_only).lines == []
    begun.commit_transaction(WAIT_S)
    assert first(10, *committed_only) == values
    for value in ("dropped", "kept"):
        begun.begin_transaction()
        begun.produce(topic, value, partition=0)
        assert begun.flush(WAIT_S) == 0
        begun.abort_transaction(WAIT_S) if value == "dropped" else begun.commit_transaction(WAIT_S)
    assert first(11, *committed_only) == [*values, "kept"]
    assert first(12) == [*values, "dropped", "kept"]
    assert sorted(tool("GetOffsetShell", "--topic", topic).lines) == [f"{topic}:0:15", f"{topic}:1:0"]


@pytest.mark.parametrize("count", [20_000])
def test_producer_performance(tool: Tool, transactions: Tool, transactional_id: str, topic: str, count: int) -> None:
    size = ["--num-records", str(count), "--record-size", "100", "--throughput", "-1", "--topic", topic]
    in_transactions = ["--transactional-id", transactional_id, "--transaction-duration-ms", "20"]
    answer = tool("ProducerPerformance", *size, *in_transactions)
    assert answer.code == 0, answer
    assert answer.lines[-1].startswith(f"{count} records sent, ")
    row = described(transactions, transactional_id)
    assert row["TransactionState"] == "CompleteCommit" and int(row["ProducerEpoch"]) >= 2
    reading = ["--topic", topic, "--from-beginning", "--isolation-level", "read_committed"]
    read = tool("ConsoleConsumer", *reading, "--timeout-ms", "20000", "--max-messages", str(count))
    assert f"Processed a total of {count} messages" in read.err
    ends = [int(line.rpartition(":")[2]) for line in tool("GetOffsetShell", "--topic", topic).lines]
    assert sum(ends) >= count + int(row["ProducerEpoch"])  # every transaction leaves at least one marker


def test_transactions_of_a_name_that_the_tool_makes_up(tool: Tool, transactions: Tool, topic: str) -> None:
    size = ["--num-records", "1000", "--record-size", "100", "--throughput", "-1", "--topic", topic]
    assert tool("ProducerPerformance", *size, "--transaction-duration-ms", "20").code == 0
    names = [row["TransactionalId"] for row in rows(transactions("list"))]
    assert [name for name in names if re.fullmatch(r"performance-producer-[\w-]{22}", name)]
