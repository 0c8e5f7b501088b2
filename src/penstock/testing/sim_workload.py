"""Simulated clients that do what real ones do, for ever, against a broker that fails under them.

A `SimProducer` is idempotent: a few batches in flight, all of them sent again in order after anything that went wrong,
with the same sequence numbers, until each is acknowledged. A `SimConsumer` follows all partitions of a topic with a
fetch session and long polls. Both write what they are told into a `History`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass

from penstock.base.errors import ApiError, Error
from penstock.base.identifiers import TopicPartition
from penstock.base.world import World
from penstock.testing.history import BatchName, History
from penstock.testing.sim_client import (
    PRODUCE_VERSION,
    SimClient,
    batch_of,
    batches_of,
    produce_request,
)
from penstock.wire.messages.k00_produce import ProduceResponsePartition
from penstock.wire.messages.k01_fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic, FetchResponse

REQUEST_TIMEOUT_S = 15.0
RECONNECT_S = 0.1
IN_FLIGHT_MAX = 5
SESSION_ERRORS = (Error.FETCH_SESSION_ID_NOT_FOUND, Error.INVALID_FETCH_SESSION_EPOCH)


@dataclass(slots=True)
class Unacknowledged:
    """A batch that is on its way."""

    name: BatchName
    batch: bytes


class SimWorker:
    """What both kinds share: a connection that is made again whenever it breaks."""

    def __init__(self, world: World, host: str, port: int, name: str, history: History) -> None:
        self._world = world
        self._host, self._port = host, port
        self.name = name
        self._history = history
        self._client: SimClient | None = None
        self.errors: dict[Error, int] = {}

    async def _connected(self) -> SimClient:
        while self._client is None or self._client.is_closed:
            try:
                async with asyncio.timeout(REQUEST_TIMEOUT_S):
                    self._client = await SimClient.connect(self._world, self._host, self._port, self.name)
            except OSError:
                await asyncio.sleep(RECONNECT_S)
        return self._client

    def _disconnect(self) -> None:
        if self._client is not None:
            self._client.close()
        self._client = None

    def _count(self, error: Error) -> None:
        self.errors[error] = self.errors.get(error, 0) + 1


class SimProducer(SimWorker):
    """An idempotent producer for one partition."""

    def __init__(
        self,
        world: World,
        host: str,
        port: int,
        name: str,
        history: History,
        partition: TopicPartition,
        pause_s_max: float = 0.1,
    ) -> None:
        super().__init__(world, host, port, name, history)
        self._partition = partition
        self._pause_s_max = pause_s_max
        self._is_finishing = False
        self._producer_id = -1
        self._sequence = 0
        self._number = 0
        self._unacknowledged: deque[Unacknowledged] = deque()

    async def run(self) -> None:
        """Produce, whatever happens, until `finish` was called and everything is acknowledged."""
        while not self._is_finishing or self._unacknowledged:
            try:
                async with asyncio.timeout(REQUEST_TIMEOUT_S):
                    await self._round(await self._connected())
            except (OSError, ApiError):  # a timeout is an OSError too
                self._disconnect()
                await asyncio.sleep(RECONNECT_S)
            await asyncio.sleep(self._world.random.random() * self._pause_s_max)

    def finish(self) -> None:
        """Send nothing new any more."""
        self._is_finishing = True

    async def _round(self, client: SimClient) -> None:
        """Send everything that is not acknowledged, with some new batches after it, and look at all answers."""
        if self._producer_id < 0:
            self._producer_id, self._sequence = await client.init_producer_id(), 0
        room = 1 + self._world.random.randrange(IN_FLIGHT_MAX)
        while not self._is_finishing and len(self._unacknowledged) < room:
            self._unacknowledged.append(self._next())
        asked_s = self._world.clock.monotonic()
        answers = []
        for item in self._unacknowledged:
            self._history.sending(self._partition, item.name, item.batch)
            request = produce_request(self._partition.topic, self._partition.partition, item.batch)
            answers.append(client.send(request, PRODUCE_VERSION))
        for item, answer in list(zip(self._unacknowledged, answers, strict=True)):
            row = (await answer).responses[0].partition_responses[0]
            self._take(item, row, asked_s)

    def _next(self) -> Unacknowledged:
        self._number += 1
        size = 1 + self._world.random.randrange(4)
        values = [
            f"{self.name} {self._number} {index} ".encode() + bytes(self._world.random.randrange(300))
            for index in range(size)
        ]
        batch = batch_of(
            values,
            timestamp_ms=self._world.clock.wall_ms(),
            producer_id=self._producer_id,
            producer_epoch=0,
            base_sequence=self._sequence,
        )
        self._sequence += size
        return Unacknowledged(BatchName(self.name, self._number), batch)

    def _take(self, item: Unacknowledged, row: ProduceResponsePartition, asked_s: float) -> None:
        error = Error(row.error_code)
        is_first = bool(self._unacknowledged) and self._unacknowledged[0] is item
        if error is Error.NONE:
            if is_first:
                self._unacknowledged.popleft()
                self._history.acked(self._partition, item.name, item.batch, row.base_offset, asked_s)
            else:
                self._history.problems.append(f"{item.name} was acknowledged although one before it was not")
            return
        self._count(error)
        if is_first and error is Error.OUT_OF_ORDER_SEQUENCE_NUMBER:
            # The broker has lost what came before. What is open stays unknown; begin anew.
            self._unacknowledged.clear()
            self._producer_id = -1
        elif not error.retriable and error is not Error.OUT_OF_ORDER_SEQUENCE_NUMBER:
            self._history.problems.append(f"{item.name}: unexpected {error.name}: {row.error_message}")


class SimConsumer(SimWorker):
    """Follows all partitions of a topic with one fetch session."""

    def __init__(
        self, world: World, host: str, port: int, name: str, history: History, topic: str, partitions: int
    ) -> None:
        super().__init__(world, host, port, name, history)
        self._topic = topic
        self._positions = dict.fromkeys(range(partitions), 0)
        self._session_id = 0
        self._epoch = 0
        self._changed = set(self._positions)
        self.resets = 0

    async def run(self) -> None:
        """Follow until cancelled."""
        while True:
            try:
                async with asyncio.timeout(REQUEST_TIMEOUT_S):
                    await self._round(await self._connected())
            except (OSError, ApiError):
                self._disconnect()
                self._begin_session()
                await asyncio.sleep(RECONNECT_S)

    def _begin_session(self) -> None:
        self._session_id = self._epoch = 0
        self._changed = set(self._positions)

    async def _round(self, client: SimClient) -> None:
        asked_s = self._world.clock.monotonic()
        answer = await client.call(self._request(), 12)
        if answer.error_code:
            self._count(Error(answer.error_code))
            if answer.error_code not in SESSION_ERRORS:
                self._history.problems.append(f"{self.name}: unexpected {Error(answer.error_code).name}")
            self._begin_session()
            return
        self._session_id = answer.session_id
        self._epoch = self._epoch + 1 if answer.session_id else 0
        self._changed = set() if answer.session_id else set(self._positions)
        await self._take(client, answer, asked_s)

    def _request(self) -> FetchRequest:
        parts = [
            FetchRequestPartition(partition=index, fetch_offset=self._positions[index], partition_max_bytes=4096)
            for index in sorted(self._changed)
        ]
        topics = [FetchRequestTopic(topic=self._topic, partitions=parts)] if parts else []
        return FetchRequest(
            max_wait_ms=500,
            min_bytes=1 + self._world.random.randrange(2000),
            max_bytes=1 << 20,
            session_id=self._session_id,
            session_epoch=self._epoch,
            topics=topics,
        )

    async def _take(self, client: SimClient, answer: FetchResponse, asked_s: float) -> None:
        for topic in answer.responses:
            for part in topic.partitions:
                index = part.partition_index
                error = Error(part.error_code)
                if error is Error.OFFSET_OUT_OF_RANGE:
                    self.resets += 1
                    self._positions[index] = await client.list_offset(self._topic, index, -1)
                    self._changed.add(index)
                elif error is not Error.NONE:
                    self._count(error)
                for batch in batches_of(part):
                    if batch.header.next_offset <= self._positions[index]:
                        self._history.problems.append(f"{self.name}: offset {batch.header.base_offset} came again")
                    elif batch.header.base_offset > self._positions[index]:
                        self._history.problems.append(f"{self.name}: skipped to offset {batch.header.base_offset}")
                    self._history.saw(TopicPartition(self._topic, index), self.name, batch, asked_s)
                    self._positions[index] = batch.header.next_offset
                    self._changed.add(index)
