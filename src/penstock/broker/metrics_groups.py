"""Metrics of consumer groups and transactions, from the broker that looks after them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from penstock.base.identifiers import TopicPartition
from penstock.broker.metrics_format import Family, Kind, Sample, Section, labels
from penstock.broker.metrics_scrape import Scrape
from penstock.groups.committed import CommittedOffset
from penstock.groups.table import Group

_OF_OFFSET = ("group", "topic", "partition")


def _groups(scrape: Scrape) -> Iterable[Sample]:
    for (kind, state), count in sorted(scrape.group_states.items()):
        yield labels(type=kind, state=state), count


def _some_groups(scrape: Scrape) -> Iterator[Group]:
    """As many as get series of their own."""
    left = scrape.series_max
    scrape.omitted["groups"] = 0
    for log in scrape.broker.groups:
        groups = list(log.machine.table)
        yield from groups[:left]
        scrape.omitted["groups"] += len(groups[left:])
        left -= len(groups[:left])


def _members(scrape: Scrape) -> Iterable[Sample]:
    for group in _some_groups(scrape):
        yield labels(group=group.group_id), group.member_count


def _offsets(scrape: Scrape) -> Iterator[tuple[str, TopicPartition, CommittedOffset]]:
    """(group, partition, offset): as many as get series of their own."""
    left = scrape.series_max
    scrape.omitted["group offsets"] = 0
    for log in scrape.broker.groups:
        committed = log.machine.offsets.committed
        for group_id in list(committed.group_ids()):
            offsets = list(committed.of_group(group_id).items())
            for partition, offset in offsets[:left]:
                yield group_id, partition, offset
            scrape.omitted["group offsets"] += len(offsets[left:])
            left -= len(offsets[:left])


def _tags(group_id: str, name: TopicPartition) -> str:
    return labels(group=group_id, topic=name.topic, partition=name.partition)


def _committed(scrape: Scrape) -> Iterable[Sample]:
    return ((_tags(group_id, name), offset.offset) for group_id, name, offset in _offsets(scrape))


def _lags(scrape: Scrape) -> Iterable[Sample]:
    for group_id, name, offset in _offsets(scrape):
        partition = scrape.broker.partitions.get(name)
        if partition is not None and partition.leader is not None and offset.belongs_to(partition.topic_id):
            yield _tags(group_id, name), max(0, partition.high_watermark - offset.offset)


def _transactions(scrape: Scrape) -> Iterable[Sample]:
    return [(labels(state=state), count) for state, count in sorted(scrape.transaction_states.items())]


# fmt: off
GROUPS: Section[Scrape] = Section("Consumer groups and transactions", """\
Each group and each transactional id is told of by the broker that looks after it. The lag of a group is told where that
broker also leads the partition; the recording rule `penstock:group_lag` puts it together for all partitions of a
cluster.""", (
    Family("penstock_groups", Kind.GAUGE, "Groups by their type and state.", _groups, ("type", "state")),
    Family("penstock_group_members", Kind.GAUGE, "Members of a group.", _members, ("group",)),
    Family("penstock_group_committed_offset", Kind.GAUGE, "How far a group has committed.", _committed, _OF_OFFSET),
    Family("penstock_group_lag", Kind.GAUGE,
           "Committed records that a group has not confirmed to have read, where this broker leads the partition.",
           _lags, _OF_OFFSET),
    Family("penstock_transactions", Kind.GAUGE, "Transactional ids by the state of their transaction.",
           _transactions, ("state",)),
))
# fmt: on
