"""ConsumerGroupCommand and GroupsCommand (kafka-consumer-groups.sh, kafka-groups.sh), with groups of both protocols."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

pytestmark = pytest.mark.kafka

ON_APACHE_KAFKA_TOO = True

Tool = Callable[..., Any]
Row = dict[str, str]
#: Records of the topic `filled` by partition, and the time of the first one; each of the others is a minute younger.
SIZES = {0: 10, 1: 5}
YESTERDAY = datetime.now(UTC).replace(microsecond=0) - timedelta(days=1)
WAIT_S = 30.0


@pytest.fixture
def groups(tool: Tool) -> Tool:
    """Runs ConsumerGroupCommand."""
    return lambda *arguments: tool("ConsumerGroupCommand", *arguments)


@pytest.fixture(params=["classic", "consumer"])
def protocol(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def group() -> str:
    return f"group-{uuid4().hex[:8]}"


@pytest.fixture
def filled(topic: str, bootstrap: str) -> str:
    """A topic with records of known times in both of its partitions."""
    producer = Producer({"bootstrap.servers": bootstrap})
    for partition, size in SIZES.items():
        for number in range(size):
            when_ms = int((YESTERDAY + timedelta(minutes=number)).timestamp()) * 1000
            producer.produce(topic, f"value {number}", partition=partition, timestamp=when_ms)
    assert producer.flush(WAIT_S) == 0
    return topic


Join = Callable[..., AbstractContextManager[Consumer]]


@pytest.fixture
def join(bootstrap: str, filled: str, protocol: str, group: str) -> Join:
    """A live member that has all partitions of `filled` and has committed `offsets`."""

    @contextmanager
    def joined(offsets: Mapping[int, int] = SIZES, **settings: Any) -> Iterator[Consumer]:
        who = {"bootstrap.servers": bootstrap, "group.id": group, "group.protocol": protocol, "client.id": "somebody"}
        consumer = Consumer({**who, "enable.auto.commit": False, "log_level": 0, **settings})
        assigned: list[TopicPartition] = []
        consumer.subscribe([filled], on_assign=lambda _, partitions: assigned.extend(partitions))
        deadline_s = time.monotonic() + WAIT_S
        while len(assigned) < len(SIZES):
            assert time.monotonic() < deadline_s
            consumer.poll(0.05)
        if offsets:
            wanted = [TopicPartition(filled, partition, offset) for partition, offset in offsets.items()]
            consumer.commit(offsets=wanted, asynchronous=False)
        try:
            yield consumer
        finally:
            consumer.close()

    return joined


@pytest.fixture
def left(join: Join, group: str) -> str:
    """A group whose last member has left, with 4 committed in partition 0 and 5, the end, in partition 1."""
    with join({0: 4, 1: 5}):
        pass
    return group


def rows(outcome: Any) -> list[Row]:
    """The lines of a table by the names of its columns, which are separated by two blanks or a tab."""
    assert outcome.code == 0 and "Error" not in outcome.out, outcome
    lines = [line for line in outcome.lines if line.strip() and not line.startswith("Warn: ")]
    names = re.split(r"\s{2,}|\t| (?=[A-Z#])", lines[0].strip())
    found = []
    for line in lines[1:]:
        cells = re.split(r"\s+(?![\s(])", line.strip())
        assert len(cells) == len(names), (names, line)
        found.append(dict(zip(names, cells, strict=True)))
    return found


def committed(groups: Tool, group: str) -> dict[int, str]:
    table = rows(groups("--describe", "--group", group))
    return {int(row["PARTITION"]): row["CURRENT-OFFSET"] for row in table}


def new_offsets(outcome: Any) -> dict[int, str]:
    return {int(row["PARTITION"]): row["NEW-OFFSET"] for row in rows(outcome)}


# Looking


def test_list(groups: Tool, join: Join, group: str, protocol: str) -> None:
    other = {"classic": "consumer", "consumer": "classic"}[protocol]
    with join():
        assert group in groups("--list").lines
        for filters in ([], ["stable"], ["Stable,Empty"]):
            assert {"GROUP": group, "STATE": "Stable"} in rows(groups("--list", "--state", *filters))
        assert group not in groups("--list", "--state", "empty").out
        for filters in ([], [protocol], ["classic,consumer"]):
            assert {"GROUP": group, "TYPE": protocol.capitalize()} in rows(groups("--list", "--type", *filters))
        assert group not in groups("--list", "--type", other).out
        both = rows(groups("--list", "--type", protocol, "--state", "stable"))
        assert {"GROUP": group, "TYPE": protocol.capitalize(), "STATE": "Stable"} in both
    assert group in groups("--list", "--state", "empty").out
    assert group not in groups("--list", "--state", "stable").out


def test_list_wrongly(groups: Tool) -> None:
    assert groups("--list", "--state", "sleepy").code == 1
    assert groups("--list", "--type", "modern").code == 1


def test_groups_command(tool: Tool, join: Join, group: str, protocol: str) -> None:
    row = {"GROUP": group, "TYPE": protocol.capitalize(), "PROTOCOL": "consumer"}
    with join():
        for filters in ([], ["--consumer"], ["--group-type", protocol], ["--protocol", "consumer"]):
            assert row in rows(tool("GroupsCommand", "--list", *filters))
        for filters in (["--share"], ["--streams"], ["--protocol", "other"]):
            assert group not in tool("GroupsCommand", "--list", *filters).out


def test_describe_with_a_member(groups: Tool, join: Join, group: str, filled: str, protocol: str) -> None:
    with join({0: 4, 1: 5}) as consumer:
        table = rows(groups("--describe", "--group", group))
        member = consumer.memberid()
        who = {"GROUP": group, "TOPIC": filled, "CONSUMER-ID": member, "HOST": "/127.0.0.1", "CLIENT-ID": "somebody"}
        first = {"PARTITION": "0", "CURRENT-OFFSET": "4", "LOG-END-OFFSET": "10", "LAG": "6"}
        second = {"PARTITION": "1", "CURRENT-OFFSET": "5", "LOG-END-OFFSET": "5", "LAG": "0"}
        assert sorted(table, key=lambda row: row["PARTITION"]) == [who | first, who | second]
        members = {"GROUP": group, "CONSUMER-ID": member, "HOST": "/127.0.0.1", "CLIENT-ID": "somebody"}
        assert rows(groups("--describe", "--group", group, "--members")) == [members | {"#PARTITIONS": "2"}]
        (verbose,) = rows(groups("--describe", "--group", group, "--members", "--verbose"))
        assert verbose["CURRENT-ASSIGNMENT"] == f"{filled}:0,1"
        assert verbose["TARGET-ASSIGNMENT"] == (f"{filled}:0,1" if protocol == "consumer" else "-")
        assert verbose["CURRENT-EPOCH"] == verbose["TARGET-EPOCH"]
        assert (verbose["CURRENT-EPOCH"] == "-") == (protocol == "classic")


def test_describe_the_state(groups: Tool, join: Join, group: str, protocol: str, bootstrap: str) -> None:
    assignor = {"classic": "range", "consumer": "uniform"}[protocol]
    coordinator = {"GROUP": group, "COORDINATOR (ID)": f"{bootstrap}  (0)"}
    with join():
        (state,) = rows(groups("--describe", "--group", group, "--state"))
        assert state == coordinator | {"ASSIGNMENT-STRATEGY": assignor, "STATE": "Stable", "#MEMBERS": "1"}
        (verbose,) = rows(groups("--describe", "--group", group, "--state", "--verbose"))
        assert verbose["GROUP-EPOCH"] == verbose["TARGET-ASSIGNMENT-EPOCH"]
        assert (verbose["GROUP-EPOCH"] == "-") == (protocol == "classic")
    answer = groups("--describe", "--group", group, "--state")
    (state,) = rows(answer)
    assignor = {"classic": "-", "consumer": "uniform"}[protocol]
    assert state == coordinator | {"ASSIGNMENT-STRATEGY": assignor, "STATE": "Empty", "#MEMBERS": "0"}
    assert f"Consumer group '{group}' has no active members." in answer.err


def test_describe_a_static_member(groups: Tool, join: Join, group: str, protocol: str) -> None:
    with join(**{"group.instance.id": "desk-1"}) as consumer:
        (member,) = rows(groups("--describe", "--group", group, "--members"))
        assert (member["GROUP-INSTANCE-ID"], member["CONSUMER-ID"]) == ("desk-1", consumer.memberid())


def test_describe_without_members(groups: Tool, left: str, filled: str) -> None:
    nobody = {"CONSUMER-ID": "-", "HOST": "-", "CLIENT-ID": "-"}
    for row in rows(groups("--describe", "--group", left)):
        assert row.items() >= {"GROUP": left, "TOPIC": filled, **nobody}.items()
    assert committed(groups, left) == {0: "4", 1: "5"}
    epochs = {row["LEADER-EPOCH"] for row in rows(groups("--describe", "--group", left, "--verbose"))}
    assert epochs == {"-"}
    assert rows(groups("--describe", "--group", left, "--members")) == []
    assert {row["GROUP"] for row in rows(groups("--describe", "--all-groups", "--state"))} >= {left}


@pytest.mark.parametrize("what", [[], ["--members"], ["--state"]])
def test_describe_an_unknown_group(groups: Tool, what: list[str]) -> None:
    answer = groups("--describe", "--group", "no-such-group", *what)
    assert "GroupIdNotFoundException" in answer.out and "no-such-group" in answer.out


# Resetting

#: The option, and where that leads a group that stands at 4 of 10 and 5 of 5.
WAYS: list[tuple[list[str], tuple[int, int]]] = [
    (["--to-earliest"], (0, 0)),
    (["--to-latest"], (10, 5)),
    (["--to-current"], (4, 5)),
    (["--to-offset", "3"], (3, 3)),
    (["--to-offset", "7"], (7, 5)),
    (["--to-offset", "99"], (10, 5)),
    (["--shift-by", "-2"], (2, 3)),
    (["--shift-by", "3"], (7, 5)),
    (["--shift-by", "-99"], (0, 0)),
    (["--to-datetime", YESTERDAY.isoformat(timespec="milliseconds")], (0, 0)),
    (["--to-datetime", (YESTERDAY + timedelta(minutes=2)).isoformat(timespec="milliseconds")], (2, 2)),
    (["--to-datetime", "2100-01-01T00:00:00.000"], (10, 5)),
    (["--by-duration", "P2D"], (0, 0)),
    (["--by-duration", "PT0S"], (10, 5)),
]


def test_every_way_to_reset(groups: Tool, left: str, filled: str) -> None:
    scope = ["--reset-offsets", "--group", left, "--topic", filled]
    for way, (first, second) in WAYS:
        there = {0: str(first), 1: str(second)}
        assert new_offsets(groups(*scope, *way, "--dry-run")) == there, way
        assert committed(groups, left) == {0: "4", 1: "5"}
    for way, (first, second) in WAYS:
        there = {0: str(first), 1: str(second)}
        assert new_offsets(groups(*scope, *way, "--execute")) == there, way
        assert committed(groups, left) == there
        back = groups("--reset-offsets", "--group", left, "--topic", f"{filled}:0", "--to-offset", "4", "--execute")
        assert new_offsets(back) == {0: "4"}
        groups("--reset-offsets", "--group", left, "--topic", f"{filled}:1", "--to-offset", "5", "--execute")


def test_reset_from_a_file(groups: Tool, left: str, filled: str, tmp_path: Path) -> None:
    exported = groups(
        "--reset-offsets", "--group", left, "--topic", filled, "--shift-by", "-1", "--dry-run", "--export"
    )
    assert sorted(line for line in exported.lines if line) == [f"{filled},0,3", f"{filled},1,4"]
    wanted = tmp_path / "offsets.csv"
    wanted.write_text(exported.out.strip() + "\n")
    from_file = ["--reset-offsets", "--group", left, "--from-file", str(wanted)]
    assert new_offsets(groups(*from_file, "--dry-run")) == {0: "3", 1: "4"}
    assert committed(groups, left) == {0: "4", 1: "5"}
    assert new_offsets(groups(*from_file, "--execute")) == {0: "3", 1: "4"}
    assert committed(groups, left) == {0: "3", 1: "4"}


def test_reset_all_topics_of_a_group(groups: Tool, left: str) -> None:
    answer = groups("--reset-offsets", "--group", left, "--all-topics", "--to-earliest", "--execute")
    assert new_offsets(answer) == {0: "0", 1: "0"}


def test_reset_with_a_member(groups: Tool, join: Join, group: str) -> None:
    with join({0: 4, 1: 5}):
        refused = groups("--reset-offsets", "--group", group, "--all-topics", "--to-earliest", "--execute")
        assert f"the group '{group}' is inactive, but the current state is Stable" in refused.out
        assert committed(groups, group) == {0: "4", 1: "5"}


def test_reset_makes_a_group(groups: Tool, tool: Tool, filled: str, group: str) -> None:
    """Offsets may be committed for a group that never had a member."""
    scope = ["--reset-offsets", "--group", group, "--topic", filled]
    assert new_offsets(groups(*scope, "--to-offset", "2", "--dry-run")) == {0: "2", 1: "2"}
    assert group not in groups("--list").lines
    assert new_offsets(groups(*scope, "--to-offset", "2", "--execute")) == {0: "2", 1: "2"}
    assert committed(groups, group) == {0: "2", 1: "2"}
    assert {"GROUP": group, "TYPE": "Classic", "STATE": "Empty"} in rows(groups("--list", "--type", "--state"))
    assert group in tool("GroupsCommand", "--list", "--consumer").out


def test_members_go_on_where_the_reset_put_them(
    groups: Tool, tool: Tool, left: str, filled: str, protocol: str
) -> None:
    groups("--reset-offsets", "--group", left, "--topic", filled, "--to-offset", "3", "--execute")
    where = ["--topic", filled, "--group", left, "--command-property", f"group.protocol={protocol}"]
    shown = ["--formatter-property", "print.offset=true", "--formatter-property", "print.partition=true"]
    answer = tool("ConsoleConsumer", *where, *shown, "--max-messages", "9", "--timeout-ms", "20000")
    values = [f"Partition:0\tOffset:{offset}\tvalue {offset}" for offset in range(3, 10)]
    values += [f"Partition:1\tOffset:{offset}\tvalue {offset}" for offset in range(3, 5)]
    assert sorted(answer.lines) == values
    assert committed(groups, left) == {0: "10", 1: "5"}


# Deleting


def test_delete(groups: Tool, join: Join, group: str) -> None:
    with join():
        refused = groups("--delete", "--group", group)
        assert f"Group '{group}' could not be deleted" in refused.out and "GroupNotEmptyException" in refused.out
    assert groups("--delete", "--group", group).out == (
        f"Deletion of requested consumer groups ('{group}') was successful.\n"
    )
    assert group not in groups("--list").lines
    again = groups("--delete", "--group", group)
    assert f"Group '{group}' could not be deleted" in again.out and "GroupIdNotFoundException" in again.out


def test_delete_offsets(groups: Tool, join: Join, group: str, filled: str) -> None:
    with join():
        refused = groups("--delete-offsets", "--group", group, "--topic", filled)
        assert refused.out.count("GroupSubscribedToTopicException") == len(SIZES)
    deleted = groups("--delete-offsets", "--group", group, "--topic", f"{filled}:0")
    assert f"Request succeeded for deleting offsets from group {group}." in deleted.out
    assert re.search(rf"^{filled}\s+0\s+Successful", deleted.out, re.MULTILINE)
    assert committed(groups, group) == {1: "5"}
    unknown = groups("--delete-offsets", "--group", group, "--topic", "no-such-topic")
    assert "UnknownTopicOrPartitionException" in unknown.out
    assert "GroupIdNotFoundException" in groups("--delete-offsets", "--group", "no-such-group", "--topic", filled).out
