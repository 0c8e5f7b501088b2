"""A simulated administrator of a cluster: asks any broker, while all of them fail, for whatever administrators ask for.

Topics of its own come, grow and go; of each it is known at the end whether it must be there, must not, or may be (an
answer was lost). To the topics under load it does what must not disturb anybody: it elects preferred leaders, moves
replicas, changes settings.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from enum import Enum

from penstock.base.errors import ApiError, Error
from penstock.base.identifiers import TopicPartition
from penstock.testing.sim_client import SimClient
from penstock.testing.sim_cluster_client import ClusterClient
from penstock.wire.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicsRequestTopic
from penstock.wire.messages.k37_create_partitions import CreatePartitionsRequest, CreatePartitionsRequestTopic
from penstock.wire.messages.k43_elect_leaders import ElectLeadersRequest, ElectLeadersRequestTopic
from penstock.wire.messages.k44_incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestConfig,
    IncrementalAlterConfigsRequestResource,
)
from penstock.wire.messages.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsRequestPartition,
    AlterPartitionReassignmentsRequestTopic,
)

ANSWER_WITHIN_S = 8.0
TIMEOUT_MS = 5000
BACK_OFF_S = 0.2
TOPIC, SET = 2, 0
TOPICS_MAX = 6

#: What an administrator may hear from a cluster in trouble, beside what can be retried.
EXPECTED = (
    Error.INVALID_REPLICATION_FACTOR,
    Error.INVALID_REPLICA_ASSIGNMENT,
    Error.NO_REASSIGNMENT_IN_PROGRESS,
    Error.TOPIC_ALREADY_EXISTS,
    Error.INVALID_PARTITIONS,
)


class Told(Enum):
    """What is known of a topic."""

    THERE = "there"
    GONE = "gone"
    NOT_SURE = "not sure"


class ClusterAdmin:
    """See the head of this file."""

    def __init__(
        self, client: ClusterClient, brokers: int, partitions: Sequence[TopicPartition], replicas: int
    ) -> None:
        self.problems: list[str] = []
        self.operations = 0
        self.pause_s_max = 1.5
        self.is_finishing = False
        self.min_isr_values = ["2"]
        self._client = client
        self._random = client.world.random
        self._brokers = brokers
        self._partitions = list(partitions)
        self._replicas = replicas
        self._topics: dict[str, Told] = {}
        self._sizes: dict[str, int] = {}
        self._producer_ids: set[int] = set()

    async def run(self) -> None:
        works: list[Callable[[SimClient], Awaitable[None]]] = [
            self._create,
            self._create,
            self._delete,
            self._grow,
            self._elect,
            self._elect,
            self._reassign,
            self._reassign,
            self._cancel_reassignments,
            self._configure,
            self._take_producer_id,
        ]
        while not self.is_finishing:
            await asyncio.sleep(self._random.random() * self.pause_s_max)
            work = works[self._random.randrange(len(works))]
            try:
                async with asyncio.timeout(ANSWER_WITHIN_S):
                    await work(await self._client.any())
                self.operations += 1
            except OSError:
                self._client.start_over()
                await asyncio.sleep(BACK_OFF_S)
            except ApiError as error:
                if not error.error.retriable and error.error not in EXPECTED:
                    self.problems.append(f"administrator: unexpected {error.error.name} to {work.__name__}: {error}")

    # ── topics of its own ────────────────────────────────────────────────────────────────────────────────────────

    async def _create(self, client: SimClient) -> None:
        if sum(told is not Told.GONE for told in self._topics.values()) >= TOPICS_MAX:
            return
        topic = f"admin-{len(self._topics)}"
        self._topics[topic] = Told.NOT_SURE
        self._sizes[topic] = size = 1 + self._random.randrange(3)
        await client.create_topic(topic, size, replicas=1 + self._random.randrange(self._replicas))
        self._topics[topic] = Told.THERE

    def _some_topic(self) -> str | None:
        there = [topic for topic, told in self._topics.items() if told is Told.THERE]
        return there[self._random.randrange(len(there))] if there else None

    async def _delete(self, client: SimClient) -> None:
        topic = self._some_topic()
        if topic is not None:
            self._topics[topic] = Told.NOT_SURE
            request = DeleteTopicsRequest(topics=[DeleteTopicsRequestTopic(name=topic)], timeout_ms=TIMEOUT_MS)
            _raise_for((await client.call(request)).responses[0].error_code)
            self._topics[topic] = Told.GONE

    async def _grow(self, client: SimClient) -> None:
        topic = self._some_topic()
        if topic is not None:
            self._sizes[topic] += 1
            row = CreatePartitionsRequestTopic(name=topic, count=self._sizes[topic], assignments=None)
            request = CreatePartitionsRequest(topics=[row], timeout_ms=TIMEOUT_MS, validate_only=False)
            _raise_for((await client.call(request)).results[0].error_code)

    # ── topics under load ────────────────────────────────────────────────────────────────────────────────────────

    async def _elect(self, client: SimClient) -> None:
        """The preferred leaders, for all partitions."""
        await elect_preferred(client)

    async def _reassign(self, client: SimClient) -> None:
        """Other replicas, or the same in another order."""
        where = self._partitions[self._random.randrange(len(self._partitions))]
        ids = list(range(1, self._brokers + 1))
        chosen = [ids.pop(self._random.randrange(len(ids))) for _ in range(min(self._replicas, self._brokers))]
        await reassign(client, where, chosen)

    async def _cancel_reassignments(self, client: SimClient) -> None:
        where = self._partitions[self._random.randrange(len(self._partitions))]
        await reassign(client, where, None)

    async def _configure(self, client: SimClient) -> None:
        """Settings that brokers and the controller must take over."""
        where = self._partitions[self._random.randrange(len(self._partitions))]
        min_isr = self.min_isr_values[self._random.randrange(len(self.min_isr_values))]
        changes = {"min.insync.replicas": min_isr, "segment.ms": str(500 + self._random.randrange(10_000))}
        rows = [
            IncrementalAlterConfigsRequestConfig(name=name, config_operation=SET, value=value)
            for name, value in changes.items()
        ]
        resource = IncrementalAlterConfigsRequestResource(resource_type=TOPIC, resource_name=where.topic, configs=rows)
        answer = await client.call(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False))
        _raise_for(answer.responses[0].error_code)

    async def _take_producer_id(self, client: SimClient) -> None:
        producer_id = await client.init_producer_id()
        if producer_id in self._producer_ids:
            self.problems.append(f"administrator: producer id {producer_id} was given twice")
        self._producer_ids.add(producer_id)

    # ── the end ──────────────────────────────────────────────────────────────────────────────────────────────────

    async def check(self, client: ClusterClient) -> None:
        """Compare what it was told with what is there, at a time when nothing goes on any more."""
        answer = await client.look()
        found = {topic.name: len(topic.partitions) for topic in answer.topics}
        for topic, told in self._topics.items():
            if told is not Told.NOT_SURE and (topic in found) is not (told is Told.THERE):
                self.problems.append(f"topic {topic} should be {told.value}")


async def elect_preferred(client: SimClient, where: TopicPartition | None = None) -> None:
    """Have the preferred replica lead a partition, or all of them."""
    rows = None if where is None else [ElectLeadersRequestTopic(topic=where.topic, partitions=[where.partition])]
    answer = await client.call(ElectLeadersRequest(election_type=0, topic_partitions=rows, timeout_ms=TIMEOUT_MS))
    _raise_for(answer.error_code)


async def reassign(client: SimClient, where: TopicPartition, replicas: list[int] | None) -> None:
    """Give a partition other replicas, or the same in another order; None cancels."""
    part = AlterPartitionReassignmentsRequestPartition(partition_index=where.partition, replicas=replicas)
    row = AlterPartitionReassignmentsRequestTopic(name=where.topic, partitions=[part])
    answer = await client.call(AlterPartitionReassignmentsRequest(topics=[row], timeout_ms=TIMEOUT_MS), 0)
    _raise_for(answer.error_code or answer.responses[0].partitions[0].error_code)


def _raise_for(code: int) -> None:
    if code:
        raise ApiError(Error(code))
