"""Settings that are known and checked, but whose effect comes with a part of Penstock that this release does not have.

Giving one is allowed and gives a warning, so that a file written for a cluster can be used. Giving one without which
the broker would be less safe than its owner believes stops the start. A name that ends with a dot stands for all that
begin with it.
"""

from __future__ import annotations

from types import MappingProxyType

_CLUSTER = "this release runs one broker"
_COMPACTION = "compaction is not in this release"
_QUOTAS = "quotas are not in this release"
_SECURITY = "this release has plain listeners only"

PENDING_SETTINGS = MappingProxyType(
    {
        "request.timeout.ms": _CLUSTER,
        "unclean.leader.election.": _CLUSTER,
        "auto.leader.rebalance.enable": _CLUSTER,
        "leader.imbalance.": _CLUSTER,
        "controlled.shutdown.enable": _CLUSTER,
        "replica.fetch.": _CLUSTER,
        "replica.lag.time.max.ms": _CLUSTER,
        "replica.socket.": _CLUSTER,
        "replica.selector.class": _CLUSTER,
        "replica.alter.log.dirs.": _CLUSTER,
        "replication.quota.": _CLUSTER,
        "leader.replication.": _CLUSTER,
        "follower.replication.": _CLUSTER,
        "alter.log.dirs.": _CLUSTER,
        "log.dir.failure.timeout.ms": _CLUSTER,
        "log.cleaner.": _COMPACTION,
        "quota.": _QUOTAS,
        "controller.quota.": _QUOTAS,
        "max.connection.creation.rate": _QUOTAS,
        "ssl.": _SECURITY,
        "sasl.": _SECURITY,
        "connections.max.reauth.ms": _SECURITY,
        "connection.failed.authentication.delay.ms": _SECURITY,
        "socket.unauthenticated.request.max.bytes": _SECURITY,
        "delegation.token.": _SECURITY,
        "super.users": _SECURITY,
        "allow.everyone.if.no.acl.found": _SECURITY,
    }
)

NOT_WITHOUT_EFFECT = MappingProxyType(
    {
        "authorizer.class.name": "this release has no ACLs, and would let everybody do everything",
        "zookeeper.set.acl": "this release leaves its znodes open to whoever reaches ZooKeeper",
    }
)
