"""Simulated clients of a cluster: producers and readers that follow the leaders, whatever happens to them.

- An `IdempotentProducer` has a few batches in flight and sends them again, in order, with the same sequence numbers,
  until each is acknowledged. It must never be told that something before is missing.
- A `PlainProducer` sends each message once, with acks 0, 1 or all, and never again. With acks=all what is acknowledged
  must stay; with fewer it may be lost, but nobody who read it may see something else there.
- A `ClusterReader` reads a partition from its beginning on, from the leader or from whom the leader names.
- A `Trimmer` writes to a partition of its own and deletes what is old: nothing deleted comes back, nothing else goes.
- An `EndWatcher` asks where partitions end: never before what was known a while before it asked. (A leader that is cut
  off from the coordination service goes on while its followers fetch from it, and a while longer.)

All of them write what they are told into a `ClientHistory`.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter

from penstock.base.errors import ApiError, Error
from penstock.base.identifiers import TopicPartition
from penstock.testing.histories.client_history import ClientHistory
from penstock.testing.sim_client import FETCH_VERSION, PRODUCE_VERSION, SimClient, batch_of, batches_of, produce_request
from penstock.testing.sim_cluster_client import ClusterClient
from penstock.testing.sim_routes import MOVED
from penstock.wire.batch import CONTROL
from penstock.wire.messages.k00_produce import ProduceResponsePartition
from penstock.wire.messages.k01_fetch import (
    FetchRequest,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponsePartition,
)
from penstock.wire.messages.k02_list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
)
from penstock.wire.messages.k21_delete_records import (
    DeleteRecordsRequest,
    DeleteRecordsRequestPartition,
    DeleteRecordsRequestTopic,
)
from penstock.wire.records import read_records

REQUEST_WITHIN_S = 4.0
BACK_OFF_S = 0.1
IN_FLIGHT_MAX = 5
ALL = -1
LEADER = -1  # where to read


class Knowledge:
    """What is known of the ends of partitions by anybody, and what is wrong with what was told."""

    def __init__(self, history: ClientHistory, on_acknowledged: Callable[[TopicPartition, int], None]) -> None:
        self.history = history
        self.problems: list[str] = []
        self.operations = 0
        self.stale_s_max = 0.0
        """How long a leader may go on that was replaced without knowing it, as long as nothing is acknowledged."""
        self._on_acknowledged = on_acknowledged
        self._now = history.clock
        self._ends: dict[TopicPartition, list[tuple[float, int]]] = {}

    def end_of(self, where: TopicPartition) -> int:
        """Whoever is asked now must know that a partition does not end before this."""
        known = self._ends.get(where, [])
        at = bisect_right(known, self._now() - self.stale_s_max, key=itemgetter(0))
        return known[at - 1][1] if at else 0

    def learned(self, where: TopicPartition, end_offset: int) -> None:
        known = self._ends.setdefault(where, [(0.0, 0)])
        if end_offset > known[-1][1]:
            known.append((self._now(), end_offset))

    def acknowledged(self, where: TopicPartition, values: Sequence[bytes], base_offset: int) -> None:
        """Messages were acknowledged by everybody who matters."""
        self._on_acknowledged(where, base_offset + len(values))
        for index, value in enumerate(values):
            self.history.acked(value, base_offset + index)
        self.learned(where, base_offset + len(values))


class ClusterWorker(ABC):
    """One client of one partition: rounds without end, each with a limit."""

    def __init__(self, client: ClusterClient, name: str, where: TopicPartition, knowledge: Knowledge) -> None:
        self.world = client.world
        self.client = client
        self.name = name
        self.where = where
        self.knowledge = knowledge
        self.errors: dict[Error, int] = {}
        self.acknowledged = 0
        self.pause_s_max = 0.1
        self.is_finishing = False

    @property
    def is_done(self) -> bool:
        return self.is_finishing

    async def run(self) -> None:
        """Go on until there is nothing left to do after `is_finishing` was set."""
        while not self.is_done:
            client: SimClient | None = None
            try:
                async with asyncio.timeout(REQUEST_WITHIN_S):
                    client = await self.client.leader(self.where)
                    await self.round(client)
            except OSError:  # a timeout is one, too
                if client is not None:
                    client.close()
                self.client.look_again(self.where)
                await asyncio.sleep(BACK_OFF_S)
            except ApiError as error:
                self._note(error.error)
                await asyncio.sleep(BACK_OFF_S)
            await asyncio.sleep(self.world.random.random() * self.pause_s_max)

    @abstractmethod
    async def round(self, client: SimClient) -> None:
        """One exchange with the leader."""

    def _note(self, error: Error) -> None:
        self.errors[error] = self.errors.get(error, 0) + 1
        if error in MOVED:
            self.client.look_again(self.where)

    def problem(self, text: str) -> None:
        self.knowledge.problems.append(f"{self.name}: {text}")


@dataclass(slots=True)
class Unacknowledged:
    """A batch on its way; the how-manieth it is."""

    number: int
    values: list[bytes]
    batch: bytes


class IdempotentProducer(ClusterWorker):
    """See the head of this file."""

    producer_id = -1

    def __init__(self, client: ClusterClient, name: str, where: TopicPartition, knowledge: Knowledge) -> None:
        super().__init__(client, name, where, knowledge)
        self._sequence = 0
        self._batches = 0
        self._unacknowledged: deque[Unacknowledged] = deque()

    @property
    def is_done(self) -> bool:
        return self.is_finishing and not self._unacknowledged

    async def round(self, client: SimClient) -> None:
        """Send everything that is not acknowledged, with some new batches after it, and look at all answers."""
        if self.producer_id < 0:
            self.producer_id = await client.init_producer_id()
        room = 1 + self.world.random.randrange(IN_FLIGHT_MAX)
        while not self.is_finishing and (
            not self._unacknowledged or self._batches - self._unacknowledged[0].number < room
        ):
            self._unacknowledged.append(self._next())
        answers = []
        for item in self._unacknowledged:
            request = produce_request(
                self.where.topic, self.where.partition, item.batch, ALL, int(REQUEST_WITHIN_S * 900)
            )
            answers.append(client.send(request, PRODUCE_VERSION))
        for item, answer in list(zip(self._unacknowledged, answers, strict=True)):
            row = (await answer).responses[0].partition_responses[0]
            if self._unacknowledged:  # otherwise all is given up
                self._take(item, row)

    def _next(self) -> Unacknowledged:
        count = 1 + self.world.random.randrange(3)
        values = [
            self.knowledge.history.sending(
                self.name, self._sequence + index, self.where, padding_bytes=self.world.random.randrange(200)
            )
            for index in range(count)
        ]
        batch = batch_of(
            values,
            timestamp_ms=self.world.clock.wall_ms(),
            producer_id=self.producer_id,
            producer_epoch=0,
            base_sequence=self._sequence,
        )
        self._sequence += count
        self._batches += 1
        return Unacknowledged(self._batches - 1, values, batch)

    def _take(self, item: Unacknowledged, row: ProduceResponsePartition) -> None:
        """The oldest that is not acknowledged is within the five batches that a broker remembers."""
        self.knowledge.operations += 1
        error = Error(row.error_code)
        is_first = bool(self._unacknowledged) and self._unacknowledged[0] is item
        if error is Error.NONE:  # also after one whose answer came too early: it is asked for again
            self._unacknowledged.remove(item)
            self.acknowledged += 1
            self.knowledge.acknowledged(self.where, item.values, row.base_offset)
            return
        self._note(error)
        is_expected = error.retriable or (error is Error.OUT_OF_ORDER_SEQUENCE_NUMBER and not is_first)
        if not is_expected:
            self.problem(f"{item.values[0]!r}: unexpected {error.name}: {row.error_message}")
            self._unacknowledged.clear()
            self.is_finishing = True


class PlainProducer(ClusterWorker):
    """See the head of this file."""

    def __init__(
        self, client: ClusterClient, name: str, where: TopicPartition, knowledge: Knowledge, acks: int = ALL
    ) -> None:
        super().__init__(client, name, where, knowledge)
        self._acks = acks
        self._number = 0
        self._connections = 0
        self._connection: SimClient | None = None

    async def round(self, client: SimClient) -> None:
        if client is not self._connection:  # what is left on the old connection may overtake
            self._connection = client
            self._connections += 1
        self._number += 1
        name = f"{self.name}#{self._connections}"
        value = self.knowledge.history.sending(name, self._number, self.where)
        batch = batch_of([value], timestamp_ms=self.world.clock.wall_ms())
        request = produce_request(
            self.where.topic, self.where.partition, batch, self._acks, int(REQUEST_WITHIN_S * 900)
        )
        if self._acks == 0:
            client.send_unanswered(request, PRODUCE_VERSION)
            return
        row = (await client.call(request, PRODUCE_VERSION)).responses[0].partition_responses[0]
        self.knowledge.operations += 1
        error = Error(row.error_code)
        if error is not Error.NONE:
            self._note(error)
            if not error.retriable:
                self.problem(f"unexpected {error.name}: {row.error_message}")
        elif self._acks == ALL:
            self.acknowledged += 1
            self.knowledge.acknowledged(self.where, [value], row.base_offset)


class ClusterReader(ClusterWorker):
    """See the head of this file. One with a rack is sent to a replica there, and back when that cannot serve it."""

    def __init__(
        self, client: ClusterClient, name: str, where: TopicPartition, knowledge: Knowledge, rack: str = ""
    ) -> None:
        super().__init__(client, name, where, knowledge)
        self.position = 0
        self._rack = rack
        self._replica = LEADER
        self._stretch = knowledge.history.reading(name, where, 0)

    async def round(self, client: SimClient) -> None:
        replica, self._replica = self._replica, LEADER  # unless all goes well
        if replica != LEADER:
            client = await self.client.node(replica)
        epoch = self.client.epoch_of(self.where) if self.world.random.randrange(2) else -1
        part = FetchRequestPartition(
            partition=self.where.partition,
            current_leader_epoch=epoch,
            fetch_offset=self.position,
            partition_max_bytes=1 + self.world.random.randrange(4096),
        )
        request = FetchRequest(
            max_wait_ms=self.world.random.randrange(500),
            min_bytes=1,
            rack_id=self._rack,
            topics=[FetchRequestTopic(topic=self.where.topic, partitions=[part])],
        )
        answer = await client.call(request, FETCH_VERSION)
        if answer.error_code:
            raise ApiError(Error(answer.error_code))
        row = answer.responses[0].partitions[0]
        self.knowledge.operations += 1
        error = Error(row.error_code)
        if error is Error.OFFSET_OUT_OF_RANGE and replica == LEADER:
            self.problem(f"offset {self.position}, up to where it has read, is said to be out of range")
        if error is not Error.NONE:
            raise ApiError(error)
        self._take(row)
        self._replica = row.preferred_read_replica if row.preferred_read_replica != LEADER else replica
        if self.world.random.randrange(20) == 0:
            self._replica = LEADER  # now and then the leader is asked who is best

    def _take(self, row: FetchResponsePartition) -> None:
        for batch in batches_of(row):
            if not batch.header.attributes & CONTROL:
                for record in read_records(memoryview(batch.content)):
                    if record.offset >= self.position:
                        self.knowledge.history.saw(self._stretch, record.offset, record.value)
            self.position = max(self.position, batch.header.next_offset)
        self.knowledge.learned(self.where, self.position)


class Trimmer(ClusterWorker):
    """See the head of this file."""

    def __init__(self, client: ClusterClient, name: str, where: TopicPartition, knowledge: Knowledge) -> None:
        super().__init__(client, name, where, knowledge)
        self.start_offset = 0  # what is before it was deleted, as far as was told
        self._asked_offset = 0  # what is before it may be deleted
        self._values: dict[int, bytes] = {}
        self._number = 0

    async def round(self, client: SimClient) -> None:
        if self._values and self.world.random.randrange(4) == 0:
            await self._delete(client)
        else:
            await self._write(client)

    async def _write(self, client: SimClient) -> None:
        self._number += 1
        value = f"{self._number} of {self.name}".encode()
        answer = await client.produce(*self.where, batch_of([value]), timeout_ms=int(REQUEST_WITHIN_S * 900))
        if answer.error_code:
            raise ApiError(Error(answer.error_code))
        self.acknowledged += 1
        self._values[answer.base_offset] = value

    async def _delete(self, client: SimClient) -> None:
        offset = self.world.random.randrange(max(self._values) + 2)
        self._asked_offset = max(self._asked_offset, offset)
        part = DeleteRecordsRequestPartition(partition_index=self.where.partition, offset=offset)
        row = DeleteRecordsRequestTopic(name=self.where.topic, partitions=[part])
        request = DeleteRecordsRequest(topics=[row], timeout_ms=int(REQUEST_WITHIN_S * 900))
        answer = (await client.call(request)).topics[0].partitions[0]
        if answer.error_code:
            raise ApiError(Error(answer.error_code))
        self.start_offset = max(self.start_offset, answer.low_watermark)
        if answer.low_watermark < offset:
            self.problem(f"asked to delete what is before {offset}, it was told {answer.low_watermark}")

    async def check(self) -> None:
        """At the end: what is there, from where on; OSError or ApiError if that cannot be read now."""
        client = await self.client.leader(self.where)
        start_offset = await client.list_offset(*self.where, -2)
        if not self.start_offset <= start_offset <= self._asked_offset:
            self.problem(f"{self.where} starts at {start_offset}, not in {self.start_offset}..{self._asked_offset}")
        stored = {
            record.offset: record.value
            for batch in await client.read_all(*self.where, start_offset)
            for record in read_records(memoryview(batch.content))
        }
        for offset, value in self._values.items():
            if offset >= start_offset and stored.get(offset) != value:
                self.problem(f"{value!r} was acknowledged at {offset} of {self.where}, where {stored.get(offset)!r} is")


class EndWatcher(ClusterWorker):
    """See the head of this file."""

    async def round(self, client: SimClient) -> None:
        known = self.knowledge.end_of(self.where)
        part = ListOffsetsRequestPartition(partition_index=self.where.partition, timestamp=-1)
        row = ListOffsetsRequestTopic(name=self.where.topic, partitions=[part])
        answer = (await client.call(ListOffsetsRequest(replica_id=-1, topics=[row]))).topics[0].partitions[0]
        self.knowledge.operations += 1
        if answer.error_code:
            raise ApiError(Error(answer.error_code))
        if answer.offset < known:
            self.problem(f"{self.where} is said to end at {answer.offset}, but {known} was known before")
        self.knowledge.learned(self.where, answer.offset)
