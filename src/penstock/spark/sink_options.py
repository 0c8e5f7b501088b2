"""The options of a write, read and checked once, on the driver.

    df.write.format("penstock").mode("append").option("kafka.bootstrap.servers", "…").option("topic", "orders").save()

`kafka.*` are settings of the client. The rest is ours, and few. A name that is not known is refused, because an option
that does nothing would be believed to do something.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Self

from penstock.base.identifiers import topic_name_problem
from penstock.columnar.errors import SettingError
from penstock.columnar.produce import ALL_REPLICAS, BATCH_BYTES, LEADER_ONLY, parse_compression
from penstock.columnar.settings import ClientSettings
from penstock.spark.given_options import GivenOptions, OptionError, shown

#: Spark's own, which it passes on.
OF_SPARK = ("checkpointLocation", "queryName", "outputMode")
OPTIONS = ("topic", "delivery", "txnAppId", "txnVersion")
#: Of Spark's connector, whose sink does nothing with it either: headers are written if there is a column of them.
WITHOUT_EFFECT = ("includeHeaders",)
NAME_LENGTH_MAX = 200
COMPRESSION = "none"
#: Smaller batches are a setting for single messages, brought along from elsewhere; here rows come in bulk.
BATCH_BYTES_MIN = 16_384

TRANSACTION_TIMEOUT = "kafka.transaction.timeout.ms"
#: As long as brokers allow unless they are told otherwise: a task may write longer than the minute of other clients.
TRANSACTION_TIMEOUT_MS = 900_000

_HINTS = {
    "path": "save() takes no path here; name the topic with the option topic",
    "subscribe": "is for reading; the topic of a write is the option topic, or the column topic",
}
_SERIALIZER = "keys and values are written as the bytes they are; convert columns with cast or to_json"
_REFUSED = {
    "transactional.id": "the sink names its transactions itself; to name a write use txnAppId and txnVersion",
    "group.id": "a write has no group",
    "isolation.level": "a write does not read",
    "key.serializer": _SERIALIZER,
    "value.serializer": _SERIALIZER,
}


_ACKS = {"all": ALL_REPLICAS, "-1": ALL_REPLICAS, "1": LEADER_ONLY}


class Delivery(StrEnum):
    """What is promised to those who read with read_committed."""

    EXACTLY_ONCE = "exactly-once"
    AT_LEAST_ONCE = "at-least-once"


@dataclass(frozen=True, slots=True)
class WriteName:
    """Under which name and number a write counts once: txnAppId and txnVersion."""

    name: str
    number: int


class Producing(NamedTuple):
    """How rows are sent, in the words of `BulkProducer`."""

    acks: int
    compression: str
    batch_bytes: int


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """See the head of this file."""

    settings: ClientSettings
    producing: Producing
    topic: str | None
    delivery: Delivery | None
    """what the user asked for; None: the best that the brokers offer"""
    named: WriteName | None

    @classmethod
    def parse(cls, options: Mapping[str, str], *, is_stream: bool) -> Self:
        """OptionError for the first thing that is wrong."""
        lowered = {name.lower(): value for name, value in options.items()}
        given = GivenOptions({TRANSACTION_TIMEOUT: str(TRANSACTION_TIMEOUT_MS), **lowered})
        given.check_names((*OPTIONS, *OF_SPARK, *WITHOUT_EFFECT), _HINTS, _REFUSED)
        topic = given.text("topic")
        problem = None if topic is None else topic_name_problem(topic)
        if problem is not None:
            raise OptionError("topic", problem)
        delivery, named = _delivery(given), _write_name(given)
        if named is not None and is_stream:
            raise OptionError(
                "txnAppId",
                "is for df.write, also inside foreachBatch; a stream has the query's id and the batch's number already",
            )
        if named is not None and delivery is Delivery.AT_LEAST_ONCE:
            raise OptionError("txnAppId", "names a write that counts once; that cannot be delivered at least once")
        settings = given.client_settings()
        return cls(
            settings=settings,
            producing=_producing(settings, delivery),
            topic=topic,
            delivery=delivery if named is None else Delivery.EXACTLY_ONCE,
            named=named,
        )


def _producing(settings: ClientSettings, delivery: Delivery | None) -> Producing:
    acks = settings.get("acks") or settings.get("request.required.acks") or "all"
    if acks not in _ACKS:
        raise OptionError("kafka.acks", f"is all or 1, not {shown(acks)}: what is not acknowledged may be lost")
    if _ACKS[acks] != ALL_REPLICAS and delivery is not Delivery.AT_LEAST_ONCE:
        raise OptionError("kafka.acks", f"must be all, or the option delivery must be {Delivery.AT_LEAST_ONCE}")
    compression = settings.get("compression.type") or settings.get("compression.codec") or COMPRESSION
    try:
        parse_compression(compression)
    except SettingError as error:
        raise OptionError(f"kafka.{error.name}", error.message) from None
    size = settings.get("batch.size") or str(BATCH_BYTES)
    if not size.isascii() or not size.isdigit() or not 0 < int(size) < 1 << 31:
        raise OptionError("kafka.batch.size", f"is a number of bytes, not {shown(size)}")
    return Producing(_ACKS[acks], compression, max(int(size), BATCH_BYTES_MIN))


def _delivery(given: GivenOptions) -> Delivery | None:
    text = given.text("delivery")
    if text is None:
        return None
    if text.lower() not in list(Delivery):
        raise OptionError("delivery", f"is {' or '.join(Delivery)}, not {shown(text)}")
    return Delivery(text.lower())


def _write_name(given: GivenOptions) -> WriteName | None:
    name, number = given.text("txnAppId"), given.whole("txnVersion", lowest=0)
    if name is None and number is None:
        return None
    if name is None:
        raise OptionError("txnAppId", "is missing: txnVersion alone does not name a write")
    if number is None:
        raise OptionError("txnVersion", "is missing: txnAppId alone does not name a write; it is a number that grows")
    if not 0 < len(name) <= NAME_LENGTH_MAX or "/" in name:
        raise OptionError("txnAppId", f"has 1 to {NAME_LENGTH_MAX} characters and no '/', not {shown(name)}")
    return WriteName(name, number)
