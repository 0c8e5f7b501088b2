"""The settings of a topic: the table, how a value is decided, and the checks for what people ask for.

A topic's own value is the strongest. Where it has none, the broker's setting of `broker_name` counts, with all of its
layers; where there is no such setting, the default. So `retention.ms` may come from the broker's `log.retention.hours`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.base.broker_rows_log import COMPRESSION_TYPES, FLUSH_MODES
from penstock.base.setting_changes import Change, apply_changes
from penstock.base.setting_values import (
    LONG_MAX,
    Check,
    Kind,
    Value,
    at_least,
    between,
    each_one_of,
    format_value,
    matching,
    one_of,
)
from penstock.base.settings import (
    Resolved,
    Section,
    Setting,
    Settings,
    SettingsError,
    Source,
    Synonym,
    Table,
    TypedSettings,
    judge,
    known_reason,
)

IGNORED_TOPIC_SETTINGS: Mapping[str, str] = {
    "message.format.version": "it belongs to older releases of Kafka",
    "message.downconversion.enable": "it belongs to older releases of Kafka",
    "message.timestamp.difference.max.ms": "it belongs to older releases of Kafka",
}
_THROTTLED = matching(
    r"(\*|([0-9]{1,10}:[0-9]{1,10})(,[0-9]{1,10}:[0-9]{1,10})*)?", "`*` or a list of `partition:broker`"
)
_ONLY_FALSE = Check(
    "only `false`", lambda value: "must be false: there is no remote storage" if value is True else None
)

# fmt: off
RETENTION = Section("Retention and compaction", "How long records are kept, and which.", (
    Setting(name="cleanup.policy", kind=Kind.LIST, default=("delete",), broker_name="log.cleanup.policy",
            check=each_one_of("compact", "delete", may_be_empty=True),
            doc="What happens to old segments: `delete` by age and size, `compact` to the last record of each key, or "
                "both. An empty list keeps everything."),
    Setting(name="retention.ms", kind=Kind.LONG, default=604800000, unit="ms", check=at_least(-1),
            broker_name="log.retention.ms", doc="How long records are kept; -1 for ever."),
    Setting(name="retention.bytes", kind=Kind.LONG, default=-1, unit="bytes", check=at_least(-1),
            broker_name="log.retention.bytes",
            doc="How large each partition may be before its oldest segments are deleted; -1 without limit."),
    Setting(name="delete.retention.ms", kind=Kind.LONG, default=86400000, unit="ms", check=at_least(0),
            broker_name="log.cleaner.delete.retention.ms",
            doc="How long the mark of a deleted key stays in a compacted log."),
    Setting(name="min.cleanable.dirty.ratio", kind=Kind.DOUBLE, default=0.5, check=between(0, 1),
            broker_name="log.cleaner.min.cleanable.ratio",
            doc="How large the uncleaned part of a log must be before it is compacted again."),
    Setting(name="min.compaction.lag.ms", kind=Kind.LONG, default=0, unit="ms", check=at_least(0),
            broker_name="log.cleaner.min.compaction.lag.ms", doc="How long a record is safe from compaction."),
    Setting(name="max.compaction.lag.ms", kind=Kind.LONG, default=LONG_MAX, unit="ms", check=at_least(1),
            broker_name="log.cleaner.max.compaction.lag.ms", doc="How long a record may go without compaction."),
))

SEGMENTS = Section("Segments", "How a partition's log is cut into files.", (
    Setting(name="segment.bytes", kind=Kind.INT, default=1073741824, unit="bytes", check=at_least(1048576),
            broker_name="log.segment.bytes", doc="How large a segment file grows before a new one begins."),
    Setting(name="segment.ms", kind=Kind.LONG, default=604800000, unit="ms", check=at_least(1),
            broker_name="log.roll.ms", doc="How old a segment grows before a new one begins."),
    Setting(name="segment.jitter.ms", kind=Kind.LONG, default=0, unit="ms", check=at_least(0),
            broker_name="log.roll.jitter.ms",
            doc="How much of that age is taken off at random, so that segments do not all roll at once."),
    Setting(name="segment.index.bytes", kind=Kind.INT, default=10485760, unit="bytes", check=at_least(4),
            broker_name="log.index.size.max.bytes", doc="How large an index grows before a new segment begins."),
    Setting(name="index.interval.bytes", kind=Kind.INT, default=4096, unit="bytes", check=at_least(0),
            broker_name="log.index.interval.bytes",
            doc="How many bytes of log there are between two entries of an index."),
    Setting(name="preallocate", kind=Kind.BOOLEAN, default=False, broker_name="log.preallocate",
            doc="Accepted and without effect: a segment takes space as it grows."),
    Setting(name="file.delete.delay.ms", kind=Kind.LONG, default=60000, unit="ms", check=at_least(0),
            broker_name="log.segment.delete.delay.ms",
            doc="Accepted and without effect: a deleted file goes when its last reader has let go of it."),
))

WRITING = Section("Writing", "What is accepted, how it is stored, and when it is safe.", (
    Setting(name="max.message.bytes", kind=Kind.INT, default=1048588, unit="bytes", check=at_least(0),
            broker_name="message.max.bytes",
            doc="The largest record batch that is accepted, as it travels (compressed)."),
    Setting(name="min.insync.replicas", kind=Kind.INT, default=1, check=at_least(1), broker_name="min.insync.replicas",
            doc="How many replicas must be in sync for a write with acks=all to be accepted."),
    Setting(name="unclean.leader.election.enable", kind=Kind.BOOLEAN, default=False,
            broker_name="unclean.leader.election.enable",
            doc="Whether a replica that may have missed acknowledged records can become leader when no other is left."),
    Setting(name="flush.mode", kind=Kind.STRING, default="os", check=one_of(*FLUSH_MODES),
            broker_name="log.flush.mode",
            doc="`always` syncs records to the disk before their acknowledgement counts; `os` leaves it to the "
                "operating system and the two settings below. Penstock's own."),
    Setting(name="flush.messages", kind=Kind.LONG, default=LONG_MAX, check=at_least(1),
            broker_name="log.flush.interval.messages", doc="After how many records the log is synced to the disk."),
    Setting(name="flush.ms", kind=Kind.LONG, default=LONG_MAX, unit="ms", check=at_least(0),
            broker_name="log.flush.interval.ms",
            doc="How long a record may wait before the log is synced to the disk."),
    Setting(name="compression.type", kind=Kind.STRING, default="producer", check=one_of(*COMPRESSION_TYPES),
            broker_name="compression.type",
            doc="How batches are compressed on disk; `producer` keeps them as they arrive, which is the fastest."),
    Setting(name="compression.gzip.level", kind=Kind.INT, default=-1, check=between(1, 9, or_equal=-1),
            broker_name="compression.gzip.level",
            doc="The level where the broker compresses with gzip; -1 is gzip's own default."),
    Setting(name="compression.lz4.level", kind=Kind.INT, default=9, check=between(1, 17),
            broker_name="compression.lz4.level", doc="The level where the broker compresses with lz4."),
    Setting(name="compression.zstd.level", kind=Kind.INT, default=3, check=between(-131072, 22),
            broker_name="compression.zstd.level", doc="The level where the broker compresses with zstd."),
    Setting(name="message.timestamp.type", kind=Kind.STRING, default="CreateTime",
            check=one_of("CreateTime", "LogAppendTime"), broker_name="log.message.timestamp.type",
            doc="Whether a record's timestamp is the producer's or the time of the append."),
    Setting(name="message.timestamp.before.max.ms", kind=Kind.LONG, default=LONG_MAX, unit="ms", check=at_least(0),
            broker_name="log.message.timestamp.before.max.ms",
            doc="A record whose timestamp is further in the past than this is refused."),
    Setting(name="message.timestamp.after.max.ms", kind=Kind.LONG, default=3600000, unit="ms", check=at_least(0),
            broker_name="log.message.timestamp.after.max.ms",
            doc="A record whose timestamp is further in the future than this is refused."),
))

OTHERS = Section("Replication limits and remote storage", "Rarely needed.", (
    Setting(name="leader.replication.throttled.replicas", kind=Kind.LIST, default=(), check=_THROTTLED,
            doc="The replicas whose traffic is limited on the leader's side, as `partition:broker`, or `*` for all."),
    Setting(name="follower.replication.throttled.replicas", kind=Kind.LIST, default=(), check=_THROTTLED,
            doc="The replicas whose traffic is limited on the follower's side, as `partition:broker`, or `*` for all."),
    Setting(name="remote.storage.enable", kind=Kind.BOOLEAN, default=False, check=_ONLY_FALSE,
            doc="There is no remote storage: known so that tools which write `false` work."),
    Setting(name="remote.log.copy.disable", kind=Kind.BOOLEAN, default=False, doc="No effect without remote storage."),
    Setting(name="remote.log.delete.on.disable", kind=Kind.BOOLEAN, default=False,
            doc="No effect without remote storage."),
    Setting(name="local.retention.ms", kind=Kind.LONG, default=-2, unit="ms", check=at_least(-2),
            doc="No effect without remote storage: `retention.ms` decides."),
    Setting(name="local.retention.bytes", kind=Kind.LONG, default=-2, unit="bytes", check=at_least(-2),
            doc="No effect without remote storage: `retention.bytes` decides."),
))
# fmt: on

TOPIC_SETTINGS = Table([RETENTION, SEGMENTS, WRITING, OTHERS])


class TopicSettings(TypedSettings):
    """What the settings of one topic are now: its own values over the broker's. Never changes."""

    def __init__(self, broker: Settings, overrides: Mapping[str, str]) -> None:
        self._broker = broker
        # A stored value that this release does not understand is left out rather than failing the topic.
        self.overrides = judge(TOPIC_SETTINGS, overrides, IGNORED_TOPIC_SETTINGS, {}).kept
        self._values: dict[str, Value] = {}

    def value(self, name: str) -> Value:
        if name not in self._values:
            self._values[name] = self._decide(TOPIC_SETTINGS[name])
        return self._values[name]

    def _decide(self, row: Setting) -> Value:
        if row.name in self.overrides:
            return row.parse(self.overrides[row.name])
        return row.default if row.broker_name is None else self._broker.value(row.broker_name)

    def explain(self, name: str) -> Resolved:
        """The value, where it comes from, and every other place that gives one."""
        row = TOPIC_SETTINGS[name]
        value = format_value(self.value(name))
        own = [Synonym(name, value, Source.TOPIC)] if name in self.overrides else []
        if row.broker_name is not None:
            others = self._broker.explain(row.broker_name).synonyms
        else:
            others = (Synonym(name, format_value(row.default), Source.DEFAULT),)
        synonyms = (*own, *others)
        return Resolved(row, value, synonyms[0].source, synonyms, read_only=False)

    def explain_all(self) -> list[Resolved]:
        """Every setting there is."""
        return [self.explain(name) for name in TOPIC_SETTINGS]


def topic_problems(broker: Settings, overrides: Mapping[str, str]) -> list[str]:
    """Everything wrong with these settings for a topic, as CreateTopics and AlterConfigs bring them."""
    judgement = judge(TOPIC_SETTINGS, overrides, IGNORED_TOPIC_SETTINGS, {})
    return judgement.problems or _cross_problems(TopicSettings(broker, overrides))


def altered_overrides(broker: Settings, overrides: Mapping[str, str], changes: Iterable[Change]) -> dict[str, str]:
    """A topic's settings after the changes; SettingsError with all problems."""
    topic = TopicSettings(broker, overrides)
    changed = apply_changes(TOPIC_SETTINGS, overrides, changes, topic, IGNORED_TOPIC_SETTINGS)
    problems = topic_problems(broker, changed)
    if problems:
        raise SettingsError(problems)
    return {name: text for name, text in changed.items() if known_reason(name, IGNORED_TOPIC_SETTINGS) is None}


def _cross_problems(topic: TopicSettings) -> list[str]:
    least, most = topic.integer("min.compaction.lag.ms"), topic.integer("max.compaction.lag.ms")
    if least > most:
        return [f"min.compaction.lag.ms ({least}) must not be greater than max.compaction.lag.ms ({most})"]
    return []
