"""Pipelines from YAML: what is understood, and that every mistake is told at once with its line and its key."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.pipelines.reading import read_document, read_file
from penstock.pipelines.reading_nodes import PipelineMistakes
from penstock.pipelines.specification import (
    BadRecordsToTopic,
    FormatKind,
    Guarantee,
    ParquetSink,
    Pipeline,
    PythonStep,
    SqlStep,
    TableSink,
    TableSource,
    TopicSink,
    TopicSource,
    Watermark,
)

EXAMPLE = """\
name: revenue-by-minute
connections:
  shop: {url: "postgresql://me:${SHOP_PASSWORD}@db:5432/shopdb"}
sources:
  orders: {topic: orders, format: json, schema: "id long, sku string, amount double, at timestamp",
           watermark: at 2 minutes}
  items:  {table: postgresql://shop/items}
steps:
  revenue: |
    select window(at, '1 minute').start as minute, sku, sum(amount) as revenue
    from orders join items using (sku) group by 1, 2
sinks:
  to_topic:   {from: revenue, topic: revenue-by-minute, key: sku, format: json}
  to_table:   {from: revenue, table: postgresql://shop/revenue, mode: upsert, keys: [minute, sku]}
on_bad_record: {topic: orders.dead}
"""
SECRET = "hunter2"


def read(folder: Path, text: str, **environment: str) -> Pipeline:
    path = folder / "pipeline.yaml"
    path.write_text(text)
    return read_file(path, environment)


def mistakes(folder: Path, text: str, **environment: str) -> list[tuple[int, str, str]]:
    with pytest.raises(PipelineMistakes) as caught:
        read(folder, text, **environment)
    return [(each.line, each.key, each.text) for each in caught.value.mistakes]


def test_the_example_of_the_guide(tmp_path: Path) -> None:
    pipeline = read(tmp_path, EXAMPLE, SHOP_PASSWORD=SECRET)
    orders, items = pipeline.sources["orders"], pipeline.sources["items"]
    assert isinstance(orders, TopicSource) and isinstance(items, TableSource)
    assert orders.watermark == Watermark("at", "2 minutes")
    assert orders.format.kind is FormatKind.JSON
    assert items.mode is None and SECRET in items.address
    step = pipeline.steps["revenue"]
    assert isinstance(step, SqlStep) and step.line == 10
    topic, table = pipeline.sinks["to_topic"], pipeline.sinks["to_table"]
    assert isinstance(topic, TopicSink) and topic.key == ("sku",)
    assert isinstance(table, TableSink) and table.keys == ("minute", "sku")
    assert pipeline.on_bad_record == BadRecordsToTopic("orders.dead")
    assert SECRET not in repr(pipeline)


def test_all_mistakes_at_once(tmp_path: Path) -> None:
    text = EXAMPLE.replace("format: json, schema", "fromat: json, schema").replace(
        "from: revenue, topic", "from: revenu, topic"
    )
    found = mistakes(tmp_path, text.replace("mode: upsert", "mode: upsrt"), SHOP_PASSWORD=SECRET)
    assert (5, "sources.orders.fromat", "this key is unknown (did you mean 'format'?)") in found
    assert (13, "sinks.to_topic.from", "there is no source or step 'revenu' (did you mean 'revenue'?)") in found
    assert any(line == 14 and key == "sinks.to_table.mode" and "'upsert'" in text for line, key, text in found)


def test_a_kind_that_is_misspelled_is_suggested(tmp_path: Path) -> None:
    text = "sources: {a: {tpic: x, format: raw}}\nsinks: {b: {from: a, tabel: 'sqlite:x.db/t'}}\non_bad_record: dead\n"
    source, sink, bad = (text for _, _, text in sorted(mistakes(tmp_path, text)))
    assert source.endswith("'tpic' (did you mean 'topic'?)") and sink.endswith("'tabel' (did you mean 'table'?)")
    assert bad.endswith("it is one of stop, drop, {topic: …}, {parquet: …}")


def test_a_variable_that_is_missing_is_named_and_others_are_not_shown(tmp_path: Path) -> None:
    assert mistakes(tmp_path, EXAMPLE) == [
        (
            3,
            "connections.shop.url",
            "the environment has no variable SHOP_PASSWORD: set it, or write ${SHOP_PASSWORD:-otherwise}",
        )
    ]
    text = EXAMPLE.replace("format: json}", "format: '${WRONG}'}")
    assert SECRET not in str(mistakes(tmp_path, text, SHOP_PASSWORD="x", WRONG=SECRET))


def test_variables_with_something_to_fall_back_on(tmp_path: Path) -> None:
    text = EXAMPLE.replace("topic: orders,", "topic: '${TOPIC:-orders}',")
    for environment, topic in (({}, "orders"), ({"TOPIC": "bills"}, "bills")):
        source = read(tmp_path, text, SHOP_PASSWORD="x", **environment).sources["orders"]
        assert isinstance(source, TopicSource) and source.topics == (topic,)


@pytest.mark.parametrize(
    ("before", "after", "key"),
    [
        ("watermark: at 2 minutes", "watermark: at soon", "sources.orders.watermark"),
        ("topic: orders,", "topic: 'no/topic',", "sources.orders.topic"),
        ("from: revenue, topic: revenue-by-minute", "from: revenue, topic: orders", "sinks.to_topic.topic"),
        ("{topic: orders.dead}", "sometimes", "on_bad_record"),
        ("keys: [minute, sku]", "guarantee: exactly once", "sinks.to_table"),
        ("name: revenue-by-minute", "name: ../elsewhere", "name"),
        ("postgresql://shop/items", "postgresql://shp/items", "sources.items.table"),
        ("format: json, schema", "format: xml, schema", "sources.orders.format"),
        ('schema: "id long, sku string, amount double, at timestamp",', "", "sources.orders"),
    ],
)
def test_a_mistake_has_its_key(tmp_path: Path, before: str, after: str, key: str) -> None:
    assert before in EXAMPLE
    assert key in [each[1] for each in mistakes(tmp_path, EXAMPLE.replace(before, after, 1), SHOP_PASSWORD="x")]


@pytest.mark.parametrize(
    ("sources", "others", "key", "told"),
    [
        ("{topic: a, format: raw}", "{topic: a, format: raw}", "sinks.out.topic", "a is read by the source s: "),
        ("{pattern: 'a.*', format: raw}", "{topic: xab, format: raw}", "sinks.out.topic", "pattern 'a.*' matches it"),
        ("{files: f, format: string}", "{parquet: f/}", "sinks.out.parquet", "the source s reads this folder"),
        ("{pattern: 'a.*', format: string}", "{parquet: f}", "on_bad_record", "bad records would come again"),
        (
            "{pattern: 'b', format: string, on_bad_record: {topic: b.dead}}",
            "{parquet: f}",
            "sources.s.on_bad_record",
            "b.dead",
        ),
    ],
)
def test_a_pipeline_that_would_feed_itself(tmp_path: Path, sources: str, others: str, key: str, told: str) -> None:
    sink = others.replace("{", "{from: s, ", 1)
    text = f"sources: {{s: {sources}}}\nsinks: {{out: {sink}}}\non_bad_record: {{topic: a.dead}}\n"
    found = [(line, text) for line, each, text in mistakes(tmp_path, text) if each == key]
    assert found and all(line > 0 for line, _ in found) and told in found[0][1]


def test_a_mistake_of_a_source_is_not_told_of_those_who_use_it(tmp_path: Path) -> None:
    text = (
        "sources: {a: {tpic: x}}\nsteps: {b: {pyton: x}}\nsinks: {c: {from: a, parquet: x}, d: {from: b, parquet: x}}"
    )
    assert {key for _, key, _ in mistakes(tmp_path, text)} == {"sources.a", "steps.b", "steps.b.pyton"}


def test_a_pattern_that_cannot_be_used(tmp_path: Path) -> None:
    found = mistakes(tmp_path, "sources: {a: {pattern: 'ord[', format: raw}}\nsinks: {b: {from: a, parquet: x}}")
    assert [(line, key) for line, key, _ in found] == [(1, "sources.a.pattern")]


@pytest.mark.parametrize("text", ["a: [", "", "- 1", "a: &x [*x]", "\tname: x"])
def test_what_is_no_pipeline_at_all(tmp_path: Path, text: str) -> None:
    assert mistakes(tmp_path, text)


def test_references_that_multiply_are_refused(tmp_path: Path) -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 8)]
    assert "too large" in mistakes(tmp_path, "\n".join(lines))[0][2]


def test_a_key_that_is_there_twice(tmp_path: Path) -> None:
    assert "twice" in mistakes(tmp_path, f"{EXAMPLE}name: again\n", SHOP_PASSWORD="x")[0][2]


def test_the_same_as_python(tmp_path: Path) -> None:
    pipeline = read_document(
        {
            "name": "copy",
            "guarantee": "exactly once",
            "sources": {"lines": {"files": "in", "format": "string", "lookup": False}},
            "steps": {"longer": {"python": "my_steps:longer", "from": "lines", "deduplicate": ["value"]}},
            "sinks": {"out": {"from": "longer", "parquet": "out", "partition_by": "a, b"}},
        },
        {},
        tmp_path / "copy.yaml",
    )
    assert pipeline.steps["longer"] == PythonStep("longer", "my_steps", "longer", ("lines",), None, ("value",))
    sink = pipeline.sinks["out"]
    assert isinstance(sink, ParquetSink)
    assert sink.path == str(tmp_path / "out") and sink.partition_by == ("a", "b")
    assert pipeline.guarantee_of(sink) is Guarantee.EXACTLY_ONCE


def test_a_file_of_sqlite_lies_beside_the_pipeline(tmp_path: Path) -> None:
    text = EXAMPLE.replace("postgresql://shop/items", "sqlite:shop.db/items")
    source = read(tmp_path, text, SHOP_PASSWORD="x").sources["items"]
    assert isinstance(source, TableSource)
    assert source.address == f"sqlite://{tmp_path}/shop.db/items" and source.shown == "sqlite:shop.db/items"
