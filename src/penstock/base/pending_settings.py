"""Settings that are known and checked, but whose effect comes with a part of Penstock that this release does not have.

Giving one is allowed and gives a warning, so that a file written for a cluster can be used. A name that ends with a
dot stands for all that begin with it.
"""

from __future__ import annotations

from types import MappingProxyType

_SYSTEM = "the operating system sizes the buffers of connections between brokers"

PENDING_SETTINGS = MappingProxyType(
    {
        "request.timeout.ms": "each kind of request between brokers has a time of its own",
        "replica.socket.receive.buffer.bytes": _SYSTEM,
        "alter.log.dirs.": "moves between log directories are paced evenly, without windows of time",
    }
)
