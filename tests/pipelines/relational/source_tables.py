"""A table in a database of each kind, written by the test with the plain driver."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pymysql
import pytest

from penstock.pipelines.relational.address import parse_address

TIME_TYPES = {"postgresql": "timestamptz", "mysql": "timestamp(6) NULL", "sqlite": "TIMESTAMP"}
TABLE = "items"


class SourceDatabase:
    """One database; `connect` gives as many writers as a test wants."""

    def __init__(self, kind: str, url: str) -> None:
        self.kind = kind
        self.url = url
        self.time_type = TIME_TYPES[kind]
        self._main = self.connect()

    def table_url(self, table: str = TABLE) -> str:
        return f"{self.url}/{table}"

    def connect(self) -> Any:
        """A connection that commits by itself, unless it is told BEGIN."""
        where = parse_address(self.table_url())
        if self.kind == "postgresql":
            login = {"user": where.user, "password": where.password}
            return psycopg.connect(host=where.host, port=where.port, dbname=where.database, autocommit=True, **login)
        if self.kind == "mysql":
            login = {"user": where.user, "password": where.password, "init_command": "SET time_zone = '+00:00'"}
            return pymysql.connect(
                host=where.host, port=where.port, database=where.database, autocommit=True, charset="utf8mb4", **login
            )
        return sqlite3.connect(where.database, isolation_level=None, timeout=30)

    def run(self, statement: str, parameters: Sequence[Any] = (), connection: Any = None) -> list[Any]:
        """A statement with ? for parameters; its rows."""
        text = statement if self.kind == "sqlite" else statement.replace("%", "%%").replace("?", "%s")
        cursor = (connection or self._main).cursor()
        cursor.execute(text, tuple(parameters))
        rows = list(cursor.fetchall()) if cursor.description else []
        cursor.close()
        return rows

    def insert(self, rows: Sequence[Sequence[Any]], table: str = TABLE, connection: Any = None) -> None:
        if not rows:
            return
        marks = ", ".join("(" + ", ".join("?" * len(row)) + ")" for row in rows)
        self.run(f"INSERT INTO {table} VALUES {marks}", [value for row in rows for value in row], connection)

    def close(self) -> None:
        self._main.close()


def new_source_database(kind: str, request: pytest.FixtureRequest, folder: Path) -> SourceDatabase:
    if kind == "sqlite":
        return SourceDatabase(kind, f"sqlite://{folder / f'{uuid4().hex[:8]}.db'}")
    server = request.getfixturevalue("postgresql" if kind == "postgresql" else "mariadb")
    return SourceDatabase(kind, server.new_database())


MakeDatabase = Callable[[str], SourceDatabase]
