"""Members from SyncGroup to LeaveGroup, static ones, and what a restart keeps of them."""

from __future__ import annotations

import pytest

from penstock.base.errors import Error
from penstock.groups.settings import GroupSettings
from penstock.wire.messages.offsets_topic_records import GroupMetadataKey

from .shard_driver import REBALANCE_MS, SESSION_MS, ShardDriver


def pair(driver: ShardDriver) -> tuple[str, str]:
    """A stable group of two in generation 2; the first leads, and each is assigned its own id."""
    first, second = driver.new_member_id(), driver.new_member_id()
    driver.join(first)
    driver.join(second)
    driver.join(first)
    token = driver.sync(second, 2)
    assert token in driver.waiting
    driver.sync(first, 2, {first: first.encode(), second: second.encode()})
    assert driver.answers[token].assignment == second.encode()
    return first, second


def error_of(driver: ShardDriver, token: int) -> Error:
    return Error(driver.answers[token].error_code)


# ── SyncGroup ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_leader_hands_out_the_assignment() -> None:
    driver = ShardDriver()
    first, second = pair(driver)
    assert driver.answers[driver.sync(second, 2)].assignment == second.encode(), "again, in the stable group"
    assert driver.answers[driver.sync(first, 2)].assignment == first.encode()


def test_sync_says_the_protocol() -> None:
    driver = ShardDriver()
    first, _ = pair(driver)
    answer = driver.answers[driver.sync(first, 2, protocol_type="consumer", protocol_name="range")]
    assert (answer.protocol_type, answer.protocol_name) == ("consumer", "range")


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"generation": 1}, Error.ILLEGAL_GENERATION),
        ({"generation": 3}, Error.ILLEGAL_GENERATION),
        ({"member_id": "x"}, Error.UNKNOWN_MEMBER_ID),
        ({"instance_id": "x"}, Error.UNKNOWN_MEMBER_ID),
        ({"protocol_type": "connect"}, Error.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocol_name": "sticky"}, Error.INCONSISTENT_GROUP_PROTOCOL),
        ({"group": "other"}, Error.UNKNOWN_MEMBER_ID),
        ({"group": ""}, Error.INVALID_GROUP_ID),
    ],
)
def test_wrong_syncs(changes: dict[str, object], error: Error) -> None:
    driver = ShardDriver()
    first, _ = pair(driver)
    values: dict[str, object] = {"member_id": first, "generation": 2, **changes}
    assert error_of(driver, driver.sync(**values)) == error  # type: ignore[arg-type]


def test_sync_while_others_join() -> None:
    driver = ShardDriver()
    _, second = pair(driver)
    driver.join(driver.new_member_id())
    assert error_of(driver, driver.sync(second, 2)) == Error.REBALANCE_IN_PROGRESS


def test_a_sync_that_waits_is_called_back_by_a_rebalance() -> None:
    driver = ShardDriver()
    pair(driver)
    third = driver.new_member_id()
    waiting = driver.join(third)
    members = list(driver.group.members)
    for member_id in members[:2]:
        driver.join(member_id)
    generation = driver.answers[waiting].generation_id
    syncing = driver.sync(third, generation)
    driver.join(driver.new_member_id())
    assert error_of(driver, syncing) == Error.REBALANCE_IN_PROGRESS


def test_a_repeated_sync_takes_the_place_of_the_one_that_waits() -> None:
    driver = ShardDriver()
    first, second = pair(driver)
    driver.join(first)
    driver.join(second)
    waiting = driver.sync(second, 3)
    again = driver.sync(second, 3)
    assert error_of(driver, waiting) == Error.REBALANCE_IN_PROGRESS
    driver.sync(first, 3, {second: b"part"})
    assert driver.answers[again].assignment == b"part"


def test_a_leader_that_never_assigns_is_out() -> None:
    driver = ShardDriver()
    first, second = pair(driver)
    driver.join(first)
    driver.join(second)
    waiting = driver.sync(second, 3)
    for _ in range(REBALANCE_MS // 5000):
        assert waiting in driver.waiting
        driver.heartbeat(first, 3)
        driver.pass_time(5000)
    assert error_of(driver, waiting) == Error.REBALANCE_IN_PROGRESS
    assert driver.heartbeat(first, 3) == Error.UNKNOWN_MEMBER_ID
    assert driver.heartbeat(second, 3) == Error.REBALANCE_IN_PROGRESS


def test_an_assignment_has_a_limit() -> None:
    driver = ShardDriver()
    first, second = pair(driver)
    driver.join(first)
    driver.join(second)
    assert error_of(driver, driver.sync(first, 3, {first: bytes(17 << 20)})) == Error.INVALID_REQUEST


# ── Heartbeat and sessions ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({}, Error.NONE),
        ({"generation": 1}, Error.ILLEGAL_GENERATION),
        ({"member_id": "x"}, Error.UNKNOWN_MEMBER_ID),
        ({"instance_id": "x"}, Error.UNKNOWN_MEMBER_ID),
        ({"group": "other"}, Error.UNKNOWN_MEMBER_ID),
        ({"group": ""}, Error.INVALID_GROUP_ID),
    ],
)
def test_heartbeats(changes: dict[str, object], error: Error) -> None:
    driver = ShardDriver()
    first, _ = pair(driver)
    values: dict[str, object] = {"member_id": first, "generation": 2, **changes}
    assert driver.heartbeat(**values) == error  # type: ignore[arg-type]


def test_a_silent_member_is_out_after_its_session() -> None:
    driver = ShardDriver()
    first, second = pair(driver)
    driver.pass_time(SESSION_MS - 1)
    assert driver.heartbeat(second, 2) == Error.NONE
    driver.pass_time(1)
    assert driver.heartbeat(first, 2) == Error.UNKNOWN_MEMBER_ID
    assert driver.heartbeat(second, 2) == Error.REBALANCE_IN_PROGRESS
    token = driver.join(second)
    assert driver.answers[token].leader == second
    assert driver.commit(5, member_id=first, generation=2) == Error.UNKNOWN_MEMBER_ID


def test_whoever_waits_or_commits_lives() -> None:
    driver = ShardDriver()
    first, second = pair(driver)
    waiting = driver.join(first)  # the leader wants a rebalance
    for _ in range(4):
        driver.pass_time(SESSION_MS - 1)
        assert driver.commit(5, member_id=second, generation=2) == Error.NONE
    assert waiting in driver.waiting
    driver.join(second)
    assert driver.answers[waiting].generation_id == 3


def test_the_last_one_out_leaves_an_empty_group() -> None:
    driver = ShardDriver()
    pair(driver)
    driver.pass_time(SESSION_MS)
    assert driver.states() == {"g": "Empty"}
    driver.crash()
    assert driver.states() == {"g": "Empty"}
    assert driver.group.generation == 3


# ── LeaveGroup ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_leaving() -> None:
    driver = ShardDriver()
    first, second = pair(driver)
    assert driver.leave((first, None), ("x", None), (first, None)) == [
        Error.NONE,
        Error.UNKNOWN_MEMBER_ID,
        Error.UNKNOWN_MEMBER_ID,
    ]
    assert driver.heartbeat(second, 2) == Error.REBALANCE_IN_PROGRESS
    assert driver.leave((second, None)) == [Error.NONE]
    assert driver.states() == {"g": "Empty"}
    assert driver.leave((second, None)) == [Error.UNKNOWN_MEMBER_ID]
    assert driver.leave((second, None), group="other") == [Error.UNKNOWN_MEMBER_ID]


def test_all_leave_at_once() -> None:
    driver = ShardDriver()
    first, second = pair(driver)
    assert driver.leave((first, None), (second, None)) == [Error.NONE, Error.NONE]
    assert driver.states() == {"g": "Empty"}


def test_leaving_in_the_middle_of_a_rebalance_answers_what_waits() -> None:
    driver = ShardDriver()
    first, second = pair(driver)
    waiting = driver.join(first)
    assert driver.leave((first, None)) == [Error.NONE]
    assert error_of(driver, waiting) == Error.UNKNOWN_MEMBER_ID
    driver.join(second)
    syncing = driver.sync(second, 3)
    assert syncing not in driver.waiting
    third = driver.new_member_id()
    driver.join(third)
    driver.join(second)
    syncing = driver.sync(third, 4)
    assert driver.leave((third, None)) == [Error.NONE]
    assert error_of(driver, syncing) == Error.UNKNOWN_MEMBER_ID


# ── static members ───────────────────────────────────────────────────────────────────────────────────────────────


def static_pair(driver: ShardDriver) -> tuple[str, str]:
    """A stable group of the static members a, which leads, and b; generation 2."""
    driver.join(instance_id="a")
    waiting = driver.join(instance_id="b")
    first = next(iter(driver.group.members))
    driver.join(first, instance_id="a")
    second = driver.answers[waiting].member_id
    driver.sync(first, 2, {first: b"A", second: b"B"}, instance_id="a")
    driver.sync(second, 2, instance_id="b")
    return first, second


def test_a_static_member_is_named_after_its_instance() -> None:
    driver = ShardDriver()
    first, second = static_pair(driver)
    assert first.startswith("a-")
    assert second.startswith("b-")


def test_a_static_member_that_starts_anew_keeps_its_part_without_a_rebalance() -> None:
    driver = ShardDriver()
    first, second = static_pair(driver)
    answer = driver.answers[driver.join(instance_id="b")]
    third = answer.member_id
    assert third != second
    assert (answer.error_code, answer.generation_id, answer.leader) == (Error.NONE, 2, first)
    assert driver.answers[driver.sync(third, 2, instance_id="b")].assignment == b"B"
    assert driver.heartbeat(first, 2, instance_id="a") == Error.NONE
    assert driver.heartbeat(second, 2, instance_id="b") == Error.FENCED_INSTANCE_ID
    assert driver.heartbeat(second, 2) == Error.UNKNOWN_MEMBER_ID
    assert driver.commit(1, member_id=second, generation=2, instance_id="b") == Error.FENCED_INSTANCE_ID
    assert error_of(driver, driver.sync(second, 2, instance_id="b")) == Error.FENCED_INSTANCE_ID
    assert error_of(driver, driver.join(second, instance_id="b")) == Error.FENCED_INSTANCE_ID
    assert driver.leave((second, "b")) == [Error.FENCED_INSTANCE_ID]
    driver.crash()
    assert driver.heartbeat(third, 2, instance_id="b") == Error.NONE
    assert driver.heartbeat(second, 2, instance_id="b") == Error.FENCED_INSTANCE_ID


def test_a_static_leader_that_starts_anew_is_told_not_to_assign() -> None:
    driver = ShardDriver()
    first, second = static_pair(driver)
    answer = driver.answers[driver.join(instance_id="a")]
    assert answer.skip_assignment
    assert answer.leader == answer.member_id != first
    assert {member.member_id for member in answer.members} == {answer.member_id, second}


def test_an_old_static_leader_that_starts_anew_is_told_that_another_leads() -> None:
    driver = ShardDriver()
    first, _ = static_pair(driver)
    answer = driver.answers[driver.join(instance_id="a", version=8)]
    assert not answer.skip_assignment
    assert answer.leader == first != answer.member_id
    assert answer.members == []


def test_a_static_member_with_other_protocols_makes_a_rebalance() -> None:
    driver = ShardDriver()
    first = driver.answers[driver.join(instance_id="a", protocols={"p": b"", "q": b""})].member_id
    driver.sync(first, 1, instance_id="a")
    answer = driver.answers[driver.join(instance_id="a", protocols={"q": b"", "p": b""})]
    assert (answer.generation_id, answer.protocol_name) == (2, "q")


def test_a_static_member_that_starts_anew_in_a_rebalance_fences_the_old_one() -> None:
    driver = ShardDriver()
    first, _ = static_pair(driver)
    waiting = driver.join(first, instance_id="a")
    again = driver.join(instance_id="a")
    assert error_of(driver, waiting) == Error.FENCED_INSTANCE_ID
    assert again in driver.waiting
    driver.join(instance_id="b")
    assert driver.answers[again].generation_id == 3


def test_a_static_member_that_starts_anew_before_the_assignment_makes_a_rebalance() -> None:
    driver = ShardDriver()
    first, second = static_pair(driver)
    driver.join(first, instance_id="a")
    driver.join(second, instance_id="b")
    syncing = driver.sync(second, 3, instance_id="b")
    again = driver.join(instance_id="b")
    assert error_of(driver, syncing) == Error.FENCED_INSTANCE_ID
    assert again in driver.waiting
    assert driver.heartbeat(first, 3, instance_id="a") == Error.REBALANCE_IN_PROGRESS


def test_static_members_that_do_not_join_again_stay_until_their_session_ends() -> None:
    driver = ShardDriver()
    first, second = static_pair(driver)
    driver.join(first, instance_id="a")
    while driver.group.generation == 2:
        assert driver.heartbeat(second, 2, instance_id="b") == Error.REBALANCE_IN_PROGRESS
        driver.pass_time(5000)
    assert set(driver.group.members) == {first, second}
    driver.sync(first, 3, instance_id="a")
    driver.pass_time(REBALANCE_MS)
    assert second not in driver.group.members


def test_a_rebalance_in_which_no_static_member_joins_goes_on_waiting() -> None:
    driver = ShardDriver()
    first, second = static_pair(driver)
    pending = driver.join(version=3)
    third = next(each for each in driver.group.members if each not in (first, second))
    assert driver.leave((third, None)) == [Error.NONE]
    assert error_of(driver, pending) == Error.UNKNOWN_MEMBER_ID
    for _ in range(REBALANCE_MS // 5000 + 1):
        driver.heartbeat(first, 2, instance_id="a")
        driver.pass_time(5000)
    assert driver.states() == {"g": "PreparingRebalance"}
    driver.pass_time(SESSION_MS)
    assert driver.states() == {"g": "Empty"}


def test_tools_throw_static_members_out_by_their_instances() -> None:
    driver = ShardDriver()
    first, _ = static_pair(driver)
    assert driver.leave(("", "b"), ("", "x"), ("", None)) == [
        Error.NONE,
        Error.UNKNOWN_MEMBER_ID,
        Error.UNKNOWN_MEMBER_ID,
    ]
    assert driver.heartbeat(first, 2, instance_id="a") == Error.REBALANCE_IN_PROGRESS


def test_a_known_static_member_joins_again_under_its_id() -> None:
    driver = ShardDriver()
    first, second = static_pair(driver)
    answer = driver.answers[driver.join(second, instance_id="b")]
    assert (answer.generation_id, answer.leader) == (2, first)
    assert error_of(driver, driver.join(second, instance_id="a")) == Error.FENCED_INSTANCE_ID
    assert error_of(driver, driver.join(second, instance_id="x")) == Error.UNKNOWN_MEMBER_ID


# ── restarts ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_stable_group_survives_a_restart() -> None:
    driver = ShardDriver()
    first, second = pair(driver)
    assert driver.commit(7, member_id=first, generation=2) == Error.NONE
    driver.crash()
    assert driver.heartbeat(first, 2) == driver.heartbeat(second, 2) == Error.NONE
    assert driver.answers[driver.sync(second, 2)].assignment == second.encode()
    assert driver.commit(8, member_id=second, generation=2) == Error.NONE
    assert driver.fetch() == (8, Error.NONE)
    driver.pass_time(SESSION_MS)
    assert driver.states() == {"g": "Empty"}


def test_a_rebalance_begins_again_after_a_restart() -> None:
    driver = ShardDriver()
    first, second = pair(driver)
    third = driver.new_member_id()
    waiting = driver.join(third)
    driver.crash()
    assert driver.answers[waiting] == Error.NOT_COORDINATOR
    assert error_of(driver, driver.join(third)) == Error.UNKNOWN_MEMBER_ID
    assert driver.heartbeat(first, 2) == driver.heartbeat(second, 2) == Error.NONE
    third = driver.new_member_id()
    tokens = [driver.join(each) for each in (third, first, second)]
    assert {driver.answers[token].generation_id for token in tokens} == {3}


def test_what_is_written_of_a_group() -> None:
    driver = ShardDriver()
    first, second = pair(driver)
    records = [record for record in driver.records() if isinstance(record.key, GroupMetadataKey)]
    assert len(records) == 1
    value = records[0].value
    assert value is not None
    assert (value.protocol_type, value.protocol, value.generation, value.leader) == ("consumer", "range", 2, first)
    assert value.current_state_timestamp == driver.wall_ms
    by_id = {member.member_id: member for member in value.members}
    assert set(by_id) == {first, second}
    member = by_id[second]
    assert (member.client_id, member.client_host) == ("client", "127.0.0.1")
    assert (member.session_timeout, member.rebalance_timeout) == (SESSION_MS, REBALANCE_MS)
    assert member.assignment == second.encode()


def test_settings_can_change_while_it_runs() -> None:
    driver = ShardDriver()
    driver.shard.use_settings(GroupSettings(initial_rebalance_delay_ms=500))
    waiting = driver.join(version=3)
    assert waiting in driver.waiting
    driver.pass_time(500)
    assert driver.answers[waiting].generation_id == 1
