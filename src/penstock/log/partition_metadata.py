"""The file `partition.metadata` of a partition's folder: which topic the records belong to.

version: 0
topic_id: rLJvB2X7QKSV0RTwqtf5iA
"""

from __future__ import annotations

from uuid import UUID

from penstock.base.errors import ApiError, Error
from penstock.base.identifiers import uuid_from_text, uuid_to_text
from penstock.base.world import Disk, read_file
from penstock.log import names


def encode_topic_id(topic_id: UUID) -> bytes:
    return f"version: 0\ntopic_id: {uuid_to_text(topic_id)}\n".encode()


def read_topic_id(disk: Disk, folder: str) -> UUID | None:
    """The topic of a folder, or None if the file is missing or damaged."""
    try:
        content = read_file(disk, f"{folder}/{names.PARTITION_METADATA_FILE}")
    except FileNotFoundError:
        return None
    fields = dict(line.split(": ", 1) for line in content.decode(errors="replace").splitlines() if ": " in line)
    try:
        return uuid_from_text(fields["topic_id"]) if fields.get("version") == "0" else None
    except (KeyError, ValueError):
        return None


def claim_folder(disk: Disk, folder: str, topic_id: UUID) -> bool:
    """Make the folder and say whose it is, not yet durably; whether that was new. ApiError if another topic has it."""
    known = read_topic_id(disk, folder) if disk.is_dir(folder) else None
    if known is not None:
        if known != topic_id:
            raise ApiError(Error.INCONSISTENT_TOPIC_ID, f"{folder} belongs to topic id {known}, not to {topic_id}")
        return False
    disk.make_dirs(folder)
    file = disk.open(f"{folder}/{names.PARTITION_METADATA_FILE}", create=True)
    try:
        file.truncate(0)
        file.write([encode_topic_id(topic_id)], 0)
    finally:
        file.close()
    return True
