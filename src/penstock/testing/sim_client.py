"""A small Kafka client for simulations: one connection of a `World`, requests pipelined, answers matched by number.

It runs on any world, the simulated one or the real one. It does exactly what it is told: it retries nothing, remembers
no metadata, and when the connection breaks every request that waits fails with a ConnectionError, so that a test
decides what a client does then.

    client = await SimClient.connect(world, "broker", 9092)
    await client.create_topic("orders", partitions=3)
    answer = await client.produce("orders", 0, batch_of([b"a", b"b"]))
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from uuid import UUID

from penstock.base.errors import ApiError, Error
from penstock.base.world import Stream, World
from penstock.wire.api import APIS, OWN_APIS
from penstock.wire.api_declaration import Api
from penstock.wire.batch import BatchHeader, each_batch
from penstock.wire.codec import decode, encode_into
from penstock.wire.headers import RequestHeader, decode_response_header, encode_request_header
from penstock.wire.messages.k00_produce import (
    ProduceRequest,
    ProduceRequestPartition,
    ProduceRequestTopic,
    ProduceResponsePartition,
)
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
from penstock.wire.messages.k19_create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestConfig,
    CreateTopicsRequestTopic,
)
from penstock.wire.messages.k22_init_producer_id import InitProducerIdRequest
from penstock.wire.records import BatchOptions, Record, build_batch
from penstock.wire.schema import Message

PRODUCE_VERSION = 11  # the newest that names topics
FETCH_VERSION = 12
RECEIVE_BYTES = 64 * 1024
BATCH_TIMESTAMP_MS = 1_700_000_000_000

_API_OF: dict[type, Api] = {api.request: api for api in (APIS | OWN_APIS).values()}


class StoredBatch(NamedTuple):
    """One batch as a fetch brought it."""

    header: BatchHeader
    content: bytes


class SimClient:
    """One connection to a broker."""

    def __init__(self, stream: Stream, client_id: str = "sim-client") -> None:
        self._stream = stream
        self._client_id = client_id
        self._received = bytearray()
        self._unsent = bytearray()
        self._waiting: dict[int, tuple[Api, int, asyncio.Future[Any]]] = {}
        self._numbers = 0
        self.is_closed = False
        stream.watch_read(self._on_readable)

    @classmethod
    async def connect(cls, world: World, host: str, port: int, client_id: str = "sim-client") -> SimClient:
        return cls(await world.network.connect(host, port), client_id)

    # Requests and answers

    def send(self, request: Message, version: int | None = None) -> asyncio.Future[Any]:
        """Send a request now; the future is its answer."""
        api = _API_OF[type(request)]
        chosen = api.max_version if version is None else version
        self._numbers += 1
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self.is_closed:
            answer.set_exception(ConnectionResetError("the connection is closed"))
            return answer
        self._waiting[self._numbers] = (api, chosen, answer)
        self._write_frame(api.key, chosen, request)
        return answer

    def send_unanswered(self, request: Message, version: int | None = None) -> None:
        """Send a request that has no answer, as a produce with acks=0."""
        api = _API_OF[type(request)]
        self._numbers += 1
        self._write_frame(api.key, api.max_version if version is None else version, request)

    async def call(self, request: Message, version: int | None = None) -> Any:
        return await self.send(request, version)

    def _write_frame(self, key: int, version: int, request: Message) -> None:
        frame = bytearray(4)
        encode_request_header(RequestHeader(key, version, self._numbers, self._client_id), frame)
        encode_into(request, version, frame)
        frame[:4] = (len(frame) - 4).to_bytes(4, "big")
        self._unsent += frame
        self._on_writable()

    def _on_writable(self) -> None:
        try:
            while self._unsent:
                sent = self._stream.send(bytes(self._unsent))
                del self._unsent[:sent]
            self._stream.watch_write(None)
        except BlockingIOError:
            self._stream.watch_write(self._on_writable)
        except OSError as error:
            self._break(error)

    def _on_readable(self) -> None:
        buffer = bytearray(RECEIVE_BYTES)
        try:
            count = self._stream.recv_into(buffer)
        except BlockingIOError:
            return
        except OSError as error:
            self._break(error)
            return
        if not count:
            self._break(ConnectionResetError("the broker closed the connection"))
            return
        self._received += buffer[:count]
        while len(self._received) >= 4:
            end = 4 + int.from_bytes(self._received[:4], "big")
            if len(self._received) < end:
                return
            frame = bytes(self._received[4:end])
            del self._received[:end]
            self._take_frame(frame)

    def _take_frame(self, frame: bytes) -> None:
        number = int.from_bytes(frame[:4], "big")
        assert next(iter(self._waiting)) == number, f"answer {number} is out of order"
        api, version, answer = self._waiting.pop(number)
        _, position = decode_response_header(api.key, version, frame)
        response, end = decode(api.response, version, frame, position)
        assert end == len(frame), f"{len(frame) - end} bytes after an answer to {api.name}"
        if not answer.done():
            answer.set_result(response)

    def _break(self, error: OSError) -> None:
        self.close()
        waiting, self._waiting = self._waiting, {}
        for _, _, answer in waiting.values():
            if not answer.done():
                answer.set_exception(ConnectionResetError(str(error)))
                answer.exception()  # not to be awaited is no mistake here

    def close(self) -> None:
        if not self.is_closed:
            self.is_closed = True
            self._stream.close()

    # The requests that most tests need

    async def create_topic(
        self, name: str, partitions: int = 1, configs: Mapping[str, str] | None = None, *, replicas: int = 1
    ) -> UUID:
        """Create a topic; its id."""
        rows = [CreateTopicsRequestConfig(name=key, value=value) for key, value in (configs or {}).items()]
        topic = CreateTopicsRequestTopic(
            name=name, num_partitions=partitions, replication_factor=replicas, configs=rows
        )
        (answer,) = (await self.call(CreateTopicsRequest(topics=[topic]))).topics
        _raise_for(answer.error_code, answer.error_message)
        topic_id: UUID = answer.topic_id
        return topic_id

    async def init_producer_id(self) -> int:
        answer = await self.call(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0))
        _raise_for(answer.error_code)
        producer_id: int = answer.producer_id
        return producer_id

    async def produce(
        self, topic: str, partition: int, batch: bytes, *, acks: int = -1, timeout_ms: int = 30_000
    ) -> ProduceResponsePartition:
        """One batch to one partition; the answer may carry an error."""
        answer = await self.call(produce_request(topic, partition, batch, acks, timeout_ms), PRODUCE_VERSION)
        found: ProduceResponsePartition = answer.responses[0].partition_responses[0]
        return found

    async def fetch(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        max_wait_ms: int = 0,
        min_bytes: int = 1,
        max_bytes: int = 1 << 20,
    ) -> FetchResponsePartition:
        """What one partition has from an offset on, without a session; the answer may carry an error."""
        part = FetchRequestPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes)
        request = FetchRequest(
            max_wait_ms=max_wait_ms, min_bytes=min_bytes, topics=[FetchRequestTopic(topic=topic, partitions=[part])]
        )
        answer = await self.call(request, FETCH_VERSION)
        _raise_for(answer.error_code)
        found: FetchResponsePartition = answer.responses[0].partitions[0]
        return found

    async def read_all(self, topic: str, partition: int, offset: int = 0) -> list[StoredBatch]:
        """Every committed batch of a partition."""
        found: list[StoredBatch] = []
        while True:
            answer = await self.fetch(topic, partition, offset)
            _raise_for(answer.error_code)
            batches = batches_of(answer)
            if not batches:
                return found
            found += batches
            offset = batches[-1].header.next_offset

    async def list_offset(self, topic: str, partition: int, timestamp: int) -> int:
        """The offset for a time, or for -1 (the end) or -2 (the start)."""
        part = ListOffsetsRequestPartition(partition_index=partition, timestamp=timestamp)
        row = ListOffsetsRequestTopic(name=topic, partitions=[part])
        answer = (await self.call(ListOffsetsRequest(replica_id=-1, topics=[row]))).topics[0].partitions[0]
        _raise_for(answer.error_code)
        offset: int = answer.offset
        return offset


def produce_request(
    topic: str, partition: int, batch: bytes, acks: int = -1, timeout_ms: int = 30_000
) -> ProduceRequest:
    part = ProduceRequestPartition(index=partition, records=batch)
    row = ProduceRequestTopic(name=topic, partition_data=[part])
    return ProduceRequest(acks=acks, timeout_ms=timeout_ms, topic_data=[row])


def batch_of(values: Sequence[bytes], *, timestamp_ms: int = BATCH_TIMESTAMP_MS, **options: Any) -> bytes:
    """One batch with these values; options as of `build_batch` (producer_id, base_sequence, compression, …)."""
    chosen: BatchOptions = options  # type: ignore[assignment]
    records = [Record(offset, timestamp_ms + offset, None, value) for offset, value in enumerate(values)]
    return build_batch(records, **chosen)


def batches_of(answer: FetchResponsePartition) -> list[StoredBatch]:
    """The whole batches in a fetch's answer for one partition."""
    records = memoryview(bytes(answer.records or b""))
    return [StoredBatch(header, bytes(batch)) for header, batch in each_batch(records)]


def _raise_for(code: int, message: str | None = None) -> None:
    if code:
        raise ApiError(Error(code), message or "")
