"""A producer for rows in bulk: Arrow record batches go in, each row is in its topic once, in order per partition.

    with BulkProducer(cluster) as producer:
        producer.write("orders", batch)          # columns: value, and if there: key, headers, partition, timestamp
        producer.flush()                         # everything is acknowledged, or this raises

It is idempotent always. With a transactional id it writes in transactions only:

    producer.begin()
    producer.write("orders", batch)
    producer.commit()                            # or abort()

`write` returns before the rows are acknowledged, and waits when too much is on its way. After an error nothing more can
be written; a transaction can still be aborted, and unless the producer is fenced the next one can begin. There is no
thread behind it, and it is for one thread at a time.
"""

from __future__ import annotations

from types import TracebackType
from typing import Self

import pyarrow as pa

from penstock.base.identifiers import TopicPartition
from penstock.base.steps import ProducerEpoch
from penstock.columnar.cluster import Cluster
from penstock.columnar.encode import EncodedBatch, Encoder
from penstock.columnar.errors import ColumnarError, Fenced, SettingError, TopicGone
from penstock.columnar.lanes import Batch
from penstock.columnar.sending import BatchTooLarge, Sender
from penstock.columnar.topic_limits import message_bytes_max
from penstock.columnar.transactions import Identity
from penstock.wire.batch import HEADER_SIZE
from penstock.wire.compression import Compression

BATCH_BYTES = 1_000_000
UNACKNOWLEDGED_BYTES_MAX = 64 << 20
RECORD_BYTES_MAX = 64 << 20  # whatever the topic says; brokers take no requests above 100 MB
ALL_REPLICAS, LEADER_ONLY = -1, 1
_ACKS = {"all": ALL_REPLICAS, "-1": ALL_REPLICAS, "1": LEADER_ONLY}

# A batch that cannot be compressed is larger afterwards than it was, by less than this.
_SLACK_BYTES = 512
_SLACK_SHARE = 200
_BATCH_BYTES_MIN = HEADER_SIZE + 1


class BulkProducer:
    """See the head of this file."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        transactional_id: str | None = None,
        transaction_timeout_ms: int | None = None,
        acks: int = ALL_REPLICAS,
        compression: str = "none",
        batch_bytes: int = BATCH_BYTES,
        unacknowledged_bytes_max: int = UNACKNOWLEDGED_BYTES_MAX,
    ) -> None:
        self._compression = parse_compression(compression)
        _check_acks(acks, transactional_id)
        if not 1 <= batch_bytes <= RECORD_BYTES_MAX:
            raise SettingError("batch_bytes", f"is from 1 to {RECORD_BYTES_MAX}, not {batch_bytes}")
        self._cluster = cluster
        self._batch_bytes = batch_bytes
        self._unacknowledged_bytes_max = unacknowledged_bytes_max
        timeout_ms = transaction_timeout_ms or int(cluster.settings.transaction_timeout_s * 1000)
        self._identity = Identity(cluster, transactional_id, timeout_ms)
        self._identity.initialise()
        self._sender = Sender(cluster, self._identity, acks=acks, compression=self._compression)
        self._encoders: dict[str, Encoder] = {}
        self._bytes_max: dict[str, int] = {}
        self._is_in_transaction = False
        self._error: ColumnarError | None = None
        self.rows = 0
        """written so far, acknowledged or not"""

    # ── rows ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def write(self, topic: str, rows: pa.RecordBatch) -> None:
        """Rows for a topic; waits only while too much is on its way. An error may be that of rows written before."""
        self._check_usable()
        encoder = self._encoders.get(topic) or self._new_encoder(topic)
        try:
            for batch in encoder.add(rows):
                self._add(topic, batch)
                self._sender.wait_until_below(self._unacknowledged_bytes_max)
        except BaseException as error:
            self._break(error)
            raise
        self.rows += rows.num_rows

    def flush(self) -> None:
        """Wait until everything that was written is acknowledged."""
        self._check_usable()
        try:
            for topic, encoder in self._encoders.items():
                for batch in encoder.flush():
                    self._add(topic, batch)
            self._sender.wait_until_below(0)
        except BaseException as error:
            self._break(error)
            raise

    def close(self) -> None:
        """Let go of what was not flushed. A transaction that is open stays open: whoever prepared it has it
        committed, and otherwise it ends with its timeout."""
        self._forget()
        self._error = ColumnarError("the producer is closed")

    @property
    def producer(self) -> ProducerEpoch:
        """The id and epoch under which it writes now."""
        return self._identity.producer

    @property
    def has_open_transaction(self) -> bool:
        """Whether brokers know of the transaction: it has been begun, and something has been sent."""
        return self._identity.is_open

    @property
    def bytes(self) -> int:
        """Acknowledged so far, as they were sent."""
        return self._sender.acknowledged_bytes

    @property
    def partitions(self) -> int:
        """How many have been written to."""
        return self._sender.partitions

    # ── transactions ─────────────────────────────────────────────────────────────────────────────────────────────

    def begin(self) -> None:
        """Begin a transaction; nothing is sent before the first rows are."""
        if self._identity.transactional_id is None:
            raise ColumnarError("a producer needs a transactional_id for transactions")
        if self._error is not None:
            raise self._error
        if self._is_in_transaction:
            raise ColumnarError(f"{self._identity.transactional_id}: the transaction before is not ended yet")
        self._is_in_transaction = True

    def commit(self) -> None:
        """Flush, and make everything of the transaction visible at once.

        BrokerAway can leave open whether it was done, and `abort` then says so too. All other errors mean that it was
        not, and that the transaction is to be aborted.
        """
        self.flush()
        try:
            self._end(is_commit=True)
        except BaseException as error:
            self._break(error)
            raise

    def abort(self) -> None:
        """Nothing of the transaction is ever visible. Unless this raises the producer can be used again."""
        if not self._is_in_transaction:
            raise ColumnarError("no transaction has been begun")
        if isinstance(self._error, Fenced):
            raise self._error
        try:
            if not self._identity.is_newer:
                self._sender.wait_for_answers()  # one that comes after the end would belong to no transaction
            self._forget()
            self._end(is_commit=False)
        except BaseException as error:
            self._break(error)
            raise
        self._error = None

    def _end(self, *, is_commit: bool) -> None:
        if self._identity.end(is_commit=is_commit):
            self._sender.new_epoch()
        self._is_in_transaction = False

    # ── the inside ───────────────────────────────────────────────────────────────────────────────────────────────

    def _new_encoder(self, topic: str) -> Encoder:
        info = self._cluster.topics([topic]).get(topic)
        if info is None:
            raise TopicGone(topic)
        limit = message_bytes_max(self._cluster, topic)
        self._bytes_max[topic] = bytes_max = RECORD_BYTES_MAX if limit is None else min(limit, RECORD_BYTES_MAX)
        slack = _SLACK_BYTES + bytes_max // _SLACK_SHARE
        is_compressed = self._compression is not Compression.NONE
        encoder = self._encoders[topic] = Encoder(
            topic,
            info.partitions,
            batch_bytes_max=max(_BATCH_BYTES_MIN, min(self._batch_bytes, bytes_max - slack)),
            compression=self._compression,
            record_bytes_max=RECORD_BYTES_MAX if is_compressed else max(_BATCH_BYTES_MIN, bytes_max),
        )
        return encoder

    def _add(self, topic: str, encoded: EncodedBatch) -> None:
        where = TopicPartition(topic, encoded.partition)
        batch = Batch(encoded.records, encoded.count, encoded.base_timestamp, encoded.max_timestamp)
        if batch.size_bytes > self._bytes_max[topic]:
            raise BatchTooLarge(where, batch.size_bytes, batch.count)
        self._sender.add(where, batch)

    def _check_usable(self) -> None:
        if self._error is not None:
            raise self._error
        if self._identity.transactional_id is not None and not self._is_in_transaction:
            raise ColumnarError(f"{self._identity.transactional_id}: begin a transaction first")

    def _break(self, error: BaseException) -> None:
        """Nothing more can be sent: what is on its way cannot be put in order any more."""
        if isinstance(error, ColumnarError):
            self._error = error
        else:
            self._error = ColumnarError(f"the producer was stopped in its work: {error!r}")

    def _forget(self) -> None:
        self._encoders.clear()
        self._sender.forget()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def parse_compression(name: str) -> Compression:
    """The codec of a name such as lz4; SettingError."""
    try:
        return Compression[name.upper()]
    except KeyError:
        known = ", ".join(each.name.lower() for each in Compression)
        raise SettingError("compression.type", f"is one of {known}, not {name!r}") from None


def parse_acks(text: str) -> int:
    """`acks` of a producer's settings: all or 1; SettingError."""
    if text not in _ACKS:
        raise SettingError("acks", f"is all or 1, not {text[:50]!r}: what nobody acknowledges may be lost")
    return _ACKS[text]


def _check_acks(acks: int, transactional_id: str | None) -> None:
    if acks not in (ALL_REPLICAS, LEADER_ONLY):
        raise SettingError("acks", f"is -1 (all replicas) or 1 (the leader), not {acks}")
    if transactional_id is not None and acks != ALL_REPLICAS:
        raise SettingError("acks", "must be -1 (all replicas) in transactions")
