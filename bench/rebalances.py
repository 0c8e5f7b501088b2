"""How long a group of twenty members takes to have a new, stable assignment, and over again.

One measurement: the group forms; then members leave and new ones join, in turn, and at last one falls silent. What is
timed is from the request that changes the group (or from the moment the silent one's session is over) to the answer
with which the last member is in the new round and every partition has exactly one owner again.
"""

from __future__ import annotations

import contextlib
import statistics
import time
from collections.abc import Callable

from bench.load import Figures, MeasurementFailed
from bench.members import ClassicMember, Crowd, Member, NewMember, Topic
from penstock.testing.raw_client import RawClient
from penstock.wire.messages import k10_find_coordinator as k10

MEMBERS = 20
PARTITIONS = 40
SESSION_MS = 2_000
SETTLE_WITHIN_S = 30
#: Sessions short enough to see one end, and no rest between two assignments of the new protocol (a second, otherwise).
SETTINGS = {
    "group.consumer.assignment.interval.ms": "0",
    "group.min.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.session.timeout.ms": str(SESSION_MS),
    "group.consumer.session.timeout.ms": str(SESSION_MS),
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "500",
}

MakeMember = Callable[[int, str, Topic], Member]


def classic(port: int, group: str, topic: Topic) -> Member:
    return ClassicMember(port, group, topic, SESSION_MS)


def new(port: int, group: str, topic: Topic) -> Member:
    return NewMember(port, group, topic)


def rebalances(port: int, group: str, topic: Topic, make: MakeMember, changes: int) -> Figures:
    """Medians over so many changes of each kind."""
    wait_for_coordinator(port, group)
    client_before_s, began_s = time.process_time(), time.monotonic()
    with contextlib.closing(Crowd(topic, lambda: make(port, group, topic))) as crowd:
        formed_ms = _form(crowd)
        leave_ms, join_ms = [], []
        for number in range(changes):
            leave_ms.append(_leave(crowd, crowd.members[number % len(crowd.members)]))
            join_ms.append(_join(crowd))
        die_ms = _die(crowd, crowd.members[-1])
    client_s = time.process_time() - client_before_s
    return {
        "form_ms": formed_ms,
        "join_ms": statistics.median(join_ms),
        "leave_ms": statistics.median(leave_ms),
        "join_max_ms": max(join_ms),
        "leave_max_ms": max(leave_ms),
        "die_ms": die_ms,
        "client_cpu_s": client_s,
        "seconds": time.monotonic() - began_s,
    }


def wait_for_coordinator(port: int, group: str) -> None:
    """Asking for it is what makes the topic of the groups."""
    deadline_s = time.monotonic() + SETTLE_WITHIN_S
    request = k10.FindCoordinatorRequest(key_type=0, coordinator_keys=[group])
    with RawClient("127.0.0.1", port) as client:
        while client.call(request, 4).coordinators[0].error_code:
            if time.monotonic() > deadline_s:
                raise MeasurementFailed(f"{group} has no coordinator after {SETTLE_WITHIN_S} s")
            time.sleep(0.05)


def _form(crowd: Crowd) -> float:
    began_s = time.monotonic()
    for _ in range(MEMBERS):
        crowd.add()
    return _ms(crowd.settle(-1, SETTLE_WITHIN_S) - began_s)


def _join(crowd: Crowd) -> float:
    before = crowd.members[0].round
    crowd.finish_heartbeats()
    began_s = time.monotonic()
    crowd.add()
    return _ms(crowd.settle(before, SETTLE_WITHIN_S) - began_s)


def _leave(crowd: Crowd, member: Member) -> float:
    before = member.round
    crowd.finish_heartbeats()
    crowd.take_out(member)
    began_s = time.monotonic()
    member.leave()
    stable_s = crowd.settle(before, SETTLE_WITHIN_S)
    member.close()
    return _ms(stable_s - began_s)


def _die(crowd: Crowd, member: Member) -> float:
    """Counted from the end of its session; not less than nothing, for the broker heard it before we did."""
    before = member.round
    crowd.finish_heartbeats()
    crowd.take_out(member)
    ends_s = member.heard_s + SESSION_MS / 1000
    while time.monotonic() < ends_s - 0.1:
        crowd.rest()
    stable_s = crowd.settle(before, SETTLE_WITHIN_S)
    member.close()
    return max(0.0, _ms(stable_s - ends_s))


def _ms(seconds: float) -> float:
    return seconds * 1000
