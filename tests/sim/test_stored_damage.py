"""Stored bytes that have changed by themselves, and bytes that are not in memory: what a reader gets."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import pytest

from penstock.base.errors import ApiError, Error
from penstock.broker.audit_log import AuditLog
from penstock.log.ranges import LogRange
from penstock.testing.history import body_of
from penstock.testing.sim_broker import DATA, PORT, SimBroker
from penstock.testing.sim_client import SimClient, batch_of, batches_of
from penstock.testing.sim_world import Simulation
from penstock.wire.messages.k01_fetch import (
    FetchRequest,
    FetchRequestForgottenTopic,
    FetchRequestPartition,
    FetchRequestTopic,
)

pytestmark = pytest.mark.sim

FOLDER = f"{DATA}/logs/t-0"
SMALL_SEGMENTS = {"segment.index.bytes": "48", "index.interval.bytes": "100"}


class Bench:
    """A broker with a log of several segments."""

    def __init__(self) -> None:
        self.simulation = Simulation(11, limit_s=10_000)
        self.machine = self.simulation.machine("broker")
        self.broker = SimBroker(self.machine)
        self.world = self.simulation.machine("client").process("client").world
        self.sent: list[bytes] = []

    async def connect(self) -> SimClient:
        return await SimClient.connect(self.world, "broker", PORT)

    async def fill(self, count: int = 40) -> None:
        client = await self.connect()
        await client.create_topic("t", 1, SMALL_SEGMENTS)
        for number in range(count):
            batch = batch_of([b"%d " % number + bytes(100)], timestamp_ms=1_700_000_000_000 + 1000 * number)
            assert (await client.produce("t", 0, batch)).error_code == 0
            self.sent.append(body_of(batch))
        client.close()

    def files(self, suffix: str) -> list[str]:
        names = self.machine.disk.list_dir(FOLDER)
        return [f"{FOLDER}/{name}" for name in names if name.endswith(suffix)]

    async def bodies(self) -> list[bytes]:
        return [body_of(batch.content) for batch in await (await self.connect()).read_all("t", 0)]

    def run(self, drive: Callable[[], Awaitable[None]]) -> None:
        async def main() -> None:
            await self.broker.start()
            await self.fill()
            await drive()

        self.simulation.run(main())


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.simulation.close()


@pytest.mark.parametrize("restart", [False, True])
def test_what_is_not_in_memory_is_read_beside_the_loop(bench: Bench, restart: bool) -> None:
    async def drive() -> None:
        assert len(bench.files(".log")) > 3
        if restart:
            await bench.broker.stop()
            await bench.broker.start()
        for path in bench.files("log") + bench.files("index"):
            bench.machine.disk.evict(path)
        assert await bench.bodies() == bench.sent

    bench.run(drive)


def test_a_changed_byte_is_not_served_after_a_restart(bench: Bench) -> None:
    async def drive() -> None:
        await bench.broker.stop()
        bench.machine.disk.corrupt(bench.files(".log")[1], 150)
        await bench.broker.start()
        client = await bench.connect()
        offset, found, error = 0, [], Error.NONE
        while error is Error.NONE:
            answer = await client.fetch("t", 0, offset, max_bytes=200)
            error = Error(answer.error_code)
            for batch in batches_of(answer):
                found.append(body_of(batch.content))
                offset = batch.header.next_offset
            assert offset < 40
        assert error in (Error.KAFKA_STORAGE_ERROR, Error.CORRUPT_MESSAGE)
        assert found == bench.sent[: len(found)] and len(found) > 1

    bench.run(drive)


def test_a_changed_byte_is_not_served_to_a_session_that_came_before_its_topic(bench: Bench) -> None:
    async def drive() -> None:
        await bench.broker.stop()
        bench.machine.disk.corrupt(bench.files(".log")[0], 80)
        await bench.broker.start()
        assert bench.broker.running is not None
        partitions = bench.broker.running.broker.partitions
        topic_id = partitions.find("t", 0).topic_id
        names, partitions._name_of_id = partitions._name_of_id, {}
        view = bench.broker.running.broker.view
        ids, view._topic_of_id = view._topic_of_id, {}
        client = await bench.connect()
        wanted = FetchRequestPartition(partition=0, fetch_offset=0, partition_max_bytes=200)
        request = FetchRequest(topics=[FetchRequestTopic(topic_id=topic_id, partitions=[wanted])], session_epoch=0)
        before = await client.call(request, 13)
        assert before.responses[0].partitions[0].error_code == Error.UNKNOWN_TOPIC_ID
        partitions._name_of_id, view._topic_of_id = names, ids
        after = await client.call(FetchRequest(session_id=before.session_id, session_epoch=1), 13)
        (answer,) = after.responses[0].partitions
        assert answer.error_code == Error.KAFKA_STORAGE_ERROR and not answer.records
        forgotten = FetchRequestForgottenTopic(topic_id=topic_id, partitions=[0])
        request = FetchRequest(session_id=before.session_id, session_epoch=2, forgotten_topics_data=[forgotten])
        assert (await client.call(request, 13)).responses == []

    bench.run(drive)


def test_a_file_that_cannot_be_read_is_an_error_of_its_partition(bench: Bench) -> None:
    async def drive() -> None:
        await bench.broker.stop()
        await bench.broker.start()
        client = await bench.connect()
        bench.machine.disk.remove(bench.files(".log")[1])
        with pytest.raises(ApiError) as refused:
            await client.list_offset("t", 0, 1_700_000_000_000 + 39_000)
        assert refused.value.error is Error.KAFKA_STORAGE_ERROR
        assert (await client.fetch("t", 0, 6)).error_code == Error.KAFKA_STORAGE_ERROR
        assert await client.list_offset("t", 0, -1) == 40

    bench.run(drive)


def test_a_fetch_that_fails_by_our_fault_ends_its_connection(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_found: LogRange) -> str:
        raise RuntimeError("a bug")

    async def drive() -> None:
        await bench.broker.stop()
        await bench.broker.start()
        monkeypatch.setattr(LogRange, "verify", fail)
        with pytest.raises(OSError):
            await (await bench.connect()).fetch("t", 0, 0)
        assert "a fetch failed" in caplog.text

    bench.run(drive)


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("clean", [True, False])
def test_a_changed_index_changes_nothing_that_is_read(bench: Bench, suffix: str, clean: bool) -> None:
    async def drive() -> None:
        if clean:
            await bench.broker.stop()
        else:
            bench.broker.kill()
        for path in bench.files(suffix):
            for offset in range(0, bench.machine.disk.file_size(path), 5):
                bench.machine.disk.corrupt(path, offset, 0xFF)
        await bench.broker.start()
        assert await bench.bodies() == bench.sent
        client = await bench.connect()
        found = await client.list_offset("t", 0, 1_700_000_000_000 + 20_500)
        # After a clean stop indexes are trusted as far as they are plausible, as Kafka trusts them.
        assert found == 21 or (clean and suffix == ".timeindex")

    bench.run(drive)


@pytest.mark.parametrize("suffix", ["checkpoint", "snapshot", "index", "metadata"])
@pytest.mark.parametrize("clean", [True, False])
def test_missing_and_empty_files_beside_the_log_are_made_again(bench: Bench, suffix: str, clean: bool) -> None:
    async def drive() -> None:
        if clean:
            await bench.broker.stop()
        else:
            bench.broker.kill()
        disk = bench.machine.disk
        logs = [f"{DATA}/logs/{name}" for name in disk.list_dir(f"{DATA}/logs") if name.endswith(suffix)]
        for number, path in enumerate([*bench.files(suffix), *logs]):
            if number % 2:
                disk.remove(path)
            else:
                disk.open(path).truncate(0)
        await bench.broker.start()
        assert await bench.bodies() == bench.sent
        client = await bench.connect()
        assert (await client.produce("t", 0, batch_of([b"on"]))).base_offset == 40

    bench.run(drive)


def test_rot_that_nobody_reads_is_found_by_the_scrub(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    async def drive() -> None:
        await bench.broker.stop()
        victim = bench.files(".log")[3]
        bench.machine.disk.corrupt(victim, 80)
        await bench.broker.start()
        await asyncio.sleep(60)  # of the simulated clock
        assert [record.message for record in caplog.records if victim in record.message]

    bench.run(drive)


def test_damage_that_a_fetch_or_a_start_comes_upon_goes_on_record(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[tuple[str, dict[str, object]]] = []
    monkeypatch.setattr(AuditLog, "record", lambda _, event, **fields: events.append((event, fields)))

    async def drive() -> None:
        await bench.broker.stop()
        bench.machine.disk.corrupt(bench.files(".log")[0], 80)
        await bench.broker.start()
        client = await bench.connect()
        assert (await client.fetch("t", 0, 0)).error_code == Error.KAFKA_STORAGE_ERROR
        found = [fields for event, fields in events if event == "corruption_found"]
        assert [(str(fields["partition"]), fields["found_by"]) for fields in found] == [("t-0", "a fetch")]
        assert (await client.produce("t", 0, batch_of([b"new"]))).error_code == 0
        bench.broker.kill()
        last = bench.files(".log")[-1]
        bench.machine.disk.corrupt(last, bench.machine.disk.file_size(last) - 1)
        await bench.broker.start()
        (cut,) = [fields for event, fields in events if event == "log_recovered" and str(fields["partition"]) == "t-0"]
        assert cut["problem"] and cut["cut_at_offset"] is not None

    bench.run(drive)
