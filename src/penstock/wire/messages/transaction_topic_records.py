"""The records of __transaction_state: one for each transactional id, rewritten at every step of its transactions.

The key of a record begins with an int16 that says what it is (0 is the only kind), followed by the key at version 0;
the value begins with an int16 that is its version. A record without a value deletes.

Tagged fields from 10000 on are Penstock's own; Kafka and its tools pass over them.
"""

from __future__ import annotations

from penstock.wire.schema import field, int8, int16, int32, int64, message, struct


@message("0")
class TransactionLogKey:
    transactional_id: str = field("0")


@struct
class TransactionLogValuePartitionsSchema:
    topic: str = field("0+")
    partition_ids: list[int32] = field("0+")


@message("0-1", flexible="1+")
class TransactionLogValue:
    producer_id: int64 = field("0+")
    previous_producer_id: int64 = field("1+", default=-1, tag=0)
    next_producer_id: int64 = field("1+", default=-1, tag=1)
    producer_epoch: int16 = field("0+")
    next_producer_epoch: int16 = field("1+", default=-1, tag=3)
    transaction_timeout_ms: int32 = field("0+")
    transaction_status: int8 = field("0+")
    transaction_partitions: list[TransactionLogValuePartitionsSchema] | None = field("0+", nullable="0+")
    transaction_last_update_timestamp_ms: int64 = field("0+")
    transaction_start_timestamp_ms: int64 = field("0+")
    client_transaction_version: int16 = field("1+", tag=2)
    last_producer_epoch: int16 = field("1+", default=-1, tag=10000)
    prepared_number: int64 = field("1+", default=-1, tag=10001)
    prepared_run: int64 = field("1+", default=-1, tag=10002)
