"""From a frame to its handler."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any

from penstock.base.real_world import real_world
from penstock.base.world import Address
from penstock.broker.handlers.k18_api_versions import API, ApiVersions
from penstock.broker.peer_log import PeerLog
from penstock.broker.requests import CLIENT_ID_LENGTH_MAX, Dispatcher
from penstock.security.principal import ANONYMOUS


def test_a_long_client_id_is_not_kept_whole() -> None:
    """Quotas keep them, also after their connections have gone."""
    clock = real_world().clock
    dispatcher = Dispatcher(PeerLog(clock), clock)
    dispatcher.serve(API, ApiVersions(dispatcher))
    connection: Any = SimpleNamespace(client_id=None, principal=ANONYMOUS, peer=Address("10.0.0.1", 1))
    client_id = "ü" * 16_000
    written = client_id.encode()
    frame = memoryview(struct.pack(">hhih", API.key, 0, 7, len(written)) + written)
    assert dispatcher.route(connection, frame) is not None
    assert connection.client_id == client_id[:CLIENT_ID_LENGTH_MAX]
