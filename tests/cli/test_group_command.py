"""`penstock group`, and `penstock consume` in a group, against a running broker: ours, and Apache Kafka."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from penstock.base.errors import Error
from penstock.testing.raw_client import RawClient
from penstock.wire.codec import encode
from penstock.wire.messages import k00_produce as k00
from penstock.wire.messages import k03_metadata as k03
from penstock.wire.messages import k11_join_group as k11
from penstock.wire.messages import k13_leave_group as k13
from penstock.wire.messages import k14_sync_group as k14
from penstock.wire.messages import k68_consumer_group_heartbeat as k68
from penstock.wire.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolAssignmentTopicPartition,
    ConsumerProtocolSubscription,
)
from penstock.wire.records import Record, build_batch

pytestmark = pytest.mark.clients

Command = Callable[..., Any]


@pytest.fixture(params=["penstock", pytest.param("kafka", marks=pytest.mark.kafka)])
def bootstrap(request: pytest.FixtureRequest, bootstrap: str) -> str:
    """Every test here runs on both."""
    return str(request.getfixturevalue("kafka_bootstrap")) if request.param == "kafka" else bootstrap


@pytest.fixture
def group(on_broker: Command) -> Iterator[str]:
    """A name for a group, which is deleted afterwards."""
    name = f"cli-{uuid4().hex[:12]}"
    yield name
    on_broker("group", "delete", name, "--if-exists", "--yes")


@pytest.fixture
def filled(on_broker: Command, bootstrap: str, topic: str, group: str) -> str:
    """A topic with ten messages in partition 0 and five in partition 1; the group has committed 4 and nothing."""
    with connect(bootstrap) as client:
        for partition, count in enumerate((10, 5)):
            write(client, topic, partition, count)
    assert on_broker("group", "reset", group, "--topic", f"{topic}:0", "--to-offset", "4").code == 0
    return topic


def connect(bootstrap: str) -> RawClient:
    host, _, port = bootstrap.rpartition(":")
    return RawClient(host, int(port))


def write(client: RawClient, topic: str, partition: int, count: int) -> None:
    """Writes `partition-0`, `partition-1` and so on; a new topic takes a moment to be there."""
    now_ms = round(time.time() * 1000)
    batch = build_batch([Record(number, now_ms, None, f"{partition}-{number}".encode()) for number in range(count)])
    data = k00.ProduceRequestTopic(
        name=topic, partition_data=[k00.ProduceRequestPartition(index=partition, records=batch)]
    )
    request = k00.ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[data])
    deadline = time.monotonic() + 10
    while client.call(request, 9).responses[0].partition_responses[0].error_code != Error.NONE:
        assert time.monotonic() < deadline


@contextmanager
def classic_member(bootstrap: str, group: str, topic: str, partitions: list[int]) -> Iterator[str]:
    """A member of the classic protocol that assigns itself some partitions."""
    subscription = b"\0\0" + bytes(encode(ConsumerProtocolSubscription(topics=[topic]), 0))
    assignment = ConsumerProtocolAssignment(
        assigned_partitions=[ConsumerProtocolAssignmentTopicPartition(topic=topic, partitions=partitions)]
    )
    request = k11.JoinGroupRequest(
        group_id=group,
        session_timeout_ms=30_000,
        rebalance_timeout_ms=30_000,
        member_id="",
        protocol_type="consumer",
        protocols=[k11.JoinGroupRequestProtocol(name="range", metadata=subscription)],
    )
    with connect(bootstrap) as client:
        request.member_id = client.call(request, 9).member_id
        joined = client.call(request, 9)
        assert joined.error_code == Error.NONE
        parts = b"\0\0" + bytes(encode(assignment, 0))
        sync = k14.SyncGroupRequest(
            group_id=group,
            generation_id=joined.generation_id,
            member_id=joined.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=[k14.SyncGroupRequestAssignment(member_id=joined.member_id, assignment=parts)],
        )
        assert client.call(sync, 5).error_code == Error.NONE
        yield joined.member_id
        leave = k13.LeaveGroupRequest(group_id=group, members=[k13.LeaveGroupRequestMember(member_id=joined.member_id)])
        assert client.call(leave, 5).error_code == Error.NONE


@contextmanager
def new_member(bootstrap: str, group: str, topic: str) -> Iterator[str]:
    """A member of the new protocol that owns what it is given."""
    with connect(bootstrap) as client:
        metadata = client.call(k03.MetadataRequest(topics=[k03.MetadataRequestTopic(name=topic)]), 12)
        beat = k68.ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id=str(uuid4()),
            rebalance_timeout_ms=30_000,
            subscribed_topic_names=[topic],
            topic_partitions=[],
        )
        while True:
            answer = client.call(beat, 1)
            assert answer.error_code == Error.NONE, answer
            beat.member_epoch = answer.member_epoch
            if beat.topic_partitions:
                break
            if answer.assignment is not None and answer.assignment.topic_partitions:
                assert answer.assignment.topic_partitions[0].topic_id == metadata.topics[0].topic_id
                beat.topic_partitions = [
                    k68.ConsumerGroupHeartbeatRequestTopic(topic_id=each.topic_id, partitions=each.partitions)
                    for each in answer.assignment.topic_partitions
                ]
        yield beat.member_id
        client.call(k68.ConsumerGroupHeartbeatRequest(group_id=group, member_id=beat.member_id, member_epoch=-1), 1)


def described(on_broker: Command, group: str) -> dict[str, Any]:
    outcome = on_broker("group", "describe", group, "--json")
    assert outcome.code == 0, outcome.err
    [document] = json.loads(outcome.out)
    assert isinstance(document, dict)
    return document


def committed(on_broker: Command, group: str) -> dict[int, int | None]:
    return {row["partition"]: row["committed_offset"] for row in described(on_broker, group)["partitions"]}


# list and describe


def test_an_empty_group(on_broker: Command, filled: str, group: str) -> None:
    assert f"{group}\tclassic\tEmpty" in on_broker("group", "list").lines
    document = described(on_broker, group)
    assert (document["state"], document["type"], document["members"], document["lag"]) == ("Empty", "classic", [], 6)
    [row] = document["partitions"]
    assert (row["topic"], row["partition"], row["committed_offset"], row["end_offset"]) == (filled, 0, 4, 10)
    assert (row["start_offset"], row["stable_end_offset"], row["lag"], row["stable_lag"]) == (0, 10, 6, 6)
    assert (row["member_id"], row["pending_in_transaction"]) == (None, False)
    text = on_broker("group", "describe", group).lines
    assert text[0].startswith(f"{group}: Empty, classic protocol, no members, coordinator ")
    assert text[0].endswith(", lag 6")
    assert text[1:3] == ["TOPIC\tPARTITION\tCOMMITTED\tEND\tLAG\tMEMBER", f"{filled}\t0\t4\t10\t6\t-"]


def test_a_classic_group(on_broker: Command, bootstrap: str, filled: str, group: str) -> None:
    with classic_member(bootstrap, group, filled, [0, 1]) as member:
        document = described(on_broker, group)
        text = on_broker("group", "describe", group)
    assert (document["state"], document["type"], document["assignor"]) == ("Stable", "classic", "range")
    [row] = document["members"]
    assert (row["member_id"], row["instance_id"], row["client_id"]) == (member, None, "raw")
    assert (row["host"], row["assignment"], row["target_assignment"]) == ("127.0.0.1", {filled: [0, 1]}, None)
    first, second = document["partitions"]
    assert (first["lag"], first["member_id"]) == (6, member)
    assert (second["committed_offset"], second["lag"], second["member_id"]) == (None, None, member)
    assert text.lines[0].endswith(", lag 6, partitions without a commit: 1")
    assert f"{filled}\t1\t-\t5\t-\t{member}" in text.lines
    assert f"{member}\t-\traw\t127.0.0.1\t{filled}:0,1" in text.lines


def test_a_group_of_the_new_protocol(on_broker: Command, bootstrap: str, filled: str) -> None:
    group = f"cli-{uuid4().hex[:12]}"
    with new_member(bootstrap, group, filled) as member:
        document = described(on_broker, group)
        listed = json.loads(on_broker("group", "list", "--type", "consumer", "--json").out)
        refused = on_broker("group", "reset", group, "--topic", filled, "--to-earliest")
    assert (document["state"], document["type"], document["assignor"]) == ("Stable", "consumer", "uniform")
    assert document["epoch"] > 0
    [row] = document["members"]
    assert (row["member_id"], row["epoch"], row["client_id"]) == (member, document["epoch"], "raw")
    assert row["assignment"] == row["target_assignment"] == {filled: [0, 1]}
    assert [part["member_id"] for part in document["partitions"]] == [member, member]
    assert {"name": group, "type": "consumer", "state": "Stable", "protocol_type": "consumer"} in listed
    assert (refused.code, f"group '{group}' is in use (Stable)" in refused.err) == (1, True)
    assert described(on_broker, group)["state"] == "Empty"
    assert on_broker("group", "reset", group, "--topic", filled, "--to-earliest").code == 0
    assert committed(on_broker, group) == {0: 0, 1: 0}
    assert on_broker("group", "delete", group).out == f"deleted group {group}\n"


def test_filters_of_the_list(on_broker: Command, filled: str, group: str) -> None:
    def names(*options: str) -> set[str]:
        return {row["name"] for row in json.loads(on_broker("group", "list", "--json", *options).out)}

    assert group in names("--state", "empty")
    assert group in names("--state", "Stable", "--state", "EMPTY", "--type", "classic")
    assert group not in names("--state", "stable")
    assert group not in names("--type", "consumer")
    nothing = on_broker("group", "list", "--state", "dead")
    assert (nothing.code, nothing.out, nothing.err) == (0, "", "no such groups\n")


def test_describe_all(on_broker: Command, filled: str, group: str) -> None:
    assert group in {document["name"] for document in json.loads(on_broker("group", "describe", "--all", "--json").out)}


def test_an_unknown_group_gets_close_names(on_broker: Command, filled: str, group: str) -> None:
    for arguments in (
        ["describe"],
        ["delete"],
        ["delete-offsets", "--topic", filled],
        ["reset", "--all-topics", "--to-latest"],
    ):
        outcome = on_broker("group", *arguments, group + "x")
        assert (outcome.code, outcome.out) == (4, "")
        assert f"there is no group '{group}x' (did you mean '{group}'" in outcome.err


# reset


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--to-earliest"], {0: 0, 1: 0}),
        (["--to-latest"], {0: 10, 1: 5}),
        (["--to-offset", "7"], {0: 7, 1: 5}),
        (["--to-time", "2001-01-01"], {0: 0, 1: 0}),
        (["--to-time", "4102444800000"], {0: 10, 1: 5}),
        (["--to-time", "1d"], {0: 0, 1: 0}),
        (["--shift", "-3"], {0: 1}),
        (["--shift", "100"], {0: 10}),
        (["--to-current"], {0: 4}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_reset(on_broker: Command, filled: str, group: str, options: list[str], expected: dict[int, int]) -> None:
    dry = on_broker("group", "reset", group, "--topic", filled, *options, "--dry-run", "--json")
    assert dry.code == 0, dry.err
    rows = json.loads(dry.out)["partitions"]
    assert {row["partition"]: row["new_offset"] for row in rows if row["new_offset"] is not None} == expected
    assert [row["old_offset"] for row in rows] == [4, None]
    assert committed(on_broker, group) == {0: 4}
    assert on_broker("group", "reset", group, "--topic", filled, *options).code == 0
    assert committed(on_broker, group) == expected


def test_what_a_reset_shows(on_broker: Command, filled: str, group: str) -> None:
    dry = on_broker("group", "reset", group, "--topic", filled, "--to-offset", "7", "-n")
    assert dry.lines == [
        "TOPIC\tPARTITION\tOLD\tNEW\tLAG\tNOTE",
        f"{filled}\t0\t4\t7\t3\t",
        f"{filled}\t1\t-\t5\t0\t7 lies outside the log: moved to its end",
    ]
    assert dry.err == "nothing was changed: this was a dry run\n"
    done = on_broker("group", "reset", group, "--all-topics", "--to-earliest")
    assert (done.lines[1:], done.err) == ([f"{filled}\t0\t4\t0\t10\t"], f"reset 1 partition of group {group}\n")


def test_offsets_can_be_saved_and_brought_back(on_broker: Command, filled: str, group: str, tmp_path: Path) -> None:
    saved = tmp_path / "offsets.json"
    saved.write_text(on_broker("group", "describe", group, "--json").out)
    on_broker("group", "reset", group, "--topic", filled, "--to-latest")
    assert on_broker("group", "reset", group, "--from-file", str(saved)).code == 0
    assert committed(on_broker, group) == {0: 4, 1: 5}


def test_a_new_group_can_begin_anywhere(on_broker: Command, filled: str, group: str) -> None:
    on_broker("group", "delete", group)
    outcome = on_broker("group", "reset", group, "--topic", filled, "--to-offset", "3")
    assert outcome.code == 0
    assert f"there is no group '{group}'" in outcome.err and "it comes into being with these offsets" in outcome.err
    assert committed(on_broker, group) == {0: 3, 1: 3}


def test_a_reset_of_what_is_not_there(on_broker: Command, filled: str, group: str) -> None:
    unknown = on_broker("group", "reset", group, "--topic", filled + "x", "--to-latest")
    assert (unknown.code, f"there is no topic '{filled}x' (did you mean" in unknown.err) == (4, True)
    partition = on_broker("group", "reset", group, "--topic", f"{filled}:0,2", "--to-latest")
    assert (partition.code, f"topic '{filled}' has no partition 2" in partition.err) == (4, True)


def test_a_group_in_use_is_left_alone(on_broker: Command, bootstrap: str, filled: str, group: str) -> None:
    with classic_member(bootstrap, group, filled, [0, 1]):
        for arguments, then in (
            (["reset", group, "--all-topics", "--to-latest"], "reset it"),
            (["delete", group], "delete it"),
        ):
            refused = on_broker("group", *arguments)
            who = "stop its members first (raw at 127.0.0.1)"
            assert refused.err == f"penstock: group '{group}' is in use (Stable): {who}, then {then}\n"
            assert refused.code == 1
        offsets = on_broker("group", "delete-offsets", group, "--topic", filled)
        assert (offsets.code, f"reads topic '{filled}' at this moment" in offsets.err) == (1, True)
    assert committed(on_broker, group) == {0: 4}


# delete


def test_delete(on_broker: Command, filled: str, group: str) -> None:
    assert on_broker("group", "delete", group).out == f"deleted group {group}\n"
    assert on_broker("group", "delete", group).code == 4
    content = on_broker("group", "delete", group, "--if-exists")
    assert (content.code, content.out) == (0, f"group {group} is not there\n")


def test_delete_offsets(on_broker: Command, filled: str, group: str) -> None:
    on_broker("group", "reset", group, "--topic", filled, "--to-latest")
    done = on_broker("group", "delete-offsets", group, "--topic", f"{filled}:0")
    assert done.out == f"deleted offsets of group {group}: {filled}:0\n"
    assert committed(on_broker, group) == {1: 5}
    again = on_broker("group", "delete-offsets", group, "--topic", f"{filled}:0")
    assert (again.code, "has no such offsets" in again.err) == (1, True)


# consume in a group


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_consume_commits_what_it_printed(on_broker: Command, filled: str, group: str, protocol: str) -> None:
    on_broker("group", "delete", group, "--yes")
    options = ("--group", group, "-X", f"group.protocol={protocol}")
    first = on_broker("consume", filled, *options, "--max", "6")
    assert (first.code, len(first.lines)) == (0, 6), first.err
    assert sum(offset or 0 for offset in committed(on_broker, group).values()) == 6
    second = on_broker("consume", filled, *options)
    assert (len(second.lines), set(first.lines).isdisjoint(second.lines)) == (9, True)
    assert committed(on_broker, group) == {0: 10, 1: 5}
    again = on_broker("consume", filled, *options, "--from", "3")
    assert sorted(again.lines) == ["0-3", "0-4", "0-5", "0-6", "0-7", "0-8", "0-9", "1-3", "1-4"]


def test_a_follower_that_waits_for_others_can_be_ended(
    on_broker: Command, bootstrap: str, filled: str, group: str
) -> None:
    """The other member does not take part in the rebalance, so that this one is given nothing."""
    with classic_member(bootstrap, group, filled, [0, 1]):
        arguments = ["consume", filled, "--follow", "--group", group, "--bootstrap", bootstrap]
        program = subprocess.Popen(
            [sys.executable, "-m", "penstock.cli", *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
        try:
            while described(on_broker, group)["state"] == "Stable":
                assert program.poll() is None
        finally:
            program.send_signal(signal.SIGTERM)
            _, complaint = program.communicate(timeout=20)
    assert (program.returncode, complaint) == (143, b"")


def test_a_follower_leaves_its_group_when_it_is_told_to_end(
    on_broker: Command, bootstrap: str, filled: str, group: str
) -> None:
    arguments = ["consume", filled, "--follow", "--group", group, "--bootstrap", bootstrap]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1"}
    program = subprocess.Popen(
        [sys.executable, "-m", "penstock.cli", *arguments], stdout=subprocess.PIPE, env=environment
    )
    assert program.stdout is not None
    for _ in range(6 + 5):
        assert program.stdout.readline()
    program.send_signal(signal.SIGTERM)
    assert program.wait(20) == 143
    program.stdout.close()
    document = described(on_broker, group)
    assert (document["state"], document["members"], document["lag"]) == ("Empty", [], 0)
