"""Cutting a follower's log to what its leader has: at the end where the two part, or all of it.

Which offset it is, is decided in `replication/follower.py`; nothing here goes by the high watermark.
"""

from __future__ import annotations

import logging

from penstock.broker.partition import Partition
from penstock.broker.reworking import rework
from penstock.replication.follower import EpochEnd, Placed, cut_offset

logger = logging.getLogger(__name__)


async def cut_back(partition: Partition, epoch: int, diverging: EpochEnd) -> None:
    """Drop what the leader of an epoch does not have, which is told by where the logs part."""
    log = partition.log

    def own_end_of(epoch: int) -> EpochEnd:
        return EpochEnd(*log.epochs.end_offset_for(epoch, log.end_offset))

    ends = [log.end_offset]

    def cut() -> None:
        offset = cut_offset(diverging, own_end_of, log.start_offset, log.end_offset)
        logger.warning(
            "%s: cut back from offset %d to %d, as the leader has it", partition.name, log.end_offset, offset
        )
        ends[:] = log.end_offset, offset
        log.truncate_to(offset)

    await rework(
        partition, cut, lambda: partition.require_following(epoch), lambda: _record(partition, epoch, ends[0], ends[-1])
    )


async def place(partition: Partition, epoch: int, placed: Placed) -> None:
    """Go on where the leader of an epoch has something: with its end, or anew with its start."""
    log = partition.log
    if placed.offset != log.end_offset and (placed.is_fresh or log.start_offset == log.end_offset):
        logger.warning(
            "%s: begun anew at offset %d, where the leader's log starts, instead of %d",
            partition.name,
            placed.offset,
            log.end_offset,
        )
        await rework(
            partition,
            lambda: log.truncate_fully_and_start_at(placed.offset),
            lambda: partition.require_following(epoch),
            lambda: partition.record(
                "log_begun_anew", partition=partition.name, start_offset=placed.offset, epoch=epoch
            ),
        )
    elif placed.offset < log.end_offset:
        logger.warning(
            "%s: cut back from offset %d to %d, where the leader's log ends",
            partition.name,
            log.end_offset,
            placed.offset,
        )

        def cut() -> None:
            log.truncate_to(placed.offset)

        before = log.end_offset
        await rework(
            partition,
            cut,
            lambda: partition.require_following(epoch),
            lambda: _record(partition, epoch, before, placed.offset),
        )


def _record(partition: Partition, epoch: int, end_offset: int, cut_at: int) -> None:
    partition.record(
        "log_truncated", partition=partition.name, from_offset=cut_at, to_offset=end_offset, leader_epoch=epoch
    )
