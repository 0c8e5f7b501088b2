"""Positions and their JSON, which has to stay that of Spark's connector."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.identifiers import TopicPartition
from penstock.spark.given_options import OptionError
from penstock.spark.offsets import from_json, listed, parse_assigned, parse_offsets, parse_times, to_json

PARTITIONS = st.builds(TopicPartition, st.sampled_from(["a", "b.c", "d-e"]), st.integers(0, 2**31 - 1))
POSITIONS = st.dictionaries(PARTITIONS, st.integers(0, 2**63 - 1))


@given(POSITIONS)
def test_there_and_back(positions: dict[TopicPartition, int]) -> None:
    text = json.dumps(to_json(positions))
    assert from_json(json.loads(text)) == positions


@given(POSITIONS)
def test_equal_positions_are_equal_texts(positions: dict[TopicPartition, int]) -> None:
    backwards = dict(reversed(positions.items()))
    assert json.dumps(to_json(positions)) == json.dumps(to_json(backwards))


def test_the_form_is_that_of_sparks_connector() -> None:
    positions = {TopicPartition("orders", 1): 4, TopicPartition("orders", 0): 23, TopicPartition("a", 0): 0}
    assert json.dumps(to_json(positions)) == '{"a": {"0": 0}, "orders": {"0": 23, "1": 4}}'


@pytest.mark.parametrize("broken", [None, [], {"a": 1}, {"a": {"x": 1}}, {"a": {"0": -1}}, {"a": {"0": 1.5}}, "text"])
def test_what_is_no_position(broken: object) -> None:
    with pytest.raises(ValueError, match="not positions"):
        from_json(broken)


def test_offsets_of_options_may_be_special() -> None:
    assert parse_offsets("startingOffsets", '{"a": {"0": -2, "1": -1}}') == {
        TopicPartition("a", 0): -2,
        TopicPartition("a", 1): -1,
    }


@pytest.mark.parametrize("parse", [parse_offsets, parse_times, parse_assigned])
@given(text=st.text())
def test_any_text_is_read_or_refused(parse: object, text: str) -> None:
    try:
        parse("anOption", text)  # type: ignore[operator]
    except OptionError as error:
        assert "anOption" in str(error)


@pytest.mark.parametrize("deep", ["[" * 100_000, '{"a":' * 100_000])
def test_deep_json_is_refused(deep: str) -> None:
    with pytest.raises(OptionError):
        parse_offsets("startingOffsets", deep)


def test_long_lists_are_cut() -> None:
    assert listed(TopicPartition("a", number) for number in range(12)).endswith("a-9 and 2 more")
