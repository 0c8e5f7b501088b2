"""Produce has two ways through: by the declared messages, and straight to the log for a request that begins like the
one before it. Both answer the same bytes, and what the second takes, the first would have understood in the same way.
"""

from __future__ import annotations

import struct
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.base.identifiers import TopicPartition
from penstock.broker._produce_again import HEAD_AT, ProduceAgain
from penstock.broker.connection import Connection
from penstock.log.partition_log import Appended
from penstock.testing.sim_broker import PORT, SimBroker
from penstock.testing.sim_client import SimClient, batch_of
from penstock.testing.sim_world import Simulation
from penstock.wire.codec import decode, encode
from penstock.wire.compression import Compression
from penstock.wire.messages.k00_produce import ProduceRequest, ProduceRequestPartition, ProduceRequestTopic
from penstock.wire.produce_shape import FIRST_SHAPED_VERSION, FLEXIBLE_SINCE, answer_shape, head_end_of

VERSIONS = range(3, 14)


class RecordingClient(SimClient):
    """Keeps the bytes of the answers."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.frames: list[bytes] = []

    def _take_frame(self, frame: bytes) -> None:
        self.frames.append(frame)
        super()._take_frame(frame)


def request(version: int, topic: str, topic_id: UUID, index: int, records: bytes | None, acks: int) -> ProduceRequest:
    row = ProduceRequestTopic(partition_data=[ProduceRequestPartition(index=index, records=records)])
    if version >= 13:
        row.topic_id = topic_id
    else:
        row.name = topic
    return ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[row])


def batches(version: int) -> list[bytes | None]:
    """What producers send, good and bad."""
    numbered = [
        batch_of([b"%d" % sequence], producer_id=5 + version, producer_epoch=0, base_sequence=sequence)
        for sequence in (0, 1, 0, 1, 7)
    ]
    return [
        batch_of([b"plain"]),
        batch_of([bytes(300)]),
        batch_of([bytes(20_000)]),
        batch_of([b"zstd"] * 3, compression=Compression.ZSTD),
        *numbered,
        batch_of([b"x"])[:-1] + b"?",
        batch_of([b"x"], control=True),
        batch_of([b"x"], transactional=True, producer_id=9, producer_epoch=0, base_sequence=0),
        batch_of([bytes(2 << 20)]),
        b"",
        None,
    ]


async def answers(simulation: Simulation) -> list[bytes]:
    broker = SimBroker(simulation.machine("broker"))
    await broker.start()
    world = simulation.machine("client").process("client").world
    client = RecordingClient(await world.network.connect("broker", PORT))
    topics = {
        "plain": {},
        "append-time": {"message.timestamp.type": "LogAppendTime"},
        "always": {"flush.mode": "always"},
    }
    ids = {name: await client.create_topic(name, 2, configs) for name, configs in topics.items()}
    ids["unknown"] = UUID(int=12345)
    client.frames.clear()
    for version in VERSIONS:
        for name, topic_id in ids.items():
            for index in (0, 2) if name == "plain" else (0,):
                for batch in batches(version):
                    for acks in (1, -1):
                        await client.call(request(version, name, topic_id, index, batch, acks), version)
    return client.frames


def run(seed: int) -> list[bytes]:
    with Simulation(seed, limit_s=100_000, partial_chance=0) as simulation:
        return simulation.run(answers(simulation))


def test_both_ways_answer_the_same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[bool] = []
    remember = Connection.remember

    def remember_counted(self: Connection, head_end: int, head: bytes, again: ProduceAgain) -> None:
        def counted(frame: memoryview) -> bytes | None:
            answer = again(frame)
            taken.append(answer is not None)
            return answer

        remember(self, head_end, head, counted)

    monkeypatch.setattr(Connection, "remember", remember_counted)
    again = run(1)
    assert sum(taken) > 50
    monkeypatch.setattr(Connection, "remember", lambda *_: None)
    taken.clear()
    declared = run(1)
    assert not taken
    assert len(again) == len(declared) > 1000
    for number, (one, other) in enumerate(zip(again, declared, strict=True)):
        assert one == other, f"answer {number}"


class FakePartition:
    """Takes everything, and remembers it."""

    takes_at_once = True
    name = TopicPartition("t", 3)

    class log:
        start_offset = 0


def frame_of(version: int, topic: str, index: int, size: int, acks: int) -> bytes:
    """A frame without its size: header, with a client id, and body."""
    head = struct.pack(">hhih", 0, version, 77, 2) + b"id" + (b"\0" if version >= FLEXIBLE_SINCE else b"")
    return head + encode(request(version, topic, UUID(int=7), index, bytes(size), acks), version)


FRAMES = st.tuples(
    st.integers(FIRST_SHAPED_VERSION, 13),
    st.text("abc-é", min_size=1, max_size=140),
    st.integers(0, 2**31 - 1),
    st.integers(61, 300) | st.sampled_from([126, 127, 128, 16_383, 16_384]),
    st.sampled_from([-1, 1]),
)


@settings(max_examples=200, deadline=None)
@given(FRAMES, st.integers(61, 300) | st.sampled_from([16_383, 16_384]), st.data())
def test_what_goes_straight_on_is_what_the_declared_reader_sees(
    shape: tuple[int, str, int, int, int], next_size: int, data: st.DataObject
) -> None:
    version, topic, index, size, acks = shape
    taken: list[bytes] = []

    def append(_partition: Any, records: memoryview) -> Appended:
        taken.append(bytes(records))
        return Appended(0, 0, -1, False)

    first = memoryview(frame_of(version, topic, index, size, acks))
    head_end = head_end_of(first, size, version)
    assert head_end is not None
    wire_topic = UUID(int=7).bytes if version >= 13 else topic.encode()
    flexible = version >= FLEXIBLE_SINCE
    again = ProduceAgain(
        first,
        head_end,
        append,
        FakePartition(),
        answer_shape(version, wire_topic),
        None,
        is_flexible=flexible,  # type: ignore[arg-type]
    )
    following = bytearray(frame_of(version, topic, index, next_size, acks))
    assert bytes(following[HEAD_AT:head_end]) == again.head
    assert again(memoryview(following)) is not None
    assert taken.pop() == bytes(next_size)
    _mutate(following, head_end, data)
    if bytes(following[HEAD_AT:head_end]) == again.head and again(memoryview(following)) is not None:
        declared, end = decode(ProduceRequest, version, bytes(following), 10 + 2 + flexible)
        assert end == len(following)
        assert taken.pop() == bytes(declared.topic_data[0].partition_data[0].records or b"")
    assert not taken


def _mutate(frame: bytearray, head_end: int, data: st.DataObject) -> None:
    """Change the frame from its head's end on, near it or at its end."""
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(head_end, min(len(frame), head_end + 12)))
        change = data.draw(st.sampled_from(["set", "cut", "add", "end"]))
        if change == "set" and at < len(frame):
            frame[at] = data.draw(st.integers(0, 255))
        elif change == "cut":
            del frame[at : at + data.draw(st.integers(1, 3))]
        elif change == "add":
            frame[at:at] = data.draw(st.binary(min_size=1, max_size=3))
        else:
            del frame[max(head_end, len(frame) - data.draw(st.integers(0, 4))) :]
