"""The address of a ZooKeeper ensemble as Kafka writes it: `host:port,host:port/chroot`.

Every server of the ensemble is named, and the chroot, below which all our znodes are, comes once, at the end. A port
that is left out is 2181.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from penstock.base.world import Address

PORT = 2181

_SERVER = re.compile(r"(?:\[([0-9a-fA-F:.]+(?:%[a-zA-Z0-9]+)?)\]|([^:/\[\]\s,]+))(?::([0-9]{1,5}))?")
_CHROOT = re.compile(r"(?:/(?!\.{1,2}(?:/|$))[^/,\s\x00-\x1f\x7f]+)+")


class ZooKeeperConnect(NamedTuple):
    """Where the cluster's state lives; `chroot` is empty, or a path without a slash at its end."""

    servers: tuple[Address, ...]
    chroot: str

    def __str__(self) -> str:
        return ",".join(str(server) for server in self.servers) + self.chroot


def parse_zookeeper_connect(text: str) -> ZooKeeperConnect:
    """ValueError, with a sentence, if it is no such address."""
    listed, slash, rest = text.strip().partition("/")
    chroot = (slash + rest).rstrip("/")
    if chroot and _CHROOT.fullmatch(chroot) is None:
        raise ValueError(f"{chroot!r} is not a path of ZooKeeper; the chroot comes once, after the last server")
    servers = [_server(part.strip()) for part in listed.split(",")]
    twice = next((server for server in servers if servers.count(server) > 1), None)
    if twice is not None:
        raise ValueError(f"{twice} is named twice")
    return ZooKeeperConnect(tuple(servers), chroot)


def _server(text: str) -> Address:
    match = _SERVER.fullmatch(text)
    port = PORT if match is None or match[3] is None else int(match[3])
    if match is None or not 0 < port <= 65535:
        raise ValueError(f"{text!r} is not HOST:PORT (an IPv6 address in brackets: [::1]:2181)")
    return Address(match[1] or match[2], port)
