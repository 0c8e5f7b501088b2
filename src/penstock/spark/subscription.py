"""Which partitions a query reads: topics by name, by a pattern (`base/topic_patterns`), or partitions one by one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from penstock.base.identifiers import TopicPartition
from penstock.base.topic_patterns import PatternError, topic_matcher
from penstock.spark.given_options import OptionError, shown


@dataclass(frozen=True, slots=True)
class Subscription:
    """One of the three is given."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: tuple[TopicPartition, ...] = ()

    @property
    def names(self) -> tuple[str, ...] | None:
        """The topics to ask brokers for; None: all of them."""
        if self.pattern is not None:
            return None
        return self.topics or tuple(dict.fromkeys(where.topic for where in self.assigned))

    def partitions(self, counts: Mapping[str, int]) -> list[TopicPartition]:
        """What there is to read when the topics have so many partitions; sorted."""
        if self.assigned:
            return [where for where in self.assigned if where.partition < counts.get(where.topic, 0)]
        matches = self._matches()
        return [
            TopicPartition(topic, partition)
            for topic in sorted(counts)
            if matches(topic)
            for partition in range(counts[topic])
        ]

    def missing(self, counts: Mapping[str, int]) -> list[str]:
        """What was named and is not there: topics, or partitions of `assign`. A pattern names nothing."""
        if self.assigned:
            absent = [where for where in self.assigned if where.partition >= counts.get(where.topic, 0)]
            topics = dict.fromkeys(where.topic for where in absent if where.topic not in counts)
            return [f"topic {topic}" for topic in topics] + [
                f"partition {where.partition} of topic {where.topic}" for where in absent if where.topic in counts
            ]
        return [f"topic {topic}" for topic in self.topics if topic not in counts]

    def _matches(self) -> Callable[[str], bool]:
        if self.pattern is None:
            return frozenset(self.topics).__contains__
        return topic_matcher(self.pattern)


def parse_pattern(option: str, text: str) -> str:
    """The pattern itself, if it can be used."""
    try:
        topic_matcher(text)
    except PatternError as error:
        raise OptionError(option, f"{shown(text)} {error}" if text else str(error)) from None
    return text
