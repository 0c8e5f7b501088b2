"""The broker of groups is killed while messages flow: the members go on, from what they had committed."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from penstock.base.identifiers import TopicPartition

from .client import Message
from .group_client import GroupClient, MemberOptions
from .group_clients import GROUP_CLIENTS, group_client
from .group_run import GroupRun
from .polling import joined
from .sites import Site, StartSite

pytestmark = pytest.mark.clients

PARTITIONS = 4


@contextmanager
def clients_of(site: Site) -> Iterator[list[GroupClient]]:
    """All clients, and a topic for each that has its name."""
    clients = [group_client(name, site.bootstrap) for name in GROUP_CLIENTS]
    with clients[0].plain.admin() as admin:
        admin.create_topics(dict.fromkeys(GROUP_CLIENTS, PARTITIONS))
    yield clients
    for client in clients:
        client.close()


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
        site.kill()
        site.start()
        for run in runs:
            run.settle()
        for run in runs:
            run.finish()


def folder(parent: Path, client: GroupClient) -> Path:
    path = parent / client.name
    path.mkdir()
    return path


def test_commits_survive(start_site: StartSite) -> None:
    site = start_site()
    with clients_of(site) as clients:
        for client in clients:
            client.plain.produce(client.name, [Message(b"%d" % number, partition=0) for number in range(10)])
            with joined(client, MemberOptions(client.name, (client.name,))) as (member,):
                member.take(10)
                member.commit({TopicPartition(client.name, 0): 7})
        site.kill()
        site.start()
        for client in clients:
            with joined(client, MemberOptions(client.name, (client.name,))) as (member,):
                assert [message.offset for message in member.take(3)] == [7, 8, 9]


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
                site.kill()
                site.start()
            run.settle()
            run.finish()
