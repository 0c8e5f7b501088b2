"""Random lives of a classic group, watched by what must always hold.

Clients join, sync, commit, repeat themselves, forget who they are, leave and fall silent; time passes; the broker
crashes. The model is what a reader of the log would believe: the last record of the group, and the last commit of each
partition. It says that

- in one generation a partition has one owner, whoever asked and how often;
- a commit is taken only from a member of the last generation that was written down;
- an offset is what was last committed, or what a committed transaction wrote after that;
- every request is answered once, and in the end none is left;
- in the end, when everybody is well, the group is stable.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from penstock.base.errors import Error
from penstock.base.steps import ProducerEpoch, Step
from penstock.groups.classic_group import ClassicGroup, ClassicState, protocols_bytes
from penstock.groups.settings import GroupSettings
from penstock.wire.messages.offsets_topic_records import GroupMetadataKey, GroupMetadataValue

from .shard_driver import GROUP, ShardDriver

QUICK = settings(max_examples=40, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck))
THOROUGH = settings(max_examples=1500, stateful_step_count=80, deadline=None, suppress_health_check=list(HealthCheck))

PARTITIONS = range(6)
CLIENTS = st.integers(0, 4)
DONE = (Error.NONE, Error.REBALANCE_IN_PROGRESS, Error.ILLEGAL_GENERATION)


class GroupClient:
    """One consumer; the even ones are static."""

    def __init__(self, number: int) -> None:
        self.instance_id = f"i{number}" if number % 2 == 0 else None
        self.version = (9, 8, 5, 3, 9)[number]
        self.forget()

    def forget(self) -> None:
        self.member_id = ""
        self.generation = -1
        self.members: list[str] | None = None
        """if it leads: everybody"""
        self.join_token: int | None = None
        self.sync_token: int | None = None

    @property
    def owner(self) -> str:
        """A static member that comes back is the same owner."""
        return self.instance_id or self.member_id


class ClassicLife(RuleBasedStateMachine):
    """See the head of this file."""

    delay_ms = 0

    def __init__(self) -> None:
        super().__init__()
        self.driver = ShardDriver(GroupSettings(initial_rebalance_delay_ms=self.delay_ms, size_max=4))
        self.steps: list[Step] = []
        self.driver.on_step = lambda step: self.steps.append(step) if step.records else None
        self.clients = [GroupClient(number) for number in range(5)]
        self.zombies: list[tuple[str, int]] = []
        self.owners: dict[tuple[int, int, int], str] = {}
        self.committed: dict[int, tuple[int, int]] = {}
        """partition → (offset, where in the log it was committed)"""
        self.open: dict[int, tuple[int, int]] = {}
        self.next_offset = 0
        self.producer = ProducerEpoch(1, 0)

    @initialize(count=st.integers(0, 4))
    def begin_well(self, count: int) -> None:
        self.get_well(self.clients[:count])

    @rule(who=st.sets(CLIENTS, min_size=1), silent=st.sets(CLIENTS, max_size=2), rounds=st.integers(1, 3))
    def get_on_well(self, who: set[int], silent: set[int], rounds: int) -> None:
        """Some do for a while what they should, but for those that forget to sync."""
        self.get_well([self.clients[number] for number in sorted(who)], rounds, silent)

    @rule()
    def commit_all(self) -> None:
        """Everybody, and everybody who ever was."""
        for number in range(len(self.clients)):
            self.commit(number, number)
        for which in range(len(self.zombies)):
            self.commit_as_a_zombie(which, 5)

    # ── what clients do ──────────────────────────────────────────────────────────────────────────────────────────

    @rule(number=CLIENTS, protocols=st.sampled_from([("a", "b"), ("b", "a"), ("a",)]))
    def join(self, number: int, protocols: tuple[str, ...]) -> None:
        client = self.clients[number]
        client.join_token = self.driver.join(
            client.member_id,
            version=client.version,
            instance_id=client.instance_id if client.version >= 5 else None,
            protocols=dict.fromkeys(protocols, b"\0\0\0\0\0\0\xff\xff\xff\xff"),
        )
        self.hear()

    @rule(number=CLIENTS)
    def sync(self, number: int) -> None:
        client = self.clients[number]
        if client.generation < 0:
            return
        assignment = {}
        if client.members is not None:
            for position, member_id in enumerate(sorted(client.members)):
                assignment[member_id] = bytes(PARTITIONS[position :: len(client.members)])
        client.sync_token = self.driver.sync(
            client.member_id, client.generation, assignment, instance_id=self.instance(client)
        )
        self.hear()

    @rule(number=CLIENTS)
    def heartbeat(self, number: int) -> None:
        client = self.clients[number]
        if client.generation >= 0:
            error = self.driver.heartbeat(client.member_id, client.generation, instance_id=self.instance(client))
            self.take_error(client, error)

    @rule(number=CLIENTS)
    def leave(self, number: int) -> None:
        client = self.clients[number]
        if client.member_id:
            self.driver.leave((client.member_id, self.instance(client)))
            self.remember_zombie(client)
            client.forget()
            self.hear()

    @rule(number=CLIENTS)
    def start_anew(self, number: int) -> None:
        """A process dies, and another one of its name begins."""
        self.remember_zombie(self.clients[number])
        self.clients[number].forget()

    @rule(number=CLIENTS, partition=st.sampled_from(PARTITIONS))
    def commit(self, number: int, partition: int) -> None:
        client = self.clients[number]
        if client.generation >= 0:
            error = self.commit_as(client.member_id, client.generation, partition, self.instance(client))
            self.take_error(client, error)

    @rule(which=st.integers(0, 50), partition=st.sampled_from(PARTITIONS))
    def commit_as_a_zombie(self, which: int, partition: int) -> None:
        if self.zombies:
            member_id, generation = self.zombies[which % len(self.zombies)]
            self.commit_as(member_id, generation, partition, None)

    @rule(number=CLIENTS, partition=st.sampled_from(PARTITIONS))
    def commit_in_a_transaction(self, number: int, partition: int) -> None:
        client = self.clients[number]
        if client.generation < 0:
            return
        self.next_offset += 1
        error = self.driver.txn_commit(
            self.producer,
            self.next_offset,
            member_id=client.member_id,
            generation=client.generation,
            partition=partition,
        )
        if error is Error.NONE:
            self.open[partition] = (self.next_offset, len(self.driver.log))

    @precondition(lambda self: self.open)
    @rule(is_commit=st.booleans())
    def end_the_transaction(self, is_commit: bool) -> None:
        self.driver.marker(self.producer, is_commit=is_commit)
        if is_commit:
            for partition, offset in self.open.items():
                if partition not in self.committed or offset[1] > self.committed[partition][1]:
                    self.committed[partition] = offset
        self.open.clear()

    # ── what happens to them ─────────────────────────────────────────────────────────────────────────────────────

    @rule(duration_ms=st.sampled_from([100, 2900, 3000, 5000, 9999, 10_000, 60_000]))
    def pass_time(self, duration_ms: int) -> None:
        self.driver.pass_time(duration_ms)
        self.hear()

    @rule()
    def crash(self) -> None:
        self.driver.crash()
        self.hear()

    # ── the model ────────────────────────────────────────────────────────────────────────────────────────────────

    def commit_as(self, member_id: str, generation: int, partition: int, instance_id: str | None) -> Error:
        self.next_offset += 1
        error = self.driver.commit(
            self.next_offset, member_id=member_id, generation=generation, instance_id=instance_id, partition=partition
        )
        if error is Error.NONE:
            record = self.last_record()
            written = record.generation if record is not None else 0
            assert generation >= written, "a commit of a generation that is over"
            if record is not None and generation == written:
                assert member_id in {member.member_id for member in record.members}, "a commit of one who is out"
            self.committed[partition] = (self.next_offset, len(self.driver.log))
        return error

    def last_record(self) -> GroupMetadataValue | None:
        """The last one of the group."""
        for step in reversed(self.steps):
            for record in reversed(step.records):
                if isinstance(record.key, GroupMetadataKey):
                    return record.value
        return None

    def deletions(self) -> int:
        """How often the group was forgotten, empty and without offsets as it was: its generations begin anew."""
        records = [record for step in self.steps for record in step.records]
        return sum(isinstance(record.key, GroupMetadataKey) and record.value is None for record in records)

    def hear(self) -> None:
        """Take the answers that have come."""
        for client in self.clients:
            if client.join_token in self.driver.answers:
                answer = self.driver.answers[client.join_token]
                client.join_token = None
                self.take_join(client, answer)
            if client.sync_token in self.driver.answers:
                answer = self.driver.answers[client.sync_token]
                client.sync_token = None
                self.take_sync(client, answer)

    def take_join(self, client: GroupClient, answer: Any) -> None:
        if answer == Error.NOT_COORDINATOR:
            return
        if answer.error_code == Error.MEMBER_ID_REQUIRED:
            client.member_id = answer.member_id
        elif answer.error_code == Error.NONE:
            self.remember_zombie(client)  # what it was in the generation before
            client.member_id, client.generation = answer.member_id, answer.generation_id
            leads = answer.leader == answer.member_id and not answer.skip_assignment
            client.members = [member.member_id for member in answer.members] if leads else None
        else:
            self.take_error(client, Error(answer.error_code))

    def take_sync(self, client: GroupClient, answer: Any) -> None:
        if answer == Error.NOT_COORDINATOR:
            return
        if answer.error_code != Error.NONE:
            self.take_error(client, Error(answer.error_code))
            return
        for partition in answer.assignment:
            owner = self.owners.setdefault((self.deletions(), client.generation, partition), client.owner)
            assert owner == client.owner, "a partition has two owners in one generation"

    def take_error(self, client: GroupClient, error: Error) -> None:
        if error not in DONE:
            self.remember_zombie(client)
            client.forget()

    def remember_zombie(self, client: GroupClient) -> None:
        if client.generation >= 0:
            self.zombies.append((client.member_id, client.generation))

    @staticmethod
    def instance(client: GroupClient) -> str | None:
        return client.instance_id if client.version >= 5 else None

    # ── what must always hold ────────────────────────────────────────────────────────────────────────────────────

    @invariant()
    def offsets_are_what_was_committed(self) -> None:
        found = {partition: offset for (_, partition), offset in self.driver.fetch_all().items()}
        assert found == {partition: offset for partition, (offset, _) in self.committed.items()}

    @invariant()
    def a_written_assignment_gives_each_partition_once(self) -> None:
        record = self.last_record()
        if record is not None:
            given = [partition for member in record.members for partition in member.assignment]
            assert len(given) == len(set(given))

    @invariant()
    def the_group_adds_up(self) -> None:
        group = self.driver.shard.table.get(GROUP)
        if not isinstance(group, ClassicGroup):
            return
        members = group.members.values()
        assert group.waiting_to_join == sum(member.join_token is not None for member in members)
        assert group.metadata_bytes == sum(protocols_bytes(member.protocols) for member in members)
        assert (group.leader_id in group.members) == bool(members)
        assert group.pending_sync <= set(group.members)
        assert not group.pending_members & set(group.members)
        assert group.waiting_to_join <= 4
        waiting = {member.join_token for member in members} | {member.sync_token for member in members}
        assert waiting - {None} == self.driver.waiting
        if group.state is ClassicState.EMPTY:
            assert not members
        if group.state is not ClassicState.COMPLETING_REBALANCE:
            assert all(member.sync_token is None for member in members)
        if group.state is not ClassicState.PREPARING_REBALANCE:
            assert group.waiting_to_join == 0

    def teardown(self) -> None:
        self.everybody_gets_well()
        self.driver.pass_time(600_000)
        assert not self.driver.waiting, "somebody waits for ever"

    def everybody_gets_well(self) -> None:
        for member_id in list(getattr(self.driver.shard.table.get(GROUP), "pending_members", ())):
            self.driver.leave((member_id, None))
        self.leave(4)
        assert self.get_well(self.clients[:4], rounds=30), "the group does not become stable"

    def get_well(self, clients: list[GroupClient], rounds: int = 10, silent: Collection[int] = ()) -> bool:
        """Clients join and sync as they should; whether they have got to a stable group by that."""
        for _ in range(rounds):
            for client in clients:
                if client.join_token is None and not self.is_in(client):
                    self.join(self.clients.index(client), ("a", "b"))
                    if client.member_id and client.generation < 0 and client.join_token is None:
                        self.join(self.clients.index(client), ("a", "b"))
            for client in clients:
                has_joined = client.generation >= 0 and client.join_token is None and client.sync_token is None
                if has_joined and self.clients.index(client) not in silent:
                    self.sync(self.clients.index(client))
            if all(self.is_in(client) for client in clients):
                return True
            self.driver.pass_time(2500)
            self.hear()
        return False

    def is_in(self, client: GroupClient) -> bool:
        """Whether the client is in the stable group, as both see it."""
        if client.generation < 0 or client.sync_token is not None or client.join_token is not None:
            return False
        error = self.driver.heartbeat(client.member_id, client.generation, instance_id=self.instance(client))
        self.take_error(client, error)
        group = self.driver.shard.table.get(GROUP)
        return error is Error.NONE and isinstance(group, ClassicGroup) and group.state is ClassicState.STABLE


class PatientLife(ClassicLife):
    """With an initial rebalance that waits."""

    delay_ms = 3000


LIVES = [ClassicLife, PatientLife]


@pytest.mark.parametrize("life", LIVES)
def test_random_lives(life: type[ClassicLife]) -> None:
    run_state_machine_as_test(life, settings=QUICK)


@pytest.mark.slow
@pytest.mark.parametrize("life", LIVES)
def test_many_random_lives(life: type[ClassicLife]) -> None:
    run_state_machine_as_test(life, settings=THOROUGH)
