"""The three databases, each with a new database for a test, behind one small face."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.pipelines.relational.address import TableAddress, parse_address
from penstock.pipelines.relational.session import Session, open_session

from .database_kinds import KINDS


class Shop:
    """A database of a test."""

    def __init__(self, kind: str, url: str) -> None:
        self.kind = kind
        self.url = url

    def address(self, table: str = "t") -> TableAddress:
        return parse_address(f"{self.url}/{table}")

    def run(self, statement: str) -> list[tuple[Any, ...]]:
        with open_session(self.address(), may_create=True) as session:
            return session.run(statement)

    def session(self, table: str = "t") -> Any:
        return open_session(self.address(table), may_create=True)

    def rows(self, columns: str = "*", table: str = "t") -> list[tuple[Any, ...]]:
        return sorted(self.run(f"SELECT {columns} FROM {table}"), key=repr)

    def tables(self) -> set[str]:
        with open_session(self.address(), may_create=True) as session:
            return set(_tables(session))

    def stages(self) -> set[str]:
        """Staging tables that are there now."""
        return {name for name in self.tables() if name.startswith("penstock_stage_")}


def _tables(session: Session) -> Iterator[str]:
    statement = {
        "postgresql": "SELECT tablename FROM pg_tables WHERE schemaname = 'public'",
        "mysql": "SELECT table_name FROM information_schema.tables WHERE table_schema = DATABASE()",
        "sqlite": "SELECT name FROM sqlite_master WHERE type = 'table'",
    }[session.address.kind]
    return (row[0] for row in session.run(statement))


@pytest.fixture(params=KINDS)
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Shop:
    """A test with this runs once for each kind of database."""
    if request.param == "sqlite":
        return Shop("sqlite", f"sqlite://{tmp_path / 'shop.db'}")
    server = request.getfixturevalue("postgresql" if request.param == "postgresql" else "mariadb")
    return Shop(request.param, server.new_database())


def as_json(value: Any) -> Any:
    """JSON out of a column, which PostgreSQL's driver has parsed already."""
    return json.loads(value) if isinstance(value, str | bytes) else value
