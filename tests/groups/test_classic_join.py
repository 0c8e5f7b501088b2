"""JoinGroup: ids, protocols, leaders, timeouts, sizes."""

from __future__ import annotations

import pytest

from penstock.base.errors import Error
from penstock.base.steps import Step
from penstock.groups.settings import GroupSettings

from .shard_driver import NO_DELAY, SESSION_MS, ShardDriver, subscription


def joined(driver: ShardDriver, token: int) -> tuple[int, str, str, list[str]]:
    """Generation, member id, leader, and the members that it is told of."""
    answer = driver.answers[token]
    assert answer.error_code == Error.NONE, Error(answer.error_code)
    return answer.generation_id, answer.member_id, answer.leader, [member.member_id for member in answer.members]


def error_of(driver: ShardDriver, token: int) -> Error:
    return Error(driver.answers[token].error_code)


def stable(driver: ShardDriver, *member_ids: str) -> int:
    """Let some members join and sync; the first leads. The generation."""
    tokens = {member_id: driver.join(member_id) for member_id in member_ids}
    generation, _, leader, _ = joined(driver, tokens[member_ids[0]])
    assert leader == member_ids[0]
    for member_id in member_ids:
        driver.sync(member_id, generation, {each: each.encode() for each in member_ids} if member_id == leader else {})
    assert driver.states()["g"] == "Stable"
    return generation


def test_a_dynamic_member_gets_its_id_first() -> None:
    driver = ShardDriver()
    member_id = driver.new_member_id(version=4)
    assert member_id.startswith("client-")
    assert joined(driver, driver.join(member_id)) == (1, member_id, member_id, [member_id])


@pytest.mark.parametrize("version", [0, 3])
def test_before_version_4_it_gets_it_with_the_answer(version: int) -> None:
    driver = ShardDriver()
    generation, member_id, leader, members = joined(driver, driver.join(version=version))
    assert generation == 1
    assert members == [member_id] == [leader]


def test_an_id_that_nobody_gave() -> None:
    driver = ShardDriver()
    assert error_of(driver, driver.join("x")) == Error.UNKNOWN_MEMBER_ID
    stable(driver, driver.new_member_id())
    assert error_of(driver, driver.join("x")) == Error.UNKNOWN_MEMBER_ID
    assert error_of(driver, driver.join("x", instance_id="i")) == Error.UNKNOWN_MEMBER_ID


def test_a_group_must_have_an_id() -> None:
    driver = ShardDriver()
    assert error_of(driver, driver.join(group="")) == Error.INVALID_GROUP_ID


@pytest.mark.parametrize(("session_ms", "error"), [(5999, Error.INVALID_SESSION_TIMEOUT), (6000, Error.NONE)])
def test_sessions_have_limits(session_ms: int, error: Error) -> None:
    driver = ShardDriver()
    assert error_of(driver, driver.join(session_ms=session_ms, version=0)) == error
    assert error_of(driver, driver.join(session_ms=1_800_001)) == Error.INVALID_SESSION_TIMEOUT


@pytest.mark.parametrize(
    ("protocol_type", "protocols"),
    [("connect", {"range": b""}), ("consumer", {"sticky": b""}), ("consumer", {}), ("", {"range": b""})],
)
def test_protocols_must_agree(protocol_type: str, protocols: dict[str, bytes]) -> None:
    driver = ShardDriver()
    stable(driver, driver.new_member_id())
    token = driver.join(protocol_type=protocol_type, protocols=protocols)
    assert error_of(driver, token) == Error.INCONSISTENT_GROUP_PROTOCOL


def test_the_protocol_is_voted_for() -> None:
    driver = ShardDriver()
    likes = [("c", "a", "b"), ("b", "a"), ("b", "c", "a")]  # all have a and b, and two of them like b better
    protocols = [dict.fromkeys(like, like[0].encode()) for like in likes]
    first = driver.new_member_id(protocols=protocols[0])
    assert driver.answers[driver.join(first, protocols=protocols[0])].protocol_name == "c"
    others = [driver.new_member_id(protocols=each) for each in protocols[1:]]
    tokens = [driver.join(member_id, protocols=each) for member_id, each in zip(others, protocols[1:], strict=True)]
    tokens.append(driver.join(first, protocols=protocols[0]))
    assert {driver.answers[token].protocol_name for token in tokens} == {"b"}
    assert [bytes(member.metadata) for member in driver.answers[tokens[-1]].members] == [b"c", b"b", b"b"]


def test_the_leader_is_told_of_everybody_and_stays() -> None:
    driver = ShardDriver()
    first, second = driver.new_member_id(), driver.new_member_id()
    token = driver.join(first)
    assert joined(driver, token) == (1, first, first, [first])
    waiting = driver.join(second)
    assert waiting in driver.waiting
    assert driver.heartbeat(first, 1) == Error.REBALANCE_IN_PROGRESS
    again = driver.join(first)
    assert joined(driver, again) == (2, first, first, [first, second])
    assert joined(driver, waiting) == (2, second, first, [])


def test_members_that_do_not_come_back_are_out() -> None:
    driver = ShardDriver()
    first = driver.new_member_id()
    generation = stable(driver, first)
    second = driver.new_member_id()
    waiting = driver.join(second, rebalance_ms=5000)
    for _ in range(11):  # the rebalance timeout is the longest of all: that of the first, 60 s
        driver.pass_time(5000)
        driver.heartbeat(first, generation)
        assert waiting in driver.waiting
    driver.pass_time(5000)
    assert joined(driver, waiting) == (generation + 1, second, second, [second])
    assert driver.heartbeat(first, generation) == Error.UNKNOWN_MEMBER_ID


def test_the_first_rebalance_waits_for_others_and_longer_if_they_come() -> None:
    driver = ShardDriver(GroupSettings(initial_rebalance_delay_ms=3000))
    first = driver.join(version=3, rebalance_ms=7000)
    driver.pass_time(2900)
    second = driver.join(version=3, rebalance_ms=7000)
    driver.pass_time(2900)  # 5.8 s: the second made it longer by 3 s
    assert {first, second} <= driver.waiting
    third = driver.join(version=3, rebalance_ms=7000)
    driver.pass_time(1100)  # 6.9 s
    assert {first, second, third} <= driver.waiting
    driver.pass_time(100)  # 7 s: not longer than the rebalance timeout
    assert len(driver.answers[first].members) == 3
    assert joined(driver, second)[0] == joined(driver, third)[0] == 1


def test_without_others_it_waits_once() -> None:
    driver = ShardDriver(GroupSettings(initial_rebalance_delay_ms=3000))
    first = driver.join(version=3)
    driver.pass_time(2999)
    assert first in driver.waiting
    driver.pass_time(1)
    assert joined(driver, first)[0] == 1


def test_leaving_while_the_first_rebalance_waits() -> None:
    driver = ShardDriver(GroupSettings(initial_rebalance_delay_ms=3000))
    member_id = driver.new_member_id()
    waiting = driver.join(member_id)
    assert driver.leave((member_id, None)) == [Error.NONE]
    assert error_of(driver, waiting) == Error.UNKNOWN_MEMBER_ID
    driver.pass_time(3000)
    assert driver.states() == {"g": "Empty"}


def test_a_follower_that_asks_again_is_told_the_same() -> None:
    driver = ShardDriver()
    first, second = driver.new_member_id(), driver.new_member_id()
    driver.join(first)
    driver.join(second)
    driver.join(first)
    assert joined(driver, driver.join(second)) == (2, second, first, [])
    assert joined(driver, driver.join(first)) == (2, first, first, [first, second])
    driver.sync(first, 2)
    assert driver.states()["g"] == "Stable"
    assert joined(driver, driver.join(second)) == (2, second, first, [])
    assert driver.join(first) in driver.waiting, "the leader joins again because it wants a rebalance"


def test_other_metadata_makes_a_rebalance() -> None:
    driver = ShardDriver()
    first, second = driver.new_member_id(), driver.new_member_id()
    stable(driver, first)
    driver.join(second)
    driver.join(first)
    driver.sync(first, 2)
    waiting = driver.join(second, protocols={"range": subscription("u")})
    assert waiting in driver.waiting
    assert driver.heartbeat(first, 2) == Error.REBALANCE_IN_PROGRESS


def test_a_repeated_join_takes_the_place_of_the_one_that_waits() -> None:
    driver = ShardDriver()
    first, second = driver.new_member_id(), driver.new_member_id()
    stable(driver, first)
    waiting = driver.join(second)
    again = driver.join(second)
    assert error_of(driver, waiting) == Error.REBALANCE_IN_PROGRESS
    driver.join(first)
    assert joined(driver, again)[1] == second


def test_pending_members_are_waited_for_until_their_session_ends() -> None:
    driver = ShardDriver()
    first = driver.new_member_id()
    generation = stable(driver, first)
    driver.new_member_id(session_ms=6000)
    again = driver.join(first)
    assert again in driver.waiting
    driver.pass_time(6000)
    assert joined(driver, again) == (generation + 1, first, first, [first])


def test_a_pending_member_can_leave() -> None:
    driver = ShardDriver()
    first = driver.new_member_id()
    stable(driver, first)
    pending = driver.new_member_id()
    again = driver.join(first)
    assert driver.leave((pending, None)) == [Error.NONE]
    assert joined(driver, again)[1] == first
    assert driver.leave((pending, None)) == [Error.UNKNOWN_MEMBER_ID]


def test_a_member_without_an_id_waits_five_minutes() -> None:
    driver = ShardDriver()
    first = driver.join(version=3)
    member_id = driver.answers[first].member_id
    driver.sync(member_id, 1)
    waiting = driver.join(version=3, rebalance_ms=600_000)
    for _ in range(60):
        assert waiting in driver.waiting
        driver.heartbeat(member_id, 1)
        driver.pass_time(5000)
    assert error_of(driver, waiting) == Error.UNKNOWN_MEMBER_ID


def test_a_full_group() -> None:
    driver = ShardDriver(GroupSettings(initial_rebalance_delay_ms=0, size_max=2))
    first, second = driver.new_member_id(), driver.new_member_id()
    stable(driver, first)
    driver.join(second)
    driver.join(first)
    assert error_of(driver, driver.join()) == Error.GROUP_MAX_SIZE_REACHED
    driver.sync(first, 2)
    assert error_of(driver, driver.join(version=3)) == Error.GROUP_MAX_SIZE_REACHED
    assert driver.heartbeat(first, 2) == driver.heartbeat(second, 2) == Error.NONE


def test_ids_are_not_given_out_without_limit() -> None:
    driver = ShardDriver(GroupSettings(initial_rebalance_delay_ms=0, size_max=3))
    for _ in range(3):
        driver.new_member_id()
    assert error_of(driver, driver.join()) == Error.GROUP_MAX_SIZE_REACHED
    driver.pass_time(SESSION_MS)
    driver.new_member_id()


def test_a_group_that_is_larger_than_it_may_be_now_loses_the_last_to_join() -> None:
    driver = ShardDriver()
    members = [driver.new_member_id() for _ in range(3)]
    joined(driver, driver.join(members[0]))
    tokens = [driver.join(member_id) for member_id in members[1:]]
    driver.join(members[0])
    generation = joined(driver, tokens[0])[0]
    for member_id in members:
        driver.sync(member_id, generation)
    driver.settings = GroupSettings(initial_rebalance_delay_ms=0, size_max=2)
    driver.crash()
    assert driver.heartbeat(members[0], generation) == Error.REBALANCE_IN_PROGRESS
    kept = [driver.join(member_id) for member_id in members[:2]]
    assert error_of(driver, driver.join(members[2])) == Error.GROUP_MAX_SIZE_REACHED
    assert {joined(driver, token)[0] for token in kept} == {generation + 1}


def test_metadata_has_a_limit() -> None:
    driver = ShardDriver()
    huge = {"range": bytes(9 << 20)}
    first = driver.join(version=3, protocols=huge)
    assert joined(driver, first)[0] == 1
    assert error_of(driver, driver.join(version=3, protocols=huge)) == Error.GROUP_MAX_SIZE_REACHED


def test_long_names_make_no_ids_that_cannot_be_written() -> None:
    driver = ShardDriver(NO_DELAY)
    token = driver.join(instance_id="i" * 32_767)
    member_id = driver.answers[token].member_id
    driver.sync(member_id, 1, instance_id="i" * 32_767)
    driver.crash()
    assert driver.heartbeat(member_id, 1, instance_id="i" * 32_767) == Error.NONE


def test_protocols_have_a_limit() -> None:
    driver = ShardDriver()
    many = {f"p{number}": b"" for number in range(101)}
    assert error_of(driver, driver.join(version=3, protocols=many)) == Error.INVALID_REQUEST


def test_no_time_for_rebalances_is_no_reason_to_hurry() -> None:
    driver = ShardDriver()
    answer = driver.answers[driver.join(instance_id="a", rebalance_ms=0)]
    driver.sync(answer.member_id, 1, instance_id="a")
    driver.join(version=3, rebalance_ms=0)
    steps: list[Step] = []
    driver.on_step = steps.append
    driver.pass_time(9000)
    assert len(steps) < 20


def test_what_is_due_late_is_looked_at_one_by_one() -> None:
    """A deadline of the past must not end the rebalance that another one has just begun."""
    driver = ShardDriver()
    members = [driver.new_member_id() for _ in range(3)]
    joined(driver, driver.join(members[0], rebalance_ms=10_000, session_ms=10_000))
    for member_id in members[1:]:
        driver.join(member_id, rebalance_ms=10_000, session_ms=10_000)
    again = driver.join(members[0], rebalance_ms=10_000, session_ms=10_000)
    generation = joined(driver, again)[0]
    driver.monotonic_ms += 50_000  # sessions, and the wait for syncs: everything is over at once
    driver.take(driver.shard.on_time(driver.now))
    assert driver.states() == {"g": "Empty"}
    assert driver.heartbeat(members[0], generation) == Error.UNKNOWN_MEMBER_ID
