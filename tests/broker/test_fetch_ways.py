"""Fetch has two ways through: by the declared messages, and straight to the log for a request that is like the one
before it but for its offset. Both answer the same bytes at the same time, whatever readers ask and whatever happens in
between.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import pytest

from penstock.base.errors import Error
from penstock.base.identifiers import TopicPartition
from penstock.broker.handlers import k01_fetch
from penstock.broker.partitions import Partitions
from penstock.testing.broker_process import BrokerProcess
from penstock.testing.raw_client import RawClient
from penstock.testing.sim_broker import PORT, SimBroker
from penstock.testing.sim_client import SimClient, batch_of, batches_of, produce_request
from penstock.testing.sim_world import Simulation
from penstock.wire.batch import each_batch, problem_of_batch
from penstock.wire.codec import decode, encode
from penstock.wire.fetch_shape import FIRST_SHAPED_VERSION, layout_of
from penstock.wire.messages.k01_fetch import (
    FetchRequest,
    FetchRequestForgottenTopic,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponse,
)
from penstock.wire.messages.k19_create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestConfig,
    CreateTopicsRequestTopic,
)
from penstock.wire.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicsRequestTopic
from penstock.wire.messages.k21_delete_records import (
    DeleteRecordsRequest,
    DeleteRecordsRequestPartition,
    DeleteRecordsRequestTopic,
)

VERSIONS = range(4, 19)


class RecordingClient(SimClient):
    """Keeps the bytes of the answers, when they came, and the session it is in."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.frames: list[tuple[float, bytes]] = []
        self.session = (0, -1)

    def _take_frame(self, frame: bytes) -> None:
        self.frames.append((asyncio.get_running_loop().time(), frame))
        super()._take_frame(frame)


class Readers:
    """Readers that go on where they stopped, or do not, and somebody who changes what they read."""

    def __init__(self, client: RecordingClient, other: SimClient, partitions: Partitions, seed: int) -> None:
        self.client = client
        self.partitions = partitions
        self.other = other
        self.random = Random(seed)
        self.ids: dict[str, UUID] = {}
        self.offsets = {0: 0, 1: 0}
        self.version = 12
        self.more: dict[str, Any] = {}
        self.part: dict[str, Any] = {}

    async def run(self, steps: int) -> None:
        await self.make()
        for _ in range(steps):
            chance = self.random.random()
            if chance < 0.82:
                await self.fetch()
            elif chance < 0.86:
                self.ask_differently()
            elif chance < 0.96:
                await self.append()
            elif chance < 0.98:
                self.begin_epoch()
            elif chance < 0.995:
                await self.forget_records()
            else:
                await self.make_anew()

    async def make(self) -> None:
        self.ids["t"] = await self.other.create_topic("t", 2, {"index.interval.bytes": "100"})
        for _ in range(20):
            await self.append()

    async def make_anew(self) -> None:
        await self.other.call(DeleteTopicsRequest(topics=[DeleteTopicsRequestTopic(name="t")], timeout_ms=5000), 6)
        await self.make()

    async def append(self) -> None:
        values = [bytes(self.random.randrange(700))] * self.random.randrange(1, 5)
        await self.other.produce("t", self.random.randrange(2), batch_of(values))

    def begin_epoch(self) -> None:
        """As if the leader had been elected again."""
        partition = self.partitions.get(TopicPartition("t", 0))
        assert partition is not None and partition.leader is not None
        partition.epoch = partition.leader.epoch = partition.epoch + 1

    async def forget_records(self) -> None:
        offset = self.random.randrange(12)
        row = DeleteRecordsRequestTopic(
            name="t", partitions=[DeleteRecordsRequestPartition(partition_index=0, offset=offset)]
        )
        await self.other.call(DeleteRecordsRequest(topics=[row], timeout_ms=1000), 2)

    def ask_differently(self) -> None:
        choose = self.random.choice
        partition = self.partitions.get(TopicPartition("t", 0))
        epoch = partition.epoch if partition is not None else 0
        self.version = choose([*VERSIONS, *range(7, 19)])
        self.client.session = (0, choose([0, -1]) if self.version >= 7 else -1)
        self.more = {
            "isolation_level": choose([0, 1]),
            "min_bytes": choose([0, 1, 1, 1500]),
            "max_wait_ms": choose([0, 5, 5]),
            "max_bytes": choose([0, 1000, 1 << 20, 1 << 20]),
            "rack_id": choose(["", "", "somewhere"]) if self.version >= 11 else "",
        }
        self.part = {"partition_max_bytes": choose([0, 1000, 3000, 5000])}
        if self.version >= 9:
            self.part["current_leader_epoch"] = choose([-1, -1, epoch, epoch, epoch, epoch + 1])
        if self.version >= 12:
            self.part["last_fetched_epoch"] = choose([-1, -1, 0, epoch, epoch, epoch + 2])
        self.part["count"] = choose([1, 1, 1, 1, 2])

    def request(self) -> FetchRequest:
        part = dict(self.part)
        count = part.pop("count", 1)
        first = self.random.randrange(2) if self.random.random() < 0.03 else 0
        parts = []
        for index in range(first, min(first + count, 2)):
            if self.random.random() < 0.04:
                self.offsets[index] = self.random.choice([0, 0, 3, -1, 50, 10_000])
            parts.append(FetchRequestPartition(partition=index, fetch_offset=self.offsets[index], **part))
        row = FetchRequestTopic(partitions=parts)
        if self.version >= 13:
            row.topic_id = self.ids["t"]
        else:
            row.topic = "t"
        request = FetchRequest(topics=[row], **self.more)
        if self.version >= 7:
            request.session_id, request.session_epoch = self.client.session
            if self.random.random() < 0.02:
                request.session_epoch += 1  # one that is not expected
            if self.random.random() < 0.02 and self.version < 13:
                request.forgotten_topics_data = [FetchRequestForgottenTopic(topic="t", partitions=[1])]
        return request

    async def fetch(self) -> None:
        answer = await self.client.call(self.request(), self.version)
        _, epoch = self.client.session
        if answer.error_code != Error.NONE:
            self.client.session = (0, 0)
        elif epoch >= 0 and answer.session_id:
            self.client.session = (answer.session_id, epoch + 1)
        for topic in answer.responses:
            for part in topic.partitions:
                found = batches_of(part)
                if found:
                    self.offsets[part.partition_index] = found[-1].header.next_offset
                elif part.error_code != Error.NONE or self.random.random() < 0.5:
                    self.offsets[part.partition_index] = self.random.choice([0, 5, 12])
                    self.ask_differently()


async def answers(simulation: Simulation, seed: int) -> list[tuple[float, bytes]]:
    broker = SimBroker(simulation.machine("broker"))
    await broker.start()
    world = simulation.machine("client").process("client").world
    client = RecordingClient(await world.network.connect("broker", PORT))
    other = SimClient(await world.network.connect("broker", PORT))
    await Readers(client, other, broker.running.broker.partitions, seed).run(600)
    return client.frames


def run(seed: int) -> list[tuple[float, bytes]]:
    with Simulation(seed, limit_s=100_000, partial_chance=0) as simulation:
        return simulation.run(answers(simulation, seed))


@pytest.mark.parametrize("seed", range(3))
def test_both_ways_answer_the_same_bytes(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    taken: list[bool] = []
    make = k01_fetch.fetch_again

    def make_counted(*arguments: Any) -> Any:
        again = make(*arguments)

        def counted(frame: memoryview) -> Any:
            answer = again(frame) if again is not None else None
            taken.append(answer is not None)
            return answer

        return counted

    monkeypatch.setattr(k01_fetch, "fetch_again", make_counted)
    again = run(seed)
    assert taken.count(True) > 50 and taken.count(False) > 50
    monkeypatch.setattr(k01_fetch, "fetch_again", lambda *_: None)
    taken.clear()
    declared = run(seed)
    assert not taken
    assert len(again) == len(declared) > 400
    for number, (one, other) in enumerate(zip(again, declared, strict=True)):
        assert one == other, f"answer {number}"


@pytest.mark.parametrize("version", range(FIRST_SHAPED_VERSION, 19))
@pytest.mark.parametrize("topic", ["t", "long" * 50])
def test_where_the_offset_and_the_epoch_lie(version: int, topic: str) -> None:
    part = FetchRequestPartition(partition=1, fetch_offset=0x1122334455667788, partition_max_bytes=7)
    row = FetchRequestTopic(partitions=[part])
    if version >= 13:
        row.topic_id = UUID(int=7)
    else:
        row.topic = topic
    body = encode(FetchRequest(topics=[row], session_id=5, session_epoch=0x01020304), version)
    frame = memoryview(b"before" + body)
    layout = layout_of(frame, 6, version)
    assert frame[layout.session_epoch_at :][:4] == b"\1\2\3\4"
    assert frame[layout.offset_at :][:8] == bytes.fromhex("1122334455667788")


def fetch_of(offset: int) -> FetchRequest:
    part = FetchRequestPartition(partition=0, fetch_offset=offset, partition_max_bytes=1_000_000)
    return FetchRequest(max_wait_ms=0, min_bytes=1, topics=[FetchRequestTopic(topic="t", partitions=[part])])


def offsets_in(client: RawClient) -> list[int]:
    """The base offsets of the batches in the next answer, which are whole and sound."""
    response, _ = decode(FetchResponse, 12, client.receive_frame(), 5)
    part = response.responses[0].partitions[0]
    assert part.error_code == Error.NONE
    found = list(each_batch(memoryview(part.records)))
    assert all(problem_of_batch(batch, header) is None for header, batch in found)
    return [header.base_offset for header, _ in found]


def test_a_reader_that_stops_one_that_goes_and_a_topic_that_goes(tmp_path: Path) -> None:
    """What a reader was promised is sent as it was, however late it reads and whatever becomes of the log; nobody else
    waits for it."""
    wanted = [0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9] * 2  # the first goes the ordinary way
    with BrokerProcess(tmp_path / "data") as broker, RawClient("127.0.0.1", broker.port) as writer:
        configs = [CreateTopicsRequestConfig(name="file.delete.delay.ms", value="0")]
        topic = CreateTopicsRequestTopic(name="t", num_partitions=1, replication_factor=1, configs=configs)
        writer.call(CreateTopicsRequest(topics=[topic], timeout_ms=5000))
        for number in range(10):
            batch = batch_of([bytes([number]) * 900_000])
            assert writer.call(produce_request("t", 0, batch), 11).responses[0].partition_responses[0].error_code == 0
        with RawClient("127.0.0.1", broker.port, receive_buffer_bytes=4096) as slow:
            slow.send(b"".join(slow.frame_of(fetch_of(offset), 12) for offset in wanted))
            slow.socket.recv(1, socket.MSG_PEEK)  # its requests came in one piece, and are being answered
            for _ in range(3):
                gone = RawClient("127.0.0.1", broker.port, receive_buffer_bytes=4096)
                gone.send(b"".join(gone.frame_of(fetch_of(offset), 12) for offset in wanted))
                gone.socket.recv(100)
                gone.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # a reset
                gone.close()
            with RawClient("127.0.0.1", broker.port) as quick:
                for offset in wanted:
                    quick.send(quick.frame_of(fetch_of(offset), 12))
                    assert offsets_in(quick) == [offset]
            writer.call(DeleteTopicsRequest(topics=[DeleteTopicsRequestTopic(name="t")], timeout_ms=5000), 6)
            assert writer.call(fetch_of(0), 12).responses[0].partitions[0].error_code != Error.NONE
            assert [offsets_in(slow) for _ in wanted] == [[offset] for offset in wanted]
