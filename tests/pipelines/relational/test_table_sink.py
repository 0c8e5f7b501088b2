"""The sink through real Spark: streams and batch writes, modes, names, and what is said when something is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException

from penstock.pipelines.relational.data_source import RelationalTable

from .conftest import Shop

pytestmark = pytest.mark.spark


@pytest.fixture
def session(spark: Any) -> Any:
    spark.dataSource.register(RelationalTable)
    return spark


def append(frame: Any, shop: Shop, **options: str) -> None:
    frame.write.format("penstock-table").mode("append").options(url=f"{shop.url}/t", **options).save()


def stream(spark: Any, folder: Path, shop: Shop, checkpoint: str = "checkpoint", **options: str) -> None:
    """All files of the folder, one a batch."""
    rows = spark.readStream.schema("id long, name string, gone boolean").option("maxFilesPerTrigger", 1)
    rows = rows.json(str(folder / "files")).repartition(2, "id")
    settings = {"url": f"{shop.url}/t", "checkpointLocation": str(folder / checkpoint), **options}
    query = rows.writeStream.format("penstock-table").options(**settings).trigger(availableNow=True).start()
    query.awaitTermination()


def add_file(folder: Path, name: str, *lines: str) -> None:
    (folder / "files").mkdir(exist_ok=True)
    (folder / "files" / name).write_text("\n".join(lines))


def test_a_stream_upserts_and_deletes(session: Any, shop: Shop, tmp_path: Path) -> None:
    options = {"mode": "upsert", "keys": "id", "deleteWhen": "gone", "create": "true", "queryName": "people"}
    add_file(tmp_path, "1.json", '{"id": 1, "name": "a"}', '{"id": 2, "name": "b"}', '{"id": 3, "name": "c"}')
    stream(session, tmp_path, shop, **options)
    add_file(tmp_path, "2.json", '{"id": 1, "gone": true}', '{"id": 2, "name": "B"}', '{"id": 4, "name": "d"}')
    stream(session, tmp_path, shop, **options)
    assert shop.rows() == [(2, "B"), (3, "c"), (4, "d")]
    assert shop.stages() == set()
    with pytest.raises(PySparkException, match="written with another checkpoint"):
        stream(session, tmp_path, shop, checkpoint="another", **options)
    assert shop.rows() == [(2, "B"), (3, "c"), (4, "d")]


def test_batch_writes(session: Any, shop: Shop) -> None:
    frame = session.range(1000).selectExpr("id", "cast(id as string) as name")
    append(frame, shop, create="true", txnAppId="load", txnVersion="1")
    append(frame.repartition(3), shop, txnAppId="load", txnVersion="1")
    assert shop.run("SELECT count(*), count(DISTINCT id), sum(id) FROM t") == [(1000, 1000, 499500)]
    append(session.range(5).selectExpr("id", "'x' as name"), shop)
    assert shop.run("SELECT count(*) FROM t") == [(1005,)]
    with pytest.raises(PySparkException, match="has no column 'nome'"):
        append(frame.withColumnRenamed("name", "nome"), shop)
    with pytest.raises(PySparkException, match="option moode: is unknown; did you mean mode"):
        append(frame, shop, moode="insert")


def test_a_task_that_fails_leaves_nothing(session: Any, shop: Shop) -> None:
    shop.run("CREATE TABLE t (id bigint, name varchar(20) NOT NULL)")
    frame = session.range(0, 100, 1, 4).selectExpr("id", "if(id = 70, null, 'x') as name")
    with pytest.raises(PySparkException, match="does not take these rows"):
        append(frame, shop)
    assert shop.rows() == []
    append(session.range(1).selectExpr("id", "'x' as name"), shop)
    assert len(shop.rows()) == 1
