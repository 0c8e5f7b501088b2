"""The servers for tests: they serve, keep their data over a kill, and leave nothing behind."""

from __future__ import annotations

import pytest

from penstock.testing.database_servers import MariaDBServer, NoDatabaseServer, PostgreSQLServer


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(PostgreSQLServer, marks=pytest.mark.postgres),
        pytest.param(MariaDBServer, marks=pytest.mark.mysql),
    ],
)
def test_a_server_comes_back_with_its_data_and_leaves_nothing(
    kind: type[PostgreSQLServer] | type[MariaDBServer],
) -> None:
    try:
        made = kind()
    except NoDatabaseServer as missing:
        pytest.skip(f"NOT TESTED WITH {kind.name.upper()}: {missing}")
    with made as server:
        database = server.new_database().rpartition("/")[2]
        with server.connect(database) as connection, connection.cursor() as cursor:
            cursor.execute("CREATE TABLE kept (id int)")
            cursor.execute("INSERT INTO kept VALUES (7)")
        server.kill()
        assert not server.is_running
        server.start()
        with server.connect(database) as connection, connection.cursor() as cursor:
            cursor.execute("SELECT id FROM kept")
            assert [tuple(row) for row in cursor.fetchall()] == [(7,)]
        folder = server.folder
    assert not server.is_running
    assert not folder.exists()
