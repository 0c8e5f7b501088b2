"""Plans for moving copies: files, spreading, emptying a broker, another replication factor; and limits on them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.failure import ExitCode, Failure
from penstock.cli.move_plans import emptying_plan, factor_plan, spread_plan
from penstock.cli.moves import changes_in, check_assignment
from penstock.cli.reassignments import assignment_document, parse_assignment, read_assignment
from penstock.cli.throttles import FOLLOWER_REPLICAS, LEADER_REPLICAS, throttled_replicas

from .surveys import broker, move, partition, survey

ORDERS = ("orders", 0)


# Files


def test_a_file_there_and_back(tmp_path: Path) -> None:
    assignment = {("b", 1): (3, 1), ("a", 0): (1, 2, 3)}
    file = tmp_path / "plan.json"
    file.write_text(json.dumps(assignment_document(assignment)))
    assert read_assignment(file) == assignment
    assert [row["topic"] for row in assignment_document(assignment)["partitions"]] == ["a", "b"]


def test_what_other_tools_write_is_understood() -> None:
    row = {"topic": "a", "partition": 0, "replicas": [1, 2], "log_dirs": ["any", "any"]}
    assert parse_assignment({"partitions": [row]}, "x") == {("a", 0): (1, 2)}


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], "is no reassignment"),
        ({"version": 1}, "is no reassignment"),
        ({"version": 2, "partitions": []}, "version 2"),
        ({"version": 1, "partitions": []}, "has no partitions"),
        ({"partitions": [{"topic": "a", "partition": 0}]}, "a row needs a topic"),
        ({"partitions": [{"topic": "a", "partition": 0, "replicas": []}]}, "a row needs a topic"),
        ({"partitions": [{"topic": "a", "partition": 0, "replicas": [1, "x"]}]}, "a row needs a topic"),
        ({"partitions": [{"topic": "a", "partition": 0, "replicas": [1], "log_dirs": ["/d"]}]}, "log directories"),
        ({"partitions": [{"topic": "a", "partition": 0, "replicas": [1]}] * 2}, "twice"),
    ],
)
def test_files_that_are_none(document: Any, message: str) -> None:
    with pytest.raises(Failure, match=message) as failure:
        parse_assignment(document, "plan.json")
    assert failure.value.code == ExitCode.USAGE


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "bad").write_text("{")
    for name in ("bad", "missing"):
        with pytest.raises(Failure, match="cannot read the reassignment"):
            read_assignment(tmp_path / name)


# Plans


def test_what_is_there_already_does_not_move() -> None:
    found = survey(
        {ORDERS: partition("12"), ("orders", 1): partition("123", "12")}, moves={("orders", 1): move("123", "3", "2")}
    )
    wanted = {ORDERS: (1, 2), ("orders", 1): (1, 3)}
    assert changes_in(found, wanted) == {}
    assert changes_in(found, {ORDERS: (2, 1)}) == {ORDERS: (2, 1)}


@pytest.mark.parametrize(
    ("place", "replicas", "message"),
    [
        (("orders", 7), (1,), "there is no partition 7 of topic 'orders'"),
        (ORDERS, (1, 1), "twice"),
        (ORDERS, (1, 9), "there is no broker 9: the cluster has 1, 2"),
        (ORDERS, (4,), "there is no broker 4"),
    ],
)
def test_assignments_that_cannot_be(place: tuple[str, int], replicas: tuple[int, ...], message: str) -> None:
    found = survey({ORDERS: partition("13", "1")}, broker(1), broker(2), broker(3, away=True), broker(4, away=True))
    check_assignment(found, {ORDERS: (3, 2)})
    with pytest.raises(Failure, match=message):
        check_assignment(found, {place: replicas})


def test_spreading_to_a_new_broker() -> None:
    found = survey({("orders", number): partition("12") for number in range(4)} | {("bills", 0): partition("12")})
    plan = spread_plan(found, ["orders"])
    assert {place[0] for place in plan} == {"orders"}
    assert sum(3 in replicas for replicas in plan.values()) in (2, 3)
    assert len(spread_plan(found, None)) == 5
    with pytest.raises(Failure, match="did you mean 'orders'"):
        spread_plan(found, ["ordres"])


def test_emptying_a_broker_looks_at_racks() -> None:
    brokers = [broker(1, rack="a"), broker(2, rack="b"), broker(3, rack="a"), broker(4, rack="b")]
    found = survey({("orders", number): partition("12") for number in range(3)}, *brokers)
    assert set(emptying_plan(found, 2).values()) == {(1, 4)}
    assert set(emptying_plan(found, 1).values()) == {(3, 2)}


def test_a_broker_that_is_gone_can_be_emptied() -> None:
    found = survey({ORDERS: partition("12", "1")}, broker(1), broker(2, away=True), broker(3))
    assert emptying_plan(found, 2) == {ORDERS: (1, 3)}


def test_brokers_that_cannot_be_emptied() -> None:
    found = survey({ORDERS: partition("123")})
    with pytest.raises(Failure, match=r"add a broker first.*topic alter orders --replication-factor 2"):
        emptying_plan(found, 3)
    with pytest.raises(Failure, match="there is no broker 7"):
        emptying_plan(found, 7)
    with pytest.raises(Failure, match="is the only one"):
        emptying_plan(survey({ORDERS: partition("1")}, broker(1)), 1)


def test_more_and_fewer_copies() -> None:
    found = survey({ORDERS: partition("1"), ("bills", 0): partition("123", "13", leader=3)})
    assert [*factor_plan(found, "orders", 3).values()] == [(1, 2, 3)]
    assert factor_plan(found, "bills", 2) == {("bills", 0): (1, 3)}, "what is not in sync goes first"
    assert factor_plan(found, "bills", 3) == {("bills", 0): (1, 2, 3)}
    with pytest.raises(Failure, match="the cluster has 3 brokers"):
        factor_plan(found, "orders", 4)


# Limits


def test_the_replicas_that_are_limited() -> None:
    found = survey(
        {ORDERS: partition("12"), ("orders", 1): partition("234", "23"), ("bills", 0): partition("12")},
        *map(broker, (1, 2, 3, 4)),
        moves={("orders", 1): move("234", "4", "2")},
    )
    limits = throttled_replicas(found, {ORDERS: (3, 1), ("orders", 1): (3, 4), ("bills", 0): (2, 1)})
    assert limits == {"orders": {LEADER_REPLICAS: "0:1,0:2,1:2,1:3", FOLLOWER_REPLICAS: "0:3,1:4"}}
