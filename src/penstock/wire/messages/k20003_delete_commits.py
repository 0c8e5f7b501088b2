"""DeleteCommits (key 20003, Penstock's own): forget the last numbers of names that are not used any more."""

from __future__ import annotations

from penstock.wire.api_declaration import Api
from penstock.wire.schema import field, int16, int32, message, struct


@message("0", flexible="0+")
class DeleteCommitsRequest:
    names: list[str] = field("0+")


@struct
class DeleteCommitsResponseName:
    name: str = field("0+")
    error_code: int16 = field("0+")
    error_message: str | None = field("0+", nullable="0+", default=None)


@message("0", flexible="0+")
class DeleteCommitsResponse:
    throttle_time_ms: int32 = field("0+")
    names: list[DeleteCommitsResponseName] = field("0+")


API = Api(20003, "DeleteCommits", DeleteCommitsRequest, DeleteCommitsResponse)
