"""The options of the sink, read and checked once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from penstock.pipelines.relational.address import TableAddress
from penstock.pipelines.relational.failures import TableOptionError
from penstock.pipelines.relational.table_options import URL, TableOptions

INSERT, UPSERT, DELETE = "insert", "upsert", "delete"
MODES = (INSERT, UPSERT, DELETE)
#: In `deleteWhen`: a row whose columns are all null, but for its keys, deletes.
TOMBSTONES = "tombstones"
OWN = (URL, "mode", "keys", "deleteWhen", "orderBy", "create", "queryName", "retryFor", "txnAppId", "txnVersion")
#: What Spark itself adds for a stream, or takes.
OF_SPARK = ("checkpointLocation", "outputMode", "path")
NAME_LENGTH_MAX = 200
RETRY_DEFAULT_S = 60.0


@dataclass(frozen=True, slots=True)
class TableSinkOptions:
    """What `df.write` or `df.writeStream` was told."""

    address: TableAddress
    mode: str
    keys: tuple[str, ...]
    delete_when: str | None
    """a column, TOMBSTONES, or None: nothing is deleted"""
    order_by: str | None
    create: bool
    name: str | None
    """under which batches count; None: the query's id, or for a batch write none"""
    number: int | None
    """of a batch write that has a name"""
    retry_s: float


def parse_sink_options(values: Mapping[str, str], *, is_stream: bool) -> TableSinkOptions:
    """TableOptionError for the first that is wrong."""
    given = TableOptions(values)
    given.check_names((*OWN, *OF_SPARK))
    mode = given.choice("mode", MODES, INSERT) or INSERT
    keys = given.words("keys")
    _check_mode(given, mode, keys)
    name, number = _name(given, is_stream)
    return TableSinkOptions(
        address=given.address(),
        mode=mode,
        keys=keys,
        delete_when=given.text("deleteWhen") or None,
        order_by=given.text("orderBy") or None,
        create=given.flag("create", False),
        name=name,
        number=number,
        retry_s=given.duration_s("retryFor", RETRY_DEFAULT_S),
    )


def _check_mode(given: TableOptions, mode: str, keys: tuple[str, ...]) -> None:
    if mode != INSERT and not keys:
        raise TableOptionError("keys", f"is needed with mode {mode}: the columns that say which row it is, with commas")
    if len(set(keys)) != len(keys):
        raise TableOptionError("keys", "names a column twice")
    for name in ("keys", "deleteWhen", "orderBy"):
        if mode == INSERT and name in given:
            raise TableOptionError(name, "belongs to mode upsert; rows of mode insert are only added")
    if mode == DELETE and "deleteWhen" in given:
        raise TableOptionError("deleteWhen", "belongs to mode upsert; with mode delete every row deletes")


def _name(given: TableOptions, is_stream: bool) -> tuple[str | None, int | None]:
    named = [option for option in ("txnAppId", "txnVersion") if option in given]
    if is_stream:
        if named:
            raise TableOptionError(named[0], "is for batch writes; batches of a stream count by themselves")
        return _checked_name("queryName", given), None
    if "queryName" in given:
        raise TableOptionError("queryName", "is for streams; a batch write is named with txnAppId and txnVersion")
    if not named:
        return None, None
    number = given.whole("txnVersion", lowest=0)
    name = _checked_name("txnAppId", given)
    if name is None or number is None:
        raise TableOptionError(
            "txnAppId · txnVersion", "are given together: the name of the writer, and a growing number"
        )
    return name, number


def _checked_name(option: str, given: TableOptions) -> str | None:
    name = given.text(option)
    if name is None:
        return None
    if not name or len(name) > NAME_LENGTH_MAX or "\0" in name:
        raise TableOptionError(option, f"has between 1 and {NAME_LENGTH_MAX} characters")
    return name
