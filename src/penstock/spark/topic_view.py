"""The topics of a query as the brokers have them now: which partitions there are, and their offsets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from penstock.base.identifiers import NO_ID, TopicPartition
from penstock.columnar.cluster import Cluster
from penstock.columnar.errors import TopicGone
from penstock.columnar.offsets import offsets_at
from penstock.spark.bounds import Ask
from penstock.spark.given_options import OptionError
from penstock.spark.offsets import EARLIEST, LATEST, Positions
from penstock.spark.options import SourceOptions


@dataclass(frozen=True, slots=True)
class Seen:
    """One look. `missing`: what the options name and is not there, in words."""

    partitions: list[TopicPartition]
    ids: dict[str, UUID]
    """of topics; left out where brokers have none"""
    missing: list[str]


@dataclass(frozen=True, slots=True)
class Edges:
    """Where partitions began and ended at one moment, so that all that is decided by them fits together."""

    first: Positions
    last: Positions
    ask_view: Ask

    def ask(self, partitions: Sequence[TopicPartition], when: int) -> Mapping[TopicPartition, int | None]:
        if when in (EARLIEST, LATEST):
            edge = self.first if when == EARLIEST else self.last
            return {where: edge[where] for where in partitions}
        found = self.ask_view(partitions, when)
        return {where: None if offset is None else min(offset, self.last[where]) for where, offset in found.items()}


class TopicView:
    """Asks the brokers; keeps nothing itself."""

    def __init__(self, cluster: Cluster, options: SourceOptions) -> None:
        self._cluster = cluster
        self._options = options

    def look(self) -> Seen:
        subscription = self._options.subscription
        names = subscription.names
        topics = self._cluster.topics(names)
        if names is None:
            topics = {name: topic for name, topic in topics.items() if not topic.is_internal}
        counts = {name: topic.partitions for name, topic in topics.items()}
        partitions = subscription.partitions(counts)
        read = {where.topic for where in partitions}
        ids = {name: topic.topic_id for name, topic in topics.items() if name in read and topic.topic_id != NO_ID}
        return Seen(partitions, ids, subscription.missing(counts))

    def look_for_all(self) -> Seen:
        """OptionError if something that was named is not there."""
        seen = self.look()
        if seen.missing:
            option = "assign" if self._options.subscription.assigned else "subscribe"
            verb = "does" if len(seen.missing) == 1 else "do"
            raise OptionError(option, f"{', '.join(seen.missing)} {verb} not exist")
        return seen

    def ask(self, partitions: Sequence[TopicPartition], when: int) -> Mapping[TopicPartition, int | None]:
        return offsets_at(self._cluster, partitions, when, committed=self._options.committed)

    def edges(self, partitions: Sequence[TopicPartition]) -> Edges:
        return Edges(self._offsets(partitions, EARLIEST), self._offsets(partitions, LATEST), self.ask)

    def last(self, partitions: Sequence[TopicPartition]) -> Positions:
        """Where partitions end: the last stable offset, or with read_uncommitted the high watermark."""
        return self._offsets(partitions, LATEST)

    def first(self, partitions: Sequence[TopicPartition]) -> Positions:
        """Where partitions begin now; those of topics that are gone are left out."""
        try:
            return self._offsets(partitions, EARLIEST)
        except TopicGone:
            there = set(self.look().partitions)
            return self._offsets([where for where in partitions if where in there], EARLIEST)

    def _offsets(self, partitions: Sequence[TopicPartition], when: int) -> Positions:
        if not partitions:
            return {}
        return {where: offset for where, offset in self.ask(partitions, when).items() if offset is not None}
