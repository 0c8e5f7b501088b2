"""The new protocol from a member's point of view: joining, being assigned, giving up, being fenced, leaving."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.base.errors import Error
from penstock.groups.settings import GroupSettings

from .consumer_driver import AT_ONCE, REBALANCE_MS, SESSION_MS, ConsumerDriver, ManyTopics, Member, settle


@pytest.fixture
def driver() -> ConsumerDriver:
    return ConsumerDriver()


def full(**changes: Any) -> dict[str, Any]:
    """The fields of a joining member."""
    return {"rebalance_timeout_ms": REBALANCE_MS, "subscribed_topic_names": ["t"], "owned": {}} | changes


# ── joining ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_the_first_member_gets_everything_at_once(driver: ConsumerDriver) -> None:
    answer = driver.beat("m", 0, **full(subscribed_topic_names=["t", "u", "not-there"]))
    assert answer.error_code == Error.NONE
    assert (answer.member_id, answer.member_epoch, answer.heartbeat_interval_ms) == ("m", 2, 5000)
    assert answer.assignment is not None
    assert [each.partitions for each in answer.assignment.topic_partitions] == [[0, 1, 2, 3], [0, 1, 2, 3]]
    assert driver.group.state_name == "Stable"


def test_a_member_that_reads_nothing_is_a_member(driver: ConsumerDriver) -> None:
    answer = driver.beat("m", 0, **full(subscribed_topic_names=[]))
    assert (answer.error_code, answer.member_epoch) == (Error.NONE, 1)
    assert driver.group.state_name == "Stable"


def test_version_0_gets_its_id_from_the_broker(driver: ConsumerDriver) -> None:
    first = driver.beat("", 0, version=0, **full())
    second = driver.beat("", 0, version=0, **full())
    assert first.member_id and second.member_id and first.member_id != second.member_id
    assert driver.beat_error("", 0, version=1, **full()) is Error.INVALID_REQUEST


def test_a_heartbeat_that_changes_nothing_writes_nothing_and_says_nothing(driver: ConsumerDriver) -> None:
    member = driver.member("m", "t")
    settle(member)
    written = len(driver.log)
    answer = driver.beat("m", member.epoch)
    assert (answer.error_code, answer.assignment, answer.member_epoch) == (Error.NONE, None, member.epoch)
    assert len(driver.log) == written


def test_whoever_says_everything_is_told_everything(driver: ConsumerDriver) -> None:
    member = driver.member("m", "t")
    answer = driver.beat("m", member.epoch, **full(owned=member.owned))
    assert answer.assignment is not None
    assert driver.beat("m", member.epoch, owned=member.owned).assignment is None


@pytest.mark.parametrize(
    ("epoch", "changes"),
    [
        (0, {"rebalance_timeout_ms": -1}),
        (0, {"owned": None}),
        (0, {"subscribed_topic_names": None}),
        (0, {"instance_id": ""}),
        (0, {"instance_id": "  "}),
        (0, {"rack_id": ""}),
        (-2, {}),
        (-3, {}),
    ],
)
def test_requests_that_no_group_would_take(driver: ConsumerDriver, epoch: int, changes: dict[str, Any]) -> None:
    assert driver.beat_error("m", epoch, **full(**changes)) is Error.INVALID_REQUEST
    assert not driver.log


def test_a_group_needs_a_name(driver: ConsumerDriver) -> None:
    assert driver.beat_error("m", 0, group=" ", **full()) is Error.INVALID_REQUEST


def test_whoever_joins_owns_nothing(driver: ConsumerDriver) -> None:
    topic = driver.topics.named("t")
    assert topic is not None
    assert driver.beat_error("m", 0, **full(owned={topic.topic_id: [0]})) is Error.INVALID_REQUEST


def test_an_assignor_that_is_not_there(driver: ConsumerDriver) -> None:
    assert driver.beat_error("m", 0, **full(server_assignor="best")) is Error.UNSUPPORTED_ASSIGNOR
    only_range = ConsumerDriver(GroupSettings(consumer_assignors=("range",)))
    assert only_range.beat_error("m", 0, **full(server_assignor="uniform")) is Error.UNSUPPORTED_ASSIGNOR
    assert only_range.beat_error("m", 0, **full(server_assignor="range")) is Error.NONE


def test_the_assignor_that_most_members_ask_for(driver: ConsumerDriver) -> None:
    for number, assignor in enumerate(["range", None, "uniform", "range"]):
        driver.member(f"m{number}", "t", "u", assignor=assignor)
    assert driver.describe().assignor_name == "range"
    assert [member.target_assignment.topic_partitions[0].partitions for member in driver.describe().members] == [
        [0],
        [1],
        [2],
        [3],
    ]


def test_a_full_group(driver: ConsumerDriver) -> None:
    driver = ConsumerDriver(GroupSettings(consumer_size_max=2))
    members = [driver.member(f"m{number}", "t") for number in range(2)]
    assert driver.beat_error("m2", 0, **full()) is Error.GROUP_MAX_SIZE_REACHED
    assert members[0].beat() is Error.NONE
    members[1].leave()
    assert driver.beat_error("m2", 0, **full()) is Error.NONE


def test_subscriptions_that_take_too_much_room(driver: ConsumerDriver) -> None:
    names = [f"{number:05}-{'x' * 240}" for number in range(30_000)]
    assert driver.beat_error("m0", 0, **full(subscribed_topic_names=names)) is Error.NONE
    assert driver.beat_error("m1", 0, **full(subscribed_topic_names=names)) is Error.NONE
    assert driver.beat_error("m2", 0, **full(subscribed_topic_names=names)) is Error.GROUP_MAX_SIZE_REACHED
    assert driver.beat_error("m2", 0, **full()) is Error.NONE


# ── a rebalance ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_nobody_gets_a_partition_before_the_other_has_let_go(driver: ConsumerDriver) -> None:
    first = driver.member("m0", "t")
    settle(first)
    second = driver.member("m1", "t")
    assert second.partitions == {}, "all of them are still with the first"
    assert driver.group.state_name == "Reconciling"

    first.beat()
    assert first.is_holding_on()
    assert first.epoch == 2, "it stays in its epoch until it has let go"
    second.beat()
    assert second.partitions == {}
    first.beat()
    second.beat()
    assert second.partitions == {}, "the first has not said that it has let go"

    first.take_over()
    first.beat()
    assert (first.epoch, first.partitions) == (3, {"t": [0, 1]})
    second.beat()
    assert (second.epoch, second.partitions) == (3, {"t": [2, 3]})
    assert driver.group.state_name == "Stable"


def test_an_answer_that_was_lost(driver: ConsumerDriver) -> None:
    """A member that says its previous epoch, and owns nothing it should not, is believed."""
    first = driver.member("m0", "t")
    settle(first)
    driver.member("m1", "t")
    first.settle(2)
    assert first.epoch == 3
    answer = driver.beat("m0", 2, **full(owned=first.owned))
    assert (answer.error_code, answer.member_epoch) == (Error.NONE, 3)
    assert answer.assignment is not None


def test_members_that_are_fenced(driver: ConsumerDriver) -> None:
    member = driver.member("m0", "t")
    settle(member)
    everything = dict(member.owned)
    other = driver.member("m1", "t")
    settle(member, other)
    assert member.epoch == 3
    assert driver.beat_error("m0", 4) is Error.FENCED_MEMBER_EPOCH
    assert driver.beat_error("m0", 1) is Error.FENCED_MEMBER_EPOCH
    assert driver.beat_error("m0", 2) is Error.FENCED_MEMBER_EPOCH, "it does not say what it owns"
    assert driver.beat_error("m0", 2, owned=everything) is Error.FENCED_MEMBER_EPOCH, "it owns what it should not"
    assert driver.beat_error("nobody", 3) is Error.UNKNOWN_MEMBER_ID
    assert driver.beat_error("m0", 3, group="other") is Error.GROUP_ID_NOT_FOUND
    assert driver.beat_error("m0", 0, **full()) is Error.NONE, "it can always join again"


def test_a_member_that_does_not_let_go_in_time_is_out(driver: ConsumerDriver) -> None:
    slow = driver.member("m0", "t")
    settle(slow)
    other = driver.member("m1", "t")
    slow.beat()
    for _ in range(REBALANCE_MS // 10_000):
        assert slow.beat() is Error.NONE
        other.beat()
        driver.pass_time(10_000)
    assert slow.beat() is Error.UNKNOWN_MEMBER_ID
    settle(other)
    assert other.partitions == {"t": [0, 1, 2, 3]}


def test_a_member_that_lets_go_in_time_stays(driver: ConsumerDriver) -> None:
    first = driver.member("m0", "t")
    settle(first)
    second = driver.member("m1", "t")
    first.settle(2)
    for _ in range(10):
        driver.pass_time(REBALANCE_MS // 2)
        assert (first.beat(), second.beat()) == (Error.NONE, Error.NONE)


def test_a_member_that_is_silent_is_out_after_its_session(driver: ConsumerDriver) -> None:
    first, second = driver.member("m0", "t"), driver.member("m1", "t")
    settle(first, second)
    driver.pass_time(SESSION_MS - 1)
    first.beat()
    driver.pass_time(1)
    assert list(driver.group.members) == ["m0"]
    settle(first)
    assert first.partitions == {"t": [0, 1, 2, 3]}
    assert second.beat() is Error.UNKNOWN_MEMBER_ID


def test_two_members_that_go_at_once_are_one_change(driver: ConsumerDriver) -> None:
    members = [driver.member(f"m{number}", "t") for number in range(3)]
    settle(*members)
    epoch = driver.group.epoch
    driver.pass_time(SESSION_MS - 1)
    members[0].beat()
    driver.pass_time(1)
    assert (list(driver.group.members), driver.group.epoch) == (["m0"], epoch + 1)


def test_who_leaves_is_gone_at_once(driver: ConsumerDriver) -> None:
    first, second = driver.member("m0", "t"), driver.member("m1", "t")
    settle(first, second)
    answer = driver.beat("m1", -1)
    assert (answer.error_code, answer.member_id, answer.member_epoch) == (Error.NONE, "m1", -1)
    first.beat()
    assert first.partitions == {"t": [0, 1, 2, 3]}
    assert driver.beat_error("m1", -1) is Error.UNKNOWN_MEMBER_ID
    first.leave()
    assert driver.group.state_name == "Empty"


def test_changing_the_subscription(driver: ConsumerDriver) -> None:
    member = driver.member("m", "t")
    settle(member)
    answer = driver.beat("m", member.epoch, subscribed_topic_names=["u"])
    assert answer.assignment is not None and answer.assignment.topic_partitions == []
    assert answer.member_epoch == member.epoch, "first it gives up the old topic"
    answer = driver.beat("m", member.epoch, owned={})
    assert answer.assignment is not None
    assert answer.member_epoch == member.epoch + 1
    assert answer.assignment.topic_partitions[0].topic_id == driver.topics.named("u").topic_id  # type: ignore[union-attr]


def test_targets_are_not_computed_more_often_than_allowed() -> None:
    driver = ConsumerDriver(GroupSettings(consumer_assignment_interval_ms=1000))
    first = driver.member("m0", "t")
    second = driver.member("m1", "t")
    assert (first.epoch, second.epoch) == (2, 2)
    assert driver.group.state_name == "Assigning"
    assert second.partitions == {}
    driver.pass_time(999)
    settle(first, second)
    assert driver.group.assignment_epoch == 2
    driver.pass_time(1)
    settle(first, second)
    assert (first.partitions, second.partitions) == ({"t": [0, 1]}, {"t": [2, 3]})


def test_a_clock_that_is_put_back_holds_up_no_target() -> None:
    driver = ConsumerDriver(GroupSettings(consumer_assignment_interval_ms=1000))
    first = driver.member("m0", "t")
    driver.wall_ms -= 3_600_000
    second = driver.member("m1", "t")
    settle(first, second)
    assert (first.partitions, second.partitions) == ({"t": [0, 1]}, {"t": [2, 3]})


# ── static members ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_static_member_that_comes_back_has_what_it_had(driver: ConsumerDriver) -> None:
    static = driver.member("m0", "t", instance_id="i0")
    other = driver.member("m1", "t")
    settle(static, other)
    before, epoch = static.partitions, driver.group.epoch
    assert static.leave(-2) is Error.NONE
    settle(other)
    assert other.partitions == {"t": [2, 3]}, "what the static member had waits for it"
    back = driver.member("m9", "t", instance_id="i0")
    assert (back.partitions, driver.group.epoch) == (before, epoch), "nobody else noticed"
    assert sorted(driver.group.members) == ["m1", "m9"]


def test_a_static_member_that_does_not_come_back_is_out(driver: ConsumerDriver) -> None:
    static = driver.member("m0", "t", instance_id="i0")
    other = driver.member("m1", "t")
    settle(static, other)
    static.leave(-2)
    driver.pass_time(SESSION_MS - 1)
    other.beat()
    driver.pass_time(1)
    settle(other)
    assert other.partitions == {"t": [0, 1, 2, 3]}
    assert driver.member("m9", "t", instance_id="i0").epoch > other.epoch


def test_an_instance_id_has_one_owner(driver: ConsumerDriver) -> None:
    static = driver.member("m0", "t", instance_id="i0")
    assert driver.beat_error("m1", 0, instance_id="i0", **full()) is Error.UNRELEASED_INSTANCE_ID
    assert driver.beat_error("m1", static.epoch, instance_id="i0") is Error.FENCED_INSTANCE_ID
    assert driver.beat_error("m0", static.epoch, instance_id="i1") is Error.UNKNOWN_MEMBER_ID
    assert driver.beat_error("m1", -1, instance_id="i0") is Error.FENCED_INSTANCE_ID
    assert static.leave(-2) is Error.NONE
    assert driver.beat_error("m1", 0, instance_id="i0", **full()) is Error.NONE
    assert driver.beat_error("m0", 2, instance_id="i0") is Error.FENCED_INSTANCE_ID
    assert driver.beat_error("m1", -1, instance_id="i0") is Error.NONE
    assert driver.group.is_empty


def test_a_static_member_may_join_again_when_the_answer_was_lost(driver: ConsumerDriver) -> None:
    static = driver.member("m0", "t", instance_id="i0")
    answer = driver.beat("m0", 0, instance_id="i0", **full())
    assert (answer.error_code, answer.member_epoch) == (Error.NONE, static.epoch)
    assert answer.assignment is not None and answer.assignment.topic_partitions


def test_a_static_member_that_comes_back_under_the_same_id_with_another_subscription(driver: ConsumerDriver) -> None:
    static = driver.member("m0", "t", instance_id="i0")
    settle(static)
    static.leave(-2)
    static.names = ["u"]
    settle(static)
    assert static.partitions == {"u": [0, 1, 2, 3]}


# ── topics ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_topic_that_is_created_later(driver: ConsumerDriver) -> None:
    member = driver.member("m", "t", "later")
    settle(member)
    driver.topics.create("later", 2)
    driver.change_topics("later")
    settle(member)
    assert member.partitions == {"t": [0, 1, 2, 3], "later": [0, 1]}


def test_a_topic_that_grows_is_deleted_and_made_again(driver: ConsumerDriver) -> None:
    member = driver.member("m", "t")
    settle(member)
    driver.topics.grow("t", 6)
    driver.change_topics("t")
    settle(member)
    assert member.partitions == {"t": [0, 1, 2, 3, 4, 5]}
    driver.topics.delete("t")
    driver.change_topics("t")
    settle(member)
    assert member.partitions == {}
    driver.topics.create("t", 1)
    driver.change_topics("t")
    settle(member)
    assert member.partitions == {"t": [0]}


def test_topics_of_others_change_nothing(driver: ConsumerDriver) -> None:
    settle(driver.member("m", "t"))
    written = len(driver.log)
    driver.topics.create("other")
    driver.change_topics("other")
    assert len(driver.log) == written


def test_topics_that_changed_while_nobody_looked(driver: ConsumerDriver) -> None:
    member = driver.member("m", "t")
    settle(member)
    driver.topics.grow("t", 5)
    driver.crash()
    settle(member)
    assert member.partitions == {"t": [0, 1, 2, 3, 4]}


# ── patterns ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_pattern_is_as_good_as_names() -> None:
    driver = ConsumerDriver(topics=ManyTopics("orders-eu", "orders-us", "other"))
    member = driver.member("m", pattern="orders-.*")
    assert member.partitions == {"orders-eu": [0, 1, 2, 3], "orders-us": [0, 1, 2, 3]}
    driver.topics.create("orders-asia", 1)
    driver.change_topics("orders-asia")
    driver.topics.delete("orders-us")
    driver.change_topics("orders-us")
    settle(member)
    assert member.partitions == {"orders-eu": [0, 1, 2, 3], "orders-asia": [0]}
    assert driver.describe().members[0].subscribed_topic_regex == "orders-.*"


def test_names_and_a_pattern_together() -> None:
    driver = ConsumerDriver(topics=ManyTopics("a", "b", "c"))
    assert set(driver.member("m", "c", pattern="a|b").partitions) == {"a", "b", "c"}


def test_a_pattern_that_changes_and_one_that_goes() -> None:
    driver = ConsumerDriver(topics=ManyTopics("a1", "b1"))
    first, second = driver.member("m0", pattern="a.*"), driver.member("m1", pattern="a.*")
    settle(first, second)
    first.pattern = "b.*"
    first.must_say_all = True
    settle(first, second)
    assert (set(first.partitions), set(second.partitions)) == ({"b1"}, {"a1"})
    assert set(driver.group.patterns) == {"a.*", "b.*"}
    second.pattern, second.names = "", ["a1", "b1"]
    second.must_say_all = True
    settle(first, second)
    assert set(driver.group.patterns) == {"b.*"}
    first.leave()
    settle(second)
    assert driver.group.patterns == {}
    assert second.partitions == {"a1": [0, 1, 2, 3], "b1": [0, 1, 2, 3]}


def test_a_bad_pattern_is_refused_and_changes_nothing(driver: ConsumerDriver) -> None:
    fields = full(subscribed_topic_names=None, subscribed_topic_regex="(")
    assert driver.beat_error("m", 0, **fields) is Error.INVALID_REGULAR_EXPRESSION
    assert not driver.log


def test_a_pattern_over_many_topics_is_found_out_in_portions() -> None:
    topics = ManyTopics(*(f"topic-{number}" for number in range(6000)))
    driver = ConsumerDriver(topics=topics)
    member = driver.member("m", pattern="topic-.*7")
    assert member.partitions == {}
    driver.pass_time(0)
    settle(member)
    assert len(member.partitions) == 600


# ── restarts ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_after_a_restart_everything_is_as_before_and_everybody_has_a_whole_session(driver: ConsumerDriver) -> None:
    members = [driver.member(f"m{number}", "t", "u") for number in range(3)]
    settle(*members)
    before = driver.describe()
    driver.pass_time(SESSION_MS - 1)
    driver.crash()
    assert driver.describe() == before
    driver.pass_time(SESSION_MS - 1)
    assert len(driver.group.members) == 3
    driver.pass_time(1)
    assert driver.group.is_empty


def test_after_a_restart_whoever_has_to_let_go_has_its_time_again(driver: ConsumerDriver) -> None:
    slow = driver.member("m0", "t")
    settle(slow)
    other = driver.member("m1", "t")
    slow.beat()
    driver.pass_time(REBALANCE_MS - 1)
    driver.crash()
    driver.pass_time(REBALANCE_MS - 1)
    assert (slow.beat(), other.beat()) == (Error.NONE, Error.NONE)
    driver.pass_time(1)
    assert list(driver.group.members) == ["m1"]


# ── offsets ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_who_may_commit(driver: ConsumerDriver) -> None:
    member = driver.member("m0", "t")
    settle(member)
    assert driver.commit(5, member_id="m0", generation=2) is Error.NONE
    assert driver.commit(5, member_id="m0", generation=3) is Error.STALE_MEMBER_EPOCH
    assert driver.commit(5, member_id="nobody", generation=2) is Error.UNKNOWN_MEMBER_ID
    assert driver.commit(5, member_id="m0", generation=2, version=8) is Error.UNSUPPORTED_VERSION
    assert driver.commit(5) is Error.UNKNOWN_MEMBER_ID, "a tool, while the group has members"
    settle(member, driver.member("m1", "t"))
    assert member.epoch == 3
    assert driver.commit(6, member_id="m0", generation=2, partition=0) is Error.NONE, "it had that one all the time"
    assert driver.commit(6, member_id="m0", generation=2, partition=3) is Error.STALE_MEMBER_EPOCH, "it let go of it"
    member.leave()
    assert driver.commit(7, member_id="m0", generation=3) is Error.UNKNOWN_MEMBER_ID
    assert driver.fetch() == (6, Error.NONE)


def test_a_tool_may_commit_for_a_group_without_members(driver: ConsumerDriver) -> None:
    driver.member("m0", "t").leave()
    assert driver.commit(5) is Error.NONE


def test_settings_are_those_of_the_shard() -> None:
    driver = ConsumerDriver(GroupSettings(consumer_heartbeat_interval_ms=123, consumer_session_timeout_ms=1000))
    assert driver.beat("m", 0, **full()).heartbeat_interval_ms == 123
    driver.pass_time(1000)
    assert driver.group.is_empty
    assert AT_ONCE.consumer_heartbeat_interval_ms == 5000


def test_a_member_is_what_a_client_should_be(driver: ConsumerDriver) -> None:
    """The members of these tests, which the model of random groups uses as well."""
    member = Member(driver, "m", "t")
    assert member.beat() is Error.NONE
    assert member.partitions == {"t": [0, 1, 2, 3]}
