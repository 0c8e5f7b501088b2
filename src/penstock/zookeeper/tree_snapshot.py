"""A whole znode tree as bytes, and back: what a snapshot file holds.

Children and the ephemerals of sessions are not written: they follow from the paths and owners.
"""

from __future__ import annotations

import msgspec

from penstock.zookeeper.operations import OPEN_ACL, Acl
from penstock.zookeeper.paths import name_of, parent_of
from penstock.zookeeper.tree import Node, Session, Tree


class _NodeRecord(msgspec.Struct, omit_defaults=True):
    path: str
    data: bytes
    czxid: int
    mzxid: int
    pzxid: int
    ctime_ms: int
    mtime_ms: int
    ephemeral_owner: int = 0
    version: int = 0
    aversion: int = 0
    creates: int = 0
    acl: tuple[Acl, ...] = OPEN_ACL
    is_container: bool = False


class _SessionRecord(msgspec.Struct, omit_defaults=True):
    session_id: int
    timeout_ms: int
    password: bytes = b""


class _TreeRecord(msgspec.Struct):
    last_zxid: int
    sessions: list[_SessionRecord]
    nodes: list[_NodeRecord]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(_TreeRecord)


def encode_tree(tree: Tree) -> bytes:
    """The tree as it is now; the same tree gives the same bytes."""
    sessions = [_SessionRecord(id_, session.timeout_ms, session.password) for id_, session in tree.sessions.items()]
    nodes = [_record(path, node) for path, node in tree.nodes.items()]
    sessions.sort(key=lambda record: record.session_id)
    nodes.sort(key=lambda record: record.path)
    return _encoder.encode(_TreeRecord(tree.last_zxid, sessions, nodes))


def decode_tree(data: bytes) -> Tree:
    """The inverse of `encode_tree`; msgspec.DecodeError if it is not one."""
    record = _decoder.decode(data)
    tree = Tree()
    tree.last_zxid = record.last_zxid
    tree.sessions = {session.session_id: Session(session.timeout_ms, session.password) for session in record.sessions}
    for node in record.nodes:
        tree.nodes[node.path] = _node(node)
    for path, restored in tree.nodes.items():
        if path != "/":
            tree.nodes[parent_of(path)].children.add(name_of(path))
        if restored.ephemeral_owner:
            tree.sessions[restored.ephemeral_owner].ephemerals.add(path)
    return tree


def _record(path: str, node: Node) -> _NodeRecord:
    return _NodeRecord(
        path=path,
        data=node.data,
        czxid=node.czxid,
        mzxid=node.mzxid,
        pzxid=node.pzxid,
        ctime_ms=node.ctime_ms,
        mtime_ms=node.mtime_ms,
        ephemeral_owner=node.ephemeral_owner,
        version=node.version,
        aversion=node.aversion,
        creates=node.creates,
        acl=node.acl,
        is_container=node.is_container,
    )


def _node(record: _NodeRecord) -> Node:
    return Node(
        data=record.data,
        acl=OPEN_ACL if record.acl == OPEN_ACL else record.acl,
        czxid=record.czxid,
        mzxid=record.mzxid,
        pzxid=record.pzxid,
        ctime_ms=record.ctime_ms,
        mtime_ms=record.mtime_ms,
        ephemeral_owner=record.ephemeral_owner,
        version=record.version,
        aversion=record.aversion,
        creates=record.creates,
        is_container=record.is_container,
    )
