"""Topics for tests, also where brokers come and go: whoever was asked may be gone, and there may be for a moment fewer
brokers than a topic wants replicas.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from .client import Admin, Refused
from .polling import wait_until

TRANSPORT, TIMED_OUT, INVALID_REPLICATION_FACTOR = -195, 7, 38
TOPIC_ALREADY_EXISTS, INVALID_PARTITIONS = 36, 37


def create_topics(admin: Admin, topics: Mapping[str, int], settings: Mapping[str, str] | None = None) -> None:
    """With these numbers of partitions."""
    _until_done(lambda: admin.create_topics(topics, settings), TOPIC_ALREADY_EXISTS)


def grow_topic(admin: Admin, topic: str, total: int) -> None:
    """So that it has so many partitions."""
    _until_done(lambda: admin.create_partitions(topic, total), INVALID_PARTITIONS)


def _until_done(ask: Callable[[], None], done_before: int) -> None:
    """Ask again while that may help; the answer to the first one may have been lost, and it was done."""
    refusals: list[Refused] = []

    def is_done() -> bool:
        try:
            ask()
        except Refused as refused:
            if refusals and refused.code == done_before:
                return True
            if refused.code not in (TRANSPORT, TIMED_OUT, INVALID_REPLICATION_FACTOR):
                raise
            refusals.append(refused)
            return False
        return True

    wait_until(is_done, lambda: refusals[-1])
