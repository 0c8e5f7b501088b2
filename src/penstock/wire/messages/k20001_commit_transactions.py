"""CommitTransactions (key 20001, Penstock's own): commit many producers as one, all of them or none."""

from __future__ import annotations

from penstock.wire.api_declaration import Api
from penstock.wire.schema import field, int16, int32, int64, message, struct


@struct
class CommitTransactionsRequestTransaction:
    transactional_id: str = field("0+")
    producer_id: int64 = field("0+")
    producer_epoch: int16 = field("0+")


@message("0", flexible="0+")
class CommitTransactionsRequest:
    name: str = field("0+")
    number: int64 = field("0+")
    transactions: list[CommitTransactionsRequestTransaction] = field("0+")


@message("0", flexible="0+")
class CommitTransactionsResponse:
    throttle_time_ms: int32 = field("0+")
    error_code: int16 = field("0+")
    error_message: str | None = field("0+", nullable="0+", default=None)
    last_number: int64 = field("0+", default=-1)
    already_committed: bool = field("0+")


API = Api(20001, "CommitTransactions", CommitTransactionsRequest, CommitTransactionsResponse)
