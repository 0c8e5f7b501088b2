"""Compacting a log in one go, without a broker, and saying what must be left of it: for tests.

`surviving` is the dumb way: it looks at all records at once, in objects, and goes by the rules alone.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.log.compaction import Compaction, CompactionLimits
from penstock.log.compaction_plan import CompactionPlan, plan_compaction
from penstock.log.partition_log import PartitionLog
from penstock.wire.batch import read_header
from penstock.wire.records import Record, read_records

STEP_BYTES = 1000
SEED = bytes(range(16))


def compact(
    log: PartitionLog,
    now_ms: int,
    *,
    last_stable_offset: int | None = None,
    map_bytes: int = 1 << 20,
    step_bytes: int = STEP_BYTES,
) -> Compaction:
    """One round over all that may be compacted. Blocks."""
    stable = log.producers.first_unstable_offset if last_stable_offset is None else last_stable_offset
    plan = plan_compaction(log, last_stable_offset=min(stable, log.end_offset), now_ms=now_ms)
    return run_compaction(log, plan, now_ms, map_bytes, step_bytes)


def run_compaction(
    log: PartitionLog, plan: CompactionPlan, now_ms: int, map_bytes: int = 1 << 20, step_bytes: int = STEP_BYTES
) -> Compaction:
    compaction = Compaction(log, plan, CompactionLimits(map_bytes, 0.9, SEED), now_ms)
    while not compaction.is_done:
        compaction.step(step_bytes)
        exchange = compaction.exchange
        if exchange is not None:
            assert exchange.adopt(), "the log has changed under a compaction"
            exchange.run()
            assert not exchange.was_undone
            compaction.exchanged()
    log.cleaned_offset = compaction.cleaned_offset
    return compaction


def records_of(batches: Iterable[bytes]) -> list[Record]:
    """The records of batches in order, markers left out."""
    found = []
    for batch in batches:
        if not read_header(batch).is_control:
            found += read_records(memoryview(batch))
    return found


def surviving(records: Iterable[Record], covered_to: int) -> list[Record]:
    """What is left of records when all below an offset is compacted, and tombstones stay."""
    last: dict[bytes, int] = {}
    records = list(records)
    for record in records:
        if record.offset < covered_to and record.key is not None:
            last[record.key] = record.offset
    return [
        record
        for record in records
        if record.offset >= covered_to or (record.key is not None and last[record.key] == record.offset)
    ]
