"""Members join, leave, die and pause while messages flow: every message is handled, by one living owner at a time."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import NewTopic
from .group_client import GroupClient
from .group_run import GroupRun

pytestmark = pytest.mark.clients


def test_members_come_and_go(groups: GroupClient, new_group_topic: NewTopic, tmp_path: Path) -> None:
    topic = new_group_topic(partitions=6)
    with GroupRun(groups, topic, 6, tmp_path) as run:
        first, second = run.join(2, per_process=1)
        run.settle()
        third, fourth = run.join(4, per_process=2)
        run.settle()
        third.leave(third.members[0])
        run.settle()
        second.kill()
        fourth.pause()
        run.settle(without=[fourth])
        fourth.resume()
        run.settle()
        run.finish()
    assert first.members
