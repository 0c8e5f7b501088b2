"""Deadlines, against a dictionary that is looked through every time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.base.deadlines import Deadlines

KEYS = st.sampled_from("abcd")
OPERATIONS = st.one_of(
    st.tuples(st.just("set"), KEYS, st.integers(0, 50)),
    st.tuples(st.just("clear"), KEYS, st.just(0)),
    st.tuples(st.just("due"), st.just(""), st.integers(0, 50)),
)


@given(st.lists(OPERATIONS, max_size=60))
def test_like_a_dictionary(operations: list[tuple[str, str, int]]) -> None:
    deadlines: Deadlines[str] = Deadlines()
    model: dict[str, int] = {}
    for name, key, at_ms in operations:
        if name == "set":
            deadlines.set(key, at_ms)
            model[key] = at_ms
        elif name == "clear":
            deadlines.clear(key)
            model.pop(key, None)
        else:
            due = list(deadlines.due(at_ms))
            assert len(due) == len(set(due))
            assert set(due) == {each for each, deadline_ms in model.items() if deadline_ms <= at_ms}
            for each in due:
                del model[each]
        next_ms = deadlines.next_ms()
        assert (next_ms is None) == (not model)
        if next_ms is not None:
            assert next_ms <= min(model.values())
        assert all((each in deadlines) == (each in model) for each in "abcd")
