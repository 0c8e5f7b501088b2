"""A broker that compacts on a disk which has no room, or which fails: nothing is lost, nor believed twice."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from penstock.base.errors import Error
from penstock.broker.partition import Partition
from penstock.log.log_directory import LogDirectory
from penstock.testing.sim_broker import DATA, PORT, SimBroker
from penstock.testing.sim_client import SimClient
from penstock.testing.sim_device import os_error
from penstock.testing.sim_world import Simulation
from penstock.wire.records import Record, build_batch, read_records

pytestmark = pytest.mark.sim

FIRST, SECOND = f"{DATA}/first", f"{DATA}/second"
SETTINGS = {
    "log.dirs": f"{FIRST},{SECOND}",
    "log.cleaner.backoff.ms": "50",
    "log.cleaner.io.buffer.size": "2000",
    "log.initial.task.delay.ms": "10",
    "log.cleaner.min.cleanable.ratio": "0.05",
}
WAITS = 2000


class Site:
    """A broker with two disks, and a compacted topic on one of them."""

    def __init__(self, seed: int, policy: str = "compact", **more: str) -> None:
        self.simulation = Simulation(seed, limit_s=100_000)
        self.machine = self.simulation.machine("broker")
        self.policy = policy
        self.broker = SimBroker(
            self.machine, SETTINGS | {name.replace("_", "."): value for name, value in more.items()}
        )
        self.world = self.simulation.machine("client").process("client").world
        self.client: Any = None

    def run(self, drive: Callable[[], Awaitable[None]]) -> None:
        async def main() -> None:
            await self.broker.start()
            self.client = await SimClient.connect(self.world, "broker", PORT)
            await self.client.create_topic("t", configs={"cleanup.policy": self.policy})
            await drive()

        with self.simulation:
            self.simulation.run(main())

    @property
    def partition(self) -> Partition:
        assert self.broker.running is not None
        return next(each for each in self.broker.running.broker.partitions if each.name.topic == "t")

    @property
    def directory(self) -> LogDirectory:
        assert self.broker.running is not None
        return self.broker.running.broker.partitions.directory_of(self.partition)

    async def write(self, rounds: int) -> dict[bytes | None, bytes | None]:
        """Every key again and again; the last value of each."""
        last: dict[bytes | None, bytes | None] = {}
        for number in range(rounds):
            now_ms = self.world.clock.wall_ms()
            records = [Record(n, now_ms, b"k%d" % n, b"%d" % number + bytes(40)) for n in range(5)]
            assert (await self.client.produce("t", 0, build_batch(records))).error_code == Error.NONE
            last |= {record.key: record.value for record in records}
        return last

    async def read(self) -> dict[bytes | None, bytes | None]:
        found: dict[bytes | None, bytes | None] = {}
        offsets = []
        for stored in await self.client.read_all("t", 0, self.partition.log.start_offset):
            for record in read_records(memoryview(stored.content)):
                found[record.key] = record.value
                offsets.append(record.offset)
        assert offsets == sorted(set(offsets))
        return found

    async def until(self, holds: Callable[[], bool]) -> None:
        for _ in range(WAITS):
            if holds():
                return
            await asyncio.sleep(0.05)
        raise AssertionError("that does not come about")

    def close_segment(self) -> None:
        self.partition.log.roll(self.world.clock.wall_ms())

    def is_compacted(self) -> bool:
        log = self.partition.log
        return log.cleaned_offset >= log.segments[-1].base_offset > 0


@pytest.mark.parametrize("operation", ["write", "sync", "rename", "sync_dir"])
def test_a_round_without_room_is_made_again(operation: str) -> None:
    site = Site(4)

    async def drive() -> None:
        last = await site.write(40)
        hit: list[str] = []
        folder = site.partition.log.folder

        def is_of_compaction(begun: Any) -> bool:
            is_hit = ".cleaned" in begun.path
            if operation == "sync_dir":
                is_hit = begun.path == folder and any(".cleaned" in name for name in site.machine.disk.list_dir(folder))
            if is_hit and begun.kind == operation:
                hit.append(begun.path)
            return is_hit and bool(begun.kind == operation)

        site.machine.disk.device.fail_when(is_of_compaction, os_error(errno.ENOSPC, ""), 3)
        site.close_segment()
        await site.until(lambda: len(hit) >= 3 or site.directory.offline is not None)
        assert site.directory.offline is None
        await site.until(site.is_compacted)
        assert await site.read() == last
        assert site.partition.log.end_offset == 200
        last |= await site.write(3)
        assert await site.read() == last

    site.run(drive)


@pytest.mark.parametrize("ending", [".log.cleaned", ".index.cleaned", ""])
def test_a_sync_that_fails_ends_the_directory_and_not_the_log(ending: str) -> None:
    """What was to be synced is never tried again; after a restart the log is what it was."""
    site = Site(5)

    async def drive() -> None:
        last = await site.write(40)
        folder = site.partition.log.folder
        is_directory = ending == ""

        def is_of_compaction(begun: Any) -> bool:
            names = site.machine.disk.list_dir(folder)
            is_begun = any(".cleaned" in name or ".swap" in name for name in names)
            if is_directory:
                return begun.kind == "sync_dir" and begun.path == folder and is_begun
            return begun.kind == "sync" and begun.path.endswith(ending)

        site.machine.disk.device.fail_when(is_of_compaction, os_error(errno.EIO, ""))
        site.close_segment()
        directory = site.directory
        await site.until(lambda: directory.offline is not None)
        refused = await site.client.produce("t", 0, build_batch([Record(0, 0, b"k", b"v")]))
        assert refused.error_code == Error.KAFKA_STORAGE_ERROR
        site.broker.kill()
        await site.broker.start()
        site.client = await SimClient.connect(site.world, "broker", PORT)
        assert await site.read() == last
        site.close_segment()
        await site.until(site.is_compacted)
        assert await site.read() == last

    site.run(drive)


@pytest.mark.parametrize("segments", [3, 6, 10])
def test_what_retention_takes_from_a_round_is_no_failure_of_the_disk(segments: int) -> None:
    site = Site(6, "compact,delete", log_cleaner_io_max_bytes_per_second="20000", log_retention_check_interval_ms="100")

    async def drive() -> None:
        last: dict[bytes | None, bytes | None] = {}
        for _ in range(10):
            last |= await site.write(20)
            site.close_segment()
        assert site.broker.running is not None
        compactor = site.broker.running.broker.compactor
        await site.until(lambda: compactor.running > 0)
        await asyncio.sleep(0.3)
        partition = site.partition
        start = partition.log.segments[segments].base_offset
        await site.broker.running.broker.partitions.delete_records(partition, start)
        await site.until(lambda: partition.log.segments[0].base_offset >= start)
        await asyncio.sleep(20)
        assert site.directory.offline is None and not compactor.left_alone
        last |= await site.write(3)
        site.close_segment()
        await site.until(site.is_compacted)
        assert await site.read() == last

    site.run(drive)


def test_a_move_to_another_disk_ends_the_round_and_neither_disk() -> None:
    site = Site(7, log_cleaner_io_max_bytes_per_second="20000")

    async def drive() -> None:
        last: dict[bytes | None, bytes | None] = {}
        for _ in range(10):
            last |= await site.write(20)
            site.close_segment()
        assert site.broker.running is not None
        broker = site.broker.running.broker
        await site.until(lambda: broker.compactor.running > 0)
        await asyncio.sleep(0.3)
        home = site.directory
        target = FIRST if home.path == SECOND else SECOND
        broker.replica_moves.begin(site.partition.name, target)
        await site.until(lambda: site.directory is not home)
        site.close_segment()  # the copy is one segment
        await site.until(site.is_compacted)
        assert home.offline is None and site.directory.offline is None and not broker.compactor.left_alone
        assert await site.read() == last
        names = site.machine.disk.list_dir(site.partition.log.folder)
        assert not [name for name in names if ".cleaned" in name or ".swap" in name]

    site.run(drive)


def test_why_every_byte_went_is_on_record() -> None:
    site = Site(8, "compact,delete", log_retention_check_interval_ms="100")
    events: list[tuple[str, dict[str, Any]]] = []

    async def drive() -> None:
        assert site.broker.running is not None
        partitions = site.broker.running.broker.partitions
        partitions.record = lambda event, **fields: events.append((event, fields))
        await site.write(20)
        size_bytes = site.partition.log.size_bytes
        site.close_segment()
        await site.until(site.is_compacted)
        left_bytes = site.partition.log.size_bytes
        await partitions.delete_records(site.partition, 100)
        await site.until(lambda: site.partition.log.segments[0].base_offset == 100)
        await site.until(lambda: len(events) >= 2)
        told = {event: fields for event, fields in events}
        assert (told["log_compacted"]["why"], told["log_compacted"]["size_bytes"]) == (
            "compaction",
            size_bytes - left_bytes,
        )
        assert (told["segment_deleted"]["why"], told["segment_deleted"]["size_bytes"]) == ("start offset", left_bytes)
        assert partitions.removed_bytes == {"compaction": size_bytes - left_bytes, "start offset": left_bytes}

    site.run(drive)
