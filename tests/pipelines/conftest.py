"""One Spark session, one broker, one PostgreSQL and one MariaDB for the tests of a run that need them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.cli.doctor_checks import OK, check_java
from penstock.testing.database_servers import MariaDBServer, NoDatabaseServer, PostgreSQLServer

from ..spark.conftest import broker, new_topic, spark

__all__ = ["broker", "new_topic", "spark"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """py4j and pyspark leave sockets to the garbage collector; no fault of what is tested."""
    java = check_java()
    lacks_java = pytest.mark.skip(reason=f"NOT TESTED WITH SPARK: java: {java.text}; {java.advice}")
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))
            if java.status != OK and item.get_closest_marker("spark"):
                item.add_marker(lacks_java)


@pytest.fixture(scope="session")
def postgresql() -> Iterator[PostgreSQLServer]:
    """Let each test use a database of its own (`new_database`), and leave the server running."""
    try:
        server = PostgreSQLServer()
    except NoDatabaseServer as missing:
        pytest.skip(f"NOT TESTED WITH POSTGRESQL: {missing}")
    with server:
        yield server


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaDBServer]:
    """Let each test use a database of its own (`new_database`), and leave the server running."""
    try:
        server = MariaDBServer()
    except NoDatabaseServer as missing:
        pytest.skip(f"NOT TESTED WITH MARIADB: {missing}")
    with server:
        yield server
