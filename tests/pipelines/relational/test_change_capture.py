"""Change capture against a real PostgreSQL, without Spark: what is read between offsets, and every clear error."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows

from penstock.pipelines.relational.address import parse_address
from penstock.pipelines.relational.changes import ChangesReader
from penstock.pipelines.relational.failures import RelationalError
from penstock.pipelines.relational.pgoutput import Relation, Type, decode
from penstock.pipelines.relational.slot import slot_status
from penstock.pipelines.relational.source_options import parse_source_options
from penstock.pipelines.relational.table_source import source_schema
from penstock.testing.database_servers import NoDatabaseServer, PostgreSQLServer

from .source_tables import SourceDatabase, new_source_database

pytestmark = pytest.mark.postgres
LIMIT = ReadMaxRows(100_000)


@pytest.fixture
def shop(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SourceDatabase]:
    database = new_source_database("postgresql", request, tmp_path)
    columns = "id int PRIMARY KEY, name text, price numeric(10,2), photo bytea, added timestamptz"
    database.run(f"CREATE TABLE items ({columns})")
    database.run("CREATE TABLE others (id int PRIMARY KEY)")
    database.run("CREATE PUBLICATION shop FOR TABLE items, others")
    yield database
    slots = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE database = current_database()"
    database.run(slots)
    database.close()


def options(shop: SourceDatabase, **more: str) -> dict[str, str]:
    slot = f"s_{shop.url.rpartition('/')[2]}"
    return {
        "url": shop.table_url(), "mode": "changes", "slot": slot, "publication": "shop", "pollInterval": "0s", **more,
    }  # fmt: skip


def new_reader(shop: SourceDatabase, **more: str) -> ChangesReader:
    values = options(shop, **more)
    return ChangesReader(parse_source_options(values), source_schema(values))


def read(reader: ChangesReader, start: dict[str, Any], end: dict[str, Any]) -> list[dict[str, Any]]:
    parts = reader.partitions(start, end)
    return [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]


def short(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(row["op"], (row["key"] or {}).get("id"), (row["after"] or {}).get("name")) for row in rows]


def started(shop: SourceDatabase, **more: str) -> tuple[ChangesReader, dict[str, Any]]:
    """A reader that has its snapshot behind it."""
    reader = new_reader(shop, **more)
    first = reader.initialOffset()
    start = reader.latestOffset(first, LIMIT)
    read(reader, first, start)
    return reader, start


def test_snapshot_then_changes_each_once(shop: SourceDatabase) -> None:
    shop.run("INSERT INTO items VALUES (1, 'a', 1.50, '\\x00ff', '2026-01-31 10:00+00')")
    reader = new_reader(shop, partitions="3")
    first = reader.initialOffset()
    shop.run("INSERT INTO items VALUES (2, 'b')")  # the slot collects it, and the snapshot sees it
    start = reader.latestOffset(first, LIMIT)
    shop.run("INSERT INTO items VALUES (3, 'c')")  # after the snapshot
    rows = read(reader, first, start)
    assert sorted(short(rows)) == [("read", 1, "a"), ("read", 2, "b")]
    whole = next(row["after"] for row in rows if row["key"]["id"] == 1)
    assert (str(whole["price"]), whole["photo"], whole["added"].isoformat()) == (
        "1.50", b"\0\xff", "2026-01-31T10:00:00+00:00",
    )  # fmt: skip
    shop.run("UPDATE items SET name = 'aa' WHERE id = 1")
    shop.run("DELETE FROM items WHERE id = 2")
    shop.run("UPDATE items SET id = 30 WHERE id = 3")
    shop.run("INSERT INTO others VALUES (1)")
    shop.run("TRUNCATE items")
    end = reader.latestOffset(start, LIMIT)
    rows = read(reader, start, end)
    assert short(rows) == [
        ("insert", 3, "c"), ("update", 1, "aa"), ("delete", 2, None), ("delete", 3, None), ("insert", 30, "c"),
        ("truncate", None, None),
    ]  # fmt: skip
    assert [(row["lsn"], row["sequence"]) for row in rows] == sorted((row["lsn"], row["sequence"]) for row in rows)
    assert [row["deleted"] for row in rows] == [row["op"] == "delete" for row in rows]
    assert read(reader, start, end) == rows
    assert "snapshot" not in end
    assert reader.latestOffset(end, LIMIT) == end
    reader.stop()


def test_a_snapshot_that_is_taken_again_repeats_changes_and_loses_none(shop: SourceDatabase) -> None:
    reader = new_reader(shop)
    first = reader.initialOffset()
    start = reader.latestOffset(first, LIMIT)
    reader.stop()
    shop.run("INSERT INTO items VALUES (1, 'a')")
    reader = new_reader(shop)
    assert reader.initialOffset() == first
    assert short(read(reader, first, start)) == [("read", 1, "a")]
    end = reader.latestOffset(start, LIMIT)
    assert short(read(reader, start, end)) == [("insert", 1, "a")]
    reader.stop()


def test_transactions_come_whole_in_the_order_of_their_commits(shop: SourceDatabase) -> None:
    reader, start = started(shop)
    early, late = shop.connect(), shop.connect()
    shop.run("BEGIN", connection=early)
    shop.run("INSERT INTO items VALUES (1, 'early')", connection=early)
    shop.run("BEGIN", connection=late)
    shop.run("INSERT INTO items VALUES (2, 'late'), (3, 'late')", connection=late)
    shop.run("COMMIT", connection=late)
    middle = reader.latestOffset(start, LIMIT)
    assert short(read(reader, start, middle)) == [("insert", 2, "late"), ("insert", 3, "late")]
    shop.run("COMMIT", connection=early)
    end = reader.latestOffset(middle, LIMIT)
    assert short(read(reader, middle, end)) == [("insert", 1, "early")]
    for each in (early, late):
        each.close()


def test_batches_have_a_limit_and_hold_whole_transactions(shop: SourceDatabase) -> None:
    reader, start = started(shop)
    for number in range(0, 12, 3):
        shop.run("INSERT INTO items SELECT n, 'x' FROM generate_series(?::int, ?::int) n", (number, number + 2))
    sizes = []
    while (end := reader.latestOffset(start, ReadMaxRows(2))) != start:
        sizes.append(len(read(reader, start, end)))
        start = end
    assert sizes == [3, 3, 3, 3]


def test_the_slot_moves_only_behind_what_is_committed(shop: SourceDatabase) -> None:
    reader, start = started(shop)
    shop.run("INSERT INTO items VALUES (1, 'a')")
    end = reader.latestOffset(start, LIMIT)
    before = slot_status(shop.table_url(), options(shop)["slot"])
    assert short(read(reader, start, end)) == [("insert", 1, "a")]
    reader = new_reader(shop)  # it died, and reads the batch again
    assert short(read(reader, start, end)) == [("insert", 1, "a")]
    assert slot_status(shop.table_url(), options(shop)["slot"]).confirmed_lsn == before.confirmed_lsn
    reader.commit(end)
    after = slot_status(shop.table_url(), options(shop)["slot"])
    assert after.confirmed_lsn > before.confirmed_lsn and after.behind_bytes <= before.behind_bytes + 1000
    assert after.held_back_bytes >= 0
    with pytest.raises(RelationalError, match="somebody else reads from it"):
        reader.partitions(start, end)


def test_a_quiet_table_does_not_hold_back_the_log(shop: SourceDatabase, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.pipelines.relational.changes.IDLE_BYTES_MAX", 100_000)
    reader, start = started(shop)
    shop.run("CREATE TABLE elsewhere AS SELECT repeat('x', 500) FROM generate_series(1, 2000)")
    end = reader.latestOffset(start, LIMIT)
    assert end != start and read(reader, start, end) == []
    shop.run("INSERT INTO items VALUES (1, 'a')")
    last = reader.latestOffset(end, LIMIT)
    assert short(read(reader, end, last)) == [("insert", 1, "a")]
    assert slot_status(shop.table_url(), options(shop)["slot"]).behind_bytes < 100_000


def test_large_values_that_were_not_touched(shop: SourceDatabase) -> None:
    reader, start = started(shop)
    large = "SELECT string_agg(md5(n::text), '') FROM generate_series(1, 400) n"
    shop.run(f"INSERT INTO items VALUES (1, ({large}))")
    shop.run("UPDATE items SET price = 2 WHERE id = 1")
    shop.run("ALTER TABLE items REPLICA IDENTITY FULL")
    shop.run("UPDATE items SET price = 3 WHERE id = 1")
    end = reader.latestOffset(start, LIMIT)
    inserted, unknown, known = read(reader, start, end)
    assert len(inserted["after"]["name"]) == 12_800 and inserted["unchanged"] is None
    assert unknown["after"]["name"] is None and unknown["unchanged"] == ["name"] and unknown["before"] is None
    assert known["after"]["name"] == inserted["after"]["name"] and known["unchanged"] is None
    assert (str(known["before"]["price"]), str(known["after"]["price"])) == ("2.00", "3.00")


def test_columns_that_come_and_go_and_change(shop: SourceDatabase) -> None:
    reader, start = started(shop)
    shop.run("ALTER TABLE items ADD COLUMN color text")
    shop.run("INSERT INTO items VALUES (1, 'a', 1, NULL, NULL, 'red')")
    shop.run("ALTER TABLE items DROP COLUMN price")
    shop.run("INSERT INTO items (id, name) VALUES (2, 'b')")
    end = reader.latestOffset(start, LIMIT)
    first, second = read(reader, start, end)
    assert set(first["after"]) == {"id", "name", "price", "photo", "added"} and str(first["after"]["price"]) == "1.00"
    assert second["after"]["price"] is None
    later = new_reader(shop)
    first, second = read(later, start, end)
    assert (first["after"]["color"], second["after"]["color"]) == ("red", None) and "price" not in first["after"]
    shop.run("ALTER TABLE items ALTER COLUMN added TYPE text USING 'some time'")
    shop.run("INSERT INTO items (id, added) VALUES (3, 'yesterday')")
    last = reader.latestOffset(end, LIMIT)
    with pytest.raises(RelationalError, match="column added: 'yesterday' is no timestamp; if the type of the column"):
        read(reader, end, last)


def test_messages_of_a_real_server_are_decoded(shop: SourceDatabase) -> None:
    shop.run("CREATE TYPE mood AS ENUM ('good', 'bad')")
    shop.run("ALTER TABLE others ADD COLUMN mood mood")
    shop.run("SELECT pg_create_logical_replication_slot('raw_' || current_database(), 'pgoutput')")
    shop.run("INSERT INTO others VALUES (1, 'good')")
    rows = shop.run(
        "SELECT data FROM pg_logical_slot_peek_binary_changes('raw_' || current_database(), NULL, NULL, "
        "'proto_version', '1', 'publication_names', 'shop')"
    )
    messages = [decode(data) for (data,) in rows]
    assert [type(each).__name__ for each in messages] == ["Begin", "Type", "Relation", "Insert", "Commit"]
    kind, relation = messages[1], messages[2]
    assert isinstance(kind, Type) and (kind.schema, kind.name) == ("public", "mood")
    assert isinstance(relation, Relation) and [each.name for each in relation.columns] == ["id", "mood"]


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("DROP PUBLICATION shop", 'has no publication \'shop\': CREATE PUBLICATION "shop" FOR TABLE "items"'),
        ("ALTER PUBLICATION shop DROP TABLE items", "does not have the table public.items: ALTER PUBLICATION"),
        ("ALTER TABLE items REPLICA IDENTITY NOTHING", "replica identity nothing.*REPLICA IDENTITY DEFAULT"),
        ("ALTER TABLE items DROP CONSTRAINT items_pkey", "no primary key.*ADD PRIMARY KEY"),
    ],
)
def test_what_is_missing_is_said_before_anything_runs(shop: SourceDatabase, statement: str, message: str) -> None:
    """Asking for the columns is enough, which is what `penstock pipeline check` does."""
    shop.run(statement)
    with pytest.raises(RelationalError, match=message):
        source_schema(options(shop))


def test_all_that_is_missing_is_said_at_once(shop: SourceDatabase) -> None:
    user = f"u_{shop.url.rpartition('/')[2]}"
    shop.run(f"CREATE ROLE {user} LOGIN PASSWORD 'x'")
    shop.run("DROP PUBLICATION shop")
    where = parse_address(shop.table_url())
    values = {**options(shop), "url": f"postgresql://{user}:x@{where.host}:{where.port}/{where.database}/items"}
    with pytest.raises(RelationalError) as told:
        source_schema(values)
    statements = ("CREATE PUBLICATION", f'GRANT SELECT ON "items" TO "{user}"', f'ALTER ROLE "{user}" REPLICATION')
    assert all(each in str(told.value) for each in statements)
    with pytest.raises(RelationalError, match=f'permission denied.*GRANT SELECT ON "items" TO {user}'):
        source_schema({"url": values["url"]})
    shop.run("CREATE PUBLICATION shop FOR TABLE items")
    shop.run(f"GRANT SELECT ON items TO {user}")
    shop.run(f"ALTER ROLE {user} REPLICATION")
    assert source_schema(values).names[0] == "op"


def test_a_server_without_a_free_slot(shop: SourceDatabase) -> None:
    slots_max = int(shop.run("SHOW max_replication_slots")[0][0])
    used = shop.run("SELECT count(*) FROM pg_replication_slots")[0][0]
    name = f"{options(shop)['slot']}_"
    for number in range(used, slots_max):
        shop.run("SELECT pg_create_physical_replication_slot(?)", (f"{name}{number}",))
    try:
        with pytest.raises(RelationalError, match=f"has {slots_max} replication slots.*raise max_replication_slots"):
            source_schema(options(shop))
    finally:
        drop = "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name LIKE ?"
        shop.run(drop, (f"{name}%",))
    new_reader(shop).initialOffset()


@pytest.mark.parametrize("name", ["Stock", "stock-1", "s" * 64])
def test_names_that_a_slot_cannot_have(name: str) -> None:
    values = {"url": "postgresql://me@127.0.0.1/d/items", "mode": "changes", "slot": name, "publication": "shop"}
    with pytest.raises(RelationalError, match="option slot: PostgreSQL takes small letters"):
        parse_source_options(values)


def test_a_slot_that_was_dropped(shop: SourceDatabase) -> None:
    reader, start = started(shop)
    shop.run("SELECT pg_drop_replication_slot(?)", (options(shop)["slot"],))
    with pytest.raises(RelationalError, match=r"does not exist any more.*remove the query's checkpoint"):
        reader.latestOffset(start, LIMIT)
    assert slot_status(shop.table_url(), options(shop)["slot"]) is None


def test_a_slot_of_another_plugin(shop: SourceDatabase) -> None:
    shop.run("SELECT pg_create_logical_replication_slot(?, 'test_decoding')", (options(shop)["slot"],))
    with pytest.raises(RelationalError, match=r"option slot: .* belongs to test_decoding"):
        new_reader(shop).initialOffset()


def test_a_server_that_does_not_log_enough() -> None:
    try:
        server = PostgreSQLServer({"wal_level": "replica"})
    except NoDatabaseServer as missing:
        pytest.skip(f"NOT TESTED WITH POSTGRESQL: {missing}")
    with server:
        database = SourceDatabase("postgresql", server.new_database())
        database.run("CREATE TABLE items (id int PRIMARY KEY)")
        with pytest.raises(RelationalError, match=r"has wal_level = replica.*ALTER SYSTEM SET wal_level = 'logical'"):
            source_schema(options(database))
        database.close()
