"""What can be asked of the znode tree, and what it answers: plain data for the tree, its journal and its clients.

A `Write` carries one or more operations that take effect together or not at all. Transactions are what the journal
holds, so their encoding (MessagePack by field name) lives here too.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple, TypeAlias

import msgspec

ANY_VERSION = -1

READ, WRITE, CREATE, DELETE, ADMIN = 1, 2, 4, 8, 16
ALL_PERMISSIONS = READ | WRITE | CREATE | DELETE | ADMIN


class Identity(NamedTuple):
    """Somebody, in one of ZooKeeper's schemes: ("world", "anyone"), ("digest", "user:hash"), ("super", "")."""

    scheme: str
    name: str


class Acl(NamedTuple):
    """What one identity may do with a znode."""

    permissions: int
    identity: Identity


ANYONE = Identity("world", "anyone")
OPEN_ACL = (Acl(ALL_PERMISSIONS, ANYONE),)


class Stat(NamedTuple):
    """What ZooKeeper tells about a znode beside its data."""

    czxid: int
    mzxid: int
    ctime_ms: int
    mtime_ms: int
    version: int
    cversion: int
    aversion: int
    ephemeral_owner: int
    data_length: int
    num_children: int
    pzxid: int


class Create(msgspec.Struct, frozen=True, tag="create", omit_defaults=True):
    """Add a znode; a sequential one gets ten digits after its name, a container goes some time after its last child."""

    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequential: bool = False
    acl: tuple[Acl, ...] = OPEN_ACL
    container: bool = False


class Delete(msgspec.Struct, frozen=True, tag="delete", omit_defaults=True):
    """Remove a znode that has no children."""

    path: str
    version: int = ANY_VERSION


class SetData(msgspec.Struct, frozen=True, tag="set", omit_defaults=True):
    """Replace the data of a znode."""

    path: str
    data: bytes
    version: int = ANY_VERSION


class SetAcl(msgspec.Struct, frozen=True, tag="acl", omit_defaults=True):
    """Replace the access control list of a znode; the version is that of the list."""

    path: str
    acl: tuple[Acl, ...]
    version: int = ANY_VERSION


class Check(msgspec.Struct, frozen=True, tag="check", omit_defaults=True):
    """Succeed only if the znode exists and has this version."""

    path: str
    version: int = ANY_VERSION


Operation: TypeAlias = Create | Delete | SetData | SetAcl | Check


class Write(msgspec.Struct, frozen=True, tag="write", omit_defaults=True):
    """Operations of one session, all or nothing; `identities` are who its connection has proven to be."""

    session_id: int
    operations: tuple[Operation, ...]
    identities: tuple[Identity, ...] = ()


class OpenSession(msgspec.Struct, frozen=True, tag="open", omit_defaults=True):
    """Begin a session; its id must be new."""

    session_id: int
    timeout_ms: int
    password: bytes = b""


class CloseSession(msgspec.Struct, frozen=True, tag="close", omit_defaults=True):
    """End a session, closed or expired, and remove its ephemeral znodes."""

    session_id: int


class RemoveContainer(msgspec.Struct, frozen=True, tag="container", omit_defaults=True):
    """Remove a container that had children and has none any more; nobody's session asks for that."""

    path: str
    session_id: int = 0


Transaction: TypeAlias = Write | OpenSession | CloseSession | RemoveContainer


class Created(NamedTuple):
    """The answer to a `Create`: its path as it was made, with the digits of a sequential one.

    Over the network a multi does not tell the stat.
    """

    path: str
    stat: Stat | None = None


class Changed(NamedTuple):
    """The answer to a `SetData` or `SetAcl`."""

    stat: Stat


class Done(NamedTuple):
    """The answer to a `Delete` or a `Check`."""


class Failed(NamedTuple):
    """An operation without effect. Code 0: undone because a later one failed."""

    code: int
    message: str = ""


Result: TypeAlias = Created | Changed | Done | Failed


class EventType(IntEnum):
    """What a watch tells, with ZooKeeper's numbers."""

    CREATED = 1
    DELETED = 2
    DATA_CHANGED = 3
    CHILDREN_CHANGED = 4


class WatchEvent(NamedTuple):
    """Something happened to a znode that was watched."""

    type: EventType
    path: str


class JournalEntry(msgspec.Struct, frozen=True):
    """One transaction that changed the tree, with its number and time: all that a replay needs."""

    zxid: int
    time_ms: int
    transaction: Transaction


_encoder = msgspec.msgpack.Encoder()
_entry_decoder = msgspec.msgpack.Decoder(list[JournalEntry])


def encode_entries(entries: list[JournalEntry]) -> bytes:
    """The entries as the journal keeps them."""
    return _encoder.encode(entries)


def decode_entries(data: bytes) -> list[JournalEntry]:
    """The inverse of `encode_entries`; msgspec.DecodeError if it is not one."""
    return _entry_decoder.decode(data)


def size_bytes(operations: tuple[Operation, ...] | list[Operation]) -> int:
    """About how many bytes the operations take in a request to ZooKeeper, which refuses one of a mebibyte."""
    return sum(len(operation.path) + 64 + len(getattr(operation, "data", b"")) for operation in operations)
