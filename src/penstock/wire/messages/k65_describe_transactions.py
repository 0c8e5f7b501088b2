"""DescribeTransactions (key 65): state and partitions of transactions."""

from __future__ import annotations

from penstock.wire.api_declaration import Api
from penstock.wire.schema import field, int16, int32, int64, message, struct


@message("0", flexible="0+")
class DescribeTransactionsRequest:
    transactional_ids: list[str] = field("0+")


@struct
class DescribeTransactionsResponseTopic:
    topic: str = field("0+")
    partitions: list[int32] = field("0+")


@struct
class DescribeTransactionsResponseTransaction:
    error_code: int16 = field("0+")
    transactional_id: str = field("0+")
    transaction_state: str = field("0+")
    transaction_timeout_ms: int32 = field("0+")
    transaction_start_time_ms: int64 = field("0+")
    producer_id: int64 = field("0+")
    producer_epoch: int16 = field("0+")
    topics: list[DescribeTransactionsResponseTopic] = field("0+")


@message("0", flexible="0+")
class DescribeTransactionsResponse:
    throttle_time_ms: int32 = field("0+")
    transaction_states: list[DescribeTransactionsResponseTransaction] = field("0+")


API = Api(65, "DescribeTransactions", DescribeTransactionsRequest, DescribeTransactionsResponse)
