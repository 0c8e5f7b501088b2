"""A broker as a real process, hostile peers beside it, and a bystander who must not notice them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event, Thread

import pytest

from penstock.testing.broker_process import BrokerProcess
from penstock.testing.raw_client import RawClient
from penstock.testing.sim_client import batch_of, batches_of, produce_request
from penstock.wire.messages.k01_fetch import FetchRequest, FetchRequestPartition, FetchRequestTopic
from penstock.wire.messages.k19_create_topics import CreateTopicsRequest, CreateTopicsRequestTopic

FRAME_TIMEOUT_MS = 600
BYSTANDER_SLOWEST_S = 3.0  # the machine may be busy with other tests


class Hostile:
    """The broker under attack."""

    def __init__(self, process: BrokerProcess) -> None:
        self.process = process
        self.host, self.port = process.host, process.port

    def connect(self, receive_buffer_bytes: int = 0) -> RawClient:
        return RawClient(self.host, self.port, receive_buffer_bytes=receive_buffer_bytes)

    def create_topic(self, name: str, partitions: int = 1) -> None:
        row = CreateTopicsRequestTopic(name=name, num_partitions=partitions, replication_factor=1)
        with self.connect() as client:
            answer = client.call(CreateTopicsRequest(topics=[row])).topics[0]
        assert answer.error_code in (0, 36), answer

    def resident_bytes(self) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        (line,) = (line for line in status.splitlines() if line.startswith("VmRSS"))
        return int(line.split()[1]) * 1024

    def peak_bytes(self) -> int:
        """The most it ever had, since the mark was last put back."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        (line,) = (line for line in status.splitlines() if line.startswith("VmHWM"))
        return int(line.split()[1]) * 1024

    def forget_peak(self) -> None:
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")


class Bystander:
    """A client that produces and reads back its own topic all the time, and times each round."""

    def __init__(self, target: Hostile) -> None:
        self._target = target
        self._stopping = Event()
        self._thread = Thread(target=self._run, daemon=True)
        self.rounds = 0
        self.slowest_s = 0.0
        self.failure: BaseException | None = None

    def __enter__(self) -> Bystander:
        self._target.create_topic("bystander")
        self._thread.start()
        self.wait_for_rounds(1)
        return self

    def __exit__(self, *_: object) -> None:
        rounds = self.rounds
        if self.failure is None:
            self.wait_for_rounds(rounds + 2)
        self._stopping.set()
        self._thread.join(30)
        assert self.failure is None, f"the bystander was harmed: {self.failure!r}"
        assert self.slowest_s < BYSTANDER_SLOWEST_S, f"the bystander waited for {self.slowest_s:.1f} s"

    def wait_for_rounds(self, rounds: int) -> None:
        deadline = time.monotonic() + 30
        while self.rounds < rounds and self.failure is None:
            assert time.monotonic() < deadline, "the bystander is not served any more"
            self._stopping.wait(0.01)

    def _run(self) -> None:
        try:
            with self._target.connect() as client:
                while not self._stopping.is_set():
                    self._round(client)
        except BaseException as error:
            self.failure = error

    def _round(self, client: RawClient) -> None:
        began = time.monotonic()
        batch = batch_of([b"bystander %d" % self.rounds])
        answer = client.call(produce_request("bystander", 0, batch), 11).responses[0].partition_responses[0]
        assert answer.error_code == 0, answer
        part = FetchRequestPartition(partition=0, fetch_offset=answer.base_offset, partition_max_bytes=1 << 20)
        topic = FetchRequestTopic(topic="bystander", partitions=[part])
        found = client.call(FetchRequest(max_wait_ms=0, min_bytes=1, topics=[topic]), 12).responses[0].partitions[0]
        assert found.error_code == 0 and found.records, found
        assert batches_of(found)[0].content[17:] == batch[17:]
        self.slowest_s = max(self.slowest_s, time.monotonic() - began)
        self.rounds += 1
        self._stopping.wait(0.01)


@pytest.fixture(scope="session")
def shared_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hostile]:
    # the records of a bystander have old timestamps: retention would take them between a write and its read
    settings = {
        "connection.frame.timeout.ms": str(FRAME_TIMEOUT_MS),
        "log.dirs.reserve.bytes": "0",
        "log.retention.ms": "-1",
    }
    with BrokerProcess(tmp_path_factory.mktemp("hostile") / "data", settings=settings) as process:
        yield Hostile(process)
        text = process.log_text()
        assert "Traceback" not in text, text[-5000:]


@pytest.fixture
def target(shared_broker: Hostile) -> Iterator[Hostile]:
    """The broker, with a bystander at work for as long as the test runs."""
    with Bystander(shared_broker):
        yield shared_broker
    assert shared_broker.process.is_running


@pytest.fixture
def broker_with(tmp_path: Path) -> Iterator[Callable[..., Hostile]]:
    """A broker of its own, with settings."""
    started: list[BrokerProcess] = []

    def start(**settings: str) -> Hostile:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        process = BrokerProcess(tmp_path / f"data{len(started)}", settings=named)
        started.append(process)
        return Hostile(process.start())

    yield start
    for process in started:
        process.close()
