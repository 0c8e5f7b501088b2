"""The leader's rules, one by one and with random followers beside a dumb model."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from penstock.replication.leader import IsrChange, Leader, Membership

LAG_MS_MAX = 1000


def leader_of(
    isr: set[int], *, replicas: tuple[int, ...] = (1, 2, 3), end_offset: int = 10, min_isr: int = 1, mark: int = 0
) -> Leader:
    membership = Membership(replicas, frozenset(isr), 5)
    return Leader(
        1,
        7,
        membership,
        end_offset=end_offset,
        counted_end_offset=end_offset,
        high_watermark=mark,
        min_isr=min_isr,
        now_ms=0,
    )


def wanted(leader: Leader, now_ms: int, living: frozenset[int] = frozenset({1, 2, 3})) -> IsrChange | None:
    return leader.isr_change(now_ms, LAG_MS_MAX, 100, living.__contains__)


def test_alone_everything_counts_at_once() -> None:
    leader = leader_of({1}, replicas=(1,))
    assert leader.high_watermark == 10
    assert leader.local_log_moved(12) and leader.high_watermark == 12
    assert not leader.local_log_moved(12)


def test_the_slowest_of_the_isr_decides() -> None:
    leader = leader_of({1, 2, 3})
    assert leader.high_watermark == 0, "nobody has said yet what it has"
    assert not leader.follower_fetched(2, 20, 10, 10, 1)
    assert leader.follower_fetched(3, 30, 6, 10, 1) and leader.high_watermark == 6
    assert not leader.follower_fetched(3, 30, 4, 10, 2), "it never moves back"
    assert leader.high_watermark == 6


def test_below_the_minimum_it_stands_still() -> None:
    leader = leader_of({1}, min_isr=2)
    assert not leader.has_enough and not leader.local_log_moved(20) and leader.high_watermark == 0
    assert leader.use_min_isr(1) and leader.high_watermark == 20
    assert leader_of({1}, replicas=(1,), min_isr=3).has_enough, "never more than there are replicas"


def test_a_follower_joins_after_the_high_watermark_and_the_start_of_the_epoch() -> None:
    leader = leader_of({1, 2}, end_offset=10, mark=4)
    leader.follower_fetched(3, 30, 6, 10, 1)
    assert wanted(leader, 1) is None, "it has the high watermark, but not the start of this epoch"
    leader.follower_fetched(3, 30, 10, 10, 2)
    assert wanted(leader, 2) == IsrChange({1: 100, 2: -1, 3: 30}, 7, 5)
    assert wanted(leader, 3) is None, "one change at a time"


def test_who_may_be_in_the_isr_already_counts() -> None:
    leader = leader_of({1}, mark=10)
    leader.follower_fetched(2, 20, 10, 10, 1)
    assert wanted(leader, 1) is not None
    assert not leader.local_log_moved(15), "the controller may have written that 2 is in sync"
    assert leader.high_watermark == 10
    assert leader.isr_change_refused() and leader.high_watermark == 15


def test_a_change_counts_when_it_is_known_and_an_older_one_does_not() -> None:
    leader = leader_of({1}, mark=10)
    leader.follower_fetched(2, 20, 10, 10, 1)
    wanted(leader, 1)
    leader.local_log_moved(15)
    assert not leader.membership_changed(Membership((1, 2, 3), frozenset({1}), 4), 2)
    assert not leader.membership_changed(Membership((1, 2, 3), frozenset({1, 2}), 6), 2)
    assert leader.follower_fetched(2, 20, 15, 15, 3) and leader.high_watermark == 15


def test_who_lags_leaves_and_who_has_all_stays() -> None:
    leader = leader_of({1, 2, 3})
    leader.follower_fetched(2, 20, 10, 10, 1)
    leader.follower_fetched(3, 30, 10, 10, 1)
    leader.local_log_moved(20)
    leader.follower_fetched(2, 20, 20, 20, 900)
    change = wanted(leader, 1500)
    assert change is not None and set(change.isr) == {1, 2}
    assert leader.maximal_isr == {1, 2, 3}, "until the controller has said so"
    quiet = leader_of({1, 2})
    quiet.follower_fetched(2, 20, 10, 10, 1)
    assert wanted(quiet, 100_000) is None, "nothing was written, so nobody lags"


def test_a_follower_that_always_had_what_there_was_does_not_lag() -> None:
    leader = leader_of({1, 2})
    for now_ms in range(0, 5000, 500):
        end_offset = 10 + now_ms
        leader.local_log_moved(end_offset)
        leader.follower_fetched(2, 20, end_offset - 500 if now_ms else 10, end_offset, now_ms)
        assert wanted(leader, now_ms) is None


def test_a_fetch_of_an_earlier_life_counts_for_nothing() -> None:
    leader = leader_of({1, 2})
    leader.follower_fetched(2, 21, 3, 10, 1)
    assert not leader.follower_fetched(2, 20, 10, 10, 2)
    assert leader.high_watermark == 3


def test_a_dead_broker_is_not_taken_in() -> None:
    leader = leader_of({1}, mark=10)
    leader.follower_fetched(2, 20, 10, 10, 1)
    assert wanted(leader, 1, frozenset({1, 3})) is None


def test_a_lost_question_is_asked_again() -> None:
    leader = leader_of({1}, mark=10)
    assert leader.isr_change_again() is None
    leader.follower_fetched(2, 20, 10, 10, 1)
    assert leader.isr_change_again() is None
    change = wanted(leader, 1)
    assert leader.isr_change_again() == change
    leader.follower_fetched(2, 21, 0, 10, 2)
    assert leader.isr_change_again() == change, "not for the next life of that broker, which has less"


def test_only_who_has_caught_up_outside_of_the_isr_is_worth_a_look() -> None:
    leader = leader_of({1, 2}, mark=10)
    assert not leader.has_joiner
    leader.follower_fetched(2, 20, 10, 10, 1)
    leader.follower_fetched(3, 30, 9, 10, 1)
    assert not leader.has_joiner
    leader.follower_fetched(3, 30, 10, 10, 2)
    assert leader.has_joiner
    assert wanted(leader, 2) is not None
    assert not leader.has_joiner, "it was asked for already"
    assert not leader_of({1, 2, 3}).has_joiner


def test_the_present_isr_leaves_out_who_was_asked_for() -> None:
    leader = leader_of({1, 2}, mark=10)
    leader.follower_fetched(3, 30, 10, 10, 1)
    assert wanted(leader, 1) == IsrChange({1: 100, 2: -1, 3: 30}, 7, 5)
    assert leader.present_isr(100) == IsrChange({1: 100, 2: -1}, 7, 5)
    assert leader.maximal_isr == {1, 2, 3}


def test_the_lease_asks_every_other_member() -> None:
    leader = leader_of({1, 2, 3})
    leader.follower_fetched(2, 20, 10, 10, 50)
    assert not leader.is_followed_since(10)
    leader.follower_fetched(3, 30, 10, 10, 20)
    assert leader.is_followed_since(20) and not leader.is_followed_since(21)
    assert not leader_of({1}, replicas=(1,)).is_followed_since(0), "alone, nobody vouches for it"


STEP = st.one_of(
    st.tuples(st.just("write"), st.integers(1, 5)),
    st.tuples(st.just("fetch"), st.sampled_from([2, 3]), st.integers(0, 40)),
    st.tuples(st.just("ask"), st.integers(0, 3000)),
    st.tuples(st.just("granted")),
    st.tuples(st.just("refused")),
)


@given(st.lists(STEP, max_size=60), st.integers(1, 3))
def test_what_is_committed_is_on_everybody_who_may_lead(steps: list[tuple[int | str, ...]], min_isr: int) -> None:
    leader = leader_of({1, 2, 3}, end_offset=0, min_isr=min_isr)
    has = {1: 0, 2: 0, 3: 0}
    asked: IsrChange | None = None
    now_ms = 0
    for step in steps:
        before = leader.high_watermark
        match step:
            case ("write", int(count)):
                has[1] += count
                leader.local_log_moved(has[1])
            case ("fetch", int(follower), int(offset)):
                now_ms += 100
                has[follower] = max(has[follower], min(offset, has[1]))
                leader.follower_fetched(follower, 1, has[follower], has[1], now_ms)
            case ("ask", int(later)):
                now_ms += later
                asked = wanted(leader, now_ms) or asked
            case ("granted",) if asked is not None:
                epoch = leader.membership.partition_epoch + 1
                leader.membership_changed(Membership((1, 2, 3), frozenset(asked.isr), epoch), now_ms)
                asked = None
            case ("refused",) if asked is not None:
                leader.isr_change_refused()
                asked = None
        may_lead = leader.membership.isr | (set(asked.isr) if asked is not None else set())
        assert leader.high_watermark >= before
        if leader.high_watermark > before:
            assert all(has[member] >= leader.high_watermark for member in may_lead)
            assert len(leader.membership.isr) >= min_isr
