"""How tables that are followed are written in a pipeline's file, and that their source takes what is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.pipelines.reading import read_file
from penstock.pipelines.reading_nodes import PipelineMistakes
from penstock.pipelines.relational.source_options import parse_source_options
from penstock.pipelines.specification import TableSource

WHOLE = """\
name: follow
sources:
  items: {{table: "postgresql://me@db/shop/items", {how}}}
sinks:
  out: {{from: items, parquet: out}}
"""


@pytest.mark.parametrize(
    ("how", "mode", "overlap"),
    [
        ("follow: {column: updated_at, overlap: 5 minutes, rows_per_batch: 10}", "growing", "5 minutes"),
        ("follow: {column: id, overlap: 1000}", "growing", "1000"),
        ("follow: id", "growing", None),
        ("changes: {slot: s, publication: p}", "changes", None),
    ],
)
def test_the_source_takes_what_the_file_says(tmp_path: Path, how: str, mode: str, overlap: str | None) -> None:
    file = tmp_path / "follow.yaml"
    file.write_text(WHOLE.format(how=how))
    source = read_file(file, {}).sources["items"]
    assert isinstance(source, TableSource)
    options = parse_source_options({"url": source.address, "mode": source.mode or "", **source.options})
    assert (options.mode, options.overlap) == (mode, overlap)


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ("mode: delete", "mode: delete needs keys"),
        ("mode: upsert", "mode: upsert needs keys"),
        ("keys: id", "keys belong to mode"),
        ("mode: delete, keys: id, output: update", "mode: upsert"),
        ("mode: delete, keys: id", None),
        ("mode: upsert, keys: [id, at], delete_when: gone", None),
    ],
)
def test_sinks(tmp_path: Path, how: str, told: str | None) -> None:
    sinks = f'sinks: {{out: {{from: items, table: "sqlite:shop.db/items", {how}}}}}\n'
    file = tmp_path / "follow.yaml"
    file.write_text(WHOLE.format(how="follow: id").partition("sinks:")[0] + sinks)
    if told is None:
        assert read_file(file, {}).sinks
        return
    with pytest.raises(PipelineMistakes) as caught:
        read_file(file, {})
    assert told in str(caught.value)
