"""`penstock produce` and `penstock consume` against a running broker."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Producer

pytestmark = pytest.mark.clients

Command = Callable[..., Any]
PROGRAM = [sys.executable, "-m", "penstock.cli"]


def test_lines_in_lines_out(on_broker: Command, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PENSTOCK_CLIENT_CONFIG")
    sent = on_broker("produce", topic, "--partition", "0", stdin=b"one\n\ntwo three\nlast without a break")
    assert (sent.code, sent.out) == (0, "")
    assert sent.err.startswith(f"produced 4 messages to {topic} in ")
    assert on_broker("consume", topic).lines == ["one", "", "two three", "last without a break"]


def test_nothing_to_read(on_broker: Command, topic: str) -> None:
    outcome = on_broker("consume", topic)
    assert (outcome.code, outcome.out, outcome.err) == (0, "", "")
    assert "produced 0 messages" in on_broker("produce", topic).err


def test_keys_headers_and_formats(on_broker: Command, topic: str) -> None:
    on_broker("produce", topic, "-K", r"\t", "-H", "a=1,b=2", "--timestamp", "1767225600000", stdin=b"k\tv=1\nk\tv=2\n")
    shown = on_broker("consume", topic, "--format", r"%t|%o|%k|%v|%T|%D|%h|%s|%K").lines
    assert shown == [
        f"{topic}|{offset}|k|v={offset + 1}|1767225600000|2026-01-01T00:00:00.000Z|a=1,b=2|3|1" for offset in (0, 1)
    ]


def test_keys_are_spread_as_kafkas_own_client_does(on_broker: Command, topic: str) -> None:
    on_broker("topic", "alter", topic, "--partitions", "12")
    on_broker("produce", topic, "-K", ":", stdin=b"".join(b"key-%d:%d\n" % (i, i) for i in range(50)))
    found = dict(line.split() for line in on_broker("consume", topic, "--format", "%k %p").lines)
    assert found == {f"key-{i}": str(murmur2_partition(b"key-%d" % i, 12)) for i in range(50)}


def murmur2_partition(key: bytes, partitions: int) -> int:
    """The partition of a key by the murmur2 of the Java client."""
    mask, multiplier = 0xFFFFFFFF, 0x5BD1E995
    mixed = (0x9747B28C ^ len(key)) & mask
    whole = len(key) // 4 * 4
    for start in range(0, whole, 4):
        word = int.from_bytes(key[start : start + 4], "little") * multiplier & mask
        word = (word ^ word >> 24) * multiplier & mask
        mixed = (mixed * multiplier & mask) ^ word
    if rest := key[whole:]:
        mixed = (mixed ^ int.from_bytes(rest, "little")) * multiplier & mask
    mixed = (mixed ^ mixed >> 13) * multiplier & mask
    mixed ^= mixed >> 15
    return (mixed & 0x7FFFFFFF) % partitions


def test_json_in_json_out(on_broker: Command, topic: str) -> None:
    lines = [
        {"key": "k", "value": "v", "headers": {"h": "1"}, "partition": 0, "timestamp": 1767225600000},
        {"key": None, "value": None, "headers": {}, "partition": 0, "timestamp": 1767225600001},
        {"value": {"nested": [1, 2]}, "partition": 0},
        {"value": "/wA=", "value_encoding": "base64", "partition": 0},
    ]
    sent = on_broker("produce", topic, "--json", stdin="\n".join(json.dumps(line) for line in lines).encode())
    assert sent.code == 0
    shown = [json.loads(line) for line in on_broker("consume", topic, "--json").lines]
    assert [message["offset"] for message in shown] == [0, 1, 2, 3]
    assert shown[0] | lines[0] == shown[0] and shown[1] | lines[1] == shown[1]
    assert shown[0]["topic"] == topic
    assert shown[2]["value"] == '{"nested":[1,2]}'
    assert (shown[3]["value"], shown[3]["value_encoding"]) == ("/wA=", "base64")


def test_binary_and_raw(on_broker: Command, topic: str, tmp_path: Path) -> None:
    content = bytes(range(256)) * 100
    file = tmp_path / "picture"
    file.write_bytes(content)
    assert on_broker("produce", topic, "--binary", "--file", str(file), "--key", "picture").code == 0
    assert on_broker("consume", topic, "--raw").out_bytes == content
    assert on_broker("consume", topic, "--format", "%k %s").lines == ["picture 25600"]
    assert "\\xff" in on_broker("consume", topic).out


def test_null_markers(on_broker: Command, topic: str) -> None:
    on_broker("produce", topic, "-p", "0", "-K", ":", "--null-marker", "NIL", stdin=b"k:NIL\nNIL:v\n")
    shown = on_broker("consume", topic, "--format", "%k %v", "--null-marker", "null")
    assert shown.lines == ["k null", "null v"]


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_every_compression(on_broker: Command, topic: str, codec: str) -> None:
    values = [f"value {number}" for number in range(1000)]
    on_broker("produce", topic, "-p", "0", "-z", codec, stdin="\n".join(values).encode())
    assert on_broker("consume", topic).lines == values


@pytest.mark.parametrize("acks", ["all", "1", "0"])
def test_every_kind_of_acks(on_broker: Command, topic: str, acks: str) -> None:
    assert on_broker("produce", topic, "--acks", acks, stdin=b"x\n").code == 0


def test_where_to_begin(on_broker: Command, topic: str) -> None:
    lines = [{"value": str(n), "partition": 0, "timestamp": 1767225600000 + n * 1000} for n in range(10)]
    on_broker("produce", topic, "--json", stdin="\n".join(json.dumps(line) for line in lines).encode())
    expected = {
        "beginning": range(10),
        "end": [],
        "7": [7, 8, 9],
        "99": [],
        "-2": [8, 9],
        "-99": range(10),
        "2026-01-01T00:00:06Z": [6, 7, 8, 9],
        "2026-01-01T00:00:05.5Z": [6, 7, 8, 9],
        "2036-01-01": [],
    }
    for start, values in expected.items():
        assert on_broker("consume", topic, "--from", start).lines == [str(value) for value in values], start
    assert on_broker("consume", topic, "--from", "3", "--max", "2").lines == ["3", "4"]
    assert on_broker("consume", topic, "--partition", "1").lines == []


def test_several_topics(on_broker: Command, topic: str) -> None:
    on_broker("produce", topic, stdin=b"one\n")
    other = f"{topic}-other"
    on_broker("topic", "create", other)
    on_broker("produce", other, stdin=b"two\n")
    assert sorted(on_broker("consume", topic, other, topic, "--format", "%t %v").lines) == [
        f"{topic} one",
        f"{other} two",
    ]
    on_broker("topic", "delete", other, "-y")


def test_wrong_partitions(on_broker: Command, topic: str) -> None:
    read = on_broker("consume", topic, "--partition", "7")
    assert (read.code, "has no partition 7: it has 2, from 0 to 1" in read.err) == (4, True)
    sent = on_broker("produce", topic, "--partition", "7", stdin=b"x\n")
    assert sent.code == 1
    assert "line 1: " in sent.err and "1 of 1 messages were not delivered" in sent.err


def test_wrong_lines_say_which(on_broker: Command, topic: str) -> None:
    outcome = on_broker("produce", topic, "--json", stdin=b'{"value": 1}\n{"value": \n')
    assert outcome.code == 1
    assert "penstock: line 2: not JSON" in outcome.err and "produced 1 message " in outcome.err
    outcome = on_broker("produce", topic, "-K", ":", stdin=b"a:b\nab\n")
    assert "penstock: line 2: no key separator ':' in it" in outcome.err


def test_a_message_that_is_too_large(on_broker: Command, topic: str) -> None:
    outcome = on_broker("produce", topic, stdin=b"small\n" + b"x" * 2_000_000 + b"\nsmall\n")
    assert outcome.code == 1
    assert "line 2: not delivered" in outcome.err and "too large" in outcome.err
    assert on_broker("consume", topic).lines == ["small", "small"]


def test_a_missing_file(on_broker: Command, topic: str) -> None:
    outcome = on_broker("produce", topic, "--file", "/does/not/exist")
    assert outcome.code == 1
    assert outcome.err == "penstock: No such file or directory: /does/not/exist\n"


def test_producing_creates_the_topic_if_the_broker_may(on_broker: Command) -> None:
    name = f"cli-new-{uuid4().hex}"
    outcome = on_broker("produce", name, stdin=b"first\n")
    assert outcome.code == 0
    assert f"there is no topic '{name}' yet" in outcome.err
    assert on_broker("consume", name).lines == ["first"]
    on_broker("topic", "delete", name, "-y")


def test_many_messages(on_broker: Command, topic: str, tmp_path: Path) -> None:
    file = tmp_path / "numbers"
    file.write_text("".join(f"{number}\n" for number in range(20_000)))
    assert "produced 20,000 messages" in on_broker("produce", topic, "-f", str(file)).err
    assert sorted(map(int, on_broker("consume", topic).lines)) == list(range(20_000))


def test_follow_waits_for_new_messages_until_ctrl_c(on_broker: Command, topic: str, bootstrap: str) -> None:
    on_broker("produce", topic, "-p", "0", stdin=b"old\n")
    program = subprocess.Popen(
        [*PROGRAM, "consume", topic, "--follow", "-b", bootstrap],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert program.stdout is not None
    assert program.stdout.readline() == "old\n"
    on_broker("produce", topic, "-p", "0", stdin=b"new\n")
    assert program.stdout.readline() == "new\n"
    program.send_signal(signal.SIGINT)
    _, complaint = program.communicate(timeout=20)
    assert (program.returncode, complaint) == (130, "")


def test_follow_with_max_stops_by_itself(on_broker: Command, topic: str) -> None:
    on_broker("produce", topic, stdin=b"1\n2\n3\n")
    assert len(on_broker("consume", topic, "--follow", "--max", "2").lines) == 2


def test_a_closed_pipe(on_broker: Command, topic: str, bootstrap: str) -> None:
    on_broker("produce", topic, stdin=b"x" * 100 + b"\n" + b"y\n" * 50_000)
    program = subprocess.Popen(
        [*PROGRAM, "consume", topic, "-b", bootstrap], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert program.stdout is not None and program.stderr is not None
    os.read(program.stdout.fileno(), 10)
    program.stdout.close()
    assert program.stderr.read() == b""
    program.stderr.close()
    assert program.wait(20) == 141


def test_transactions_are_shown_as_the_isolation_says(on_broker: Command, topic: str, bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic, "log_level": 0})
    producer.init_transactions(30)
    for value, finish in ((b"aborted", producer.abort_transaction), (b"committed", producer.commit_transaction)):
        producer.begin_transaction()
        producer.produce(topic, value, partition=0)
        producer.flush(30)
        finish(30)
    assert on_broker("consume", topic).lines == ["aborted", "committed"]
    assert on_broker("consume", topic, "--isolation", "committed").lines == ["committed"]


def test_groups_go_on_where_they_were(on_broker: Command, topic: str) -> None:
    group = f"group-{uuid4().hex}"
    on_broker("produce", topic, stdin=b"1\n2\n3\n4\n")
    first = on_broker("consume", topic, "--group", group, "--max", "3").lines
    second = on_broker("consume", topic, "--group", group).lines
    assert (len(first), sorted(first + second)) == (3, ["1", "2", "3", "4"])
    assert on_broker("consume", topic, "--group", group).lines == []
    assert sorted(on_broker("consume", topic, "--group", group, "--from", "beginning").lines) == ["1", "2", "3", "4"]
