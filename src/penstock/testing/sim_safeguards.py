"""Taking safeguards away, to see that the simulator notices.

Each `Safeguard` patches the program, while its `without()` lasts, so that one rule of the design does not hold any
more, and names a profile of runs in which that matters often. Nothing in the program knows of this: methods are
replaced from outside.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest.mock import patch

from penstock.base.errors import Error
from penstock.broker import controller_role, follower_fetcher
from penstock.broker.follower_session import FollowerSession
from penstock.broker.isr_changes import IsrChanges
from penstock.broker.lease import Lease
from penstock.broker.log_cuts import cut_back
from penstock.broker.partition import Partition
from penstock.broker.state_log import StateLog
from penstock.broker.transactional_produce import TransactionalProduce
from penstock.broker.verification import Verifications
from penstock.controller import isr, transitions
from penstock.controller.plan import ClusterState, FencedWrite, Plan, fenced_writes
from penstock.log import partition_log
from penstock.log.producers import ProducerStates
from penstock.replication.follower import EpochEnd
from penstock.replication.leader import FollowerState, Leader
from penstock.testing.sim_cluster_run import GROUPS, RECORDS, ClusterRun, Profile
from penstock.testing.sim_fault_plan import FaultPlan
from penstock.testing.sim_groups import Sources
from penstock.transactions import commit_many
from penstock.transactions.commit_many import CommitMany
from penstock.transactions.transaction import Transaction
from penstock.zookeeper.operations import Check, Operation
from penstock.zookeeper.topic_znodes import PartitionState
from penstock.zookeeper.znodes import Changes


@dataclass(frozen=True)
class Safeguard:
    """One rule of the design, what is patched to take it away, and the runs in which it is missed."""

    name: str
    patches: Callable[[], Sequence[Any]]
    profile: Profile
    seed: int = 0
    """One that is known to find it."""

    @contextmanager
    def without(self) -> Iterator[None]:
        """The rule does not hold while this lasts."""
        with ExitStack() as stack:
            for each in self.patches():
                stack.enter_context(each)
            yield

    def problems(self, seed: int) -> list[str]:
        """What a run finds without it."""
        with self.without():
            return ClusterRun(seed, self.profile).run().problems


def first_seed_that_finds(safeguard: Safeguard, seeds: range) -> int | None:
    """The first of these seeds whose run fails without the safeguard."""
    return next((seed for seed in seeds if safeguard.problems(seed)), None)


# ── the follower ─────────────────────────────────────────────────────────────────────────────────────────────────────


async def _cut_to_high_watermark(partition: Partition, epoch: int, _diverging: EpochEnd) -> None:
    await cut_back(partition, epoch, EpochEnd(partition.log.epochs.latest, partition.high_watermark))


def _truncation_to_high_watermark() -> Sequence[Any]:
    return [patch.object(follower_fetcher, "cut_back", _cut_to_high_watermark)]


# ── the leader ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _leader_of_any_epoch(self: FollowerSession, partition: Partition, known_epoch: int) -> Leader:
    leader = partition.leader
    return _LEADER_OF(self, partition, known_epoch if leader is None else leader.epoch)


_LEADER_OF = FollowerSession._leader_of


def _no_epoch_fence() -> Sequence[Any]:
    return [
        patch.object(FollowerSession, "_leader_of", _leader_of_any_epoch),
        patch.object(Partition, "check_epoch", lambda _self, _known_epoch: None),
    ]


def _fetches_of_an_old_epoch_count() -> Sequence[Any]:
    """A new leader goes on with what it knew of its followers when it led before."""
    known: dict[tuple[int, Any, int], dict[int, FollowerState]] = {}
    lead = Partition._lead

    def lead_with_memory(self: Partition, state: PartitionState, broker_id: int) -> bool:
        key = broker_id, self.topic_id, self.name.partition
        if self.leader is not None:
            known[key] = self.leader.followers
        changed = lead(self, state, broker_id)
        if changed and self.leader is not None:
            for follower_id, before in known.get(key, {}).items():
                if follower_id in self.leader.followers:
                    self.leader.followers[follower_id] = before
            known[key] = self.leader.followers
            self._leader_moved(self.leader._advance())
        return changed

    return [patch.object(Partition, "_lead", lead_with_memory)]


def _joins_without_high_watermark() -> Sequence[Any]:
    def has_caught_up(self: Leader, follower: FollowerState) -> bool:
        return follower.fetched_ms is not None and follower.end_offset >= self.epoch_start_offset

    return [patch.object(Leader, "_has_caught_up", has_caught_up)]


def _joins_without_epoch_start() -> Sequence[Any]:
    def has_caught_up(self: Leader, follower: FollowerState) -> bool:
        return follower.fetched_ms is not None and follower.end_offset >= self.high_watermark

    return [patch.object(Leader, "_has_caught_up", has_caught_up)]


def _no_maximal_isr() -> Sequence[Any]:
    return [patch.object(Leader, "maximal_isr", property(lambda self: self.membership.isr))]


def _acknowledged_at_once() -> Sequence[Any]:
    def when_committed(_self: Partition, _end_offset: int, callback: Callable[[Error], None]) -> None:
        callback(Error.NONE)

    return [patch.object(Partition, "when_committed", when_committed)]


def _in_all_of_isr(leader: Leader) -> int:
    others = [leader.followers[each].end_offset for each in leader.maximal_isr if each != leader.broker_id]
    return min([leader.end_offset, *others])


def _too_few_replicas_noticed_before_only() -> Sequence[Any]:
    """Acknowledged is what all of the ISR has, however small it has become since the append."""
    moved = Partition._leader_moved

    def leader_moved(self: Partition, is_moved: bool) -> None:
        moved(self, is_moved)
        leader = self.leader
        if leader is not None and not leader.has_enough:
            end_offset = _in_all_of_isr(leader)
            ready = [callback for offset, callback in self._commit_waits if offset <= end_offset]
            self._commit_waits = [wait for wait in self._commit_waits if wait[0] > end_offset]
            for callback in ready:
                callback(Error.NONE)

    return [patch.object(Partition, "_leader_moved", leader_moved)]


def _high_watermark_with_too_few() -> Sequence[Any]:
    def advance(self: Leader) -> bool:
        committed = _in_all_of_isr(self)
        if committed <= self.high_watermark:
            return False
        self.high_watermark = committed
        return True

    return [patch.object(Leader, "_advance", advance)]


# ── the controller ───────────────────────────────────────────────────────────────────────────────────────────────────


def _nobody_is_eligible() -> Sequence[Any]:
    return [patch.object(transitions, "_eligible", lambda *_arguments: ())]


def _no_broker_epoch() -> Sequence[Any]:
    fetched = Leader.follower_fetched

    def fetched_in_any_life(
        self: Leader, follower_id: int, broker_epoch: int, fetch_offset: int, leader_end_offset: int, now_ms: int
    ) -> bool:
        follower = self.followers.get(follower_id)
        if follower is not None:
            broker_epoch = follower.broker_epoch = max(broker_epoch, follower.broker_epoch)
        return fetched(self, follower_id, broker_epoch, fetch_offset, leader_end_offset, now_ms)

    def may_be_in(self: Any, before: PartitionState, member: int, _epoch: int) -> bool:
        return member in self._brokers.may_stay and (member in before.isr or member in self._brokers.may_lead)

    def may_join(self: IsrChanges, _leader: Leader, broker_id: int) -> bool:
        return broker_id in self._view.brokers and broker_id not in self._view.admitted.leaving

    return [
        patch.object(Leader, "follower_fetched", fetched_in_any_life),
        patch.object(isr._Asking, "_may_be_in", may_be_in),
        patch.object(IsrChanges, "_may_join", may_join),
    ]


def _rewritten(change: Callable[[tuple[Operation, ...]], tuple[Operation, ...]]) -> Any:
    def writes(state: ClusterState, plans: Sequence[Plan]) -> list[FencedWrite]:
        return [replace(write, operations=change(write.operations)) for write in fenced_writes(state, plans)]

    return patch.object(controller_role, "fenced_writes", writes)


def _no_controller_epoch() -> Sequence[Any]:
    return [_rewritten(lambda operations: tuple(each for each in operations if not isinstance(each, Check)))]


def _notice_apart() -> Sequence[Any]:
    """First what is decided, then, in a write of its own, the notice of it."""

    def writes(state: ClusterState, plans: Sequence[Plan]) -> list[FencedWrite]:
        apart = []
        for each in fenced_writes(state, plans):
            check, *_, notice = each.operations
            assert notice.path == Changes.PATH
            apart.append(replace(each, operations=each.operations[:-1]))
            apart.append(replace(each, operations=(check, notice), plans=()))
        return apart

    return [patch.object(controller_role, "fenced_writes", writes)]


def _no_lease() -> Sequence[Any]:
    return [patch.object(Lease, "holds", lambda _self: True)]


# ── producers, groups and transactions ───────────────────────────────────────────────────────────────────────────────


def _one_batch_remembered() -> Sequence[Any]:
    note = ProducerStates.note

    def note_last(self: ProducerStates, header: Any, base_offset: int) -> None:
        note(self, header, base_offset)
        state = self.get(header.producer_id)
        if state is not None:
            del state.batches[:-1]

    return [patch.object(ProducerStates, "note", note_last, create=True)]


def _producers_of_followers_unknown() -> Sequence[Any]:
    return [patch.object(partition_log, "note_producer", lambda *_arguments: None)]


def _no_verification() -> Sequence[Any]:
    """Records of the older protocol are taken without asking their coordinator."""
    must_ask = TransactionalProduce.must_ask

    def ask_for_newer_only(self: TransactionalProduce) -> bool:
        return self._is_add and must_ask(self)

    return [
        patch.object(TransactionalProduce, "must_ask", ask_for_newer_only),
        patch.object(Verifications, "check", lambda *_arguments, **_options: None),
        patch.object(Verifications, "check_sequence", lambda *_arguments: None),
    ]


def _markers_of_old_coordinators() -> Sequence[Any]:
    check = ProducerStates.check_marker

    def check_marker(
        self: ProducerStates, producer_id: int, producer_epoch: int, _coordinator_epoch: int, version: int
    ) -> None:
        check(self, producer_id, producer_epoch, 2**31 - 1, version)

    return [patch.object(ProducerStates, "check_marker", check_marker)]


def _group_state_told_at_once() -> Sequence[Any]:
    return [patch.object(StateLog, "_when_committed", lambda _self, tell: tell())]


def _any_attempt_is_committed() -> Sequence[Any]:
    """A commit of many takes whatever is open under the ids that it names."""

    def open_now(self: CommitMany, named: Any) -> list[Transaction]:
        found = [self._table.get(each.transactional_id) for each in named]
        return [each for each in found if each is not None and each.is_ongoing]

    return [
        patch.object(CommitMany, "_open", open_now),
        patch.object(commit_many, "_is_open_at", lambda current, _producer: current.is_ongoing),
    ]


# ── the profiles ─────────────────────────────────────────────────────────────────────────────────────────────────────

_QUICK = replace(RECORDS, brokers=3, partitions=1, has_admin=False, is_thin=True)


def _with(profile: Profile, count: int = 8, pause_s_max: float = 2.0, length: float = 1.0, **weights: int) -> Profile:
    return replace(profile, faults=FaultPlan(count, pause_s_max, 0.6, length, weights))


_LEADERS_MOVE = _with(_QUICK, 10, kill=2, cut_pair=1, uneven_links=3, move_leaders=4, cut_and_move=6, cut_off=1)
_LATE_FETCHES = replace(_with(_QUICK, 6, 1.0, late_fetch=1), lag_time_ms=20_000, pause=0.2)
_LEADS_AGAIN = replace(_with(_QUICK, 6, 1.0, lead_again=1), lag_time_ms=20_000, pause=0.2)
_BROKERS_RETURN = _with(_QUICK, kill=4, kill_many=2, pause=2, uneven_links=2, cut_off=2, lose_session=2)
_LEADER_AFTER_FOLLOWER = replace(
    _with(_QUICK, 5, 1.0, kill_leader_after_follower=1), has_watchers=True, pause=0.1, flush_mode="os"
)
_POWER = replace(
    _with(_QUICK, lose_power=5, kill=2, kill_many=2, uneven_links=1, pause=1), flush_mode="os", partitions=2
)

_RESTARTS = replace(
    _with(_QUICK, lose_power_behind_a_cut=3, lose_power=1), flush_mode="os", pause=10.0, lag_time_ms=8000
)
_CONTROLLER_DIES = replace(_with(_QUICK, 2, kill_controller_in_the_act=1), brokers=5, topics=5, pause=4.0)
_HASTY = replace(_with(GROUPS, 10, cut_clients=1), sources=Sources.HASTY, has_batches=False, brokers=3)
_LATE_MARKERS = replace(_with(_HASTY, 8, 1.0, late_marker=1), sources=Sources.SLOW)
_LATE_STATE = replace(
    _with(GROUPS, 8, kill=2, uneven_links=3, cut_and_move=4, move_leaders=1), has_batches=False, brokers=3
)
_BATCHES = replace(_with(_QUICK, 4, 2.0, kill=1, move_leaders=1, cut_clients=1), has_batches=True, pause=4.0)

SAFEGUARDS = (
    Safeguard("truncation by epochs", _truncation_to_high_watermark, _LEADERS_MOVE, 10),
    Safeguard("leader-epoch fence in Fetch", _no_epoch_fence, _LATE_FETCHES, 40),
    Safeguard("high watermark by fetches of this epoch", _fetches_of_an_old_epoch_count, _LEADS_AGAIN),
    Safeguard("ISR join at the high watermark", _joins_without_high_watermark, _BROKERS_RETURN, 4),
    Safeguard("ISR join at this epoch's start", _joins_without_epoch_start, _LEADER_AFTER_FOLLOWER, 2),
    Safeguard("maximal ISR", _no_maximal_isr, _BROKERS_RETURN, 26),
    Safeguard("acknowledgement at the high watermark", _acknowledged_at_once, _BROKERS_RETURN),
    Safeguard("min.insync.replicas before the answer", _too_few_replicas_noticed_before_only, _BROKERS_RETURN, 6),
    Safeguard("high watermark with min.insync.replicas", _high_watermark_with_too_few, _BROKERS_RETURN, 1),
    Safeguard("eligible leaders", _nobody_is_eligible, _POWER, 1),
    Safeguard("broker epochs", _no_broker_epoch, _RESTARTS, 9),
    Safeguard("controller epoch", _no_controller_epoch, _with(_QUICK, take_role_away=4, kill=2, pause=1)),
    Safeguard("notice in the multi", _notice_apart, _CONTROLLER_DIES, 3),
    Safeguard("lease", _no_lease, _with(_QUICK, 3, strand_leader=1), 5),
    Safeguard("five batches of each producer", _one_batch_remembered, _LEADERS_MOVE),
    Safeguard("producers known to followers", _producers_of_followers_unknown, _LEADERS_MOVE),
    Safeguard("verification of transactions", _no_verification, _HASTY, 6),
    Safeguard("markers of the present coordinator", _markers_of_old_coordinators, _LATE_MARKERS, 8),
    Safeguard("group state told when replicated", _group_state_told_at_once, _LATE_STATE, 15),
    Safeguard("commit of many by exact triples", _any_attempt_is_committed, _BATCHES, 2),
)
