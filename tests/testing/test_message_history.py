"""The judge of what clients saw finds every kind of broken history, and nothing in a sound one."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.testing.message_history import MessageHistory, ReadMessage

Stored = list[ReadMessage]


def sound() -> tuple[MessageHistory, Stored]:
    """Two producers, two partitions, everything acknowledged and stored."""
    history = MessageHistory()
    stored = []
    for partition in range(2):
        for number in range(5):
            for turn, producer in enumerate(("a", "b")):
                value = history.sending(producer, number * 2 + partition, partition)
                offset = number * 2 + turn
                history.acked(value, partition, offset)
                stored.append(ReadMessage(partition, offset, value))
    return history, stored


def lose(stored: Stored) -> None:
    del stored[3]


def lose_the_end(stored: Stored) -> None:
    del stored[-1]


def lose_all(stored: Stored) -> None:
    stored.clear()


def change(stored: Stored) -> None:
    stored[3] = stored[3]._replace(value=b"x" + (stored[3].value or b""))


def empty(stored: Stored) -> None:
    stored[3] = stored[3]._replace(value=None)


def repeat(stored: Stored) -> None:
    stored.insert(10, stored[9]._replace(offset=10))


def swap(stored: Stored) -> None:
    """The messages 0 and 2 of one producer change places."""
    stored[0], stored[2] = stored[0]._replace(value=stored[2].value), stored[2]._replace(value=stored[0].value)


def renumber(stored: Stored) -> None:
    for index in range(5, 10):
        stored[index] = stored[index]._replace(offset=stored[index].offset + 1)


def read_backwards(stored: Stored) -> None:
    stored[4], stored[5] = stored[5], stored[4]


def misplace(stored: Stored) -> None:
    stored.append(stored.pop(9)._replace(partition=1, offset=99))


def invent(stored: Stored) -> None:
    stored.append(ReadMessage(1, 100, b"from nowhere"))


@pytest.mark.parametrize(
    ("breaking", "words"),
    [
        (lose, {"lost"}),
        (lose_the_end, {"lost"}),
        (lose_all, {"lost"}),
        (change, {"changed", "lost"}),
        (empty, {"changed", "lost"}),
        (repeat, {"duplicate"}),
        (swap, {"out of order", "changed"}),
        (renumber, {"changed"}),
        (read_backwards, {"out of order"}),
        (misplace, {"misplaced", "changed"}),
        (invent, {"changed"}),
    ],
)
def test_a_broken_history_is_found(breaking: Callable[[Stored], None], words: set[str]) -> None:
    history, stored = sound()
    breaking(stored)
    assert {problem.partition(":")[0] for problem in history.problems(stored)} == words


def test_a_sound_history_has_no_problems() -> None:
    history, stored = sound()
    assert history.problems(stored) == []
    assert (history.sent, history.acknowledged) == (20, 20)


def test_what_was_not_acknowledged_may_be_there_or_not() -> None:
    history, stored = sound()
    late = history.sending("a", 100, 0)
    never = history.sending("b", 100, 0)
    history.failed(never, RuntimeError("no answer"))
    assert history.problems([*stored, ReadMessage(0, 200, late)]) == []
    assert history.errors == ["message 100 of b: no answer"]


def test_what_a_reader_saw_must_stay() -> None:
    history, stored = sound()
    value = history.sending("a", 100, 0)
    history.saw(ReadMessage(0, 10, value))
    assert [problem.partition(":")[0] for problem in history.problems(stored)] == ["lost"]


def test_a_number_is_sent_once() -> None:
    history, _ = sound()
    with pytest.raises(ValueError, match="before"):
        history.sending("a", 0, 0)


def test_waiting_for_acknowledgements_ends() -> None:
    history, _ = sound()
    history.wait_for_acknowledged(20, 1)
    with pytest.raises(TimeoutError, match="20 of 21"):
        history.wait_for_acknowledged(21, 0.01)
