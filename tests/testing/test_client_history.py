"""The judge of what clients did finds every kind of broken history, and nothing in a sound one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.identifiers import TopicPartition
from penstock.testing.histories.client_history import ClientHistory
from penstock.testing.histories.facts import Anomaly, Commit, Outcome, Stored, TopicsRead
from penstock.testing.histories.group_checks import possible_offsets
from penstock.testing.histories.group_history import GroupHistory

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


@dataclass
class Run:
    """A small broker that never errs, with the clients' history; tests plant what it would not do."""

    now_s: float = 0.0
    everything: dict[TopicPartition, list[Stored]] = field(default_factory=lambda: {P0: [], P1: []})
    committed: dict[TopicPartition, list[Stored]] = field(default_factory=lambda: {P0: [], P1: []})
    numbers: dict[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.history = ClientHistory(self.tick)
        self.group = self.history.group("g")

    def tick(self) -> float:
        self.now_s += 1
        return self.now_s

    def send(self, where: TopicPartition = P0, producer: str = "a", transaction: str | None = None) -> bytes:
        """Send, store and acknowledge one message."""
        number = self.numbers[producer] = self.numbers.get(producer, -1) + 1
        value = self.history.sending(producer, number, where, transaction=transaction)
        offset = self.everything[where][-1].offset + 1 if self.everything[where] else 0
        self.everything[where].append(Stored(offset, value))
        if transaction is None:
            self.committed[where].append(Stored(offset, value))
        self.history.acked(value, offset)
        return value

    def transact(self, name: str, *, is_commit: bool, producer: str = "a", outcome: Outcome = Outcome.DONE) -> None:
        """A transaction with a message in each partition."""
        self.history.beginning(name, producer)
        values = [self.send(where, producer, name) for where in (P0, P1)]
        self.history.ending(name, is_commit=is_commit)
        if is_commit:
            self.show(values)
        self.history.ended(name, outcome)

    def show(self, values: list[bytes]) -> None:
        for where, messages in self.everything.items():
            self.committed[where] += [one for one in messages if one.value in values]

    def read(self, where: TopicPartition = P0, *, start: int = 0, committed_only: bool = False) -> None:
        """A reader that sees what there is to be seen now."""
        stretch = self.history.reading("reader", where, start, committed_only=committed_only)
        for offset, value in (self.committed if committed_only else self.everything)[where]:
            if offset >= start:
                self.history.saw(stretch, offset, value)

    def poll(self, member: str, first: int, end: int, where: TopicPartition = P0) -> None:
        for offset, value in self.everything[where][first:end]:
            self.group.polled(member, where, offset, value)

    def commit(self, member: str | None, offset: int, outcome: Outcome = Outcome.DONE) -> None:
        number = self.group.committing(member, {P0: offset})
        self.group.committed(number, outcome)

    def topics(self) -> TopicsRead:
        return TopicsRead(self.everything, {where: sorted(rows) for where, rows in self.committed.items()})

    def found(self) -> set[Anomaly]:
        return {finding.anomaly for finding in self.history.findings(self.topics())}


@pytest.fixture
def run() -> Run:
    return Run()


@pytest.fixture
def group(run: Run) -> GroupHistory:
    """Ten messages in P0, of which the member m1 was given and committed six."""
    for _ in range(10):
        run.send()
    run.group.assigned("m1", [P0], generation=1)
    run.poll("m1", 0, 6)
    run.commit("m1", 6)
    return run.group


# What producers were told


def lose(run: Run) -> None:
    del run.everything[P0][3]


def lose_the_end(run: Run) -> None:
    del run.everything[P0][-1]


def lose_all(run: Run) -> None:
    run.everything[P0].clear()


def replace(run: Run) -> None:
    run.everything[P0][3] = Stored(3, b"x")


def empty(run: Run) -> None:
    run.everything[P0][3] = Stored(3, None)


def repeat(run: Run) -> None:
    run.everything[P0].append(Stored(10, run.everything[P0][9].value))


def swap(run: Run) -> None:
    """Messages of one producer change places."""
    stored = run.everything[P0]
    stored[0], stored[2] = Stored(0, stored[2].value), Stored(2, stored[0].value)


def renumber(run: Run) -> None:
    run.everything[P0][5:] = [Stored(offset + 1, value) for offset, value in run.everything[P0][5:]]


def read_backwards(run: Run) -> None:
    stored = run.everything[P0]
    stored[4], stored[5] = stored[5], stored[4]


def misplace(run: Run) -> None:
    run.everything[P1].append(Stored(99, run.everything[P0].pop(9).value))


def invent(run: Run) -> None:
    run.everything[P1].append(Stored(100, b"from nowhere"))


@pytest.mark.parametrize(
    ("breaking", "expected"),
    [
        (lose, {Anomaly.LOST}),
        (lose_the_end, {Anomaly.LOST}),
        (lose_all, {Anomaly.LOST}),
        (replace, {Anomaly.INVENTED, Anomaly.LOST}),
        (empty, {Anomaly.INVENTED, Anomaly.LOST}),
        (repeat, {Anomaly.DUPLICATE}),
        (swap, {Anomaly.REORDERED, Anomaly.INCONSISTENT_OFFSET}),
        (renumber, {Anomaly.INCONSISTENT_OFFSET}),
        (read_backwards, {Anomaly.NON_MONOTONIC_POLL, Anomaly.REORDERED}),
        (misplace, {Anomaly.MISPLACED, Anomaly.LOST}),
        (invent, {Anomaly.INVENTED}),
    ],
)
def test_what_is_stored_must_agree_with_what_producers_know(
    run: Run, breaking: Callable[[Run], None], expected: set[Anomaly]
) -> None:
    for number in range(20):
        run.send((P0, P1)[number % 2])
    run.committed = run.everything
    assert run.found() == set()
    breaking(run)
    assert run.found() == expected


def test_what_was_not_acknowledged_may_be_there_or_not(run: Run) -> None:
    late = run.history.sending("a", 100, P0)
    never = run.history.sending("b", 100, P0)
    run.history.failed(never, RuntimeError("no answer"))
    run.everything[P0].append(Stored(0, late))
    assert run.found() == set()
    assert run.history.errors == ["message 100 of b for t-0: no answer"]


def test_a_number_is_sent_once(run: Run) -> None:
    run.history.sending("a", 0, P0)
    with pytest.raises(ValueError, match="before"):
        run.history.sending("a", 0, P0)


def test_a_message_sent_after_an_offset_was_known_gets_a_greater_one(run: Run) -> None:
    first = run.history.sending("a", 0, P0)
    run.history.acked(first, 5)
    second = run.history.sending("b", 0, P0)
    run.history.acked(second, 4)
    run.everything[P0] = [Stored(4, second), Stored(5, first)]
    assert run.found() == {Anomaly.REORDERED}


def test_messages_in_flight_together_may_get_any_order(run: Run) -> None:
    first, second = run.history.sending("a", 0, P0), run.history.sending("b", 0, P0)
    run.history.acked(first, 5)
    run.history.acked(second, 4)
    run.everything[P0] = [Stored(4, second), Stored(5, first)]
    assert run.found() == set()


def test_an_acknowledgement_without_an_offset_is_one(run: Run) -> None:
    value = run.history.sending("a", 0, P0)
    run.history.acked(value, -1)
    assert run.found() == {Anomaly.LOST}
    run.everything[P0] = [Stored(0, value)]
    assert run.found() == set()


def test_waiting_for_acknowledgements_ends(run: Run) -> None:
    run.send()
    run.history.wait_for_acknowledged(1, 1)
    with pytest.raises(TimeoutError, match="1 of 2"):
        run.history.wait_for_acknowledged(2, 0.01)
    assert (run.history.sent, run.history.acknowledged) == (1, 1)


# What readers saw


def test_readers_that_see_everything_are_content(run: Run) -> None:
    for number in range(6):
        run.transact(f"x{number}", is_commit=number % 3 != 1)
        run.send(producer="b")
    run.read()
    run.read(committed_only=True)
    run.read(P1, start=2, committed_only=True)
    assert run.found() == set()


def test_what_a_reader_saw_must_stay(run: Run) -> None:
    stretch = run.history.reading("reader", P0)
    value = run.history.sending("a", 0, P0)
    run.history.saw(stretch, 0, value)
    assert run.found() == {Anomaly.LOST}


def test_a_reader_that_saw_something_else(run: Run) -> None:
    first, second = run.send(), run.send()
    stretch = run.history.reading("reader", P0)
    run.history.saw(stretch, 0, second)
    run.history.saw(stretch, 1, second)
    assert run.found() == {Anomaly.INCONSISTENT_OFFSET}
    assert first != second


@pytest.mark.parametrize(
    ("start", "offsets", "expected"),
    [
        (0, [0, 1, 2], set()),
        (1, [1, 2], set()),
        (None, [2, 3], set()),
        (0, [1, 2], {Anomaly.SKIPPED_POLL}),
        (None, [0, 1, 3], {Anomaly.SKIPPED_POLL}),
        (None, [0, 1, 1], {Anomaly.NON_MONOTONIC_POLL}),
        (None, [2, 1], {Anomaly.NON_MONOTONIC_POLL}),
        (2, [1], {Anomaly.NON_MONOTONIC_POLL}),
    ],
)
def test_readers_go_on_without_gaps(run: Run, start: int | None, offsets: list[int], expected: set[Anomaly]) -> None:
    for _ in range(4):
        run.send()
    stretch = run.history.reading("reader", P0, start)
    for offset in offsets:
        run.history.saw(stretch, offset, run.everything[P0][offset].value)
    assert run.found() == expected


def test_offsets_without_messages_are_no_gap(run: Run) -> None:
    """Markers of transactions have offsets, and aborted messages are not for those who read committed ones."""
    run.transact("x", is_commit=False)
    run.everything[P0].append(Stored(5, run.history.sending("b", 0, P0)))
    run.committed[P0] = run.everything[P0][1:]
    run.read(committed_only=True)
    run.read(committed_only=False)
    assert run.found() == set()


# Transactions


def test_an_aborted_message_that_a_reader_saw(run: Run) -> None:
    run.transact("x", is_commit=False)
    stretch = run.history.reading("reader", P0, committed_only=True)
    run.history.saw(stretch, *run.everything[P0][0])
    assert run.found() == {Anomaly.ABORTED_READ}


def test_an_unfinished_message_that_a_reader_saw(run: Run) -> None:
    stretch = run.history.reading("reader", P0, committed_only=True)
    run.history.beginning("x", "a")
    value = run.send(transaction="x")
    run.history.saw(stretch, 0, value)
    run.history.ending("x", is_commit=True)
    run.show([value])
    run.history.ended("x")
    assert run.found() == {Anomaly.ABORTED_READ}


def test_an_aborted_message_that_is_shown_at_the_end(run: Run) -> None:
    run.transact("x", is_commit=False)
    run.committed[P0] = list(run.everything[P0])
    assert run.found() == {Anomaly.ABORTED_READ}


def test_a_transaction_that_nobody_ended_is_not_shown(run: Run) -> None:
    run.history.beginning("x", "a")
    value = run.send(transaction="x")
    assert run.found() == set()
    run.show([value])
    assert run.found() == {Anomaly.ABORTED_READ}


def test_a_committed_transaction_that_is_not_shown(run: Run) -> None:
    run.transact("x", is_commit=True)
    run.committed = {}
    assert run.found() == {Anomaly.LOST}


@pytest.mark.parametrize("outcome", [Outcome.DONE, Outcome.UNKNOWN])
def test_a_transaction_of_which_one_half_is_shown(run: Run, outcome: Outcome) -> None:
    run.transact("x", is_commit=True, outcome=outcome)
    assert run.found() == set()
    run.committed[P1] = []
    assert run.found() == {Anomaly.TORN_TRANSACTION}


def test_a_transaction_whose_end_is_not_known_may_be_there_or_not(run: Run) -> None:
    run.transact("x", is_commit=True, outcome=Outcome.UNKNOWN)
    assert run.found() == set()
    run.committed = {}
    assert run.found() == set()


def test_a_commit_that_was_refused_shows_nothing(run: Run) -> None:
    run.transact("x", is_commit=True, outcome=Outcome.REFUSED)
    assert run.found() == {Anomaly.ABORTED_READ}


def test_a_refusal_after_the_broker_was_gone_says_nothing_about_a_transaction(run: Run) -> None:
    run.history.beginning("x", "a")
    values = [run.send(transaction="x")]
    run.history.ending("x", is_commit=True)
    run.history.interrupted()
    run.history.ended("x", Outcome.REFUSED)
    assert run.found() == set()
    run.show(values)
    assert run.found() == set()


def test_a_fenced_producer_that_goes_on(run: Run) -> None:
    run.history.initialised("id", "a")
    run.transact("x", is_commit=True)
    run.history.initialised("id", "b")
    run.history.initialised("another", "c")
    run.transact("y", is_commit=True, producer="b")
    assert run.found() == set()
    run.transact("z", is_commit=True)
    assert run.found() == {Anomaly.FENCED_WRITE}


def test_a_fenced_producer_that_is_refused(run: Run) -> None:
    run.history.initialised("id", "a")
    run.history.beginning("x", "a")
    run.send(transaction="x")
    run.history.initialised("id", "b")
    run.history.ending("x", is_commit=True)
    run.history.ended("x", Outcome.REFUSED)
    assert run.found() == set()


# Groups


def test_a_partition_that_changes_hands_is_no_problem(run: Run, group: GroupHistory) -> None:
    group.revoked("m1", [P0])
    group.assigned("m2", [P0], generation=2)
    run.poll("m2", 6, 10)
    group.drained([P0])
    assert group.owners() == {P0: "m2"}
    assert run.found() == set()
    assert (group.given(run.everything[P0][7].value or b""), group.claim_count()) == (["m2"], 2)


def test_two_owners_at_once(run: Run, group: GroupHistory) -> None:
    group.assigned("m2", [P0], generation=2)
    assert group.owners() == {}
    assert run.found() == {Anomaly.TWO_OWNERS}


def test_two_owners_until_one_gives_up(run: Run, group: GroupHistory) -> None:
    group.assigned("m2", [P0])
    group.revoked("m1", [P0])
    assert run.found() == {Anomaly.TWO_OWNERS}


def test_two_owners_in_one_generation(run: Run, group: GroupHistory) -> None:
    group.lost("m1", [P0])
    group.assigned("m2", [P0], generation=1)
    assert run.found() == {Anomaly.TWO_OWNERS}


def test_an_owner_that_leaves(run: Run, group: GroupHistory) -> None:
    group.leaving("m1")
    group.assigned("m2", [P0])
    assert run.found() == set()


@pytest.mark.parametrize("is_late", [False, True])
def test_an_owner_that_died(run: Run, group: GroupHistory, is_late: bool) -> None:
    died_s = run.now_s
    if not is_late:
        group.died("m1")
    group.assigned("m2", [P0])
    if is_late:  # the test learns of it after the others, but knows when it was
        group.died("m1", died_s)
    assert run.found() == set()


def test_an_owner_that_pauses_may_be_replaced(run: Run, group: GroupHistory) -> None:
    group.paused("m1")
    assert group.owners() == {}
    group.assigned("m2", [P0])
    assert group.owners() == {P0: "m2"}
    group.revoked("m1", [P0])
    assert run.found() == set()


def test_an_owner_that_was_thrown_out_learns_of_it_later(run: Run, group: GroupHistory) -> None:
    group.assigned("m2", [P0])
    group.lost("m1", [P0])
    assert run.found() == set()


def test_a_new_owner_reads_again_what_was_not_committed(run: Run, group: GroupHistory) -> None:
    run.poll("m1", 6, 10)
    group.died("m1")
    group.assigned("m2", [P0])
    run.poll("m2", 6, 10)
    assert run.found() == set()


def test_a_new_owner_that_begins_before_the_commit(run: Run, group: GroupHistory) -> None:
    group.died("m1")
    group.assigned("m2", [P0])
    run.poll("m2", 5, 10)
    assert run.found() == {Anomaly.COMMIT_WENT_BACK}


def test_a_new_owner_that_begins_behind_the_commit(run: Run, group: GroupHistory) -> None:
    group.died("m1")
    group.assigned("m2", [P0])
    run.poll("m2", 7, 10)
    assert run.found() == {Anomaly.SKIPPED_POLL}


def test_an_owner_that_gets_its_partition_back_may_go_on_where_it_was(run: Run, group: GroupHistory) -> None:
    run.poll("m1", 6, 8)
    group.revoked("m1", [P0])
    group.assigned("m1", [P0], generation=2)
    run.poll("m1", 8, 9)
    assert run.found() == set()


def test_an_owner_whose_partition_another_one_had_may_not(run: Run, group: GroupHistory) -> None:
    run.poll("m1", 6, 8)
    for generation, member in enumerate(("m2", "m1")):
        group.leaving("m1" if member == "m2" else "m2")
        group.assigned(member, [P0], generation=generation + 2)
    run.poll("m1", 8, 9)
    assert run.found() == {Anomaly.SKIPPED_POLL}


def test_a_first_owner_that_does_not_begin_at_the_beginning(run: Run) -> None:
    run.send()
    run.send()
    run.group.assigned("m1", [P0])
    run.poll("m1", 1, 2)
    assert run.found() == {Anomaly.SKIPPED_POLL}


def test_a_group_that_begins_at_the_end(run: Run) -> None:
    run.send()
    run.send()
    run.group = run.history.group("late", is_reset_to_earliest=False)
    run.group.assigned("m1", [P0])
    run.poll("m1", 1, 2)
    assert run.found() == set()


def test_a_seek_is_no_gap(run: Run, group: GroupHistory) -> None:
    group.sought("m1", P0, 2)
    run.poll("m1", 2, 8)
    group.sought("m1", P0, 9)
    run.poll("m1", 9, 10)
    assert run.found() == set()


def test_a_seek_that_was_not_obeyed(run: Run, group: GroupHistory) -> None:
    group.sought("m1", P0, 2)
    run.poll("m1", 6, 8)
    assert run.found() == {Anomaly.SKIPPED_POLL}


def test_going_back_to_the_committed_offset(run: Run, group: GroupHistory) -> None:
    run.poll("m1", 6, 9)
    group.sought("m1", P0, None)
    run.poll("m1", 6, 8)
    assert run.found() == set()
    group.sought("m1", P0, None)
    run.poll("m1", 4, 5)
    assert run.found() == {Anomaly.COMMIT_WENT_BACK}


def test_messages_that_no_member_was_given(run: Run, group: GroupHistory) -> None:
    assert run.found() == set()
    group.drained([P0])
    assert run.found() == {Anomaly.UNSEEN}
    run.poll("m1", 6, 10)
    assert run.found() == set()


def test_a_committed_offset_that_goes_back(run: Run, group: GroupHistory) -> None:
    group.saw_committed(P0, 6, run.tick())
    assert run.found() == set()
    group.saw_committed(P0, 4, run.tick())
    assert run.found() == {Anomaly.COMMIT_WENT_BACK}


def test_a_committed_offset_that_vanishes(run: Run, group: GroupHistory) -> None:
    group.saw_committed(P0, None, run.tick())
    assert run.found() == {Anomaly.COMMIT_WENT_BACK}


def test_a_commit_to_an_earlier_offset_is_one(run: Run, group: GroupHistory) -> None:
    run.commit(None, 2)
    group.saw_committed(P0, 2, run.tick())
    assert run.found() == set()
    group.saw_committed(P0, 6, run.tick())
    assert run.found() == {Anomaly.COMMIT_WENT_BACK}


def test_a_refused_commit_has_no_effect(run: Run, group: GroupHistory) -> None:
    run.commit("m1", 8, Outcome.REFUSED)
    group.saw_committed(P0, 6, run.tick())
    assert run.found() == set()
    group.saw_committed(P0, 8, run.tick())
    assert run.found() == {Anomaly.COMMIT_WENT_BACK}


@pytest.mark.parametrize("offset", [6, 8])
def test_a_commit_without_an_answer_may_have_happened(run: Run, group: GroupHistory, offset: int) -> None:
    run.commit("m1", 8, Outcome.UNKNOWN)
    group.saw_committed(P0, offset, run.tick())
    assert run.found() == set()


def test_a_commit_without_an_answer_cannot_happen_after_its_member_was_replaced(run: Run, group: GroupHistory) -> None:
    run.commit("m1", 8, Outcome.UNKNOWN)
    group.died("m1")
    group.assigned("m2", [P0])
    run.poll("m2", 6, 10)
    run.commit("m2", 9)
    group.saw_committed(P0, 9, run.tick())
    assert run.found() == set()
    group.saw_committed(P0, 8, run.tick())
    assert run.found() == {Anomaly.COMMIT_WENT_BACK}


@pytest.mark.parametrize("offset", [6, 8])
def test_a_refusal_after_the_broker_went_away_says_nothing(run: Run, group: GroupHistory, offset: int) -> None:
    number = group.committing("m1", {P0: 8})
    run.history.interrupted()
    group.committed(number, Outcome.REFUSED)
    group.saw_committed(P0, offset, run.tick())
    assert run.found() == set()


@pytest.mark.parametrize("is_commit", [True, False])
def test_offsets_share_the_fate_of_their_transaction(run: Run, group: GroupHistory, is_commit: bool) -> None:
    run.history.beginning("x", "a")
    group.committing("m1", {P0: 9}, transaction="x")
    run.history.ending("x", is_commit=is_commit)
    run.history.ended("x")
    group.saw_committed(P0, 9 if is_commit else 6, run.tick())
    assert run.found() == set()
    group.saw_committed(P0, 6 if is_commit else 9, run.tick())
    assert run.found() == {Anomaly.COMMIT_WENT_BACK}


def test_a_thrown_out_member_that_commits(run: Run, group: GroupHistory) -> None:
    group.paused("m1")
    group.assigned("m2", [P0])
    run.commit("m1", 7, Outcome.REFUSED)
    assert run.found() == set()
    run.commit("m1", 7)
    assert run.found() == {Anomaly.THROWN_OUT_COMMIT}


def test_a_commit_on_its_way_when_the_member_is_replaced(run: Run, group: GroupHistory) -> None:
    group.paused("m1")
    number = group.committing("m1", {P0: 7})
    group.assigned("m2", [P0])
    group.committed(number)
    assert run.found() == set()


def test_a_commit_that_waits_until_its_member_has_joined_again(run: Run, group: GroupHistory) -> None:
    group.paused("m1")
    group.assigned("m2", [P0])
    number = group.committing("m1", {P0: 7})
    group.assigned("m1", [P1])
    group.committed(number)
    assert run.found() == set()


def test_a_member_is_given_only_what_it_owned(run: Run) -> None:
    run.send()
    with pytest.raises(AssertionError, match="never owned"):
        run.poll("m1", 0, 1)


# Against dumb models


@given(st.lists(st.tuples(st.integers(0, 9), st.sampled_from(Outcome), st.booleans()), max_size=6), st.data())
def test_a_committed_offset_is_what_some_order_of_the_commits_leaves(
    script: list[tuple[int, Outcome, bool]], data: st.DataObject
) -> None:
    """Commits that begin and end at random times; each takes effect at a random moment in between."""
    commits, effects = [], []
    for offset, outcome, is_long in script:
        sent_s = data.draw(st.floats(0, 100))
        ended_s = sent_s + data.draw(st.floats(0, 100 if is_long else 5))
        commits.append(Commit("m", P0, offset, sent_s, outcome=outcome))
        if outcome is not Outcome.UNKNOWN:
            commits[-1].ended_s = ended_s
        if outcome is not Outcome.REFUSED and (outcome is Outcome.DONE or data.draw(st.booleans())):
            effects.append((data.draw(st.floats(sent_s, ended_s)), len(effects), offset))
    asked_s = data.draw(st.floats(0, 250))
    answered_s = asked_s + data.draw(st.floats(0, 20))
    moment_s = data.draw(st.floats(asked_s, answered_s))
    before = [effect for effect in sorted(effects) if effect[0] < moment_s]
    assert (before[-1][2] if before else None) in possible_offsets(commits, asked_s, answered_s)


@given(st.lists(st.tuples(st.sampled_from(["send", "join", "leave", "die", "poll", "commit"]), st.integers(0, 3))))
def test_whatever_a_sound_group_does_is_accepted(script: list[tuple[str, int]]) -> None:
    """One partition with one owner at a time, that begins at the committed offset."""
    run = Run()
    owner: str | None = None
    position = 0
    committed: int | None = None
    for turn, (action, number) in enumerate(script):
        if action == "send":
            run.send()
        elif action == "join":
            if owner is not None:
                run.group.revoked(owner, [P0])
            owner, position = f"m{turn}", committed or 0
            run.group.assigned(owner, [P0], generation=turn)
        elif owner is not None and action == "poll":
            end = min(position + number, len(run.everything[P0]))
            run.poll(owner, position, end)
            position = end
        elif owner is not None and action == "commit":
            run.commit(owner, position)
            committed = position
        elif owner is not None:
            (run.group.leaving if action == "leave" else run.group.died)(owner)
            owner = None
    run.group.saw_committed(P0, committed, run.tick())
    assert run.found() == set()
