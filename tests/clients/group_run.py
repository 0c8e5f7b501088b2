"""A group at work while messages flow: members join, leave, die and pause, and at the end the judge looks at it all.

    with GroupRun(groups, topic, partitions=6, folder=tmp_path) as run:
        run.join(3)
        run.settle()
        run.processes[0].kill()
        run.settle()
        run.finish()

`settle` is the promise of a rebalance: every partition has one living owner, all living members have their share, and
each message that is sent now is handled by exactly one of them. `finish` waits until everything is handled, and fails
if anything is wrong with the history.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from penstock.base.identifiers import TopicPartition
from penstock.testing.histories.client_history import ClientHistory

from .group_client import GroupClient, MemberOptions
from .member_process import MemberProcess
from .message_flow import MessageFlow, send_noted
from .running_member import Commits
from .whole_topics import judge, read_topics

SETTLE_S = 90.0
#: Messages that were sent and that nobody was given yet: the flow waits for the group.
UNHANDLED_MAX = 300
ROUNDS_MAX = 8


class GroupRun:
    """See the head of this file. Clients take turns, and ways to commit. Each name of a member is given once."""

    #: Some assignors leave members without partitions although there are enough.
    spares_members = False

    def __init__(
        self,
        groups: GroupClient | Sequence[GroupClient],
        topic: str,
        partitions: int,
        folder: Path,
        options: MemberOptions | None = None,
        commits: Sequence[Commits] = (Commits.AT_ONCE, Commits.LATER),
    ) -> None:
        self.clients = [groups] if isinstance(groups, GroupClient) else list(groups)
        self.partitions = [TopicPartition(topic, number) for number in range(partitions)]
        self.options = options or MemberOptions(f"group-of-{topic}", (topic,))
        self.history = ClientHistory(time.monotonic)
        self.group = self.history.group(self.options.group, committed_only=self.options.committed_only)
        self.processes: list[MemberProcess] = []
        self._folder = folder
        self._commits = commits
        self._flow = MessageFlow(self.clients[0].plain, self.history, self.partitions, self._keeps_up)
        self._members = 0
        self._rounds: list[list[bytes]] = []

    def __enter__(self) -> Self:
        if any(client.stumbles_over_first_offsets for client in self.clients):
            self._commit_beginning()
        self._flow.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self.processes:
            process.close()
        self._flow.stop()

    # What happens to members

    def join(self, members: int, per_process: int | None = None) -> list[MemberProcess]:
        """New members, in processes with so many of them each; in one process if that is not said."""
        share = per_process or members
        started = []
        for first in range(0, members, share):
            client = self.clients[len(self.processes) % len(self.clients)]
            log = self._folder / f"members-{len(self.processes)}.log"
            started.append(MemberProcess(client.name, client.plain.bootstrap, self.group, log))
            self.processes.append(started[-1])
            for _ in range(min(share, members - first)):
                self.add(started[-1])
        return started

    def add(self, process: MemberProcess, instance_id: str | None = None) -> str:
        """One more member in a process that is there."""
        self._members += 1
        name = f"member-{self._members}"
        commits = self._commits[self._members % len(self._commits)]
        process.join(name, replace(self.options, instance_id=instance_id), commits)
        return name

    # What must be true

    def settle(self, without: Sequence[MemberProcess] = ()) -> None:
        """Wait until the group has found itself, without the members of processes that stand still, and try it out."""
        living = {name for process in self.processes if process not in without for name in process.members}
        for _ in range(ROUNDS_MAX):
            self._wait_for_owners(living)
            claims = self.group.claim_count()
            values = self._send_round()
            self._wait_until_given(values)
            if self.group.claim_count() == claims:
                assert {value: len(self.group.given(value)) for value in values} == dict.fromkeys(values, 1)
                return
        raise AssertionError(f"the group finds no rest\n{self._complaints()}")

    def finish(self) -> None:
        """Wait until everything is handled, let all leave, and judge."""
        self._flow.stop()
        self._wait_until_given([*self._flow.values, *(value for values in self._rounds for value in values)])
        self.group.drained(self.partitions)
        for process in self.processes:
            process.close()
        self._check_members()
        assert self.history.errors == []
        judge(self.history, read_topics(self.clients[0].plain.bootstrap, self.partitions))

    def _commit_beginning(self) -> None:
        beginning = dict.fromkeys(self.partitions, 0)
        number = self.group.committing(None, beginning)
        with self.clients[0].outsider(self.options.group, self.partitions) as outsider:
            outsider.commit(beginning)
        self.group.committed(number)

    def _wait_for_owners(self, living: set[str]) -> None:
        share = min(len(living), len(self.partitions))

        def are_settled() -> bool:
            self._check_members()
            owners = self.group.owners()
            named = {owners.get(where) for where in self.partitions} - {None}
            is_complete = all(where in owners for where in self.partitions)
            return is_complete and named <= living and (len(named) == share or self.spares_members)

        self.history.wait_for(
            are_settled, SETTLE_S, lambda: f"{living} own {self.group.owners()}\n{self._complaints()}"
        )

    def _send_round(self) -> list[bytes]:
        """One message to each partition."""
        name = f"round-{len(self._rounds)}"
        values = [self.history.sending(name, number, where) for number, where in enumerate(self.partitions)]
        self._rounds.append(values)
        with self.clients[0].plain.producer(idempotent=True, linger_ms=0) as producer:
            for where, value in zip(self.partitions, values, strict=True):
                send_noted(producer, self.history, where, value)
            producer.flush(SETTLE_S)
        return values

    def _wait_until_given(self, values: Sequence[bytes]) -> None:
        def missing() -> list[bytes]:
            self._check_members()
            return [value for value in values if not self.group.given(value)]

        self.history.wait_for(
            lambda: not missing(), SETTLE_S, lambda: f"{missing()[:5]} not handled\n{self._complaints()}"
        )

    def _check_members(self) -> None:
        assert not any(process.errors for process in self.processes), self._complaints()

    def _keeps_up(self) -> bool:
        return self.history.sent - self.group.given_count() < UNHANDLED_MAX

    def _complaints(self) -> str:
        return "\n".join(process.complaints() for process in self.processes)
