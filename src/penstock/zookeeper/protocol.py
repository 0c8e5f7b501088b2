"""ZooKeeper's client protocol: its requests and answers as records, and how they lie in frames.

A connection begins with a `ConnectRequest` and its answer. From then on the client sends (number, operation, record),
and the server answers in the same order with (number, zxid, error, record), or, unasked and numbered -1, with what
happened to a watched znode. A frame has an int32 size before it.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Any, NamedTuple

from penstock.zookeeper import operations as ops
from penstock.zookeeper.errors import BadArgumentsError, UnimplementedError
from penstock.zookeeper.jute import (
    Acls,
    Bool,
    Bytes,
    Int,
    Long,
    NodeStat,
    Text,
    Texts,
    write_boolean,
    write_record,
)

NOTIFICATION_XID = -1
PING_XID = -2
AUTH_XID = -4
SET_WATCHES_XID = -8
CONNECTED_STATE = 3  # of the client, as every event says it


class Op(IntEnum):
    """The operations of ZooKeeper 3.8 that a client can ask for."""

    CREATE = 1
    DELETE = 2
    EXISTS = 3
    GET_DATA = 4
    SET_DATA = 5
    GET_ACL = 6
    SET_ACL = 7
    GET_CHILDREN = 8
    SYNC = 9
    PING = 11
    GET_CHILDREN2 = 12
    CHECK = 13
    MULTI = 14
    CREATE2 = 15
    CHECK_WATCHES = 17
    REMOVE_WATCHES = 18
    CREATE_CONTAINER = 19
    CREATE_TTL = 21
    MULTI_READ = 22
    AUTH = 100
    SET_WATCHES = 101
    SASL = 102
    GET_EPHEMERALS = 103
    GET_ALL_CHILDREN_NUMBER = 104
    SET_WATCHES2 = 105
    ADD_WATCH = 106
    WHO_AM_I = 107
    CLOSE = -11
    ERROR = -1


class ConnectRequest(NamedTuple):
    """Begin a session, or (with its id and password) go on with one. Newer clients add whether they may only read."""

    protocol_version: Int
    last_zxid_seen: Long
    timeout_ms: Int
    session_id: Long
    password: Bytes


class ConnectResponse(NamedTuple):
    """The session; a timeout of 0 says that it has expired."""

    protocol_version: Int
    timeout_ms: Int
    session_id: Long
    password: Bytes


class RequestHeader(NamedTuple):
    """Before each request."""

    xid: Int
    type: Int


class ReplyHeader(NamedTuple):
    """Before each answer."""

    xid: Int
    zxid: Long
    error: Int


class CreateRequest(NamedTuple):
    """`flags`: 1 ephemeral, 2 sequential, 4 container."""

    path: Text
    data: Bytes
    acl: Acls
    flags: Int


class CreateTtlRequest(NamedTuple):
    """The same for a znode that goes when nobody has changed it for so long."""

    path: Text
    data: Bytes
    acl: Acls
    flags: Int
    ttl_ms: Long


class PathVersion(NamedTuple):
    """DELETE and CHECK."""

    path: Text
    version: Int


class PathWatch(NamedTuple):
    """EXISTS, GET_DATA and both GET_CHILDREN."""

    path: Text
    watch: Bool


class SetDataRequest(NamedTuple):
    path: Text
    data: Bytes
    version: Int


class SetAclRequest(NamedTuple):
    path: Text
    acl: Acls
    version: Int


class OnlyPath(NamedTuple):
    """GET_ACL, SYNC, GET_EPHEMERALS and GET_ALL_CHILDREN_NUMBER; also the answers of CREATE and SYNC."""

    path: Text


class PathMode(NamedTuple):
    """ADD_WATCH (0 persistent, 1 recursive too), CHECK_WATCHES and REMOVE_WATCHES (1 children, 2 data, 3 any)."""

    path: Text
    mode: Int


class SetWatches(NamedTuple):
    """The watches of a client that comes again; what happened since `relative_zxid` fires at once."""

    relative_zxid: Long
    data: Texts
    exists: Texts
    children: Texts


class SetWatches2(NamedTuple):
    relative_zxid: Long
    data: Texts
    exists: Texts
    children: Texts
    persistent: Texts
    recursive: Texts


class AuthPacket(NamedTuple):
    type: Int
    scheme: Text
    auth: Bytes


class DataStat(NamedTuple):
    data: Bytes
    stat: NodeStat


class AclStat(NamedTuple):
    acl: Acls
    stat: NodeStat


class PathStat(NamedTuple):
    path: Text
    stat: NodeStat


class OnlyStat(NamedTuple):
    stat: NodeStat


class Children(NamedTuple):
    names: Texts


class ChildrenStat(NamedTuple):
    names: Texts
    stat: NodeStat


class Number(NamedTuple):
    number: Int


class Event(NamedTuple):
    """What happened to a watched znode."""

    type: Int
    state: Int
    path: Text


class Nothing(NamedTuple):
    """No content."""


REQUESTS: dict[Op, type[Any]] = {
    Op.CREATE: CreateRequest,
    Op.CREATE2: CreateRequest,
    Op.CREATE_CONTAINER: CreateRequest,
    Op.CREATE_TTL: CreateTtlRequest,
    Op.DELETE: PathVersion,
    Op.CHECK: PathVersion,
    Op.EXISTS: PathWatch,
    Op.GET_DATA: PathWatch,
    Op.GET_CHILDREN: PathWatch,
    Op.GET_CHILDREN2: PathWatch,
    Op.SET_DATA: SetDataRequest,
    Op.GET_ACL: OnlyPath,
    Op.SET_ACL: SetAclRequest,
    Op.SYNC: OnlyPath,
    Op.PING: Nothing,
    Op.CLOSE: Nothing,
    Op.AUTH: AuthPacket,
    Op.SET_WATCHES: SetWatches,
    Op.SET_WATCHES2: SetWatches2,
    Op.ADD_WATCH: PathMode,
    Op.CHECK_WATCHES: PathMode,
    Op.REMOVE_WATCHES: PathMode,
    Op.GET_EPHEMERALS: OnlyPath,
    Op.GET_ALL_CHILDREN_NUMBER: OnlyPath,
    Op.WHO_AM_I: Nothing,
}

ANSWERS: dict[Op, type[Any]] = {
    Op.CREATE: OnlyPath,
    Op.CREATE2: PathStat,
    Op.CREATE_CONTAINER: PathStat,
    Op.EXISTS: OnlyStat,
    Op.GET_DATA: DataStat,
    Op.SET_DATA: OnlyStat,
    Op.GET_ACL: AclStat,
    Op.SET_ACL: OnlyStat,
    Op.GET_CHILDREN: Children,
    Op.GET_CHILDREN2: ChildrenStat,
    Op.SYNC: OnlyPath,
    Op.GET_EPHEMERALS: Children,
    Op.GET_ALL_CHILDREN_NUMBER: Number,
}

EPHEMERAL, SEQUENTIAL = 1, 2
CONTAINER, WITH_TTL, SEQUENTIAL_WITH_TTL = 4, 5, 6


def frame(*records: Any) -> bytearray:
    """Records one after the other, with their size before them."""
    out = bytearray(4)
    for record in records:
        write_record(record, out)
    return sized(out)


def sized(out: bytearray) -> bytearray:
    """Fill in the size of a frame that begins with room for it."""
    out[:4] = (len(out) - 4).to_bytes(4, "big")
    return out


def operation_of(op: Op, request: Any) -> ops.Operation:
    """What a request asks of the tree."""
    match op:
        case Op.CREATE | Op.CREATE2 | Op.CREATE_CONTAINER | Op.CREATE_TTL:
            return _creation(op, request)
        case Op.DELETE:
            return ops.Delete(request.path, request.version)
        case Op.SET_DATA:
            return ops.SetData(request.path, request.data, request.version)
        case Op.SET_ACL:
            return ops.SetAcl(request.path, request.acl, request.version)
        case Op.CHECK:
            return ops.Check(request.path, request.version)
        case _:
            raise UnimplementedError(f"{op.name} does not change anything")


def _creation(op: Op, request: CreateRequest | CreateTtlRequest) -> ops.Create:
    """As ZooKeeper has it: only the operation for containers makes one, whatever the flags say."""
    if not 0 <= request.flags <= SEQUENTIAL_WITH_TTL:
        raise BadArgumentsError(f"{request.flags} are no flags of a znode")
    if request.flags >= WITH_TTL:
        raise UnimplementedError("znodes with a time to live are not served")
    if op is Op.CREATE_TTL:
        raise BadArgumentsError("a time to live for a znode that shall have none")
    is_container = op is Op.CREATE_CONTAINER
    is_ephemeral = bool(request.flags & EPHEMERAL) and not is_container
    is_sequential = request.flags in (SEQUENTIAL, EPHEMERAL | SEQUENTIAL)
    return ops.Create(request.path, request.data, is_ephemeral, is_sequential, request.acl, is_container)


def request_of(operation: ops.Operation) -> tuple[Op, Any]:
    """The inverse: how a client asks for it."""
    match operation:
        case ops.Create(path, data, is_ephemeral, is_sequential, acl, is_container):
            flags = (EPHEMERAL if is_ephemeral else 0) | (SEQUENTIAL if is_sequential else 0)
            op = Op.CREATE_CONTAINER if is_container else Op.CREATE2
            return op, CreateRequest(path, data, acl, flags or (CONTAINER if is_container else 0))
        case ops.Delete(path, version):
            return Op.DELETE, PathVersion(path, version)
        case ops.SetData(path, data, version):
            return Op.SET_DATA, SetDataRequest(path, data, version)
        case ops.SetAcl(path, acl, version):
            return Op.SET_ACL, SetAclRequest(path, acl, version)
        case ops.Check(path, version):
            return Op.CHECK, PathVersion(path, version)


def connect_response_frame(response: ConnectResponse, *, with_read_only: bool) -> bytearray:
    """Clients that sent the flag get it back; others would not know what it is."""
    out = bytearray(4)
    write_record(response, out)
    if with_read_only:
        write_boolean(False, out)
    return sized(out)
