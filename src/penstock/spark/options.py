"""The options of the source, read and checked once: one `SourceOptions` says all that a reader has to know.

Names and meanings are those of Spark's Kafka connector. Ours are `maxBytesPerTrigger`, `commitOffsetsToGroup`,
`pushdown` and `columns`; `kafka.isolation.level` is read_committed unless told otherwise. The same options can be given
to a batch read and to a stream: what limits triggers means nothing in a batch, and what ends a batch is refused in a
stream. The result is plain data, because Spark sends it to its tasks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from penstock.base.identifiers import topic_name_problem
from penstock.columnar.settings import ClientSettings
from penstock.spark.bounds import Bound
from penstock.spark.given_options import GivenOptions, OptionError, shown
from penstock.spark.offsets import EARLIEST, LATEST, parse_assigned, parse_offsets, parse_times
from penstock.spark.planning import Limits, Splits
from penstock.spark.subscription import Subscription, parse_pattern

COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
HEADERS = "headers"
SUBSCRIPTIONS = ("subscribe", "subscribePattern", "assign")
TRIGGER_DELAY_DEFAULT_S = 15 * 60.0
OFFSET_ATTEMPTS_DEFAULT = 3
OFFSET_PAUSE_DEFAULT_S = 1.0

KNOWN = (
    *SUBSCRIPTIONS,
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "failOnDataLoss",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "maxBytesPerTrigger",
    "minPartitions",
    "maxRecordsPerPartition",
    "commitOffsetsToGroup",
    "includeHeaders",
    "pushdown",
    "columns",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    # about the consumer of Spark's connector, of which there is none here
    "groupIdPrefix",
    "kafkaConsumer.pollTimeoutMs",
)
_START_INSTEAD = "set startingOffsets; after a restart the checkpoint says where to go on"
_BYTES_INSTEAD = "keys and values are bytes; convert the columns key and value"
_REFUSED = MappingProxyType(
    {
        "auto.offset.reset": _START_INSTEAD,
        "enable.auto.commit": "set commitOffsetsToGroup to true to let a group follow the query",
        "interceptor.classes": "classes written in Java cannot run here",
        "key.deserializer": _BYTES_INSTEAD,
        "key.serializer": _BYTES_INSTEAD,
        "value.deserializer": _BYTES_INSTEAD,
        "value.serializer": _BYTES_INSTEAD,
    }
)
_HINTS = MappingProxyType(
    {
        "group.id": "is not an option; write kafka.group.id, with commitOffsetsToGroup",
        "path": "is not an option; topics are named with subscribe, and load() gets no path",
        "topic": "is an option of the sink; a source names its topics with subscribe",
        "topics": "is not an option; name topics with subscribe",
    }
)
_ENDINGS = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What `spark.read` or `spark.readStream` was told."""

    settings: ClientSettings
    subscription: Subscription
    start: Bound
    end: Bound
    fail_on_data_loss: bool
    limits: Limits
    splits: Splits
    columns: tuple[str, ...]
    committed: bool
    group: str | None
    """where positions are committed to, if they are"""
    pushdown: bool
    offset_attempts: int
    """how often the end of a partition is asked for when it lies before what was already read"""
    offset_pause_s: float


def parse_options(values: Mapping[str, str]) -> SourceOptions:
    """What can be said without knowing whether it is a batch or a stream; OptionError."""
    given = GivenOptions(values)
    given.check_names(KNOWN, _HINTS, _REFUSED)
    settings = given.client_settings()
    attempts = given.whole("fetchOffset.numRetries", lowest=1)
    return SourceOptions(
        settings=settings,
        subscription=_subscription(given),
        start=_start(given, EARLIEST),
        end=_end(given),
        fail_on_data_loss=given.flag("failOnDataLoss", True),
        limits=_limits(given),
        splits=Splits(given.whole("minPartitions", lowest=1), given.whole("maxRecordsPerPartition", lowest=1)),
        columns=_columns(given),
        committed=_is_committed(settings),
        group=_group(given, settings),
        pushdown=given.flag("pushdown", True),
        offset_attempts=OFFSET_ATTEMPTS_DEFAULT if attempts is None else attempts,
        offset_pause_s=given.duration_s("fetchOffset.retryIntervalMs", OFFSET_PAUSE_DEFAULT_S),
    )


def parse_batch_options(values: Mapping[str, str]) -> SourceOptions:
    """For a batch read, which starts somewhere before the end and ends."""
    options = parse_options(values)
    _refuse(options.start, LATEST, "a batch read cannot start at the latest offset: there would be nothing to read")
    _refuse(options.end, EARLIEST, "a batch read cannot end at the earliest offset: there would be nothing to read")
    return options


def parse_stream_options(values: Mapping[str, str]) -> SourceOptions:
    """For a stream, which has no end and starts with what is new unless told otherwise."""
    given = GivenOptions(values)
    for name in _ENDINGS:
        if name in given:
            raise OptionError(name, "is for batch reads; a stream has no end")
    options = parse_options(values)
    if options.start.option is not None:
        return options
    return replace(options, start=_start(given, LATEST))


def _subscription(given: GivenOptions) -> Subscription:
    named = [name for name in SUBSCRIPTIONS if name in given]
    if len(named) != 1:
        wrong = f"{' and '.join(named)} are given together" if named else "none is given"
        raise OptionError(" · ".join(SUBSCRIPTIONS), f"exactly one of them says what is read; {wrong}")
    text = given.text(named[0]) or ""
    if named[0] == "assign":
        subscription = Subscription(assigned=parse_assigned("assign", text))
        topics = {where.topic for where in subscription.assigned}
    elif named[0] == "subscribePattern":
        return Subscription(pattern=parse_pattern("subscribePattern", text))
    else:
        subscription = Subscription(topics=tuple(dict.fromkeys(given.words("subscribe") or ())))
        topics = set(subscription.topics)
        if not topics:
            raise OptionError("subscribe", "names no topic; write the names with commas between them")
    for topic in sorted(topics):
        if problem := topic_name_problem(topic):
            raise OptionError(named[0], problem)
    return subscription


def _start(given: GivenOptions, default: int) -> Bound:
    strategy = (given.text("startingOffsetsByTimestampStrategy") or "error").lower()
    if strategy not in ("error", "latest"):
        raise OptionError("startingOffsetsByTimestampStrategy", f"is error or latest, not {shown(strategy)}")
    otherwise = LATEST if strategy == "latest" else None
    return _bound(given, "starting", default, nothing_so_late=otherwise)


def _end(given: GivenOptions) -> Bound:
    return _bound(given, "ending", LATEST, nothing_so_late=LATEST)


def _bound(given: GivenOptions, side: str, default: int, *, nothing_so_late: int | None) -> Bound:
    """Of the three ways to say it the first that was used counts, as in Spark's connector."""
    option = f"{side}Timestamp"
    if (time_ms := given.whole(option, lowest=0)) is not None:
        return Bound(option, time_ms=time_ms, nothing_so_late=nothing_so_late)
    option = f"{side}OffsetsByTimestamp"
    if (text := given.text(option)) is not None:
        return Bound(option, times_ms=tuple(sorted(parse_times(option, text).items())), nothing_so_late=nothing_so_late)
    option = f"{side}Offsets"
    if (text := given.text(option)) is None:
        return Bound(None, offset=default)
    if text.lower() in ("earliest", "latest"):
        return Bound(option, offset=EARLIEST if text.lower() == "earliest" else LATEST)
    if not text.startswith("{"):
        raise OptionError(option, f"is earliest, latest or JSON with offsets, not {shown(text)}")
    return Bound(option, offsets=tuple(sorted(parse_offsets(option, text).items())))


def _refuse(bound: Bound, offset: int, why: str) -> None:
    if bound.option is None:
        return
    if bound.offset == offset:
        raise OptionError(bound.option, why)
    for where, asked in bound.offsets or ():
        if asked == offset:
            raise OptionError(bound.option, f"{offset} for {where}: {why}")


def _limits(given: GivenOptions) -> Limits:
    limits = Limits(
        offsets_max=given.whole("maxOffsetsPerTrigger", lowest=1),
        offsets_min=given.whole("minOffsetsPerTrigger", lowest=1),
        delay_s_max=given.duration_s("maxTriggerDelay", TRIGGER_DELAY_DEFAULT_S),
        bytes_max=given.whole("maxBytesPerTrigger", lowest=1),
    )
    if limits.offsets_min and limits.offsets_max and limits.offsets_min > limits.offsets_max:
        raise OptionError(
            "minOffsetsPerTrigger", f"{limits.offsets_min} is more than maxOffsetsPerTrigger, {limits.offsets_max}"
        )
    return limits


def _columns(given: GivenOptions) -> tuple[str, ...]:
    """Those of the schema, in its order."""
    every = (*COLUMNS, HEADERS)
    with_headers = given.flag("includeHeaders", False)
    named = given.words("columns")
    if named is None:
        return every if with_headers else COLUMNS
    by_lower = {name.lower(): name for name in every}
    unknown = [name for name in named if name.lower() not in by_lower]
    if unknown or not named:
        raise OptionError("columns", f"names some of {', '.join(every)}, not {shown(', '.join(unknown))}")
    chosen = {by_lower[name.lower()] for name in named}
    if with_headers and HEADERS not in chosen:
        raise OptionError("columns", "does not name headers, but includeHeaders is true")
    return tuple(name for name in every if name in chosen)


def _is_committed(settings: ClientSettings) -> bool:
    level = (settings.get("isolation.level") or "read_committed").lower()
    if level not in ("read_committed", "read_uncommitted"):
        raise OptionError("kafka.isolation.level", f"is read_committed or read_uncommitted, not {shown(level)}")
    return level == "read_committed"


def _group(given: GivenOptions, settings: ClientSettings) -> str | None:
    if not given.flag("commitOffsetsToGroup", False):
        return None
    group = settings.get("group.id")
    if not group:
        raise OptionError("commitOffsetsToGroup", "needs kafka.group.id: the group that gets the offsets")
    return group
