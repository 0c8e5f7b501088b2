"""DescribeCommits (key 20002, Penstock's own): the last number of a name, and what is open under it."""

from __future__ import annotations

from penstock.wire.api_declaration import Api
from penstock.wire.schema import field, int16, int32, int64, message, struct


@message("0", flexible="0+")
class DescribeCommitsRequest:
    names: list[str] | None = field("0+", nullable="0+")


@struct
class DescribeCommitsResponseTransaction:
    transactional_id: str = field("0+")
    producer_id: int64 = field("0+")
    producer_epoch: int16 = field("0+")
    transaction_state: str = field("0+")
    prepared_number: int64 = field("0+", default=-1)
    prepared_run: int64 = field("0+", default=-1)


@struct
class DescribeCommitsResponseName:
    error_code: int16 = field("0+")
    error_message: str | None = field("0+", nullable="0+", default=None)
    name: str = field("0+")
    last_number: int64 = field("0+", default=-1)
    is_complete: bool = field("0+")
    number: int64 = field("0+", default=-1)
    run: int64 = field("0+", default=-1)
    transactions: list[DescribeCommitsResponseTransaction] = field("0+")


@message("0", flexible="0+")
class DescribeCommitsResponse:
    throttle_time_ms: int32 = field("0+")
    error_code: int16 = field("0+")
    names: list[DescribeCommitsResponseName] = field("0+")


API = Api(20002, "DescribeCommits", DescribeCommitsRequest, DescribeCommitsResponse)
