"""Reading rows with bounded memory: the statement is put together here, its rows come a few thousand at a time.

PostgreSQL and MySQL keep the result at the server (a named cursor, an unbuffered one); SQLite computes row by row
anyway.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any

from pymysql.cursors import SSCursor
from pyspark.sql.types import ArrayType, StringType, StructField

from penstock.pipelines.relational.ranges import KeyRange
from penstock.pipelines.relational.session import Session, explaining

ROWS_PER_FETCH = 2000
_CURSOR = "penstock"


@dataclass(frozen=True, slots=True)
class Condition:
    """A part of WHERE, with its parameters."""

    sql: str
    parameters: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class Select:
    """A statement that reads rows of the table."""

    expressions: tuple[str, ...]
    conditions: tuple[Condition, ...] = ()
    tail: str = ""
    parameters: tuple[Any, ...] = field(default=())
    """of the tail"""

    def statement(self, session: Session) -> str:
        where = " AND ".join(f"({each.sql})" for each in self.conditions)
        words = [
            f"SELECT {', '.join(self.expressions)} FROM {session.table}",
            f"WHERE {where}" if where else "",
            self.tail,
        ]
        return " ".join(word for word in words if word)

    def all_parameters(self) -> tuple[Any, ...]:
        return (*(value for each in self.conditions for value in each.parameters), *self.parameters)

    def run(self, session: Session) -> list[tuple[Any, ...]]:
        return session.run(self.statement(session), self.all_parameters())

    def pieces(self, session: Session) -> Iterator[list[tuple[Any, ...]]]:
        """The rows, some at a time; inside a transaction that the caller has begun."""
        return fetch_pieces(session, self.statement(session), self.all_parameters())


def fetch_pieces(
    session: Session, statement: str, parameters: Sequence[Any], *, binary: bool = False
) -> Iterator[list[tuple[Any, ...]]]:
    """The rows of a statement, some at a time."""
    with explaining(session.dialect, session.address):
        if session.address.kind == "postgresql":
            cursor = session.connection.cursor(name=_CURSOR, binary=binary)
            text: Any = statement.encode()
        else:
            cursor = session.connection.cursor(*([SSCursor] if session.address.kind == "mysql" else []))
            text = statement
        with closing(cursor):
            cursor.execute(text, tuple(parameters))
            while rows := cursor.fetchmany(ROWS_PER_FETCH):
                yield list(rows)


def column_expressions(session: Session, fields: Iterable[StructField]) -> tuple[str, ...]:
    """What is selected for columns. PostgreSQL writes whatever Spark takes for a string as text itself."""
    return tuple(_expression(session, each) for each in fields)


def _expression(session: Session, each: StructField) -> str:
    name = session.quote(each.name)
    if session.address.kind != "postgresql":
        return name
    if isinstance(each.dataType, StringType):
        return f"{name}::text"
    if isinstance(each.dataType, ArrayType) and isinstance(each.dataType.elementType, StringType):
        return f"{name}::text[]"
    return name


def range_conditions(session: Session, expression: str, wanted: KeyRange) -> tuple[Condition, ...]:
    """Rows whose key is in the range; those without a key are in the first one."""
    found = []
    if wanted.at_least is not None:
        found.append(Condition(f"{expression} >= {session.parameter}", (wanted.at_least,)))
    if wanted.below is not None:
        below = f"{expression} < {session.parameter}"
        sql = f"{below} OR {expression} IS NULL" if wanted.at_least is None else below
        found.append(Condition(sql, (wanted.below,)))
    return tuple(found)
