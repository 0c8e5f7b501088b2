"""What a look at a cluster is judged to be, and how it is shown."""

from __future__ import annotations

import json

import pytest

from penstock.cli.cluster_health import BrokerState, Health, State, health_document, judge, progress_of
from penstock.cli.cluster_status import headline, print_status
from penstock.cli.cluster_survey import LogFolder, Survey

from .surveys import broker, move, partition, survey

ORDERS = ("orders", 0)
BILLS = ("bills", 0)


def shown(health: Health, capsys: pytest.CaptureFixture[str]) -> list[str]:
    print_status(health)
    return capsys.readouterr().out.splitlines()


def test_a_healthy_cluster(capsys: pytest.CaptureFixture[str]) -> None:
    health = judge(survey({ORDERS: partition("123"), ("orders", 1): partition("231")}))
    assert health.state == State.HEALTHY
    assert headline(health) == "cluster c: healthy, 3 brokers, controller 1, 2 partitions in 1 topic"
    lines = shown(health, capsys)
    assert lines[2] == "1\thost-1:9092\t-\tok\t1\t1\t2\t0\t-\t0 B\t-"
    assert lines[6:] == [
        "PARTITIONS\tOFFLINE\tUNDER-REPLICATED\tUNDER MIN ISR\tNOT PREFERRED\tREASSIGNING",
        "2" + "\t0" * 5,
    ]


def test_an_empty_cluster_without_a_controller(capsys: pytest.CaptureFixture[str]) -> None:
    empty = survey({})
    empty.controller_id = None
    empty.remarks = ["not known"]
    health = judge(empty)
    assert headline(health) == "cluster c: degraded, 3 brokers, no controller, 0 partitions in 0 topics"
    assert shown(health, capsys)[-1] == "not known"
    assert health_document(health)["remarks"] == ["not known"]


def test_no_leader_is_offline(capsys: pytest.CaptureFixture[str]) -> None:
    health = judge(survey({ORDERS: partition("12", "1", leader=None), BILLS: partition("12")}))
    assert (health.state, health.offline, health.not_preferred) == (State.OFFLINE, [ORDERS], [])
    assert "offline: orders:0" in shown(health, capsys)


@pytest.mark.parametrize(("min_isr", "under"), [(1, []), (2, [ORDERS]), (5, [ORDERS])])
def test_too_few_in_sync(min_isr: int, under: list[tuple[str, int]]) -> None:
    """A topic with one replica cannot have more in sync than one, whatever its setting says."""
    health = judge(survey({ORDERS: partition("123", "1"), BILLS: partition("1")}, min_isr=min_isr))
    assert (health.state, health.under_replicated, health.under_min_isr) == (State.DEGRADED, [ORDERS], under)


def test_what_is_only_coming_is_not_missing(capsys: pytest.CaptureFixture[str]) -> None:
    found = survey(
        {ORDERS: partition("1234", "123")}, *map(broker, (1, 2, 3, 4)), moves={ORDERS: move("1234", "4", "1")}
    )
    found.brokers[1].sizes[ORDERS] = 4096
    found.brokers[4].sizes[ORDERS] = 1024
    health = judge(found)
    assert (health.state, health.under_replicated) == (State.HEALTHY, [])
    assert "orders\t0\t4\t1\t1.0 KiB of 4.0 KiB (25 %)" in shown(health, capsys)


def test_the_progress_of_a_move() -> None:
    found = survey({ORDERS: partition("123", "12")}, moves={ORDERS: move("123", "23")})
    assert progress_of(found, ORDERS, found.reassignments[ORDERS]) == (0, 0)
    found.brokers[1].sizes[ORDERS] = 100
    found.brokers[3].sizes[ORDERS] = 250
    assert progress_of(found, ORDERS, found.reassignments[ORDERS]) == (200, 200)
    found.brokers[3].sizes[ORDERS] = 40
    assert progress_of(found, ORDERS, found.reassignments[ORDERS]) == (140, 200)


def test_lag_is_counted_to_the_leaders_end() -> None:
    found = survey({ORDERS: partition("123", "12", leader=2), BILLS: partition("31", "3")})
    found.brokers[1].ends = {ORDERS: 90, BILLS: 5}
    found.brokers[2].ends = {ORDERS: 100}
    found.brokers[3].ends = {ORDERS: 107}
    health = judge(found)
    assert [each.lag_max for each in health.brokers] == [10, 0, 0]
    assert health.lag_max == 10
    assert [(each.place, each.broker_id, each.lag) for each in health.behind] == [(BILLS, 1, None), (ORDERS, 3, 0)]
    assert health.not_preferred == [ORDERS]


def test_brokers_that_are_not_well(capsys: pytest.CaptureFixture[str]) -> None:
    brokers = [broker(1), broker(2, silence="no answer"), broker(3, away=True), broker(4)]
    brokers[0].folders = [LogFolder("/a", 10, 4), LogFolder("/b", 10, 2)]
    brokers[3].folders = [LogFolder("/c", None, None, "offline")]
    health = judge(survey({ORDERS: partition("14")}, *brokers))
    states = [each.state for each in health.brokers]
    assert states == [BrokerState.OK, BrokerState.SILENT, BrokerState.AWAY, BrokerState.DISK]
    assert (health.state, health.answering, health.brokers[0].free_bytes) == (State.DEGRADED, 2, 2)
    lines = shown(health, capsys)
    assert "broker 2: no answer" in lines
    assert "broker 4: /c: offline" in lines
    assert "3\t-\t-\taway\t0\t0\t0\t0\t-\t-\t-" in lines


def of_one_away(replicas: str, isr: str) -> Survey:
    return survey({ORDERS: partition(replicas, isr)}, broker(1), broker(2, away=True))


def test_nobody_misses_a_broker_that_held_nothing() -> None:
    assert judge(of_one_away("1", "1")).state == State.HEALTHY
    assert judge(of_one_away("12", "12")).state == State.DEGRADED


def test_long_lists_are_cut(capsys: pytest.CaptureFixture[str]) -> None:
    lines = shown(judge(survey({("orders", number): partition("12", "1") for number in range(25)})), capsys)
    assert "under-replicated: orders:0,1,2,3,4,5,6,7,8,9 … and 15 more" in lines


def test_the_document_is_json() -> None:
    found = survey({ORDERS: partition("123", "12", leader=2)}, moves={ORDERS: move("123", "3")})
    document = json.loads(json.dumps(health_document(judge(found))))
    assert document["not_preferred"] == [{"topic": "orders", "partition": 0, "leader": 2, "preferred": 1}]
    assert document["out_of_sync"] == [{"topic": "orders", "partition": 0, "broker": 3, "lag": None}]
    assert document["reassignments"][0]["target"] == [1, 2, 3]
    assert document["brokers"][0]["controller"] and not document["brokers"][1]["controller"]
