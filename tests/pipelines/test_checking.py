"""What `check` finds without running anything, and whether the plan says what holds."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from penstock.pipelines import checking
from penstock.pipelines.checking import Findings, check_pipeline
from penstock.pipelines.reading import read_file
from penstock.pipelines.running_session import register_sources
from penstock.testing.broker_process import BrokerProcess, free_port
from penstock.testing.database_servers import PostgreSQLServer

from .whole_pipelines import read

pytestmark = pytest.mark.spark

SCHEMA = "id long, sku string, amount double, at timestamp"


@pytest.fixture
def found(spark: Any, broker: BrokerProcess, new_topic: Any, tmp_path: Path) -> Any:
    """Checks a pipeline over one topic, with these parts beside."""
    topic = new_topic()
    register_sources(spark)

    def check(sources: dict[str, Any] | None = None, **parts: Any) -> Findings:
        orders = {"topic": topic, "format": "json", "schema": SCHEMA}
        all_sources = {"orders": orders, **(sources or {})}
        return check_pipeline(spark, read(tmp_path, broker, sources=all_sources, **parts))

    return check


def mistakes(findings: Findings) -> dict[str, str]:
    return {each.key: each.text for each in findings.mistakes}


def make_tables(folder: Path) -> None:
    with sqlite3.connect(folder / "shop.db") as connection:
        connection.execute("create table ids (id integer primary key, note text not null)")
        connection.execute("create table free (id integer, amuont real)")
    connection.close()


def test_sql(found: Any) -> None:
    """Each mistake once, with its place; what depends on a wrong step is not told again."""
    told = found(
        steps={
            "wrong": "select id,\n  skuu from orders",
            "after": "select * from wrong",
            "text": "select id frm orders where",
            "nowhere": "select * from ordesr",
        },
        sinks={"out": {"from": "after", "parquet": "out"}, "good": {"from": "orders", "parquet": "good"}},
    )
    texts = mistakes(told)
    assert set(texts) == {"steps.wrong", "steps.text", "steps.nowhere"}
    assert "skuu" in texts["steps.wrong"] and "sku" in texts["steps.wrong"]
    assert "line 2, position 3" in texts["steps.wrong"]
    assert "line 1" in texts["steps.text"]
    assert texts["steps.nowhere"].startswith("there is no source or earlier step 'ordesr' (did you mean 'orders'?)")
    assert "SQLSTATE" not in str(texts) and "Project" not in str(texts)
    assert "sink good  orders → parquet" in told.plan and "exactly once" in told.plan


def test_a_command_is_no_step_and_is_not_carried_out(found: Any, spark: Any) -> None:
    """Spark would do it while the pipeline is only looked at."""
    spark.sql("create or replace temporary view kept as select 1 as id")
    commands = {
        "gone": "drop view kept",
        "inserted": "with a as (select 1) insert into kept select * from a",
        "many": "from orders insert into kept select id insert into kept select id",
        "set_it": "set spark.sql.shuffle.partitions = 77",
        "hidden": "execute immediate 'drop view kept'",
    }
    queries = {"with_it": "with a as (select id from orders) select * from a", "piped": "from orders |> where id = 1"}
    told = mistakes(found(steps=commands | queries, sinks={"out": {"from": "with_it", "parquet": "out"}}))
    assert {key for key, text in told.items() if "this is a command" in text} == {f"steps.{key}" for key in commands}
    assert len(told) == len(commands)
    assert spark.table("kept").count() == 1
    assert spark.conf.get("spark.sql.shuffle.partitions") != "77"


def test_a_function_that_fails_says_where(found: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "failing_steps.py").write_text("def boom(rows):\n    raise RuntimeError('no way')\n\nlimit = 3\n")
    (tmp_path / "broken_steps.py").write_text("def f(:\n")
    monkeypatch.syspath_prepend(tmp_path)
    steps = {
        name: {"python": function, "from": "orders"}
        for name, function in (
            ("a", "failing_steps:boom"),
            ("b", "failing_steps:bom"),
            ("c", "failing_steps:limit"),
            ("d", "broken_steps:f"),
        )
    }
    told = mistakes(found(steps=steps, sinks={"out": {"from": "orders", "parquet": "out"}}))
    assert told["steps.a"] == "failing_steps:boom failed: RuntimeError: no way (failing_steps.py, line 2)"
    assert "no function bom (did you mean 'boom'?)" in told["steps.b"]
    assert "no function limit" in told["steps.c"]
    assert "the module broken_steps cannot be loaded: SyntaxError" in told["steps.d"]


def test_formats_and_patterns(found: Any) -> None:
    orders = {"topic": "orders", "format": "json", "schema": SCHEMA}
    sources = {
        "a": {**orders, "format_options": {"timestmpFormat": "yyyy"}},
        "b": {**orders, "schema": "id lng"},
        "c": {"pattern": "no-such-topic-.*", "format": "string"},
        "d": {"topic": "orders", "format": "string", "format_options": {"sep": ";"}},
    }
    told = found(sources=sources, sinks={"out": {"from": "orders", "parquet": "out", "date": "id"}})
    texts = mistakes(told)
    assert "did you mean 'timestampFormat'" in texts["sources.a"]
    assert texts["sources.b"] == 'the schema cannot be read: Unsupported data type "LNG".'
    assert "belong to json and csv" in texts["sources.d"]
    assert texts["sinks.out"] == "date: the column id is bigint; make it a date or a time in a step"
    assert [(each.key, each.text) for each in told.warnings] == [
        ("sources.c.pattern", "no topic matches no-such-topic-.* yet")
    ]


def test_rows_that_no_stream_can_have(found: Any) -> None:
    """What Spark says is about the mode that the sink wants, and the hint only where it helps."""
    steps = {
        "sorted": "select * from orders order by id",
        "outer": "select a.id from orders a left join orders b on a.id = b.id",
        "counts": "select sku, count(*) as n from orders group by sku",
    }
    texts = mistakes(found(steps=steps, sinks={name: {"from": name, "parquet": name} for name in steps}))
    assert texts["sinks.sorted"].startswith("Sorting is not supported") and "watermark" not in texts["sinks.sorted"]
    assert "without a watermark in the join keys" in texts["sinks.outer"]
    assert texts["sinks.counts"].endswith("or use a sink that takes output: update)")


def test_mistakes_have_their_line_in_the_file(spark: Any, broker: BrokerProcess, tmp_path: Path) -> None:
    file = tmp_path / "shop.yaml"
    lines = [
        f"brokers: '{broker.bootstrap}'",
        "sources:",
        f"  orders: {{topic: not-there, format: json, schema: '{SCHEMA}'}}",
        "steps:",
        "  big: |",
        "    select id,",
        "      skuu from orders",
        "sinks:",
        "  out:",
        "    from: orders",
        "    parquet: out",
        "    date: sku",
    ]
    file.write_text("\n".join(lines))
    found = check_pipeline(spark, read_file(file))
    assert sorted((each.line, each.key) for each in found.mistakes) == [
        (3, "sources.orders.topic"),
        (7, "steps.big"),
        (9, "sinks.out"),
    ]


def test_topics_and_columns(found: Any, new_topic: Any) -> None:
    there = new_topic()
    sinks = {
        "a": {"from": "orders", "topic": "not-there", "format": "json"},
        "b": {"from": "orders", "topic": there, "format": "json", "key": "skuu"},
        "c": {"from": "orders", "topic": there, "format": "string"},
        "d": {"from": "orders", "parquet": "d", "date": "when"},
        "e": {"from": "orders", "topic": there, "format": "json", "timestamp": "sku"},
    }
    texts = mistakes(found(sinks=sinks, on_bad_record={"topic": "no-dead"}))
    assert "not-there does not exist" in texts["sinks.a.topic"]
    assert "no-dead does not exist" in texts["on_bad_record.topic"]
    assert "skuu" in texts["sinks.b"]
    assert "one column" in texts["sinks.c"]
    assert "when" in texts["sinks.d"]
    assert "not a timestamp" in texts["sinks.e"]


def test_tables(found: Any, tmp_path: Path) -> None:
    """Sources and sinks; nothing is made by looking."""
    make_tables(tmp_path)
    nobody = f"postgresql://me:secret@127.0.0.1:{free_port()}/shop/items"
    sources = {
        "none": {"table": "sqlite:shop.db/none"},
        "away": {"table": nobody},
        "no_column": {"table": "sqlite:shop.db/ids", "follow": "updated_at"},
    }
    upsert = {"mode": "upsert", "keys": "id"}
    sinks = {
        "missing": {"from": "ids", "table": "sqlite:shop.db/none"},
        "made": {"from": "ids", "table": "sqlite:new.db/none", "create": True, **upsert},
        "lacks": {"from": "ids", "table": "sqlite:shop.db/ids", **upsert},
        "unknown": {"from": "amounts", "table": "sqlite:shop.db/free"},
        "no_index": {"from": "ids", "table": "sqlite:shop.db/free", **upsert},
        "no_key": {"from": "amounts", "table": "sqlite:shop.db/free", "mode": "upsert", "keys": "sku"},
        "nobody": {"from": "ids", "table": nobody},
        "added_again": {"from": "counts", "table": "sqlite:shop.db/free"},
    }
    steps = {
        "ids": "select id from orders",
        "amounts": "select id, amount from orders",
        "counts": "select count(*) as id from orders",
    }
    told = found(sources=sources, steps=steps, sinks=sinks)
    texts = mistakes(told)
    assert "no table 'none'" in texts["sources.none"]
    assert "updated_at" in texts["sources.no_column"]
    assert "no table 'none'" in texts["sinks.missing.table"]
    assert "'note'" in texts["sinks.lacks.table"] and "may not be null" in texts["sinks.lacks.table"]
    assert "did you mean 'amuont'" in texts["sinks.unknown.table"]
    assert "unique index" in texts["sinks.no_index.table"]
    assert "sku" in texts["sinks.no_key"]
    assert "127.0.0.1" in texts["sources.away"] and "127.0.0.1" in texts["sinks.nobody.table"]
    assert "sinks.added_again" in texts
    assert not [key for key in texts if key.startswith("sinks.made")]
    assert not (tmp_path / "new.db").exists()
    assert "secret" not in str(texts) + told.plan


@pytest.mark.postgres
def test_change_capture_and_rights(found: Any, new_topic: Any, postgresql: PostgreSQLServer) -> None:
    """What PostgreSQL must be told, and one slot for two sinks."""
    url, role = postgresql.new_database(), f"r_{uuid4().hex[:8]}"
    database = url.rpartition("/")[2]
    with postgresql.connect(database) as connection:
        connection.execute("CREATE TABLE stock (id int PRIMARY KEY)")
        connection.execute("CREATE PUBLICATION shop FOR TABLE stock")
        connection.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'x'".encode())
    weak = f"postgresql://{role}:x@127.0.0.1:{postgresql.port}/{database}/stock"
    sources = {
        "stock": {"table": f"{url}/stock", "changes": {"slot": f"s_{database}", "publication": "shop"}},
        "lost": {"table": f"{url}/stock", "changes": {"slot": f"t_{database}", "publication": "shp"}},
    }
    topic = {"topic": new_topic(), "format": "json"}
    sinks = {
        "first": {"from": "ids", **topic},
        "second": {"from": "ids", **topic},
        "third": {"from": "pairs", **topic},
        "table": {"from": "some", "table": weak, "mode": "upsert", "keys": "id"},
    }
    steps = {
        "ids": "select key.id as id from stock",
        "pairs": "select a.key.id as id from stock a join stock b on a.key.id = b.key.id",
        "some": "select id from orders",
    }
    texts = mistakes(found(sources=sources, steps=steps, sinks=sinks))
    assert "no publication 'shp': CREATE PUBLICATION" in texts["sources.lost"]
    assert "another sink reads from it" in texts["sinks.second"] and "reads it twice" in texts["sinks.third"]
    assert "GRANT CREATE ON SCHEMA" in texts["sinks.table.table"]
    assert f'GRANT SELECT, INSERT, UPDATE ON "stock" TO "{role}"' in texts["sinks.table.table"]
    assert "sources.stock" not in texts and "sinks.first" not in texts
    with postgresql.connect(database) as connection:
        assert connection.execute(
            "SELECT count(*) FROM pg_replication_slots WHERE database = current_database()"
        ).fetchone() == (0,)


def test_brokers_that_are_away(
    spark: Any, broker: BrokerProcess, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checking, "ASK_TIMEOUT_MS", "1000")
    sources = {"orders": {"topic": "orders", "format": "json", "schema": SCHEMA}}
    away = f"127.0.0.1:{free_port()}"
    sinks = {"out": {"from": "orders", "topic": "out", "format": "json"}}
    told = check_pipeline(spark, read(tmp_path, broker, sources=sources, sinks=sinks, brokers=away))
    assert away in mistakes(told)["brokers"]
    assert "exactly once" not in told.plan


@pytest.mark.parametrize("asked", ["exactly once", "at least once", None])
def test_brokers_that_cannot_commit_as_one(
    found: Any, new_topic: Any, monkeypatch: pytest.MonkeyPatch, asked: str | None
) -> None:
    """The plan promises of a topic what these brokers can do, and asking for more is a mistake."""
    monkeypatch.setattr(checking, "is_offered", lambda connection: False)
    parts = {"guarantee": asked} if asked else {}
    sinks = {
        "out": {"from": "orders", "topic": new_topic(), "format": "json"},
        "files": {"from": "orders", "parquet": "files"},
    }
    told = found(sinks=sinks, **parts)
    plan = {line.split()[1]: line for line in told.plan.splitlines() if line.startswith("  sink")}
    assert plan["out"].endswith("(append, at least once)") and plan["files"].endswith("(append, exactly once)")
    assert ("sinks.out.guarantee" in mistakes(told)) == (asked == "exactly once")
