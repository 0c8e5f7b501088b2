"""The file `meta.properties`: which broker of which cluster a log directory belongs to.

    version=1
    cluster.id=vPeOCWypqUOSepEvx0cbog
    node.id=1
    directory.id=Fw9d1TsFQyeROOEPDqQAIw

Version 0, which Kafka wrote in its ZooKeeper days, says `broker.id`.
"""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID

from penstock.base.identifiers import uuid_from_text, uuid_to_text
from penstock.base.world import Disk, read_file, write_file_durably

META_PROPERTIES_FILE = "meta.properties"


class LogDirectoryError(Exception):
    """A log directory that this broker must not use; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class MetaProperties:
    """The owner of a log directory."""

    node_id: int
    cluster_id: str
    directory_id: UUID


def encode(meta: MetaProperties) -> bytes:
    lines = [
        "version=1",
        f"cluster.id={meta.cluster_id}",
        f"node.id={meta.node_id}",
        f"directory.id={uuid_to_text(meta.directory_id)}",
    ]
    return ("\n".join(lines) + "\n").encode()


def parse_properties(content: bytes) -> dict[str, str]:
    """The keys and values of a Java properties file, as far as these files use the format."""
    found = {}
    for line in content.decode(errors="replace").splitlines():
        line = line.strip()
        if line and not line.startswith(("#", "!")):
            key, _, value = line.partition("=")
            found[key.strip()] = value.strip().replace("\\", "")
    return found


def read_meta_properties(disk: Disk, directory: str) -> dict[str, str] | None:
    """What the file says, or None if there is none. An empty one is an error: it says nothing."""
    path = f"{directory}/{META_PROPERTIES_FILE}"
    try:
        found = parse_properties(read_file(disk, path))
    except FileNotFoundError:
        return None
    if found.get("version") not in ("0", "1"):
        raise LogDirectoryError(f"{path} is damaged: it has no known version. Restore it, or use another folder.")
    return found


def claim(disk: Disk, directory: str, node_id: int, cluster_id: str, new_id: UUID) -> MetaProperties:
    """Make the directory this broker's, or find that it is; LogDirectoryError if it is another's."""
    found = read_meta_properties(disk, directory)
    known_id = None
    if found is not None:
        _check_owner(directory, found, node_id, cluster_id)
        try:
            known_id = uuid_from_text(found["directory.id"])
        except (KeyError, ValueError):
            pass
    meta = MetaProperties(node_id, cluster_id, known_id or new_id)
    if known_id is None:
        write_file_durably(disk, f"{directory}/{META_PROPERTIES_FILE}", encode(meta))
    return meta


def _check_owner(directory: str, found: dict[str, str], node_id: int, cluster_id: str) -> None:
    owner = found.get("node.id", found.get("broker.id"))
    if owner != str(node_id):
        raise LogDirectoryError(f"{directory} belongs to broker {owner}, this is broker {node_id}.")
    if found.get("cluster.id") != cluster_id:
        raise LogDirectoryError(f"{directory} belongs to cluster {found.get('cluster.id')}, this is {cluster_id}.")
