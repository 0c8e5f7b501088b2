"""Stories that random runs have told: what went wrong in them must not happen again."""

from __future__ import annotations

import asyncio

import pytest

from penstock.base.errors import Error
from penstock.testing.sim_cluster_scenario import WHERE, ClusterScenario
from penstock.wire.messages.k21_delete_records import (
    DeleteRecordsRequest,
    DeleteRecordsRequestPartition,
    DeleteRecordsRequestTopic,
)

pytestmark = pytest.mark.sim


def _deletion(offset: int) -> DeleteRecordsRequest:
    part = DeleteRecordsRequestPartition(partition_index=WHERE.partition, offset=offset)
    topic = DeleteRecordsRequestTopic(name=WHERE.topic, partitions=[part])
    return DeleteRecordsRequest(topics=[topic], timeout_ms=5000)


def test_deleted_records_do_not_come_back_with_the_next_leader() -> None:
    async def script(scenario: ClusterScenario) -> None:
        for _ in range(5):
            await scenario.write()
        follower = next(each for each in scenario.cluster.brokers if each is not scenario.leader)
        answer = (await scenario.ask(follower, _deletion(3))).topics[0].partitions[0]
        assert answer.error_code == Error.NOT_LEADER_OR_FOLLOWER
        answer = (await scenario.ask(scenario.leader, _deletion(4))).topics[0].partitions[0]
        assert (answer.error_code, answer.low_watermark) == (Error.NONE, 4)
        starts = [
            partition.log.start_offset
            for broker in scenario.cluster.brokers
            if (partition := scenario.partition(broker)) is not None
        ]
        assert starts == [4, 4, 4]

    ClusterScenario(1, has_watchers=True).run(script)


def test_a_deletion_waits_for_replicas_that_do_not_hear_of_it() -> None:
    async def script(scenario: ClusterScenario) -> None:
        for _ in range(3):
            await scenario.write()
        leader = scenario.leader
        paused = next(each for each in scenario.cluster.brokers if each is not leader)
        assert paused.process is not None
        paused.process.pause()
        deleting = asyncio.ensure_future(scenario.ask(leader, _deletion(2)))
        await asyncio.sleep(0.5)
        assert not deleting.done()
        paused.process.resume()
        assert (await deleting).topics[0].partitions[0].low_watermark == 2

    ClusterScenario(2, has_watchers=True).run(script)
