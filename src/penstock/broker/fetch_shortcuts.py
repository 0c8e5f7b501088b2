"""Which fetches leave a shortcut with their connection, and what it is made of; `_fetch_again.py` is the shortcut."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING
from uuid import UUID

from penstock.broker._fetch_again import FetchAgain
from penstock.broker.connection import Connection
from penstock.broker.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH, FetchedPartition, FetchSession
from penstock.broker.rights import HotAsker
from penstock.security.acls import Operation, ResourceType
from penstock.wire.fetch_response import FLEXIBLE_SINCE
from penstock.wire.fetch_shape import FIRST_SHAPED_VERSION, layout_of, shape_of
from penstock.wire.messages.k01_fetch import API, FetchRequest

if TYPE_CHECKING:
    from penstock.broker.handlers.k01_fetch import Fetch

READ_COMMITTED = 1


def fetch_again(
    handler: Fetch,
    connection: Connection,
    version: int,
    frame: memoryview,
    position: int,
    request: FetchRequest,
    session: FetchSession | None,
    item: FetchedPartition,
) -> FetchAgain | None:
    """The shortcut for requests like this one, which has been answered with records of one partition; None if there
    is none. `position` is where the body of the request begins in its frame."""
    if not _is_repeatable(request, version):
        return None
    partition = handler.partitions.get(item.name)
    if partition is None or partition.leader is None or (request.rack_id and handler.racks is not None):
        return None
    if not _may_go_on(handler, connection, partition.name.topic):
        return None
    is_committed_only = request.isolation_level == READ_COMMITTED
    topic = item.topic_key.bytes if isinstance(item.topic_key, UUID) else partition.name.topic.encode()
    session_id = session.session_id if session is not None else 0
    return FetchAgain(
        handler,
        frame,
        layout_of(frame, position, version),
        shape_of(version, session_id, topic, partition.name.partition, tells_aborted=is_committed_only),
        partition,
        replace(item),
        session,
        bytes_min=max(request.min_bytes, 1) if request.max_wait_ms > 0 else 1,
        bytes_max=min(item.max_bytes, request.max_bytes, handler.bytes_max),
        is_committed_only=is_committed_only,
        is_flexible=version >= FLEXIBLE_SINCE,
    )


def _is_repeatable(request: FetchRequest, version: int) -> bool:
    """Whether the next request may be the same but for its offset: this one names its partition and begins no session.

    In a session another partition may be the one with records: then its request names none, or not this one.
    """
    if version < FIRST_SHAPED_VERSION or len(request.topics) != 1 or request.forgotten_topics_data:
        return False
    if len(request.topics[0].partitions) != 1:
        return False
    return request.session_epoch > INITIAL_EPOCH or (request.session_epoch == FINAL_EPOCH and request.session_id == 0)


def _may_go_on(handler: Fetch, connection: Connection, topic: str) -> bool:
    """Whether requests like this one need not be judged again, until a rule changes."""
    if not handler.rights.is_on:
        return True
    who = HotAsker(connection.principal, connection.peer.host, API.key)
    return handler.rights.allows(who, Operation.READ, ResourceType.TOPIC, topic, is_told=False)
