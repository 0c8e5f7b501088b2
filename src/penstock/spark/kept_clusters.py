"""Connections to brokers that outlive a task: a Python process of Spark runs many tasks, one after the other.

    with kept_cluster(settings) as cluster:
        …

Whoever uses a cluster has it alone. Afterwards it waits for the next one that comes with the same settings. Where
something went wrong it is closed instead, because nobody knows what its connections would still answer.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.columnar.cluster import Cluster
from penstock.columnar.settings import ClientSettings

CLUSTERS_MAX = 8

#: By process, too: one that was forked must not use the sockets of its parent.
_waiting: dict[tuple[int, ClientSettings], Cluster] = {}


@contextmanager
def kept_cluster(settings: ClientSettings) -> Iterator[Cluster]:
    """A cluster for as long as the block runs."""
    key = os.getpid(), settings
    cluster = _waiting.pop(key, None) or Cluster(settings)
    try:
        yield cluster
    except BaseException:
        cluster.close()
        raise
    replaced = _waiting.pop(key, None)
    _waiting[key] = cluster
    for spare in (replaced, _oldest_spare()):
        if spare is not None:
            spare.close()


def _oldest_spare() -> Cluster | None:
    if len(_waiting) <= CLUSTERS_MAX:
        return None
    return _waiting.pop(next(iter(_waiting)))
