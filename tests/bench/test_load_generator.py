"""The load generator against a small broker of our own: what it sends is sound, and it notices what is wrong.

The other side is a thread that answers Produce, Fetch and InitProducerId by hand, so that nothing of the broker under
measurement takes part.
"""

from __future__ import annotations

import json
import shutil
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.wire.batch import BatchHeader, check_produced_batch
from penstock.wire.codec import decode
from penstock.wire.messages.k00_produce import ProduceRequest
from penstock.wire.messages.k08_offset_commit import OffsetCommitRequest
from penstock.wire.messages.k26_end_txn import EndTxnRequest

SOURCE = Path(__file__).parents[2] / "bench" / "load.c"
TOPIC = b"t"
COMPILER = shutil.which("cc")

pytestmark = pytest.mark.skipif(COMPILER is None, reason="needs a C compiler")

Answer = Callable[[int, bytes], bytes]


@pytest.fixture(scope="module")
def binary(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("load") / "load"
    flags = ["-O1", "-std=gnu11", "-Wall", "-Wextra", "-Werror"]
    subprocess.run([str(COMPILER), *flags, "-o", str(path), str(SOURCE)], check=True)
    return path


class HandBroker:
    """Answers each request of a connection with `answer(api key, body)`."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._accept)
        self._connections: list[threading.Thread] = []
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            thread = threading.Thread(target=self._serve, args=(connection,))
            self._connections.append(thread)
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as stream:
            while size := stream.read(4):
                frame = stream.read(int.from_bytes(size, "big"))
                key, correlation = struct.unpack_from(">h2xi", frame)
                reply = struct.pack(">i", correlation) + b"\0" + self._answer(key, frame[15:])
                try:
                    connection.sendall(struct.pack(">i", len(reply)) + reply)
                except OSError:
                    return

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in (self._thread, *self._connections):
            thread.join(10)


@pytest.fixture
def serve() -> Iterator[Callable[[Answer], HandBroker]]:
    brokers: list[HandBroker] = []

    def start(answer: Answer) -> HandBroker:
        brokers.append(HandBroker(answer))
        return brokers[-1]

    yield start
    for broker in brokers:
        broker.close()


def run(binary: Path, mode: str, broker: HandBroker, *options: str) -> subprocess.CompletedProcess[str]:
    command = [str(binary), mode, f"port={broker.port}", "topic=t", "timeout_s=10", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=30)


def figures_of(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    result: dict[str, Any] = json.loads(done.stdout)
    return result


def produce_answer(partition: int, error: int = 0) -> bytes:
    head = b"\x02\x02" + TOPIC + b"\x02" + struct.pack(">ihqqq", partition, error, 0, -1, 0)
    return head + b"\x01\0\0\0" + struct.pack(">i", 0) + b"\0"


def uvarint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        value |= (data[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if not data[at - 1] & 0x80:
            return value, at


class Recorder:
    """Takes what producers send, checks it as the broker would, and keeps partition and header."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, BatchHeader]] = []
        self._producers = 0
        self._lock = threading.Lock()

    def answer(self, key: int, body: bytes) -> bytes:
        with self._lock:
            if key == 22:
                self._producers += 1
                return struct.pack(">ihqhb", 0, 0, self._producers, 0, 0)
            assert (key, body[:1], body[1:3]) == (0, b"\0", b"\xff\xff")  # Produce, not transactional, acks=all
            assert body[7:11] == b"\x02\x02" + TOPIC + b"\x02"
            partition = int.from_bytes(body[11:15], "big")
            size, at = uvarint(body, 15)
            assert body[at + size - 1 :] == b"\0\0\0"
            self.seen.append((partition, check_produced_batch(memoryview(body)[at : at + size - 1])))
            return produce_answer(partition)


def test_batches_are_sound_and_sequences_follow_each_other(binary: Path, serve: Callable[[Answer], HandBroker]) -> None:
    recorder = Recorder()
    done = run(binary, "produce", serve(recorder.answer), "batch_bytes=50000", "inflight=5", "total_bytes=1000000")
    figures = figures_of(done)
    headers = [header for _, header in recorder.seen]
    assert figures["requests"] == len(headers) >= 20
    assert figures["messages"] == sum(header.record_count for header in headers)
    assert figures["bytes"] == sum(header.size_bytes for header in headers) >= 1_000_000
    expected = 0
    for header in headers:
        assert 49_000 < header.size_bytes <= 50_000
        assert (header.producer_id, header.producer_epoch, header.base_sequence) == (1, 0, expected)
        expected = header.last_sequence + 1


def test_connections_share_out_the_partitions(binary: Path, serve: Callable[[Answer], HandBroker]) -> None:
    recorder = Recorder()
    options = ("partitions=7", "connections=3", f"total_bytes={170 * 70}")
    figures_of(run(binary, "produce", serve(recorder.answer), *options))
    assert {partition for partition, _ in recorder.seen} == set(range(7))
    writers = {(partition, header.producer_id) for partition, header in recorder.seen}
    assert len(writers) == 7  # one producer for each partition
    for writer in writers:
        sequences = [h.base_sequence for partition, h in recorder.seen if (partition, h.producer_id) == writer]
        assert sequences == list(range(len(sequences)))


def test_a_fixed_rate_is_kept(binary: Path, serve: Callable[[Answer], HandBroker]) -> None:
    recorder = Recorder()
    options = ("rate=500", "seconds=0.3", "connections=4", "record_bytes=1000")
    figures = figures_of(run(binary, "rate", serve(recorder.answer), *options))
    assert figures["requests"] == len(recorder.seen) == 150
    assert 0.29 < figures["seconds"] < 5
    assert figures["p50_ms"] <= figures["p99_ms"] <= figures["p999_ms"] <= figures["max_ms"]


def test_an_error_code_ends_the_run(binary: Path, serve: Callable[[Answer], HandBroker]) -> None:
    done = run(binary, "produce", serve(lambda _key, _body: produce_answer(0, error=6)), "idempotent=0", "seconds=1")
    assert done.returncode == 1
    assert "refused a batch: error code (6)" in done.stderr


LOG = [(base, 900 + 7 * base) for base in range(0, 60, 3)]  # batches of three records: base offset and size


def stored_batch(base_offset: int, size_bytes: int) -> bytes:
    header = struct.pack(">qiibIhiqqqhii", base_offset, size_bytes - 12, 0, 2, 0, 0, 2, 0, 0, -1, -1, -1, 3)
    return header + bytes(size_bytes - len(header))


def fetch_answer(records: bytes) -> bytes:
    head = struct.pack(">ihi", 0, 0, 0) + b"\x02\x02" + TOPIC + b"\x02"
    partition = struct.pack(">ihqqq", 0, 0, 60, 60, 0) + b"\x01" + struct.pack(">i", -1)
    size, coded = len(records) + 1, b""
    while size >= 0x80:
        size, coded = size >> 7, coded + bytes([size & 0x7F | 0x80])
    return head + partition + coded + bytes([size]) + records + b"\0\0\0"


def test_fetch_reads_to_the_end_and_starts_again(binary: Path, serve: Callable[[Answer], HandBroker]) -> None:
    asked: list[int] = []

    def answer(_key: int, body: bytes) -> bytes:
        offset = int.from_bytes(body[-29:-21], "big")
        asked.append(offset)
        rest = b"".join(stored_batch(*batch) for batch in LOG if batch[0] >= offset)
        return fetch_answer(rest[:3000])  # cuts the last batch wherever it falls

    whole = sum(size for _, size in LOG)
    figures = figures_of(run(binary, "fetch", serve(answer), f"total_bytes={whole * 2}"))
    assert figures["bytes"] == whole * 2
    assert figures["messages"] == 120
    assert asked.count(0) == 2
    assert all(offset % 3 == 0 for offset in asked)


def test_fetch_that_brings_nothing_is_an_error(binary: Path, serve: Callable[[Answer], HandBroker]) -> None:
    done = run(binary, "fetch", serve(lambda _key, _body: fetch_answer(b"")), "total_bytes=1000")
    assert done.returncode == 1
    assert "brought nothing" in done.stderr


def test_first_tries_until_every_partition_has_taken_a_message(
    binary: Path, serve: Callable[[Answer], HandBroker]
) -> None:
    recorder, refusals = Recorder(), iter(range(3))

    def answer(key: int, body: bytes) -> bytes:
        if key == 3:
            return b""
        return produce_answer(0, error=6) if next(refusals, None) is not None else recorder.answer(key, body)

    figures = figures_of(run(binary, "first", serve(answer), "partitions=3"))
    assert figures["tries"] == 3
    assert [partition for partition, _ in recorder.seen] == [0, 1, 2]


def found_coordinator() -> bytes:
    return struct.pack(">ih", 0, 0) + b"\x01" + struct.pack(">i", 0) + b"\x0a127.0.0.1" + struct.pack(">i", 1) + b"\0"


def commit_answer(error: int = 0) -> bytes:
    return struct.pack(">i", 0) + b"\x02\x02" + TOPIC + b"\x02" + struct.pack(">ih", 0, error) + b"\0\0\0"


def test_commits_go_up_by_one_in_each_group(binary: Path, serve: Callable[[Answer], HandBroker]) -> None:
    offsets: dict[str, list[int]] = {}
    not_ready = iter((15, 16, 14))

    def answer(key: int, body: bytes) -> bytes:
        if key == 10:
            return found_coordinator()
        request, end = decode(OffsetCommitRequest, 8, body, 0)
        assert (key, end, request.member_id, request.generation_id_or_member_epoch) == (8, len(body), "", -1)
        partition = request.topics[0].partitions[0]
        assert (request.topics[0].name, partition.partition_index) == ("t", 0)
        offsets.setdefault(request.group_id, []).append(partition.committed_offset)
        return commit_answer(next(not_ready, 0))

    figures = figures_of(run(binary, "commit", serve(answer), "seconds=0.1", "connections=3"))
    assert offsets.keys() == {"t-0", "t-1", "t-2"}
    for seen in offsets.values():
        assert seen == sorted(seen) and set(seen) == set(range(seen[-1] + 1))
    assert figures["requests"] == sum(seen[-1] + 1 for seen in offsets.values())
    assert figures["p50_ms"] > 0


def test_a_refused_commit_ends_the_run(binary: Path, serve: Callable[[Answer], HandBroker]) -> None:
    answers = iter((0, 25))

    def answer(key: int, _body: bytes) -> bytes:
        return found_coordinator() if key == 10 else commit_answer(next(answers))

    done = run(binary, "commit", serve(answer), "seconds=5")
    assert (done.returncode, "refused: error code (25)" in done.stderr) == (1, True)


def test_transactions_are_one_message_each_with_the_epoch_of_the_last_answer(
    binary: Path, serve: Callable[[Answer], HandBroker]
) -> None:
    steps: list[tuple[str, int, int]] = []
    busy = iter((0, 51, 51))

    def answer(key: int, body: bytes) -> bytes:
        if key == 10:
            return found_coordinator()
        if key == 22:
            return struct.pack(">ihqhb", 0, 0, 7, 0, 0)
        if key == 26:
            request, _ = decode(EndTxnRequest, 5, body, 0)
            assert (request.transactional_id, request.committed) == ("t-0", True)
            steps.append(("end", request.producer_id, request.producer_epoch))
            return struct.pack(">ihqhb", 0, 0, 7, request.producer_epoch + 1, 0)
        produced, _ = decode(ProduceRequest, 12, body, 0)
        assert (produced.transactional_id, produced.acks) == ("t-0", -1)
        header = check_produced_batch(memoryview(produced.topic_data[0].partition_data[0].records))
        assert (header.is_transactional, header.record_count, header.base_sequence) == (True, 1, 0)
        error = next(busy, 0)
        if not error:
            steps.append(("write", header.producer_id, header.producer_epoch))
        return produce_answer(0, error)

    figures = figures_of(run(binary, "transaction", serve(answer), "seconds=0.1"))
    count = int(figures["requests"])
    expected = [(step, 7, epoch) for epoch in range(count) for step in ("write", "end")]
    assert (steps, figures["messages"], figures["retries"]) == (expected, count, 2)
