"""AddPartitionsToTxn (key 24): a transaction is about to write to these partitions.

- 0-3: from clients, one transaction. 4: between brokers, many transactions at once, also just to verify.
"""

from __future__ import annotations

from penstock.wire.api_declaration import Api
from penstock.wire.schema import field, int16, int32, int64, message, struct


@struct
class AddPartitionsToTxnRequestTopic:
    name: str = field("0+")
    partitions: list[int32] = field("0+")


@struct
class AddPartitionsToTxnRequestTransaction:
    transactional_id: str = field("4+")
    producer_id: int64 = field("4+")
    producer_epoch: int16 = field("4+")
    verify_only: bool = field("4+")
    topics: list[AddPartitionsToTxnRequestTopic] = field("4+")


@message("0-5", flexible="3+")
class AddPartitionsToTxnRequest:
    transactions: list[AddPartitionsToTxnRequestTransaction] = field("4+")
    v3_and_below_transactional_id: str = field("0-3")
    v3_and_below_producer_id: int64 = field("0-3")
    v3_and_below_producer_epoch: int16 = field("0-3")
    v3_and_below_topics: list[AddPartitionsToTxnRequestTopic] = field("0-3")


@struct
class AddPartitionsToTxnResponsePartition:
    partition_index: int32 = field("0+")
    partition_error_code: int16 = field("0+")


@struct
class AddPartitionsToTxnResponseTopic:
    name: str = field("0+")
    results_by_partition: list[AddPartitionsToTxnResponsePartition] = field("0+")


@struct
class AddPartitionsToTxnResponseTransaction:
    transactional_id: str = field("4+")
    topic_results: list[AddPartitionsToTxnResponseTopic] = field("4+")


@message("0-5", flexible="3+")
class AddPartitionsToTxnResponse:
    throttle_time_ms: int32 = field("0+")
    error_code: int16 = field("4+", ignorable=True)
    results_by_transaction: list[AddPartitionsToTxnResponseTransaction] = field("4+")
    results_by_topic_v3_and_below: list[AddPartitionsToTxnResponseTopic] = field("0-3")


API = Api(24, "AddPartitionsToTxn", AddPartitionsToTxnRequest, AddPartitionsToTxnResponse)
