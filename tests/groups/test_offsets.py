"""Committed offsets: who may commit, what is read, transactions, deletion and expiry."""

from __future__ import annotations

import pytest

from penstock.base.errors import Error
from penstock.base.steps import ProducerEpoch, StateRecord
from penstock.groups.settings import GroupSettings
from penstock.groups.table import Caller
from penstock.wire.messages.k08_offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.wire.messages.k09_offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestGroupTopic
from penstock.wire.messages.k47_offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from penstock.wire.messages.offsets_topic_records import LegacyOffsetCommitKey, LegacyOffsetCommitValue

from .shard_driver import SESSION_MS, ShardDriver, subscription

PRODUCER = ProducerEpoch(7, 0)
DAY_MS = 86_400_000


def member(driver: ShardDriver, *topics: str) -> str:
    """A stable group of one, in generation 1."""
    member_id = driver.new_member_id()
    driver.join(member_id, protocols={"range": subscription(*topics)})
    driver.sync(member_id, 1)
    return member_id


# ── committing ───────────────────────────────────────────────────────────────────────────────────────────────────


def test_offsets_without_a_group() -> None:
    driver = ShardDriver()
    assert driver.fetch() == (-1, Error.NONE)
    assert driver.fetch_all() == {}
    assert driver.commit(5, metadata="so far") == Error.NONE
    assert driver.fetch() == (5, Error.NONE)
    assert driver.fetch(partition=1) == (-1, Error.NONE)
    assert driver.states() == {"g": "Empty"}
    driver.crash()
    assert driver.fetch_all() == {("t", 0): 5}


@pytest.mark.parametrize(
    ("member_id", "generation", "version", "error"),
    [
        ("m", 1, 9, Error.GROUP_ID_NOT_FOUND),
        ("m", 1, 8, Error.ILLEGAL_GENERATION),
        ("m", -1, 8, Error.NONE),
        ("", -1, 2, Error.NONE),
    ],
)
def test_commits_to_a_group_that_is_not_there(member_id: str, generation: int, version: int, error: Error) -> None:
    driver = ShardDriver()
    assert driver.commit(5, member_id=member_id, generation=generation, version=version) == error


@pytest.mark.parametrize(
    ("who", "generation", "instance_id", "error"),
    [
        ("the member", 1, None, Error.NONE),
        ("the member", 0, None, Error.ILLEGAL_GENERATION),
        ("the member", -1, None, Error.ILLEGAL_GENERATION),
        ("the member", 1, "i", Error.UNKNOWN_MEMBER_ID),
        ("another", 1, None, Error.UNKNOWN_MEMBER_ID),
        ("", 1, None, Error.UNKNOWN_MEMBER_ID),
        ("", -1, None, Error.UNKNOWN_MEMBER_ID),
    ],
)
def test_commits_to_a_group_with_members(who: str, generation: int, instance_id: str | None, error: Error) -> None:
    driver = ShardDriver()
    member_id = member(driver, "t")
    name = member_id if who == "the member" else who
    assert driver.commit(5, member_id=name, generation=generation, instance_id=instance_id) == error
    assert driver.fetch()[0] == (5 if error is Error.NONE else -1)


def test_commits_in_a_rebalance() -> None:
    driver = ShardDriver()
    member_id = member(driver, "t")
    waiting = driver.join(driver.new_member_id())
    assert driver.commit(5, member_id=member_id, generation=1) == Error.NONE, "it has until it joins again"
    driver.join(member_id)
    assert driver.answers[waiting].generation_id == 2
    assert driver.commit(6, member_id=member_id, generation=1) == Error.ILLEGAL_GENERATION
    assert driver.commit(6, member_id=member_id, generation=2) == Error.REBALANCE_IN_PROGRESS
    assert driver.txn_commit(PRODUCER, 6, member_id=member_id, generation=2) == Error.NONE
    assert driver.fetch() == (5, Error.NONE)


def test_metadata_has_a_limit() -> None:
    driver = ShardDriver(GroupSettings(offset_metadata_bytes_max=5))
    assert driver.commit(1, metadata="12345") == Error.NONE
    assert driver.commit(2, metadata="123456") == Error.OFFSET_METADATA_TOO_LARGE
    assert driver.commit(3, metadata=None) == Error.NONE
    assert driver.fetch() == (3, Error.NONE)


def test_metadata_that_no_record_can_hold() -> None:
    driver = ShardDriver(GroupSettings(offset_metadata_bytes_max=1_000_000))
    assert driver.commit(1, metadata="ü" * 20_000) == Error.OFFSET_METADATA_TOO_LARGE


def test_too_many_offsets_at_once() -> None:
    driver = ShardDriver()
    parts = [OffsetCommitRequestPartition(partition_index=0, committed_offset=1)] * 50_001
    request = OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequestTopic(name="t", partitions=parts)])
    answer = driver.ask(lambda token: driver.shard.commit_offsets(token, request, Caller(9, "", ""), driver.now))
    assert {part.error_code for part in answer.topics[0].partitions} == {Error.INVALID_COMMIT_OFFSET_SIZE}
    assert not driver.log


def test_too_many_questions_at_once() -> None:
    driver = ShardDriver()
    asked = OffsetFetchRequestGroup(
        group_id="g", topics=[OffsetFetchRequestGroupTopic(name="t", partition_indexes=[0] * 100_001)]
    )
    answer = driver.ask(lambda token: driver.shard.fetch_offsets(token, asked, require_stable=False))
    assert (answer.error_code, answer.topics) == (Error.INVALID_REQUEST, [])
    driver.commit(1)
    assert delete(driver, "t", *([0] * 100_001)) == (Error.INVALID_REQUEST, [])


def test_records_of_an_age_long_gone() -> None:
    driver = ShardDriver()
    key = LegacyOffsetCommitKey(group="g", topic="t", partition=0)
    driver.shard.replay(StateRecord(key, LegacyOffsetCommitValue(offset=9, metadata="m", commit_timestamp=1)), None, 0)
    assert driver.fetch() == (9, Error.NONE)


# ── transactions ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("is_commit", [True, False])
@pytest.mark.parametrize("crashes", [True, False])
def test_offsets_of_a_transaction_count_when_it_commits(is_commit: bool, crashes: bool) -> None:
    driver = ShardDriver()
    driver.commit(1)
    assert driver.txn_commit(PRODUCER, 5) == Error.NONE
    if crashes:
        driver.crash()
    assert driver.fetch() == (1, Error.NONE)
    assert driver.fetch(require_stable=True) == (-1, Error.UNSTABLE_OFFSET_COMMIT)
    assert driver.fetch(partition=1, require_stable=True) == (-1, Error.NONE)
    assert driver.fetch_all(require_stable=True) == {("t", 0): -1}
    driver.marker(ProducerEpoch(7, 1), is_commit=is_commit)  # the epoch of the end is one higher with newer clients
    if crashes:
        driver.crash()
    assert driver.fetch(require_stable=True) == (5 if is_commit else 1, Error.NONE)


def test_the_newest_record_wins_over_the_end_of_a_transaction() -> None:
    driver = ShardDriver()
    driver.txn_commit(PRODUCER, 5)
    driver.commit(6)
    driver.marker(PRODUCER, is_commit=True)
    assert driver.fetch() == (6, Error.NONE)
    driver.crash()
    assert driver.fetch() == (6, Error.NONE)


def test_transactions_of_two_producers() -> None:
    driver = ShardDriver()
    other = ProducerEpoch(8, 0)
    driver.txn_commit(PRODUCER, 5)
    driver.txn_commit(other, 6)
    driver.marker(other, is_commit=True)
    assert driver.fetch(require_stable=True) == (-1, Error.UNSTABLE_OFFSET_COMMIT)
    driver.marker(PRODUCER, is_commit=True)
    assert driver.fetch(require_stable=True) == (6, Error.NONE)


def test_who_may_commit_in_a_transaction() -> None:
    driver = ShardDriver()
    assert driver.txn_commit(PRODUCER, 1, member_id="m", generation=1) == Error.ILLEGAL_GENERATION
    member_id = member(driver, "t")
    assert driver.txn_commit(PRODUCER, 1) == Error.NONE, "clients of old say nothing of the group"
    assert driver.txn_commit(PRODUCER, 1, member_id=member_id, generation=1) == Error.NONE
    assert driver.txn_commit(PRODUCER, 1, member_id=member_id, generation=2) == Error.ILLEGAL_GENERATION
    assert driver.txn_commit(PRODUCER, 1, member_id="x", generation=1) == Error.UNKNOWN_MEMBER_ID


# ── deleting ─────────────────────────────────────────────────────────────────────────────────────────────────────


def delete(driver: ShardDriver, topic: str, *partitions: int, group: str = "g") -> tuple[Error, list[Error]]:
    parts = [OffsetDeleteRequestPartition(partition_index=each) for each in partitions]
    request = OffsetDeleteRequest(group_id=group, topics=[OffsetDeleteRequestTopic(name=topic, partitions=parts)])
    answer = driver.ask(lambda token: driver.shard.delete_offsets(token, request))
    rows = answer.topics[0].partitions if answer.topics else []
    return Error(answer.error_code), [Error(row.error_code) for row in rows]


def test_offsets_of_topics_nobody_reads_can_be_deleted() -> None:
    driver = ShardDriver()
    assert delete(driver, "t", 0) == (Error.GROUP_ID_NOT_FOUND, [])
    member_id = member(driver, "t")
    for topic in ("t", "u"):
        driver.commit(5, member_id=member_id, generation=1, topic=topic)
    assert delete(driver, "t", 0) == (Error.NONE, [Error.GROUP_SUBSCRIBED_TO_TOPIC])
    assert delete(driver, "u", 0, 1, 0) == (Error.NONE, [Error.NONE] * 3)
    assert driver.fetch_all() == {("t", 0): 5}
    driver.leave((member_id, None))
    assert delete(driver, "t", 0) == (Error.NONE, [Error.NONE])
    driver.crash()
    assert driver.fetch_all() == {}


def test_offsets_of_a_group_that_does_not_say_what_it_reads() -> None:
    driver = ShardDriver()
    member_id = driver.new_member_id(protocol_type="connect")
    driver.join(member_id, protocol_type="connect", protocols={"p": b"?"})
    driver.sync(member_id, 1)
    assert delete(driver, "t", 0) == (Error.NON_EMPTY_GROUP, [])
    other = driver.new_member_id(group="h")
    driver.join(other, group="h", protocols={"range": b"no subscription"})
    driver.sync(other, 1, group="h")
    assert delete(driver, "t", 0, group="h") == (Error.NONE, [Error.GROUP_SUBSCRIBED_TO_TOPIC])


def test_deleting_reaches_into_open_transactions() -> None:
    driver = ShardDriver()
    driver.txn_commit(PRODUCER, 5)
    assert delete(driver, "t", 0) == (Error.NONE, [Error.NONE])
    assert driver.fetch(require_stable=True) == (-1, Error.NONE)
    driver.marker(PRODUCER, is_commit=True)
    assert driver.fetch() == (-1, Error.NONE)


def delete_group(driver: ShardDriver, group: str = "g") -> Error:
    return Error(driver.ask(lambda token: driver.shard.delete_group(token, group)).error_code)


def test_groups_without_members_can_be_deleted() -> None:
    driver = ShardDriver()
    assert delete_group(driver) == Error.GROUP_ID_NOT_FOUND
    member_id = member(driver, "t")
    driver.commit(5, member_id=member_id, generation=1)
    driver.txn_commit(PRODUCER, 6, partition=1)
    assert delete_group(driver) == Error.NON_EMPTY_GROUP
    driver.leave((member_id, None))
    assert delete_group(driver) == Error.NONE
    assert driver.states() == driver.fetch_all() == {}
    driver.marker(PRODUCER, is_commit=True)
    driver.crash()
    assert driver.states() == driver.fetch_all() == {}


def test_offsets_of_a_deleted_topic_are_deleted() -> None:
    driver = ShardDriver()
    for topic in ("t", "u"):
        driver.commit(5, topic=topic)
    driver.txn_commit(PRODUCER, 6, partition=1)
    driver.topics.delete("t")
    driver.take(driver.shard.topics_changed(frozenset({"t"}), driver.now))
    assert driver.fetch_all() == {("u", 0): 5}
    driver.marker(PRODUCER, is_commit=True)
    assert driver.fetch_all() == {("u", 0): 5}


def test_a_topic_that_grows_keeps_its_offsets() -> None:
    driver = ShardDriver()
    driver.commit(5)
    driver.take(driver.shard.topics_changed(frozenset({"t", "new"}), driver.now))
    assert driver.fetch_all() == {("t", 0): 5}


def test_a_topic_with_the_name_of_another_begins_anew() -> None:
    driver = ShardDriver()
    driver.commit(5)
    driver.topics.create("t")
    assert driver.fetch() == (-1, Error.NONE), "also before the news has come"
    driver.take(driver.shard.topics_changed(frozenset({"t"}), driver.now))
    assert driver.fetch_all() == {}


# ── expiry ───────────────────────────────────────────────────────────────────────────────────────────────────────

WEEK_MS = 7 * DAY_MS
CHECK_MS = 600_000


def test_offsets_without_a_group_expire_by_their_commit() -> None:
    driver = ShardDriver()
    driver.commit(5)
    driver.pass_time(WEEK_MS - CHECK_MS)
    driver.commit(6, partition=1)
    driver.pass_time(2 * CHECK_MS)
    assert driver.fetch_all() == {("t", 1): 6}
    driver.pass_time(WEEK_MS)
    assert driver.fetch_all() == driver.states() == {}
    driver.crash()
    assert driver.fetch_all() == driver.states() == {}


def test_offsets_of_an_empty_group_expire_by_the_time_it_became_empty() -> None:
    driver = ShardDriver()
    member_id = member(driver, "t")
    driver.commit(5, member_id=member_id, generation=1)
    for _ in range(9000):
        driver.heartbeat(member_id, 1)
        driver.pass_time(SESSION_MS - 1)
    driver.leave((member_id, None))
    driver.pass_time(WEEK_MS - CHECK_MS)
    driver.crash()
    assert driver.fetch_all() == {("t", 0): 5}
    driver.pass_time(2 * CHECK_MS)
    assert driver.fetch_all() == driver.states() == {}


def test_a_living_group_loses_only_offsets_of_topics_it_does_not_read() -> None:
    settings = GroupSettings(
        initial_rebalance_delay_ms=0, offsets_retention_ms=60_000, offsets_retention_check_interval_ms=1000
    )
    driver = ShardDriver(settings)
    member_id = member(driver, "t")
    for topic in ("t", "u"):
        driver.commit(5, member_id=member_id, generation=1, topic=topic)
    driver.txn_commit(PRODUCER, 6, member_id=member_id, generation=1, topic="u", partition=1)
    for _ in range(13):
        driver.pass_time(5000)
        driver.heartbeat(member_id, 1)
    assert driver.fetch_all() == {("t", 0): 5}
    driver.marker(PRODUCER, is_commit=True)
    driver.pass_time(2000)
    assert driver.fetch_all() == {("t", 0): 5}


def test_a_client_of_old_says_how_long() -> None:
    driver = ShardDriver()
    driver.commit(5, version=4, retention_ms=2 * WEEK_MS)
    driver.commit(5, version=4, retention_ms=CHECK_MS, partition=1)
    driver.crash()
    driver.pass_time(2 * CHECK_MS)
    assert driver.fetch_all() == {("t", 0): 5}
    driver.pass_time(WEEK_MS)
    assert driver.fetch_all() == {("t", 0): 5}
    driver.pass_time(WEEK_MS)
    assert driver.fetch_all() == {}


def test_an_open_transaction_keeps_its_group() -> None:
    driver = ShardDriver()
    driver.txn_commit(PRODUCER, 5)
    driver.pass_time(WEEK_MS + CHECK_MS)
    assert driver.states() == {"g": "Empty"}
    driver.marker(PRODUCER, is_commit=False)
    driver.pass_time(CHECK_MS)
    assert driver.states() == {}


def test_much_that_expires_is_forgotten_in_portions() -> None:
    settings = GroupSettings(offsets_retention_ms=1)
    driver = ShardDriver(settings)
    for number in range(30):
        parts = [OffsetCommitRequestPartition(partition_index=each, committed_offset=1) for each in range(1000)]
        request = OffsetCommitRequest(
            group_id=f"g{number}", topics=[OffsetCommitRequestTopic(name="t", partitions=parts)]
        )
        driver.ask(lambda token: driver.shard.commit_offsets(token, request, Caller(9, "", ""), driver.now))  # noqa: B023
    sizes: list[int] = []
    driver.on_step = lambda step: sizes.append(len(step.records))
    driver.pass_time(CHECK_MS + 10_000)
    assert driver.states() == {}
    assert len([size for size in sizes if size]) == 3


# ── listing and describing ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("states", "types", "found"),
    [
        ((), (), {"g", "s"}),
        (("stable",), (), {"g"}),
        (("empty", "stable"), ("classic",), {"g", "s"}),
        (("empty",), ("consumer",), set()),
        ((), ("nothing",), set()),
    ],
)
def test_listing(states: tuple[str, ...], types: tuple[str, ...], found: set[str]) -> None:
    driver = ShardDriver()
    member(driver, "t")
    driver.commit(1, group="s")
    listed = driver.ask(lambda token: driver.shard.list_groups(token, frozenset(states), frozenset(types)))
    assert {group.group_id for group in listed} == found
    assert {(group.group_id, group.protocol_type) for group in listed} <= {("g", "consumer"), ("s", "")}


def test_describing() -> None:
    driver = ShardDriver()
    member_id = member(driver, "t")

    def describe(group: str, version: int = 6) -> object:
        return driver.ask(lambda token: driver.shard.describe_group(token, group, Caller(version, "", "")))

    described = driver.ask(lambda token: driver.shard.describe_group(token, "g", Caller(6, "", "")))
    assert (described.group_state, described.protocol_type, described.protocol_data) == ("Stable", "consumer", "range")
    assert [row.member_id for row in described.members] == [member_id]
    assert described.members[0].member_metadata == subscription("t")
    assert getattr(describe("x"), "error_code", None) == Error.GROUP_ID_NOT_FOUND
    old = describe("x", 5)
    assert (getattr(old, "error_code", None), getattr(old, "group_state", None)) == (Error.NONE, "Dead")
    driver.join(driver.new_member_id())
    described = driver.ask(lambda token: driver.shard.describe_group(token, "g", Caller(6, "", "")))
    assert (described.group_state, described.protocol_data) == ("PreparingRebalance", "")
    assert {bytes(row.member_metadata) for row in described.members} == {b""}
