"""PrepareTransactions (key 20000, Penstock's own): what these transactions wrote is complete, and waits for its commit.

From here on they end with all others of their name, and not alone.
"""

from __future__ import annotations

from penstock.wire.api_declaration import Api
from penstock.wire.schema import field, int16, int32, int64, message, struct


@struct
class PrepareTransactionsRequestTransaction:
    transactional_id: str = field("0+")
    producer_id: int64 = field("0+")
    producer_epoch: int16 = field("0+")


@message("0", flexible="0+")
class PrepareTransactionsRequest:
    name: str = field("0+")
    number: int64 = field("0+")
    run: int64 = field("0+")
    transactions: list[PrepareTransactionsRequestTransaction] = field("0+")


@message("0", flexible="0+")
class PrepareTransactionsResponse:
    throttle_time_ms: int32 = field("0+")
    error_code: int16 = field("0+")
    error_message: str | None = field("0+", nullable="0+", default=None)
    last_number: int64 = field("0+", default=-1)


API = Api(20000, "PrepareTransactions", PrepareTransactionsRequest, PrepareTransactionsResponse)
