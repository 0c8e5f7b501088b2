"""The producer snapshots in a partition's folder: written at each roll and at a clean close, read at the start.

A snapshot is written without a sync of its own (its checksum tells whether it is whole) and is synced with the next
flush. One that lies beyond what is known of the log must not be trusted, so whoever cuts the log drops it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from penstock.base.world import Disk, read_file
from penstock.log import names
from penstock.log.producer_snapshot import DamagedSnapshot, decode_snapshot, encode_snapshot
from penstock.log.producers import ProducerState, ProducerStates
from penstock.log.removal import remove_if_there

logger = logging.getLogger(__name__)


def snapshot_path(folder: str, offset: int) -> str:
    return f"{folder}/{names.offset_name(offset)}{names.SNAPSHOT}"


def snapshot_offsets(file_names: Iterable[str]) -> list[int]:
    """The offsets of the snapshots among a folder's files, ascending."""
    found = (names.offset_of(name, names.SNAPSHOT) for name in file_names)
    return sorted(offset for offset in found if offset is not None)


def write_snapshot(disk: Disk, folder: str, offset: int, states: Iterable[ProducerState]) -> str:
    """Write one, not yet durable; returns its path."""
    path = snapshot_path(folder, offset)
    content = encode_snapshot(states)
    file = disk.open(path, create=True)
    try:
        file.truncate(0)
        file.write([content], 0)
    finally:
        file.close()
    return path


def load_latest(disk: Disk, folder: str, offsets: list[int], up_to: int, producers: ProducerStates) -> bool:
    """Take over the newest whole snapshot not beyond an offset, if there is one; damaged ones are removed."""
    for offset in reversed(offsets):
        if offset > up_to:
            continue
        path = snapshot_path(folder, offset)
        try:
            states = decode_snapshot(read_file(disk, path))
        except DamagedSnapshot as problem:
            logger.warning("%s is damaged (%s); the state of producers is rebuilt from the log", path, problem)
            remove_if_there(disk, path)
            continue
        except FileNotFoundError:
            continue
        producers.replace(states, offset)
        return True
    return False


def remove_snapshots_after(disk: Disk, folder: str, offset: int) -> list[int]:
    """Remove the snapshots beyond an offset, durably; returns the offsets of the others. Blocks."""
    kept = []
    for snapshot in snapshot_offsets(disk.list_dir(folder)):
        if snapshot > offset:
            remove_if_there(disk, snapshot_path(folder, snapshot))
        else:
            kept.append(snapshot)
    disk.sync_dir(folder)
    return kept
