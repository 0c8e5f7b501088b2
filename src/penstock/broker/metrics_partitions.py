"""Metrics of the partitions on this broker and of the disks they are on."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from penstock.broker.metrics_format import Family, Kind, Number, Sample, Section, labels
from penstock.broker.metrics_scrape import Scrape, is_under_replicated
from penstock.broker.partition import Partition
from penstock.log.log_directory import LogDirectory
from penstock.replication.leader import Leader

_OF_PARTITION = ("topic", "partition")


def _held(read: Callable[[Partition], Number]) -> Callable[[Scrape], Iterable[Sample]]:
    """A number of each partition that is here."""
    return lambda scrape: ((tags, read(partition)) for tags, partition in scrape.partitions)


def _led(read: Callable[[Partition, Leader], Number]) -> Callable[[Scrape], Iterable[Sample]]:
    """A number of each partition that is led here."""
    return lambda scrape: ((tags, read(partition, leader)) for tags, partition, leader in scrape.led)


def _follower_lags(scrape: Scrape) -> Iterable[Sample]:
    for tags, partition, leader in scrape.led:
        for follower_id, follower in leader.followers.items():
            lag = partition.log.end_offset - max(follower.end_offset, partition.log.start_offset)
            yield f'{tags[:-1]},follower="{follower_id}"}}', max(0, lag)


def _removed(scrape: Scrape) -> Iterable[Sample]:
    for tags, partition in scrape.partitions:
        for reason, size_bytes in sorted(partition.log.removed_bytes.items()):
            yield f'{tags[:-1]},reason="{reason}"}}', size_bytes


def _cleaned(scrape: Scrape) -> Iterable[Sample]:
    for tags, partition in scrape.partitions:
        if partition.log.config.compacts:
            yield tags, partition.log.cleaned_offset


def _directories(read: Callable[[LogDirectory], Number]) -> Callable[[Scrape], Iterable[Sample]]:
    def samples(scrape: Scrape) -> Iterable[Sample]:
        for directory in scrape.broker.partitions.directories:
            try:
                yield labels(path=directory.path), read(directory)
            except OSError:  # a disk that does not answer has no numbers; that it failed is told elsewhere
                continue

    return samples


# fmt: off
TOTALS: Section[Scrape] = Section("Replicas on this broker, together", "These count all, however many there are.", (
    Family("penstock_replicas", Kind.GAUGE, "Replicas of partitions on this broker.",
           lambda scrape: [(labels(role="leader"), scrape.held.leaders),
                           (labels(role="follower"), scrape.held.followers)], ("role",)),
    Family("penstock_offline_replicas", Kind.GAUGE,
           "Replicas on this broker that are not served because their log directory has failed.",
           lambda scrape: [("", scrape.held.offline)]),
    Family("penstock_under_replicated_partitions", Kind.GAUGE,
           "Partitions led here of which some replica is not in sync.",
           lambda scrape: [("", scrape.held.under_replicated)]),
    Family("penstock_under_min_isr_partitions", Kind.GAUGE,
           "Partitions led here with fewer replicas in sync than min.insync.replicas: they refuse acks=all.",
           lambda scrape: [("", scrape.held.under_min_isr)]),
    Family("penstock_log_size_bytes", Kind.GAUGE, "Bytes in the logs of all replicas here.",
           lambda scrape: [("", scrape.held.size_bytes)]),
    Family("penstock_removed_bytes_total", Kind.COUNTER,
           "Bytes that went from the logs of this broker, by the reason: time, size and start offset (retention), "
           "compaction, topic deleted, replica moved (to another broker).",
           lambda scrape: [(labels(reason=reason), size_bytes)
                           for reason, size_bytes in sorted(scrape.broker.partitions.removed_bytes.items())],
           ("reason",)),
    Family("penstock_metrics_omitted", Kind.GAUGE,
           "Partitions, groups and offsets of groups that get no series of their own, because there are more than "
           "metrics.series.max.",
           lambda scrape: [(labels(of=of), scrape.omitted[of]) for of in ("partitions", "groups", "group offsets")],
           ("of",)),
))

PARTITIONS: Section[Scrape] = Section("Each partition", """\
For each replica on this broker, leader or follower; those that only a leader knows come from the leader alone. The
counters begin at zero when the broker starts.""", (
    Family("penstock_partition_is_leader", Kind.GAUGE, "1 where this broker leads the partition.",
           _held(lambda partition: partition.leader is not None), _OF_PARTITION),
    Family("penstock_partition_leader_epoch", Kind.GAUGE, "The leader epoch; it grows with every election.",
           _held(lambda partition: partition.epoch), _OF_PARTITION),
    Family("penstock_partition_log_start_offset", Kind.GAUGE, "The first offset that is stored.",
           _held(lambda partition: partition.log.start_offset), _OF_PARTITION),
    Family("penstock_partition_high_watermark", Kind.GAUGE, "The offset up to which records are committed.",
           _held(lambda partition: partition.high_watermark), _OF_PARTITION),
    Family("penstock_partition_log_end_offset", Kind.GAUGE, "The offset that the next record gets.",
           _held(lambda partition: partition.log.end_offset), _OF_PARTITION),
    Family("penstock_partition_high_watermark_lag", Kind.GAUGE,
           "Offsets that are stored here and not committed yet, as far as this broker knows.",
           _held(lambda partition: max(0, partition.log.end_offset - partition.high_watermark)), _OF_PARTITION),
    Family("penstock_partition_size_bytes", Kind.GAUGE, "Bytes in the log.",
           _held(lambda partition: partition.log.size_bytes), _OF_PARTITION),
    Family("penstock_partition_segments", Kind.GAUGE, "Segments of the log.",
           _held(lambda partition: len(partition.log.segments)), _OF_PARTITION),
    Family("penstock_partition_appended_bytes_total", Kind.COUNTER, "Bytes appended as the leader.",
           _held(lambda partition: partition.log.appended_bytes), _OF_PARTITION),
    Family("penstock_partition_appended_records_total", Kind.COUNTER, "Records appended as the leader.",
           _held(lambda partition: partition.log.appended_records), _OF_PARTITION),
    Family("penstock_partition_replicated_bytes_total", Kind.COUNTER, "Bytes fetched from a leader and appended.",
           _held(lambda partition: partition.log.replicated_bytes), _OF_PARTITION),
    Family("penstock_partition_fetched_bytes_total", Kind.COUNTER, "Bytes given to consumers.",
           _held(lambda partition: partition.log.fetched_bytes), _OF_PARTITION),
    Family("penstock_partition_removed_bytes_total", Kind.COUNTER,
           "Bytes that went from the log, by the reason: time, size and start offset (retention), compaction.",
           _removed, (*_OF_PARTITION, "reason")),
    Family("penstock_partition_cleaned_offset", Kind.GAUGE,
           "The offset up to which the log is compacted; of topics that are.",
           _cleaned, _OF_PARTITION),
    Family("penstock_partition_replicas", Kind.GAUGE, "Replicas of the partition; from its leader.",
           _led(lambda _, leader: len(leader.membership.replicas)), _OF_PARTITION),
    Family("penstock_partition_in_sync_replicas", Kind.GAUGE, "Replicas in sync; from the leader.",
           _led(lambda _, leader: len(leader.membership.isr)), _OF_PARTITION),
    Family("penstock_partition_under_replicated", Kind.GAUGE, "1 where some replica is not in sync; from the leader.",
           _led(lambda _, leader: is_under_replicated(leader)), _OF_PARTITION),
    Family("penstock_partition_under_min_isr", Kind.GAUGE,
           "1 where fewer replicas are in sync than min.insync.replicas; from the leader.",
           _led(lambda _, leader: not leader.has_enough), _OF_PARTITION),
    Family("penstock_partition_unstable_offsets", Kind.GAUGE,
           "Committed offsets that read_committed consumers do not get yet, because a transaction before them is "
           "open; from the leader.",
           _led(lambda partition, _: max(0, partition.high_watermark - partition.last_stable_offset)), _OF_PARTITION),
    Family("penstock_partition_follower_lag", Kind.GAUGE,
           "Offsets that a follower has not fetched yet, by its last fetch; from the leader.",
           _follower_lags, (*_OF_PARTITION, "follower")),
))

COMPACTION: Section[Scrape] = Section("Compaction", "Of all logs with `cleanup.policy=compact` on this broker.", (
    Family("penstock_compaction_rounds_total", Kind.COUNTER, "Logs that were compacted, each time one was.",
           lambda scrape: [("", scrape.broker.compactor.counts.rounds)]),
    Family("penstock_compaction_failed_rounds_total", Kind.COUNTER,
           "Rounds that could not be completed: for lack of space, or because of a damaged log or disk.",
           lambda scrape: [("", scrape.broker.compactor.counts.failed_rounds)]),
    Family("penstock_compaction_read_bytes_total", Kind.COUNTER, "Bytes read.",
           lambda scrape: [("", scrape.broker.compactor.counts.read_bytes)]),
    Family("penstock_compaction_written_bytes_total", Kind.COUNTER, "Bytes written anew.",
           lambda scrape: [("", scrape.broker.compactor.counts.written_bytes)]),
    Family("penstock_compaction_removed_records_total", Kind.COUNTER, "Records that went.",
           lambda scrape: [("", scrape.broker.compactor.counts.removed_records)]),
    Family("penstock_compaction_running", Kind.GAUGE, "Rounds under way.",
           lambda scrape: [("", scrape.broker.compactor.running)]),
    Family("penstock_compaction_due", Kind.GAUGE, "Logs that are dirty enough to be compacted, at the last look.",
           lambda scrape: [("", scrape.broker.compactor.counts.due)]),
    Family("penstock_compaction_dirtiest_ratio", Kind.GAUGE,
           "The dirty part of the dirtiest log that is not being compacted, at the last look.",
           lambda scrape: [("", scrape.broker.compactor.counts.dirtiest_ratio)]),
    Family("penstock_compaction_left_alone", Kind.GAUGE,
           "Logs that are damaged, and not compacted until a restart.",
           lambda scrape: [("", len(scrape.broker.compactor.left_alone))]),
))

DISKS: Section[Scrape] = Section("Log directories", "By their path.", (
    Family("penstock_log_dir_offline", Kind.GAUGE, "1 after the disk has failed.",
           _directories(lambda directory: directory.offline is not None), ("path",)),
    Family("penstock_log_dir_free_bytes", Kind.GAUGE, "Free space of its file system.",
           _directories(lambda directory: directory.disk.free_bytes(directory.path)), ("path",)),
    Family("penstock_log_dir_total_bytes", Kind.GAUGE, "Size of its file system.",
           _directories(lambda directory: directory.disk.total_bytes(directory.path)), ("path",)),
))
# fmt: on
