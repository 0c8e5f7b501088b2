"""The window of a growing column: small cases by hand, and whole histories beside a dumb model.

In a history transactions take their time now and commit later (less than the overlap), while a reader plans, reads,
dies and reads again. Every row must come exactly once, and the last state of every row that was changed.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.pipelines.relational.window import (
    Batch,
    Digester,
    Interval,
    Offset,
    WindowFilter,
    digests_as_text,
    digests_from_text,
    plan,
    window_of,
)

OVERLAP = 5
Row = tuple[int, int, int]
"""key, value of the growing column, content"""


def test_the_first_batch_reads_everything_below_its_window_whole() -> None:
    assert plan(Offset(), Offset(100), 10) == Batch(Interval(None, 90), (Interval(90, 100),))


def test_a_batch_that_goes_far_reads_what_lies_between_its_windows_whole() -> None:
    assert plan(Offset(100), Offset(200), 10) == Batch(Interval(100, 190), (Interval(90, 100), Interval(190, 200)))


def test_windows_that_overlap_are_read_once() -> None:
    assert plan(Offset(100), Offset(105), 10) == Batch(None, (Interval(90, 100), Interval(100, 105)))


def test_a_batch_that_stands_still_reads_its_window() -> None:
    assert plan(Offset(100), Offset(100), 10) == Batch(None, (Interval(90, 100),))


def test_without_rows_there_is_nothing_to_read() -> None:
    assert plan(Offset(), Offset(), 10) == Batch(None, ())


def test_an_overlap_reaches_to_the_beginning_of_time_at_most() -> None:
    first = datetime.min.replace(tzinfo=UTC)
    assert window_of(first + timedelta(days=1), timedelta(days=3)).above == first


def test_a_window_of_decimals() -> None:
    assert window_of(Decimal("10.5"), Decimal(2)) == Interval(Decimal("8.5"), Decimal("10.5"))


def test_different_rows_have_different_digests() -> None:
    rows: list[tuple[object, ...]] = [
        (1, "a"), ("1", "a"), (1, "a", None), (1, b"a"), (True, "a"), (1.0, "a"), (Decimal(1), "a"), ("1a",),
        ("", "1a"), (None, "a"), ("None", "a"), (datetime(2026, 1, 1),), (datetime(2026, 1, 1).date(),), ([1, 2],),
        ([12],),
    ]  # fmt: skip
    assert len({Digester().digest(row) for row in rows}) == len(rows)


def test_the_same_moment_has_the_same_digest_in_every_zone() -> None:
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    elsewhere = moment.astimezone(datetime.strptime("+0500", "%z").tzinfo)
    assert Digester().digest((moment,)) == Digester().digest((elsewhere,))


def test_equal_rows_are_counted() -> None:
    digester = Digester()
    assert len({digester.digest((1, "a")) for _ in range(3)}) == 3


@given(st.frozensets(st.binary(min_size=9, max_size=9), max_size=20))
def test_digests_survive_as_text(digests: frozenset[bytes]) -> None:
    assert digests_from_text(digests_as_text(digests)) == digests


@pytest.mark.parametrize("text", ["abc", "abcdefgh!jkl", "äbcdefghijkl"])
def test_text_that_holds_no_digests_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        digests_from_text(text)


@dataclass
class History:
    """A table with several writers, a reader with a checkpoint, and a sink that takes each batch once."""

    with_keys: bool
    clock: int = 0
    table: dict[int, Row] = field(default_factory=dict)
    open: list[tuple[int, list[tuple[int, Row]]]] = field(default_factory=list)
    """time of the transaction, and which rows (by identity) it writes"""
    offset: Offset = field(default_factory=Offset)
    planned: Offset | None = None
    sunk: Counter[Row] = field(default_factory=Counter)
    committed: Counter[Row] = field(default_factory=Counter)
    identities: int = 0
    has_sunk: bool = False
    """the sink has the planned batch, and the reader died before the checkpoint said so"""

    def tick(self) -> None:
        """Time goes on; transactions that would be too late commit now."""
        for each in [each for each in self.open if self.clock + 1 - each[0] >= OVERLAP]:
            self.commit(each)
        self.clock += 1

    def write(self, key: int, is_new: bool) -> None:
        locked = {identity for _, rows in self.open for identity, _ in rows}
        if is_new or key not in self.table or key in locked:
            self.identities += 1
            key = 1000 + self.identities
        content = self.identities if self.with_keys else 0
        shown = key if self.with_keys else 0
        self.open.append((self.clock, [(key, (shown, self.clock, content))]))

    def commit(self, transaction: tuple[int, list[tuple[int, Row]]]) -> None:
        self.open.remove(transaction)
        for identity, row in transaction[1]:
            self.table[identity] = row
            self.committed[row] += 1

    def plan(self, rows_max: int) -> None:
        if self.planned is not None:
            return
        below = self.offset.position
        values = sorted(row[1] for row in self.table.values() if below is None or row[1] > below)
        high = values[min(rows_max, len(values)) - 1] if values else below
        if high is None:
            return
        window, digester = window_of(high, OVERLAP), Digester()
        seen = frozenset(digester.digest(row) for row in self.table.values() if window.has(row[1]))
        self.planned = Offset(high, seen)

    def read(self) -> list[Row]:
        assert self.planned is not None
        batch, choose = plan(self.offset, self.planned, OVERLAP), WindowFilter(self.offset, self.planned, OVERLAP)
        rows = list(self.table.values())
        whole = [row for row in rows if batch.whole is not None and batch.whole.has(row[1])]
        for interval in batch.window:
            whole += [row for row in rows if interval.has(row[1]) and choose.wants(row[1], row)]
        return whole

    def sink(self) -> None:
        """The sink takes the batch, unless it has it."""
        if self.planned is not None:
            rows = self.read()
            if not self.has_sunk:
                self.sunk.update(rows)
            self.has_sunk = True

    def finish(self) -> None:
        """The sink takes the batch, and the checkpoint says so."""
        if self.planned is not None:
            self.sink()
            self.offset, self.planned, self.has_sunk = self.planned, None, False


ACTIONS = st.lists(
    st.one_of(
        st.just(("tick", 0)),
        st.just(("tick", 0)),
        st.tuples(st.just("write"), st.integers(0, 20)),
        st.tuples(st.just("commit"), st.integers(0, 5)),
        st.tuples(st.just("plan"), st.integers(1, 5)),
        st.just(("finish", 0)),
        st.just(("crash", 0)),
    ),
    max_size=60,
)


def run(history: History, actions: list[tuple[str, int]], *, updates: bool) -> None:
    for name, number in actions:
        if name == "tick":
            history.tick()
        elif name == "write":
            known = sorted(history.table)
            key = known[number % len(known)] if known else 0
            history.write(key, is_new=not updates or number % 2 == 0)
        elif name == "commit" and history.open:
            history.commit(history.open[number % len(history.open)])
        elif name == "plan":
            history.plan(number)
        elif name == "finish":
            history.finish()
        elif name == "crash":
            history.sink()
    history.finish()
    for each in list(history.open):
        history.commit(each)
    for _ in range(200):
        history.plan(3)
        history.finish()


@settings(max_examples=300)
@given(ACTIONS, st.booleans())
def test_every_row_comes_exactly_once_however_late_it_commits(actions: list[tuple[str, int]], with_keys: bool) -> None:
    history = History(with_keys)
    run(history, actions, updates=False)
    assert history.sunk == history.committed


@settings(max_examples=300)
@given(ACTIONS)
def test_of_rows_that_change_the_last_state_comes_and_none_comes_twice(actions: list[tuple[str, int]]) -> None:
    history = History(with_keys=True)
    run(history, actions, updates=True)
    assert all(history.sunk[row] == 1 for row in history.table.values())
    assert max(history.sunk.values(), default=1) == 1
    assert set(history.sunk) <= set(history.committed)
