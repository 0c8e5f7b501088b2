"""Names of sources as Spark's progress tells of them, and what slots hold back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.pipelines.reading import read_document
from penstock.pipelines.relational.failures import RelationalError
from penstock.pipelines.relational.slot import SlotStatus
from penstock.pipelines.running_sources import SlotWatch, source_name
from penstock.pipelines.specification import Pipeline

ITEMS = "postgresql://me:secret@127.0.0.1/shop/items"


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    document = {
        "sources": {
            "orders": {"topic": "shop.orders", "format": "string"},
            "bills": {"pattern": r"bills\..*", "format": "string"},
            "items": {"table": ITEMS, "changes": {"slot": "s1", "publication": "p"}},
            "prices": {"table": "sqlite:shop.db/prices", "follow": {"column": "at"}},
            "returns": {"files": str(tmp_path / "returns"), "format": "json", "schema": "id long"},
        },
        "sinks": {"out": {"from": "orders", "topic": "copies", "format": "string"}},
    }
    return read_document(document, {}, tmp_path / "shop.yaml")


@pytest.mark.parametrize(
    ("offset", "description", "name"),
    [
        ({"shop.orders": {"0": 7}}, "", "orders"),
        ({"bills.2026": {"0": 7}}, "", "bills"),
        ({"lsn": "0/16B3748", "snapshot": "wanted"}, "", "items"),
        ({"position": "2026", "seen": "", "columns": []}, "", "prices"),
        ({"logOffset": 3}, "FileStreamSource[file:{folder}/returns]", "returns"),
        ({"logOffset": 3}, "FileStreamSource[file:/elsewhere]", "source 3"),
        ({}, "", "source 3"),
    ],
)
def test_names(pipeline: Pipeline, tmp_path: Path, offset: dict[str, Any], description: str, name: str) -> None:
    assert source_name(pipeline, offset, description.format(folder=tmp_path), 2) == name


def test_what_a_slot_holds_back(pipeline: Pipeline) -> None:
    answers: list[SlotStatus | RelationalError | None] = []

    def ask(url: str, slot: str) -> SlotStatus | None:
        assert (url, slot) == (ITEMS, "s1")
        answer = answers[0] if answers else None
        if isinstance(answer, RelationalError):
            raise answer
        return answer

    watch = SlotWatch(pipeline, ask)
    watch.end()
    for answer, held in (
        (SlotStatus("s1", None, 1, 4096, 10, "reserved"), 4096),
        (RelationalError("gone"), None),
        (SlotStatus("s1", None, 1, 8192, 10, "reserved"), 8192),
        (None, None),
    ):
        answers[:] = [answer]
        watch.look()
        assert watch.held_back_bytes("items") == held
    assert watch.held_back_bytes("orders") is None
