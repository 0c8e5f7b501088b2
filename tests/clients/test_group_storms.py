"""Members join, leave, die and pause while messages flow: every message is handled, by one living owner at a time."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from .conftest import NewTopic
from .group_client import RANGE, GroupClient, MemberOptions
from .group_run import GroupRun
from .member_process import MemberProcess
from .running_member import Commits

pytestmark = pytest.mark.clients


def test_members_come_and_go(groups: GroupClient, new_group_topic: NewTopic, tmp_path: Path) -> None:
    topic = new_group_topic(partitions=6)
    options = MemberOptions(f"group-of-{topic}", (topic,), assignor=groups.safe_assignors[-1])
    with GroupRun(groups, topic, 6, tmp_path, options) as run:
        dying, pausing, leaving = run.join(4, per_process=2) + run.join(2)
        run.settle()
        run.join(1)
        leaving.leave(leaving.members[0])
        dying.kill()
        pausing.pause()
        run.settle(without=[pausing])
        pausing.resume()
        run.settle()
        run.finish()


def test_clients_of_all_kinds_in_one_group(
    all_groups: dict[str, GroupClient], new_group_topic: NewTopic, tmp_path: Path
) -> None:
    """They agree on the range assignor, and the group changes from one protocol to the other and back."""
    topic = new_group_topic(partitions=8)
    options = MemberOptions(f"group-of-{topic}", (topic,), assignor=RANGE)
    with GroupRun(list(all_groups.values()), topic, 8, tmp_path, options) as run:
        run.join(len(all_groups), per_process=1)
        run.settle()
        run.processes[1].kill()
        run.settle()
        run.join(2, per_process=1)
        run.settle()
        run.finish()


@pytest.mark.slow
@pytest.mark.parametrize("commits", Commits)
def test_members_that_commit_in_their_own_way(
    groups: GroupClient, new_group_topic: NewTopic, tmp_path: Path, commits: Commits
) -> None:
    topic = new_group_topic(partitions=4)
    with GroupRun(groups, topic, 4, tmp_path, commits=[commits]) as run:
        run.join(2, per_process=1)
        run.settle()
        run.join(1)
        run.settle()
        run.finish()


@pytest.mark.slow
@pytest.mark.parametrize("kind", range(3))
def test_twenty_members(groups: GroupClient, new_group_topic: NewTopic, tmp_path: Path, kind: int) -> None:
    """Twenty members, five to a process, with every assignor; something happens to one of the processes at a time."""
    if kind >= len(groups.safe_assignors):
        pytest.skip(f"{groups.name} has no more assignors")
    topic = new_group_topic(partitions=24)
    options = MemberOptions(f"group-of-{topic}", (topic,), assignor=groups.safe_assignors[kind])
    chance = random.Random(groups.name)
    with GroupRun(groups, topic, 24, tmp_path, options) as run:
        for size in (1, 4, 5, 5, 5):
            run.join(size)
            run.settle()
        for _ in range(6):
            victim = chance.choice([process for process in run.processes if process.members])
            trouble(run, victim, chance)
        run.finish()


def trouble(run: GroupRun, victim: MemberProcess, chance: random.Random) -> None:
    what = chance.choice(["kill", "pause", "leave"])
    if what == "kill":
        lost = len(victim.members)
        victim.kill()
        run.settle()
        run.join(lost)
    elif what == "pause":
        victim.pause()
        run.settle(without=[victim])
        victim.resume()
    else:
        victim.leave(victim.members[0])
        run.settle()
        run.add(victim)
    run.settle()
