"""What can go wrong between a program and its topics, in the words of whoever called.

Everything that this package raises on purpose is a `ColumnarError`. Inside, brokers' refusals travel as `ApiError` and
broken connections as `OSError`; `Cluster.retry` turns into one of these what it cannot mend.
"""

from __future__ import annotations

from penstock.base.errors import ApiError, Error
from penstock.base.identifiers import TopicPartition


class ColumnarError(Exception):
    """The text says what was wanted, what happened, and where it can be said, what to do."""


class SettingError(ColumnarError):
    """A setting that is unknown, missing, or has a value that cannot be."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(name, message)
        self.name = name
        self.message = message

    def __str__(self) -> str:
        return f"{self.name}: {self.message}"


class TopicGone(ColumnarError):
    """The topic is not there, or not any more, or is another one of the same name."""

    def __init__(self, topic: str, why: str = "it does not exist") -> None:
        super().__init__(topic, why)
        self.topic = topic
        self.why = why

    def __str__(self) -> str:
        return f"topic {self.topic}: {self.why}"


class OffsetsGone(ColumnarError):
    """A partition does not have the offset that was asked for: it has `first` and what follows up to before `last`."""

    def __init__(self, where: TopicPartition, asked: int, first: int, last: int) -> None:
        super().__init__(where, asked, first, last)
        self.where = where
        self.asked = asked
        self.first = first
        self.last = last

    def __str__(self) -> str:
        reason = "older ones were deleted" if self.asked < self.first else "it ends there"
        return (
            f"topic {self.where.topic}, partition {self.where.partition}: offset {self.asked} is not there; "
            f"the partition has offsets from {self.first} up to {self.last} (exclusive), {reason}"
        )


class NotWrittenYet(ColumnarError):
    """A range ends after what is written, or committed, and that did not change for a long time."""

    def __init__(self, where: TopicPartition, end: int, last: int, waited_s: float, committed: bool) -> None:
        super().__init__(where, end, last, waited_s, committed)
        self.where = where
        self.end = end
        self.last = last
        self.waited_s = waited_s
        self.committed = committed

    def __str__(self) -> str:
        what = "committed (a transaction may be open there)" if self.committed else "written"
        return (
            f"topic {self.where.topic}, partition {self.where.partition}: waited {self.waited_s:.0f} s for the records "
            f"before offset {self.end}, but only those before {self.last} are {what}"
        )


class BrokerAway(ColumnarError):
    """No broker could be reached, or none that could do it, until the time was over."""


class NotTrusted(ColumnarError):
    """TLS could not be agreed upon: a certificate that is not trusted, or is missing, or a port without TLS."""


class Refused(ColumnarError):
    """A broker said no, and asking again would not help. `error` is its code."""

    def __init__(self, what: str, error: Error, message: str | None = None) -> None:
        super().__init__(what, error, message)
        self.what = what
        self.error = error
        self.message = message or error.text

    def __str__(self) -> str:
        return f"{self.what}: {self.message} ({self.error.name})"


class NotAllowed(Refused):
    """The user may not do this, or could not log in."""


class RecordTooLarge(ColumnarError):
    """A row that no broker takes."""

    def __init__(self, where: str, size_bytes: int, bytes_max: int) -> None:
        super().__init__(where, size_bytes, bytes_max)
        self.where = where
        self.size_bytes = size_bytes
        self.bytes_max = bytes_max

    def __str__(self) -> str:
        return (
            f"{self.where}: a record of {self.size_bytes} bytes is larger than the {self.bytes_max} that are allowed; "
            "max.message.bytes of the topic says how large one may be"
        )


class Fenced(ColumnarError):
    """A newer producer has taken over the transactional id."""

    def __init__(self, transactional_id: str, message: str = "a newer producer has taken over") -> None:
        super().__init__(transactional_id, message)
        self.transactional_id = transactional_id
        self.message = message

    def __str__(self) -> str:
        return f"transactional id {self.transactional_id}: {self.message}"


class StaleNumber(ColumnarError):
    """A commit under a name whose last number is higher: whoever asks goes by an old checkpoint."""

    def __init__(self, name: str, number: int, last: int) -> None:
        super().__init__(name, number, last)
        self.name = name
        self.number = number
        self.last = last

    def __str__(self) -> str:
        return (
            f"{self.name}: number {self.number} comes after {self.last} was committed; the checkpoint that it comes "
            "from is older than what is written"
        )


class UnknownTopic(ApiError):
    """Inside only: the brokers do not know a topic or partition, which may pass if it is new."""

    def __init__(self, topic: str, why: str = "it does not exist") -> None:
        super().__init__(Error.UNKNOWN_TOPIC_OR_PARTITION, f"topic {topic}: {why}")
        self.topic = topic
        self.why = why


_NOT_ALLOWED = frozenset(
    {
        Error.TOPIC_AUTHORIZATION_FAILED,
        Error.GROUP_AUTHORIZATION_FAILED,
        Error.CLUSTER_AUTHORIZATION_FAILED,
        Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        Error.SASL_AUTHENTICATION_FAILED,
        Error.UNSUPPORTED_SASL_MECHANISM,
        Error.ILLEGAL_SASL_STATE,
    }
)


def error_of(code: int) -> Error:
    """The error of a code; one that we do not know is an unknown error of the broker."""
    return Error(code) if code in Error._value2member_map_ else Error.UNKNOWN_SERVER_ERROR


def check(code: int, message: str | None = None) -> None:
    """ApiError unless the code is that of success."""
    if code:
        raise ApiError(error_of(code), message)


def refused(what: str, error: ApiError) -> ColumnarError:
    """A refusal as the caller is told of it."""
    if isinstance(error, UnknownTopic):
        return TopicGone(error.topic, error.why)
    kind = NotAllowed if error.error in _NOT_ALLOWED else Refused
    return kind(what, error.error, error.message)
