"""The members of the benchmark's groups, against a real broker: both protocols, until everybody has a share."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from uuid import uuid4

import pytest

from bench import rebalances
from bench.members import Crowd, Topic
from penstock.testing.broker_process import BrokerProcess
from penstock.testing.raw_client import RawClient
from penstock.wire.messages import k03_metadata as k03
from penstock.wire.messages import k19_create_topics as k19

pytestmark = pytest.mark.clients

PARTITIONS = 7
WITHIN_S = 20


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path_factory.mktemp("members") / "data", settings=rebalances.SETTINGS) as broker:
        yield broker


@pytest.fixture
def topic(broker: BrokerProcess) -> Topic:
    name = f"members-{uuid4().hex[:8]}"
    with RawClient(broker.host, broker.port) as client:
        wanted = k19.CreateTopicsRequestTopic(name=name, num_partitions=PARTITIONS, replication_factor=1)
        client.call(k19.CreateTopicsRequest(topics=[wanted], timeout_ms=10_000))
        metadata = client.call(k03.MetadataRequest(topics=[k03.MetadataRequestTopic(name=name)]))
    return Topic(name, metadata.topics[0].topic_id, PARTITIONS)


@pytest.mark.parametrize("make", [rebalances.classic, rebalances.new])
def test_a_group_settles_whoever_comes_and_goes(
    broker: BrokerProcess, topic: Topic, make: rebalances.MakeMember
) -> None:
    rebalances.wait_for_coordinator(broker.port, topic.name)
    with contextlib.closing(Crowd(topic, lambda: make(broker.port, topic.name, topic))) as crowd:
        for _ in range(3):
            crowd.add()
        crowd.settle(-1, WITHIN_S)
        assert sorted(len(member.owned or ()) for member in crowd.members) == [2, 2, 3]
        before = crowd.members[0].round
        crowd.add()
        crowd.settle(before, WITHIN_S)
        assert sorted(len(member.owned or ()) for member in crowd.members) == [1, 2, 2, 2]
        gone, before = crowd.members[0], crowd.members[0].round
        crowd.finish_heartbeats()
        crowd.take_out(gone)
        gone.leave()
        crowd.settle(before, WITHIN_S)
        gone.close()
        assert sorted(len(member.owned or ()) for member in crowd.members) == [2, 2, 3]
        crowd.finish_heartbeats()


def test_the_figures_of_a_measurement(broker: BrokerProcess, topic: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rebalances, "MEMBERS", 3)
    figures = rebalances.rebalances(broker.port, topic.name, topic, rebalances.new, changes=2)
    assert 0 < figures["join_ms"] <= figures["join_max_ms"]
    assert 0 < figures["leave_ms"] <= figures["leave_max_ms"]
    assert figures["die_ms"] >= 0
