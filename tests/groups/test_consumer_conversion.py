"""Groups that change their kind, and classic members inside consumer groups."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from penstock.base.errors import Error
from penstock.groups.classic_group import ClassicGroup
from penstock.groups.consumer_group import ConsumerGroup
from penstock.groups.settings import GroupSettings

from .classic_clients import ClassicClient, assignment
from .consumer_driver import AT_ONCE, ConsumerDriver, ManyTopics, Member
from .shard_driver import GROUP, SESSION_MS, subscription


@pytest.fixture
def driver() -> ConsumerDriver:
    return ConsumerDriver()


def run(*clients: ClassicClient | Member, rounds: int = 12, pause_ms: int = 100) -> None:
    """Rounds of whatever they do, so many that everything settles."""
    driver = clients[0].driver
    for _ in range(rounds):
        for client in clients:
            if isinstance(client, Member):
                client.beat()
                client.take_over()
            else:
                client.act()
        driver.pass_time(pause_ms)


def kind(driver: ConsumerDriver) -> type:
    return type(driver.shard.table.get(GROUP))


def all_partitions(*clients: ClassicClient | Member) -> list[tuple[str, int]]:
    return sorted((topic, index) for client in clients for topic, each in client.partitions.items() for index in each)


EVERYTHING = [("t", index) for index in range(4)]


@pytest.mark.parametrize("is_eager", [True, False])
def test_from_classic_to_new_and_back(driver: ConsumerDriver, is_eager: bool) -> None:
    old = [ClassicClient(driver, "t", is_eager=is_eager) for _ in range(2)]
    run(*old)
    assert kind(driver) is ClassicGroup
    assert all_partitions(*old) == EVERYTHING
    driver.commit(7, member_id=old[0].member_id, generation=old[0].generation, partition=0)

    new = driver.member("new", "t")
    assert kind(driver) is ConsumerGroup
    assert new.partitions == {}, "the others have everything"
    run(*old, new)
    assert all_partitions(*old, new) == EVERYTHING
    assert sorted(len(client.partitions.get("t", [])) for client in (*old, new)) == [1, 1, 2]
    assert [member.member_type for member in driver.describe().members] == [0, 0, 1]
    assert driver.group.state_name == "Stable"
    assert driver.fetch(partition=0) == (7, Error.NONE), "offsets are not touched"

    new.leave()
    assert kind(driver) is ClassicGroup
    assert driver.commit(8, member_id=old[0].member_id, generation=old[0].generation, partition=0) is Error.NONE
    run(*old)
    assert all_partitions(*old) == EVERYTHING
    assert driver.states() == {GROUP: "Stable"}
    assert driver.fetch(partition=0) == (8, Error.NONE)


def test_a_rolling_upgrade_never_gives_a_partition_twice(driver: ConsumerDriver) -> None:
    clients: list[ClassicClient | Member] = [ClassicClient(driver, "t") for _ in range(3)]
    run(*clients)
    for number in range(3):
        old = clients.pop(0)
        assert isinstance(old, ClassicClient)
        assert old.leave() is Error.NONE
        clients.append(Member(driver, f"new{number}", "t"))
        for _ in range(15):
            run(*clients, rounds=1)
            owned = all_partitions(*clients)
            assert len(owned) == len(set(owned))
        assert all_partitions(*clients) == EVERYTHING
    assert [member.member_type for member in driver.describe().members] == [1, 1, 1]


def test_whoever_waits_in_the_classic_group_is_told_to_join_again(driver: ConsumerDriver) -> None:
    first = ClassicClient(driver, "t")
    run(first)
    second = ClassicClient(driver, "t")
    second.act()
    second.act()
    second.act()
    assert second.is_waiting, "the first has not joined again yet"
    driver.member("new", "t")
    assert not second.is_waiting
    second.act()
    assert second.last_error is Error.REBALANCE_IN_PROGRESS
    run(first, second)
    assert set(driver.group.members) == {first.member_id, second.member_id, "new"}


def test_an_empty_group_is_of_whatever_kind_its_next_member_is(driver: ConsumerDriver) -> None:
    classic = ClassicClient(driver, "t")
    run(classic)
    driver.commit(3, member_id=classic.member_id, generation=classic.generation)
    classic.leave()
    new = driver.member("new", "t")
    assert (kind(driver), new.partitions) == (ConsumerGroup, {"t": [0, 1, 2, 3]})
    new.leave()
    again = ClassicClient(driver, "t")
    run(again)
    assert (kind(driver), again.partitions) == (ClassicGroup, {"t": [0, 1, 2, 3]})
    driver.crash()
    assert kind(driver) is ClassicGroup
    assert driver.fetch() == (3, Error.NONE)


def test_a_refused_classic_member_leaves_an_empty_group_as_it_is(driver: ConsumerDriver) -> None:
    driver.member("new", "t").leave()
    written = len(driver.log)
    assert driver.answers[driver.join("unknown")].error_code == Error.UNKNOWN_MEMBER_ID
    assert (kind(driver), len(driver.log)) == (ConsumerGroup, written)


def test_offsets_alone_are_no_obstacle(driver: ConsumerDriver) -> None:
    driver.commit(5)
    assert driver.member("new", "t").partitions == {"t": [0, 1, 2, 3]}
    assert driver.fetch() == (5, Error.NONE)


@pytest.mark.parametrize("policy", ["disabled", "downgrade"])
def test_a_policy_that_forbids_the_way_up(policy: str) -> None:
    driver = ConsumerDriver(replace(AT_ONCE, consumer_migration_policy=policy))
    run(ClassicClient(driver, "t"))
    assert Member(driver, "new", "t").beat() is Error.GROUP_ID_NOT_FOUND
    assert kind(driver) is ClassicGroup


def test_a_policy_that_forbids_the_way_down() -> None:
    driver = ConsumerDriver(replace(AT_ONCE, consumer_migration_policy="upgrade"))
    old = ClassicClient(driver, "t")
    run(old)
    new = driver.member("new", "t")
    run(old, new)
    new.leave()
    run(old)
    assert (kind(driver), old.partitions) == (ConsumerGroup, {"t": [0, 1, 2, 3]})


def test_a_policy_that_forbids_mixing() -> None:
    driver = ConsumerDriver(replace(AT_ONCE, consumer_migration_policy="disabled"))
    driver.member("new", "t")
    assert driver.answers[driver.join()].error_code == Error.INCONSISTENT_GROUP_PROTOCOL


def test_groups_that_cannot_be_taken_over(driver: ConsumerDriver) -> None:
    token = driver.join("", version=0, protocols={"connect": b"?"}, protocol_type="connect")
    assert driver.answers[token].error_code == Error.NONE
    assert Member(driver, "new", "t").beat() is Error.GROUP_ID_NOT_FOUND

    token = driver.join("", version=0, protocols={"odd": b"\x00"}, group="odd")
    assert driver.answers[token].error_code == Error.NONE
    assert Member(driver, "new", "t", group="odd").beat() is Error.GROUP_ID_NOT_FOUND

    for name, error in (("cooperative-sticky", Error.NONE), ("stream", Error.GROUP_ID_NOT_FOUND)):
        token = driver.join("", version=0, protocols={name: subscription("t")}, group=name)
        member_id = driver.answers[token].member_id
        driver.sync(member_id, 1, {member_id: assignment({"t": [0]}, b"its memory")}, group=name)
        assert Member(driver, "new", "t", group=name).beat() is error

    small = ConsumerDriver(replace(AT_ONCE, consumer_size_max=1))
    clients = [ClassicClient(small, "t") for _ in range(2)]
    run(*clients)
    assert Member(small, "new", "t").beat() is Error.GROUP_ID_NOT_FOUND
    run(*clients)
    assert all_partitions(*clients) == EVERYTHING


def test_a_leader_that_gave_a_partition_twice(driver: ConsumerDriver) -> None:
    """What classic leaders assign is their business; in a consumer group a partition has one owner."""
    clients = [ClassicClient(driver, "t") for _ in range(2)]
    for client in clients:
        client._lead = lambda members: dict.fromkeys(members, assignment({"t": [0, 1, 9], "gone": [0]}))  # type: ignore[method-assign]
    run(*clients)
    assert all_partitions(*clients) != EVERYTHING
    new = driver.member("new", "t")
    held = [partition for member in driver.group.members.values() for partition in member.held_partitions()]
    assert len(held) == len(set(held))
    run(*clients, new)
    assert all_partitions(*clients, new) == EVERYTHING


def test_classic_members_of_a_consumer_group(driver: ConsumerDriver) -> None:
    new = driver.member("new", "t")
    old = ClassicClient(driver, "t", "u")
    run(new, old)
    assert all_partitions(new, old) == [*EVERYTHING, *(("u", index) for index in range(4))]
    assert driver.heartbeat(old.member_id, old.generation + 1) is Error.ILLEGAL_GENERATION
    assert driver.heartbeat("nobody", old.generation) is Error.UNKNOWN_MEMBER_ID
    assert driver.heartbeat("new", new.epoch) is Error.UNKNOWN_MEMBER_ID, "it speaks the new protocol"
    sync = driver.answers[driver.sync(old.member_id, old.generation, protocol_name="range")]
    assert sync.error_code == Error.INCONSISTENT_GROUP_PROTOCOL
    assert driver.commit(1, member_id=old.member_id, generation=old.generation, version=8) is Error.NONE
    assert driver.commit(1, member_id=old.member_id, generation=old.generation + 1) is Error.ILLEGAL_GENERATION
    assert driver.leave(("nobody", None), (old.member_id, None)) == [Error.UNKNOWN_MEMBER_ID, Error.NONE]
    assert kind(driver) is ConsumerGroup


def test_classic_members_that_may_not_join(driver: ConsumerDriver) -> None:
    driver.member("new", "t")
    odd = {"protocol_type": "connect"}, {"protocols": {"range": b"?"}}, {"protocols": {}}
    for options in odd:
        answer = driver.answers[driver.join(version=3, **options)]  # type: ignore[arg-type]
        assert answer.error_code == Error.INCONSISTENT_GROUP_PROTOCOL, options
    assert driver.answers[driver.join(session_ms=1)].error_code == Error.INVALID_SESSION_TIMEOUT
    run(ClassicClient(driver, "t", protocols=("range", "sticky")))
    answer = driver.answers[driver.join(version=3, protocols={"own": b"\x00\x00\x00\x00\x00\x00\x00\x00"})]
    assert answer.error_code == Error.INCONSISTENT_GROUP_PROTOCOL, "no protocol in common"


def test_a_classic_member_that_is_silent_or_does_not_follow(driver: ConsumerDriver) -> None:
    new = driver.member("new", "t")
    old = ClassicClient(driver, "t")
    run(new, old)
    driver.pass_time(SESSION_MS)
    assert set(driver.group.members) == {"new"}

    old = ClassicClient(driver, "t")
    run(new, old)
    another = driver.member("another", "t")
    for _ in range(100):
        if old.member_id not in driver.group.members:
            break
        driver.heartbeat(old.member_id, old.generation)
        driver.pass_time(SESSION_MS // 2)
        new.beat()
        another.beat()
    assert set(driver.group.members) == {"new", "another"}, "it was told to join again, and did not"


def test_a_classic_member_that_never_syncs(driver: ConsumerDriver) -> None:
    new = driver.member("new", "t")
    member_id = driver.new_member_id()
    driver.join(member_id)
    for _ in range(100):
        generation = driver.group.members[member_id].epoch if member_id in driver.group.members else 0
        driver.heartbeat(member_id, generation)
        driver.pass_time(SESSION_MS // 2)
        new.settle(1)
    assert set(driver.group.members) == {"new"}


def test_a_static_member_changes_its_protocol_and_back(driver: ConsumerDriver) -> None:
    """The last member of the new protocol comes back as a classic one: the group is classic again."""
    classic = ClassicClient(driver, "t", instance_id="i0")
    other = ClassicClient(driver, "t")
    run(classic, other)
    new = driver.member("new", "t", instance_id="i0")
    assert set(driver.group.members) == {"new", other.member_id}
    run(new, other)
    assert all_partitions(new, other) == EVERYTHING
    assert classic.member_id not in driver.group.members
    new.leave(-2)
    back = ClassicClient(driver, "t", instance_id="i0")
    back.act()
    assert kind(driver) is ClassicGroup
    run(back, other)
    assert all_partitions(back, other) == EVERYTHING


def test_after_a_restart_in_the_middle(driver: ConsumerDriver) -> None:
    old = [ClassicClient(driver, "t") for _ in range(2)]
    run(*old)
    new = driver.member("new", "t")
    driver.crash()
    run(*old, new)
    assert all_partitions(*old, new) == EVERYTHING
    new.leave()
    driver.crash()
    run(*old)
    assert (kind(driver), all_partitions(*old)) == (ClassicGroup, EVERYTHING)


# ── at random ────────────────────────────────────────────────────────────────────────────────────────────────────────


def mixed_life(seed: int, steps: int) -> None:
    """Members of both protocols come and go, in whatever kind of group; in one generation nothing is owned twice."""
    random = Random(seed)
    driver = ConsumerDriver(replace(AT_ONCE, consumer_assignment_interval_ms=random.choice([0, 1000])), ManyTopics("t"))
    clients: list[ClassicClient | Member] = []
    for number in range(steps):
        event = random.random()
        if event < 0.06 and len(clients) < 4:
            if random.random() < 0.5:
                clients.append(ClassicClient(driver, "t"))
            else:
                clients.append(Member(driver, f"m{number}", "t"))
        elif event < 0.1 and clients:
            client = random.choice(clients)
            if not isinstance(client, ClassicClient) or (client.member_id and not client.is_waiting):
                clients.remove(client)
                client.leave()
        elif event < 0.11:
            driver.crash()
        elif clients:
            run(random.choice(clients), rounds=1)
        owned = all_partitions(*(client for client in clients if is_in(driver, client)))
        assert len(owned) == len(set(owned)), f"seed {seed}: {owned}"
    if clients:
        run(*clients, rounds=150, pause_ms=1000)  # longer than any timeout
        assert all_partitions(*clients) == EVERYTHING, f"seed {seed}"
        driver.crash()
        run(*clients, rounds=5)
        assert all_partitions(*clients) == EVERYTHING, f"seed {seed}"


def is_in(driver: ConsumerDriver, client: ClassicClient | Member) -> bool:
    """Whether the client is a member, and in the group's generation: one that is out learns of it later."""
    group = driver.shard.table.get(GROUP)
    if isinstance(group, ClassicGroup):
        generation = group.generation
    elif isinstance(group, ConsumerGroup) and client.member_id in group.members:
        generation = group.members[client.member_id].epoch
    else:
        return False
    return isinstance(client, Member) or (client.generation == generation and not client.is_syncing)


@pytest.mark.parametrize("seed", range(20))
def test_a_random_mixed_life(seed: int) -> None:
    mixed_life(seed, 120)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20, 500))
def test_many_random_mixed_lives(seed: int) -> None:
    mixed_life(seed, 400)


def test_the_default_settings_allow_everything() -> None:
    settings = GroupSettings()
    assert settings.may_upgrade and settings.may_downgrade and settings.may_mix
