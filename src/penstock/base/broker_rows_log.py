"""Rows of the broker's settings: what it stores, for how long, and how it reaches the disk.

Most of these are the defaults of a topic's setting: a topic that sets its own overrides them.
"""

from __future__ import annotations

from penstock.base.setting_values import (
    DOUBLE_MAX,
    LONG_MAX,
    Kind,
    at_least,
    between,
    distinct,
    each_one_of,
    not_zero_at_least,
    one_of,
)
from penstock.base.settings import Dynamic, Section, Setting

CLUSTER_WIDE, PER_BROKER = Dynamic.CLUSTER_WIDE, Dynamic.PER_BROKER
COMPRESSION_TYPES = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
FLUSH_MODES = ("os", "always")

# fmt: off
DIRECTORIES = Section("Log directories", "Where partitions are kept.", (
    Setting(name="log.dirs", kind=Kind.LIST, default=None, check=distinct(), falls_back_to=("log.dir",),
            doc="The folders that partitions are kept in, best on different disks. Not given, `log.dir`."),
    Setting(name="log.dir", kind=Kind.LIST, default=("penstock-data",), check=distinct(),
            doc="The folder that partitions are kept in."),
    Setting(name="log.dirs.reserve.bytes", kind=Kind.LONG, default=268435456, unit="bytes", check=at_least(0),
            dynamic=CLUSTER_WIDE,
            doc="Produce requests are refused with an error that clients retry when a disk has less free space than "
                "this, so that reads, deletes and recovery still work on a full one. Penstock's own."),
    Setting(name="cordoned.log.dirs", kind=Kind.LIST, default=(), check=distinct(may_be_empty=True), dynamic=PER_BROKER,
            doc="Folders that get no new partitions; `*` for all of them."),
    Setting(name="log.dir.failure.timeout.ms", kind=Kind.LONG, default=30000, unit="ms", check=at_least(1),
            doc="A broker that cannot tell the controller about a failed folder for this long stops."),
))

SEGMENTS = Section("Segments", "How a partition's log is cut into files.", (
    Setting(name="log.segment.bytes", kind=Kind.INT, default=1073741824, unit="bytes", check=at_least(1048576),
            dynamic=CLUSTER_WIDE, doc="How large a segment file grows before a new one begins."),
    Setting(name="log.roll.ms", kind=Kind.LONG, default=None, unit="ms", check=at_least(1), dynamic=CLUSTER_WIDE,
            falls_back_to=("log.roll.hours",),
            doc="How old a segment grows before a new one begins. Not given, `log.roll.hours`."),
    Setting(name="log.roll.hours", kind=Kind.INT, default=168, unit="hours", check=at_least(1),
            doc="As `log.roll.ms`, in hours."),
    Setting(name="log.roll.jitter.ms", kind=Kind.LONG, default=None, unit="ms", check=at_least(0), dynamic=CLUSTER_WIDE,
            falls_back_to=("log.roll.jitter.hours",),
            doc="How much of that age is taken off at random, so that segments do not all roll at once. Not given, "
                "`log.roll.jitter.hours`."),
    Setting(name="log.roll.jitter.hours", kind=Kind.INT, default=0, unit="hours", check=at_least(0),
            doc="As `log.roll.jitter.ms`, in hours."),
    Setting(name="log.index.interval.bytes", kind=Kind.INT, default=4096, unit="bytes", check=at_least(0),
            dynamic=CLUSTER_WIDE, doc="How many bytes of log there are between two entries of an index."),
    Setting(name="log.index.size.max.bytes", kind=Kind.INT, default=10485760, unit="bytes", check=at_least(4),
            dynamic=CLUSTER_WIDE, doc="How large an index grows before a new segment begins."),
    Setting(name="log.preallocate", kind=Kind.BOOLEAN, default=False, dynamic=CLUSTER_WIDE,
            doc="Accepted and without effect: a segment takes space as it grows."),
    Setting(name="log.segment.delete.delay.ms", kind=Kind.LONG, default=60000, unit="ms", check=at_least(0),
            dynamic=CLUSTER_WIDE,
            doc="Accepted and without effect: a deleted file goes when its last reader has let go of it."),
))

RETENTION = Section("Retention", "How long records are kept.", (
    Setting(name="log.cleanup.policy", kind=Kind.LIST, default=("delete",), dynamic=CLUSTER_WIDE,
            check=each_one_of("compact", "delete", may_be_empty=True),
            doc="What happens to old segments: deleted by age and size, compacted to the last record of each key, or "
                "both. An empty list keeps everything."),
    Setting(name="log.retention.ms", kind=Kind.LONG, default=None, unit="ms", check=not_zero_at_least(-1),
            dynamic=CLUSTER_WIDE, falls_back_to=("log.retention.minutes", "log.retention.hours"),
            doc="How long records are kept; -1 for ever. Not given, `log.retention.minutes`, then "
                "`log.retention.hours`."),
    Setting(name="log.retention.minutes", kind=Kind.INT, default=None, unit="minutes", check=not_zero_at_least(-1),
            doc="As `log.retention.ms`, in minutes."),
    Setting(name="log.retention.hours", kind=Kind.INT, default=168, unit="hours", check=not_zero_at_least(-1),
            doc="As `log.retention.ms`, in hours."),
    Setting(name="log.retention.bytes", kind=Kind.LONG, default=-1, unit="bytes", check=at_least(-1),
            dynamic=CLUSTER_WIDE,
            doc="How large a partition may be before its oldest segments are deleted; -1 without limit."),
    Setting(name="log.retention.check.interval.ms", kind=Kind.LONG, default=300000, unit="ms", check=at_least(1),
            doc="How often logs are looked at for segments to delete."),
))

FLUSHING = Section("Flushing", "When records are forced from the operating system's memory to the disk.", (
    Setting(name="log.flush.mode", kind=Kind.STRING, default="os", check=one_of(*FLUSH_MODES), dynamic=CLUSTER_WIDE,
            doc="`always` syncs records to the disk before their acknowledgement counts; appends that arrive together "
                "share one sync. `os` leaves it to the operating system and to the intervals below, and relies on "
                "replicas. Penstock's own."),
    Setting(name="log.flush.interval.messages", kind=Kind.LONG, default=LONG_MAX, check=at_least(1),
            dynamic=CLUSTER_WIDE, doc="After how many records a partition's log is synced to the disk."),
    Setting(name="log.flush.interval.ms", kind=Kind.LONG, default=None, unit="ms", check=at_least(0),
            dynamic=CLUSTER_WIDE, falls_back_to=("log.flush.scheduler.interval.ms",),
            doc="How long a record may wait before its log is synced to the disk. Not given, "
                "`log.flush.scheduler.interval.ms`."),
    Setting(name="log.flush.scheduler.interval.ms", kind=Kind.LONG, default=LONG_MAX, unit="ms", check=at_least(0),
            doc="Stands for `log.flush.interval.ms` where that is not given; logs are looked at twice a second."),
    Setting(name="log.flush.offset.checkpoint.interval.ms", kind=Kind.INT, default=60000, unit="ms", check=at_least(0),
            doc="How often the recovery points are written, from which a log is checked after a crash."),
    Setting(name="log.flush.start.offset.checkpoint.interval.ms", kind=Kind.INT, default=60000, unit="ms",
            check=at_least(0), doc="How often the start offsets of logs are written."),
    Setting(name="log.initial.task.delay.ms", kind=Kind.LONG, default=30000, unit="ms", check=at_least(0),
            doc="How long after a start the first retention, flush and checkpoint work begins."),
))

RECORDS = Section("Records", "What records are stored as.", (
    Setting(name="compression.type", kind=Kind.STRING, default="producer", check=one_of(*COMPRESSION_TYPES),
            dynamic=CLUSTER_WIDE,
            doc="How batches are compressed on disk; `producer` keeps them as they arrive, which is the fastest."),
    Setting(name="compression.gzip.level", kind=Kind.INT, default=-1, check=between(1, 9, or_equal=-1),
            dynamic=CLUSTER_WIDE, doc="The level where the broker compresses with gzip; -1 is gzip's own default."),
    Setting(name="compression.lz4.level", kind=Kind.INT, default=9, check=between(1, 17), dynamic=CLUSTER_WIDE,
            doc="The level where the broker compresses with lz4."),
    Setting(name="compression.zstd.level", kind=Kind.INT, default=3, check=between(-131072, 22), dynamic=CLUSTER_WIDE,
            doc="The level where the broker compresses with zstd."),
    Setting(name="log.message.timestamp.type", kind=Kind.STRING, default="CreateTime", dynamic=CLUSTER_WIDE,
            check=one_of("CreateTime", "LogAppendTime"),
            doc="Whether a record's timestamp is the producer's or the time of the append."),
    Setting(name="log.message.timestamp.before.max.ms", kind=Kind.LONG, default=LONG_MAX, unit="ms", check=at_least(0),
            dynamic=CLUSTER_WIDE, doc="A record whose timestamp is further in the past than this is refused."),
    Setting(name="log.message.timestamp.after.max.ms", kind=Kind.LONG, default=3600000, unit="ms", check=at_least(0),
            dynamic=CLUSTER_WIDE, doc="A record whose timestamp is further in the future than this is refused."),
))

COMPACTION = Section("Compaction", "How topics with `cleanup.policy=compact` are cleaned.", (
    Setting(name="log.cleaner.enable", kind=Kind.BOOLEAN, default=True,
            doc="Whether logs are compacted at all. Without it the log of the consumer offsets grows for ever."),
    Setting(name="log.cleaner.threads", kind=Kind.INT, default=1, check=at_least(0), dynamic=CLUSTER_WIDE,
            doc="How many logs are compacted at the same time."),
    Setting(name="log.cleaner.backoff.ms", kind=Kind.LONG, default=15000, unit="ms", check=at_least(0),
            dynamic=CLUSTER_WIDE, doc="How long the cleaner sleeps when there is nothing to clean."),
    Setting(name="log.cleaner.dedupe.buffer.size", kind=Kind.LONG, default=134217728, unit="bytes",
            check=at_least(1048576), dynamic=CLUSTER_WIDE,
            doc="How much memory the map of keys may take, for all threads together."),
    Setting(name="log.cleaner.io.buffer.load.factor", kind=Kind.DOUBLE, default=0.9, check=between(0, 1),
            dynamic=CLUSTER_WIDE, doc="How full the map of keys may get; fuller cleans more at once."),
    Setting(name="log.cleaner.io.buffer.size", kind=Kind.INT, default=524288, unit="bytes", check=at_least(0),
            dynamic=CLUSTER_WIDE, doc="How much is read and written at a time, for all threads together."),
    Setting(name="log.cleaner.io.max.bytes.per.second", kind=Kind.DOUBLE, default=DOUBLE_MAX, check=at_least(0),
            dynamic=CLUSTER_WIDE, doc="How many bytes the cleaner reads and writes in a second."),
    Setting(name="log.cleaner.min.cleanable.ratio", kind=Kind.DOUBLE, default=0.5, check=between(0, 1),
            dynamic=CLUSTER_WIDE, doc="How large the uncleaned part of a log must be before it is cleaned again."),
    Setting(name="log.cleaner.min.compaction.lag.ms", kind=Kind.LONG, default=0, unit="ms", check=at_least(0),
            dynamic=CLUSTER_WIDE, doc="How long a record is safe from compaction."),
    Setting(name="log.cleaner.max.compaction.lag.ms", kind=Kind.LONG, default=LONG_MAX, unit="ms", check=at_least(1),
            dynamic=CLUSTER_WIDE, doc="How long a record may go without compaction."),
    Setting(name="log.cleaner.delete.retention.ms", kind=Kind.LONG, default=86400000, unit="ms", check=at_least(0),
            dynamic=CLUSTER_WIDE, doc="How long the mark of a deleted key stays in a compacted log."),
))
# fmt: on

SECTIONS = (DIRECTORIES, SEGMENTS, RETENTION, FLUSHING, RECORDS, COMPACTION)
