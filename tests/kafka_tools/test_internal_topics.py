"""Kafka's tools read our __consumer_offsets and __transaction_state, and find there what Kafka would have written.

InternalTopics.java does everything that leaves a trace. `InternalTopics.transcript` is what DumpLogSegments then finds
in the files of Apache Kafka, which the slow test checks; the others check that it finds the same in ours, and that the
console consumer shows it. To write the file anew from Apache Kafka, run this file with --long and
PENSTOCK_WRITE_TRANSCRIPTS=1.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.testing.apache_kafka import ApacheKafka
from penstock.testing.broker_process import BrokerProcess

pytestmark = pytest.mark.kafka

TRANSCRIPT = Path(__file__).parent / "InternalTopics.transcript"
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "group.initial.rebalance.delay.ms": "0",
}
DECODERS = {"__consumer_offsets": "--offsets-decoder", "__transaction_state": "--transaction-log-decoder"}
RECORD = re.compile(r"^\| offset: \d+ .*? key: (?P<key>.*?) payload: (?P<value>.*)$")
MARKER = re.compile(r"^\| offset: \d+ .*? endTxnMarker: (?P<kind>\w+) coordinatorEpoch: \d+")
#: What every broker makes up: put in the order in which they appear.
GENERATED = ("memberId", "leader", "topicId", "producerId", "previousProducerId")
UNORDERED = ("transactionPartitions", "partitionIds")
#: Set by the clock, or made from topic ids.
CHANGING = ("imestamp", "metadataHash")

JavaProgram = Callable[[str, str], str]


class Names:
    """Generated values by their turn."""

    def __init__(self) -> None:
        self._found: dict[Any, str] = {}

    def plain(self, value: Any, name: str = "") -> Any:
        if isinstance(value, dict):
            return {key: self.plain(inner, key) for key, inner in value.items()}
        if isinstance(value, list):
            plain = [self.plain(inner, name) for inner in value]
            return sorted(plain, key=str) if name in UNORDERED else plain
        if any(word in name for word in CHANGING):
            return value if value in (-1, 0) else "?"
        if name in GENERATED and value not in (None, "", -1):
            return self._found.setdefault(value, f"#{len(self._found) + 1}")
        return value


def records_of(dump: str) -> Iterator[str]:
    """One line for each record and marker of a dump."""
    names = Names()
    for line in dump.splitlines():
        if found := MARKER.match(line):
            yield f"marker {found['kind']}"
        elif found := RECORD.match(line):
            key = names.plain(json.loads(found["key"]))
            value = None if found["value"] == "<DELETE>" else names.plain(json.loads(found["value"]))
            yield f"{json.dumps(key)} {json.dumps(value)}"


def written(tool_runner: Any, logs: Path) -> str:
    """What the tool finds in both topics."""
    text = ""
    for topic, decoder in DECODERS.items():
        files = ",".join(map(str, sorted((logs / f"{topic}-0").glob("*.log"))))
        dumped = tool_runner.run("DumpLogSegments", "--files", files, decoder)
        assert dumped.code == 0, dumped
        text += "\n".join([topic, *records_of(dumped.out), "", ""])
    return text


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory, java_program: JavaProgram) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("internal") / "data", settings=SETTINGS) as broker:
        java_program("InternalTopics", broker.bootstrap)
        yield broker


def of_kafka() -> list[str]:
    """The transcript without what we leave out on purpose: a classic group is written when it has members."""
    return [line for line in TRANSCRIPT.read_text().splitlines() if '"generation": 0' not in line]


def of_ours(tool_runner: Any, logs: Path) -> list[str]:
    """What we wrote without what we add on purpose: the ids of topics to the offsets in transactions."""
    lines = written(tool_runner, logs).splitlines()
    for number, line in enumerate(lines[1:]):
        if line.startswith("marker"):
            lines[number] = re.sub(r', "topicId": "#\d+"', "", lines[number])
    return lines


def test_dump_log_segments_finds_what_kafka_writes(broker: BrokerProcess, tool_runner: Any) -> None:
    assert of_ours(tool_runner, broker.data / "logs") == of_kafka()


def section(topic: str) -> list[str]:
    return "\n".join(of_kafka()).partition(f"{topic}\n")[2].partition("\n\n")[0].splitlines()


def shown(tool_runner: Any, broker: BrokerProcess, topic: str, formatter: str, *options: str) -> list[dict[str, Any]]:
    """What the console consumer shows of a topic with one of the formatters for it."""
    where = ["--bootstrap-server", broker.bootstrap, "--topic", topic, "--partition", "0", "--offset", "earliest"]
    count = sum(not line.startswith("marker") for line in section(topic)) - ("read_committed" in options)
    limits = ["--max-messages", str(count), "--timeout-ms", "20000"]
    how = ["--formatter", f"org.apache.kafka.tools.consumer.{formatter}", *options]
    text = tool_runner.run("ConsoleConsumer", *where, *limits, *how).out
    decoder, position, found = json.JSONDecoder(), 0, []
    while position < len(text):
        entry, position = decoder.raw_decode(text, position)
        found.append(entry)
    return found


def expected(topic: str, *types: int) -> list[tuple[Any, Any]]:
    """The keys and values of these types in the transcript."""
    decoder, found = json.JSONDecoder(), []
    for line in section(topic):
        if not line.startswith("marker"):
            key, end = decoder.raw_decode(line)
            if int(key["type"]) in types:
                found.append((key["data"], json.loads(line[end + 1 :])))
    return found


@pytest.mark.parametrize(
    ("topic", "formatter", "types"),
    [
        ("__consumer_offsets", "OffsetsMessageFormatter", (0, 1)),
        ("__consumer_offsets", "GroupMetadataMessageFormatter", (2,)),
        ("__transaction_state", "TransactionLogMessageFormatter", (0,)),
    ],
)
def test_the_console_consumer_shows_it(
    broker: BrokerProcess, tool_runner: Any, topic: str, formatter: str, types: tuple[int, ...]
) -> None:
    entries = shown(tool_runner, broker, topic, formatter)
    wanted = expected(topic, *types)
    assert [entry["key"]["data"] for entry in entries] == [key for key, _ in wanted]
    for entry, (_, value) in zip(entries, wanted, strict=True):
        assert entry["key"]["type"] in types
        assert (entry["value"] is None) == (value is None)
        if value is not None:
            assert entry["value"]["data"].keys() >= value["data"].keys()


def test_committed_offsets_only(broker: BrokerProcess, tool_runner: Any) -> None:
    options = ["--isolation-level", "read_committed"]
    entries = shown(tool_runner, broker, "__consumer_offsets", "OffsetsMessageFormatter", *options)
    offsets = [entry["value"]["data"]["offset"] for entry in entries if entry["value"] is not None]
    assert 10 not in offsets and offsets.count(9) == 1 and offsets.count(11) == 1


@pytest.fixture(scope="module")
def logs_of_kafka(kafka_libs: Path, java_program: JavaProgram, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log directory of an Apache Kafka that was stopped after it had written everything."""
    with ApacheKafka(kafka_libs, tmp_path_factory.mktemp("internal") / "kafka", settings=SETTINGS) as kafka:
        java_program("InternalTopics", kafka.bootstrap)
    return kafka.data


@pytest.mark.slow
def test_the_transcript_is_that_of_kafka(logs_of_kafka: Path, tool_runner: Any) -> None:
    found = written(tool_runner, logs_of_kafka)
    if "PENSTOCK_WRITE_TRANSCRIPTS" in os.environ:
        TRANSCRIPT.write_text(found)
    assert found.splitlines() == TRANSCRIPT.read_text().splitlines()


@pytest.mark.slow
def test_we_go_on_with_what_kafka_wrote(logs_of_kafka: Path, tool_runner: Any, tmp_path: Path) -> None:
    """Our broker is given Kafka's internal topics in place of its own."""
    broker = BrokerProcess(tmp_path / "data", settings=SETTINGS).start()

    def run(tool: str, *arguments: str) -> list[list[str]]:
        return [
            line.split() for line in tool_runner.run(tool, "--bootstrap-server", broker.bootstrap, *arguments).lines
        ]

    try:
        run("ConsumerGroupCommand", "--describe", "--group", "nobody")  # whoever is asked for them makes the topics
        run("TransactionsCommand", "describe", "--transactional-id", "nobody")
        broker.stop()
        for topic in DECODERS:
            take_over(logs_of_kafka / f"{topic}-0", broker.data / "logs" / f"{topic}-0")
        broker.start()
        groups = run("ConsumerGroupCommand", "--list", "--state", "--type")[1:]
        assert sorted(groups) == [
            ["altered", "Classic", "Empty"],
            ["new-range", "Consumer", "Empty"],
            ["new-static", "Consumer", "Assigning"],  # its topic is not there, which calls for another assignment
            ["static", "Classic", "Stable"],
        ]
        (member,) = run("ConsumerGroupCommand", "--describe", "--group", "static", "--members")[2:]
        assert member[2:] == ["desk", "/127.0.0.1", "somebody", "2"]
        (transaction,) = run("TransactionsCommand", "describe", "--transactional-id", "mover")[1:]
        assert transaction[1] == "mover" and transaction[3:6] == ["4", "Empty", "30000"]
    finally:
        broker.close()


def take_over(theirs: Path, ours: Path) -> None:
    """Put the segments of a partition in place of ours; everything else is built anew from them."""
    for file in ours.iterdir():
        if file.name != "partition.metadata":
            file.unlink()
    for file in theirs.glob("*.log"):
        shutil.copy(file, ours)
