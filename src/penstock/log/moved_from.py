"""The file `moved-from` of a partition's folder: from which log directories the replica was moved here.

It names directories by their ids. While it names one, a folder of the same partition there is the old replica, which a
crash has kept from being removed, or which was out of reach: it is stale, however whole it looks. Afterwards the name
is taken out.
"""

from __future__ import annotations

from collections.abc import Iterable
from uuid import UUID

from penstock.base.identifiers import uuid_from_text, uuid_to_text
from penstock.base.world import Disk, read_file, write_file_durably
from penstock.log import names


def read_moved_from(disk: Disk, folder: str) -> tuple[UUID, ...]:
    """The directories; none if there is no such file."""
    try:
        content = read_file(disk, f"{folder}/{names.MOVED_FROM_FILE}")
    except FileNotFoundError:
        return ()
    found = []
    for line in content.decode(errors="replace").splitlines():
        try:
            found.append(uuid_from_text(line))
        except ValueError:
            continue  # damaged: it says nothing
    return tuple(found)


def write_moved_from(disk: Disk, folder: str, directory_ids: Iterable[UUID]) -> None:
    """Put these in place of what was there, durably. Blocks."""
    path = f"{folder}/{names.MOVED_FROM_FILE}"
    lines = [f"{uuid_to_text(directory_id)}\n" for directory_id in directory_ids]
    if lines:
        write_file_durably(disk, path, "".join(lines).encode())
    elif disk.exists(path):
        disk.remove(path)
        disk.sync_dir(folder)
