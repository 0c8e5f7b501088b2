"""A partition's log on a simulated disk, and batches to put into it."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import pytest

from penstock.base.identifiers import TopicPartition
from penstock.log.config import LogConfig
from penstock.log.partition_log import Appended, PartitionLog
from penstock.testing.log_machine import FixedClock
from penstock.testing.sim_disk import SimDisk
from penstock.wire.batch import read_header
from penstock.wire.records import Record, build_batch

PARTITION = TopicPartition("orders", 3)
TOPIC_ID = UUID(int=99)


class Bench:
    """Opens logs on one disk, and appends to them."""

    def __init__(self) -> None:
        self.clock = FixedClock()
        self.disk = SimDisk(wall_ms=self.clock.wall_ms)
        self.disk.make_dirs("/data")
        self.disk.sync_dir("/")
        self.folder = f"/data/{PARTITION}"

    def open(
        self,
        config: LogConfig | None = None,
        *,
        clean: bool = True,
        recovery_point: int = 0,
        log_start_offset: int = 0,
    ) -> PartitionLog:
        return PartitionLog.open(
            self.disk,
            self.clock,
            "/data",
            PARTITION,
            config or LogConfig(),
            topic_id=TOPIC_ID,
            clean_shutdown=clean,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
        )

    def batch(
        self,
        values: Sequence[bytes | None] = (b"v",),
        timestamps: Sequence[int] | None = None,
        **options: int | bool,
    ) -> memoryview:
        times = timestamps or [self.clock.now_ms] * len(values)
        first = int(options.get("base_offset", 0))
        records = [Record(first + n, times[n], b"k", value) for n, value in enumerate(values)]
        return memoryview(bytearray(build_batch(records, **options)))  # type: ignore[arg-type]

    def append(
        self,
        log: PartitionLog,
        count: int = 1,
        *,
        size_bytes: int = 1,
        epoch: int | None = None,
        timestamps: Sequence[int] | None = None,
        **options: int | bool,
    ) -> Appended:
        batch = self.batch([b"x" * size_bytes] * count, timestamps, **options)
        leader_epoch = max(0, log.epochs.latest) if epoch is None else epoch
        return log.append_as_leader(batch, read_header(batch), leader_epoch, self.clock.now_ms)

    def files(self) -> list[str]:
        return self.disk.list_dir(self.folder)


@pytest.fixture
def bench() -> Bench:
    return Bench()
