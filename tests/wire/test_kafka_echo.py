"""Apache Kafka's own code decodes what we encode, and encodes it to the same bytes: every message and version."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.wire.codec import encode
from penstock.wire.messages.offsets_topic_records import OFFSETS_TOPIC_RECORDS
from penstock.wire.schema import Message

pytestmark = pytest.mark.kafka

GROUP_RECORDS = {cls for pair in OFFSETS_TOPIC_RECORDS.values() for cls in pair}


def java_class(cls: type[Message]) -> str:
    if cls in GROUP_RECORDS:
        return f"org.apache.kafka.coordinator.group.generated.{cls.__name__}"
    if cls.__name__.startswith("TransactionLog"):
        return f"org.apache.kafka.coordinator.transaction.generated.{cls.__name__}"
    data = "Data" if cls.__name__.endswith(("Request", "Response")) else ""
    return f"org.apache.kafka.common.message.{cls.__name__}{data}"


def cases(messages: list[type[Message]], samples: Any) -> Iterator[tuple[type[Message], int, bytes]]:
    for cls in messages:
        for version in samples.versions(cls):
            if cls.__name__.startswith("Produce") and version < 3:
                continue  # Kafka no longer has these
            yield cls, version, encode(cls(), version)
            yield cls, version, encode(samples.populated(cls, version), version)
            yield cls, version, encode(samples.populated(cls, version, nulls=True), version)


def test_kafka_echoes_our_messages(kafka_libs: Path, messages: list[type[Message]], samples: Any) -> None:
    sent = list(cases(messages, samples))
    lines = [f"{java_class(cls)} {version} {data.hex()}" for cls, version, data in sent]
    program = Path(__file__).with_name("MessageEcho.java")
    result = subprocess.run(
        ["java", "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-cp", f"{kafka_libs}/*", program],
        input="\n".join(lines),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    answers = result.stdout.splitlines()
    assert len(answers) == len(sent)
    for (cls, version, data), answer in zip(sent, answers, strict=True):
        assert answer == data.hex(), f"{cls.__name__} version {version}"
