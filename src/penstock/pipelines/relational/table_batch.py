"""A batch that counts once, and the table in which a database remembers it.

`penstock_batches` stands beside the target, in the same schema: for each name and table the last number that was
merged. The name of a stream is the option `queryName`, or the query's id; the number is Spark's batch id. Both are in
the checkpoint, so a batch that runs again is recognised, however it is cut into tasks. The query's id is kept as well:
under the same name another checkpoint would count from 0 again, and what it writes must not be taken for a repetition.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass

from penstock.pipelines.relational.failures import NoSuchTable, RelationalError
from penstock.pipelines.relational.session import Session

BATCHES = "penstock_batches"
NEVER = -1
_TEXT = {"mysql": " CHARACTER SET utf8mb4 COLLATE utf8mb4_bin"}
_IF_NEW = {
    "postgresql": ("INSERT", " ON CONFLICT DO NOTHING"),
    "mysql": ("INSERT IGNORE", ""),
    "sqlite": ("INSERT OR IGNORE", ""),
}


@dataclass(frozen=True, slots=True)
class TableBatch:
    """See the head of this file."""

    name: str
    number: int
    checkpoint: str = ""
    """the query's id; empty for batch writes"""
    is_forgotten: bool = False
    """the name was made up for this one write"""

    def __str__(self) -> str:
        if self.checkpoint:
            return f"batch {self.number} of the query {self.name}"
        return "this write" if self.is_forgotten else f"txnVersion {self.number} of txnAppId {self.name!r}"


@dataclass(frozen=True, slots=True)
class LastBatch:
    number: int
    checkpoint: str


def used_once() -> TableBatch:
    """A batch under a name that nobody else has."""
    return TableBatch(f"write-{uuid.uuid4()}", 0, is_forgotten=True)


def is_merged(batch: TableBatch, last: LastBatch, table: str) -> bool:
    """Whether the batch is in the table already; RelationalError if it may not come now."""
    if last.number == NEVER:
        return False
    if batch.checkpoint != last.checkpoint:
        raise RelationalError(
            f"{table} has rows of the query {batch.name} up to batch {last.number}, written with another checkpoint. "
            "Start the query from that checkpoint. If it shall begin anew, give it another name, or let the database "
            f"forget it: DELETE FROM {BATCHES} WHERE query_name = '…'; then it writes everything that it reads again"
        )
    if batch.number < last.number and batch.checkpoint:
        raise RelationalError(
            f"the checkpoint of the query {batch.name} is older than what the query has written: it goes on with batch "
            f"{batch.number}, and batch {last.number} is in {table} already. Start the query from its newest checkpoint"
        )
    if batch.number < last.number:
        raise RelationalError(f"{batch} is refused: {last.number} has been written already, and txnVersion must grow")
    return batch.number == last.number


def _names(session: Session) -> str:
    schema = session.address.schema
    return BATCHES if schema is None else f"{session.quote(schema)}.{BATCHES}"


def make_batches_table(session: Session) -> None:
    """Make it unless it is there. Two who do it at once can be in each other's way, so what counts is the result."""
    text = f"varchar(255){_TEXT.get(session.address.kind, '')} NOT NULL"
    try:
        session.run(
            f"CREATE TABLE IF NOT EXISTS {_names(session)} (query_name {text}, table_name {text}, checkpoint {text}, "
            "batch_id bigint NOT NULL, committed_at varchar(40) NOT NULL, PRIMARY KEY (query_name, table_name))"
        )
    except RelationalError as error:
        try:
            _select(session, TableBatch("", 0), "")
        except NoSuchTable:
            raise error from None


def find_last(session: Session, batch: TableBatch) -> LastBatch:
    """What was merged last under this name, without waiting for anybody."""
    try:
        return _select(session, batch, "")
    except NoSuchTable:
        return LastBatch(NEVER, "")


def lock_last(session: Session, batch: TableBatch) -> LastBatch:
    """The same inside a transaction: from now to its end nobody else merges under this name."""
    insert, if_new = _IF_NEW[session.address.kind]
    one = session.parameter
    session.run(
        f"{insert} INTO {_names(session)} (query_name, table_name, checkpoint, batch_id, committed_at) "
        f"VALUES ({one}, {one}, {one}, {NEVER}, ''){if_new}",
        (batch.name, session.address.table_shown, batch.checkpoint),
    )
    return _select(session, batch, "" if session.address.kind == "sqlite" else " FOR UPDATE")


def _select(session: Session, batch: TableBatch, lock: str) -> LastBatch:
    one = session.parameter
    rows = session.run(
        f"SELECT batch_id, checkpoint FROM {_names(session)} WHERE query_name = {one} AND table_name = {one}{lock}",
        (batch.name, session.address.table_shown),
    )
    return LastBatch(rows[0][0], rows[0][1]) if rows else LastBatch(NEVER, "")


def record(session: Session, batch: TableBatch, now: str) -> None:
    """Write down that it is merged, in the transaction that merges it."""
    one = session.parameter
    session.run(
        f"UPDATE {_names(session)} SET batch_id = {one}, committed_at = {one} "
        f"WHERE query_name = {one} AND table_name = {one}",
        (batch.number, now, batch.name, session.address.table_shown),
    )


def forget(session: Session, batch: TableBatch) -> None:
    """A name that was used once is of no use any more."""
    one = session.parameter
    session.run(
        f"DELETE FROM {_names(session)} WHERE query_name = {one} AND table_name = {one}",
        (batch.name, session.address.table_shown),
    )
