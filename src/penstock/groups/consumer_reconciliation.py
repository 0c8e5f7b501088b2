"""One step of a member towards the target.

A partition must never have two owners. So a member goes in this order: first it gives up what it is not meant to have,
and stays in its old epoch until its client says that it has let go; then it comes into the new epoch and gets what it
is meant to have, but only what no other member still holds; what others hold comes later, when they have let go.

A client says what it owns in some heartbeats only. One that says nothing may own everything it ever got.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple
from uuid import UUID

from penstock.base.errors import ApiError, Error
from penstock.groups.assignors import Assignment
from penstock.groups.consumer_member import ConsumerMember, Held, MemberState, Owned, overlaps


class Target(NamedTuple):
    """What a member is meant to have, and since which group epoch."""

    epoch: int
    partitions: Assignment


def reconcile(
    member: ConsumerMember,
    target: Target,
    subscribed: frozenset[UUID],
    owned: Owned | None,
    owner: Callable[[UUID, int], str | None],
    *,
    has_new_subscription: bool,
) -> ConsumerMember:
    """The member after a heartbeat in which its client owns `owned`; the same if there is nothing to do."""
    state = member.state
    if state is MemberState.UNKNOWN:
        if owned is None or owned:
            raise ApiError(Error.FENCED_MEMBER_EPOCH, "the member is in a state that this release does not know")
        return _advance(member, target, subscribed, owned, owner)
    if state is MemberState.STABLE and member.epoch == target.epoch:
        return _without_unsubscribed(member, subscribed, owned) if has_new_subscription else member
    if state is MemberState.UNREVOKED_PARTITIONS and _may_own(owned, member.revoking):
        return _without_unsubscribed(member, subscribed, owned) if has_new_subscription else member
    return _advance(member, target, subscribed, owned, owner)


def _may_own(owned: Owned | None, held: Held) -> bool:
    return bool(held) and (owned is None or overlaps(owned, held))


def _without_unsubscribed(member: ConsumerMember, subscribed: frozenset[UUID], owned: Owned | None) -> ConsumerMember:
    """The target is old, but what the member does not want any more it gives up at once."""
    assigned = {topic_id: partitions for topic_id, partitions in member.assigned.items() if topic_id in subscribed}
    if len(assigned) == len(member.assigned):
        return member
    revoking = {topic_id: dict(partitions) for topic_id, partitions in member.revoking.items()}
    for topic_id, partitions in member.assigned.items():
        if topic_id not in subscribed:
            revoking.setdefault(topic_id, {}).update(partitions)
    if _may_own(owned, revoking):
        state = MemberState.UNREVOKED_PARTITIONS
        return replace(member, previous_epoch=member.epoch, state=state, assigned=assigned, revoking=revoking)
    return replace(member, previous_epoch=member.epoch, assigned=assigned)


def _advance(
    member: ConsumerMember,
    target: Target,
    subscribed: frozenset[UUID],
    owned: Owned | None,
    owner: Callable[[UUID, int], str | None],
) -> ConsumerMember:
    """Towards the target: one step at most."""
    assigned: dict[UUID, dict[int, int]] = {}
    revoking: dict[UUID, dict[int, int]] = {}
    coming: dict[UUID, list[int]] = {}
    is_waiting = False
    for topic_id in {**member.assigned, **target.partitions}:
        wanted = target.partitions.get(topic_id, frozenset()) if topic_id in subscribed else frozenset[int]()
        has = member.assigned.get(topic_id, {})
        _put(assigned, topic_id, {partition: epoch for partition, epoch in has.items() if partition in wanted})
        _put(revoking, topic_id, {partition: epoch for partition, epoch in has.items() if partition not in wanted})
        own = member.revoking.get(topic_id, {})  # it has let go of these, or it would not get here: they are free
        missing = wanted.difference(has)
        free = [partition for partition in missing if partition in own or owner(topic_id, partition) is None]
        is_waiting = is_waiting or len(free) < len(missing)
        if free:
            coming[topic_id] = free
    if _may_own(owned, revoking):
        state = MemberState.UNREVOKED_PARTITIONS
        return replace(member, previous_epoch=member.epoch, state=state, assigned=assigned, revoking=revoking)
    for topic_id, partitions in coming.items():
        assigned.setdefault(topic_id, {}).update(dict.fromkeys(partitions, target.epoch))
    return replace(
        member,
        epoch=target.epoch,
        previous_epoch=member.epoch,
        state=MemberState.UNRELEASED_PARTITIONS if is_waiting else MemberState.STABLE,
        assigned=assigned,
        revoking={},
    )


def _put(held: dict[UUID, dict[int, int]], topic_id: UUID, partitions: dict[int, int]) -> None:
    if partitions:
        held[topic_id] = partitions
