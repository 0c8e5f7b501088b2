"""A connection to the database of a table, with its dialect, and exceptions in the user's words.

    with open_session(parse_address(url)) as session:
        rows = session.run(f"SELECT count(*) FROM {session.table}")

Whatever a driver raises inside the block becomes a `RelationalError`; `session.connection` is the driver's own, for
what only one driver can do. The connection is closed at the end, and with it whatever was not committed is undone.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from penstock.pipelines.relational.address import TableAddress
from penstock.pipelines.relational.dialect import Dialect, TableShape
from penstock.pipelines.relational.failures import DatabaseAway, NoSuchTable
from penstock.pipelines.relational.mysql import MySQL
from penstock.pipelines.relational.postgresql import PostgreSQL
from penstock.pipelines.relational.sqlite import SQLite

DIALECTS: dict[str, Dialect] = {"postgresql": PostgreSQL(), "mysql": MySQL(), "sqlite": SQLite()}
CONNECT_PAUSE_S = 0.5


class Session:
    """See the head of this file; made by `open_session`."""

    def __init__(self, address: TableAddress, dialect: Dialect, connection: Any) -> None:
        self.address = address
        self.dialect = dialect
        self.connection = connection

    @property
    def table(self) -> str:
        """The table as it stands in a statement."""
        return self.dialect.table(self.address)

    @property
    def parameter(self) -> str:
        return self.dialect.parameter

    def quote(self, name: str) -> str:
        return self.dialect.quote(name)

    def run(self, statement: str, parameters: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        """Run a statement; its rows, if it has any; RelationalError."""
        with explaining(self.dialect, self.address):
            return self.dialect.run(self.connection, statement, parameters)

    def shape(self) -> TableShape:
        """What the table looks like; NoSuchTable."""
        found = self.find_shape()
        if found is None:
            raise NoSuchTable(f"{self.address.database_shown}: there is no table {self.address.table_shown!r}")
        return found

    def find_shape(self) -> TableShape | None:
        """The same, or None if there is no such table."""
        with explaining(self.dialect, self.address):
            return self.dialect.shape(self.connection, self.address)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """All that is run in the block happens at its end, or not at all."""
        self.run(self.dialect.begin)
        try:
            yield
        except BaseException:
            with suppress(Exception):  # a broken connection has undone it already
                self.run("ROLLBACK")
            raise
        self.run("COMMIT")


def dialect_of(address: TableAddress) -> Dialect:
    return DIALECTS[address.kind]


@contextmanager
def explaining(dialect: Dialect, address: TableAddress) -> Iterator[None]:
    """The driver's exceptions of the block as RelationalErrors."""
    try:
        yield
    except Exception as error:
        explained = dialect.explained(error, address)
        if explained is None:
            raise
        raise explained from None


@contextmanager
def open_session(address: TableAddress, *, may_create: bool = False, patience_s: float = 0.0) -> Iterator[Session]:
    """A connection, tried again for so long if the database is away; RelationalError."""
    dialect = dialect_of(address)
    connection = _connect(dialect, address, may_create, time.monotonic() + patience_s)
    try:
        with explaining(dialect, address):
            yield Session(address, dialect, connection)
    finally:
        with suppress(Exception):
            connection.close()


def _connect(dialect: Dialect, address: TableAddress, may_create: bool, until_s: float) -> Any:
    while True:
        try:
            with explaining(dialect, address):
                return dialect.connect(address, may_create=may_create)
        except DatabaseAway:
            if time.monotonic() + CONNECT_PAUSE_S > until_s:
                raise
            time.sleep(CONNECT_PAUSE_S)
