"""ListTransactions (key 66): transactions by state and producer. 1: by age. 2: by a pattern for the id."""

from __future__ import annotations

from penstock.wire.api_declaration import Api
from penstock.wire.schema import field, int16, int32, int64, message, struct


@message("0-2", flexible="0+")
class ListTransactionsRequest:
    state_filters: list[str] = field("0+")
    producer_id_filters: list[int64] = field("0+")
    duration_filter: int64 = field("1+", default=-1)
    transactional_id_pattern: str | None = field("2+", nullable="2+", default=None)


@struct
class ListTransactionsResponseTransaction:
    transactional_id: str = field("0+")
    producer_id: int64 = field("0+")
    transaction_state: str = field("0+")


@message("0-2", flexible="0+")
class ListTransactionsResponse:
    throttle_time_ms: int32 = field("0+")
    error_code: int16 = field("0+")
    unknown_state_filters: list[str] = field("0+")
    transaction_states: list[ListTransactionsResponseTransaction] = field("0+")


API = Api(66, "ListTransactions", ListTransactionsRequest, ListTransactionsResponse)
