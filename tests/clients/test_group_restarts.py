"""The broker of groups is killed while messages flow: the members go on, from what they had committed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from penstock.base.identifiers import TopicPartition

from .client import Refused
from .group_client import GroupClient
from .group_clients import GROUP_CLIENTS, group_client
from .group_run import GroupRun
from .polling import wait_until
from .sites import Site, StartSite

pytestmark = pytest.mark.clients

PARTITIONS = 4
COMMITTED = 7


@contextmanager
def clients_of(site: Site) -> Iterator[list[GroupClient]]:
    """All clients, and a topic for each that has its name."""
    clients = [group_client(name, site.bootstrap) for name in GROUP_CLIENTS]
    with clients[0].plain.admin() as admin:
        admin.create_topics(dict.fromkeys(GROUP_CLIENTS, PARTITIONS))
    yield clients
    for client in clients:
        client.close()


def kill(site: Site, *runs: GroupRun) -> None:
    for run in runs:
        run.history.interrupted()
    site.kill()
    site.start()


def test_groups_go_on_when_their_broker_was_killed(start_site: StartSite, tmp_path: Path) -> None:
    """All clients at once, because a broker has many groups."""
    site = start_site()
    with clients_of(site) as clients, ExitStack() as stack:
        runs = [
            stack.enter_context(GroupRun(client, client.name, PARTITIONS, folder(tmp_path, client)))
            for client in clients
        ]
        for run in runs:
            run.join(2)
        for run in runs:
            run.settle()
        for client in clients:
            commit_alone(client)
        kill(site, *runs)
        for client in clients:
            assert committed_alone(client) == COMMITTED
        for run in runs:
            run.settle()
        for run in runs:
            run.finish()


def commit_alone(client: GroupClient) -> None:
    """In a group without members."""
    where = TopicPartition(client.name, 0)
    with client.outsider(f"empty-{client.name}", [where]) as outsider:
        outsider.commit({where: COMMITTED})


def committed_alone(client: GroupClient) -> int | None:
    """Whoever asks too early is told so by some clients."""
    where = TopicPartition(client.name, 0)
    with client.outsider(f"empty-{client.name}", [where]) as outsider:
        answers: list[int | None] = []

        def ask() -> bool:
            try:
                answers.append(outsider.committed(where))
            except Refused:
                return False
            return True

        wait_until(ask)
    return answers[0]


def folder(parent: Path, client: GroupClient) -> Path:
    path = parent / client.name
    path.mkdir()
    return path


@pytest.mark.slow
@pytest.mark.parametrize("name", GROUP_CLIENTS)
def test_killed_many_times_while_members_come_and_go(start_site: StartSite, tmp_path: Path, name: str) -> None:
    site = start_site()
    chance = random.Random(name)
    with clients_of(site) as clients:
        client = next(client for client in clients if client.name == name)
        with GroupRun(client, name, PARTITIONS, tmp_path) as run:
            run.join(3, per_process=1)
            for _ in range(8):
                run.settle()
                if chance.random() < 0.5:
                    run.join(1)
                elif len(living := [process for process in run.processes if process.members]) > 1:
                    chance.choice(living).kill()
                kill(site, run)
            run.settle()
            run.finish()
