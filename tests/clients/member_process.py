"""Members of a group in a process of their own, so that they can be killed and paused as real ones are.

    python -m tests.clients.member_process CLIENT BOOTSTRAP

The process reads commands as lines of JSON from its standard input (`join`, `leave`) and writes what its members do as
lines of JSON, each with the time at which it happened. `MemberProcess` is the other end: it puts everything into the
history of the group.
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from itertools import count
from pathlib import Path
from threading import Lock, Thread
from typing import Any

from penstock.base.identifiers import TopicPartition
from penstock.testing.histories.facts import Outcome
from penstock.testing.histories.group_history import GroupHistory

from .client import DEADLINE_S
from .group_client import MemberOptions
from .group_clients import group_client
from .running_member import Commits, RunningMember

LOG_LINES_SHOWN = 10
PROJECT = Path(__file__).resolve().parents[2]


class PipeRecorder:
    """Notes what members do on the standard output."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._numbers = count()

    def assigned(self, member: str, partitions: Iterable[TopicPartition], generation: int | None) -> None:
        self._write("assigned", member, list(partitions), generation)

    def revoked(self, member: str, partitions: Iterable[TopicPartition]) -> None:
        self._write("revoked", member, list(partitions))

    def lost(self, member: str, partitions: Iterable[TopicPartition]) -> None:
        self._write("lost", member, list(partitions))

    def polled(self, member: str, where: TopicPartition, offset: int, value: bytes | None) -> None:
        self._write("polled", member, where, offset, None if value is None else value.decode())

    def committing(self, member: str | None, offsets: Mapping[TopicPartition, int]) -> int:
        number = next(self._numbers)
        self._write("committing", member, number, list(offsets.items()))
        return number

    def committed(self, number: int, outcome: Outcome) -> None:
        self._write("committed", number, outcome.value)

    def failed(self, member: str, error: Exception) -> None:
        self._write("failed", member, "".join(traceback.format_exception(error)))

    def _write(self, *event: Any) -> None:
        with self._lock:
            print(json.dumps([time.monotonic(), *event]), flush=True)


def main(client: str, bootstrap: str) -> None:
    """Do what the standard input says; its end means that all leave."""
    recorder = PipeRecorder()
    groups = group_client(client, bootstrap)
    members: dict[str, RunningMember] = {}

    def leave(name: str) -> None:
        try:
            members.pop(name).leave(DEADLINE_S)
        except AssertionError as error:
            recorder.failed(name, error)

    for line in sys.stdin:
        command = json.loads(line)
        name = command["name"]
        if command["do"] == "join":
            options = MemberOptions(**{**command["options"], "topics": tuple(command["options"]["topics"])})
            members[name] = RunningMember(
                groups, options, name, recorder, Commits(command["commits"]), recorder.failed
            ).start()
        else:
            leave(name)
    for name in list(members):
        leave(name)


class MemberProcess:
    """A process with members, seen from the test."""

    def __init__(self, client: str, bootstrap: str, history: GroupHistory, log: Path) -> None:
        self.members: list[str] = []
        self.errors: list[str] = []
        self._history = history
        self._numbers: dict[int, int] = {}
        self._log = log
        command = [sys.executable, "-m", "tests.clients.member_process", client, bootstrap]
        with log.open("ab") as complaints:
            self._process = subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=complaints, cwd=PROJECT, text=True
            )
        self._thread = Thread(target=self._follow, daemon=True)
        self._thread.start()

    def join(self, name: str, options: MemberOptions, commits: Commits = Commits.AT_ONCE) -> None:
        self.members.append(name)
        self._tell({"do": "join", "name": name, "options": asdict(options), "commits": commits})

    def leave(self, name: str) -> None:
        """Ask one of its members to leave; the history tells when it has."""
        self.members.remove(name)
        self._tell({"do": "leave", "name": name})

    def kill(self) -> None:
        """End it at once (SIGKILL)."""
        at_s = time.monotonic()
        self._process.kill()
        self._end()
        for name in self.members:
            self._history.died(name, at_s)
        self.members.clear()

    def pause(self) -> None:
        """Let it stand still (SIGSTOP)."""
        at_s = time.monotonic()
        self._process.send_signal(signal.SIGSTOP)
        for name in self.members:
            self._history.paused(name, at_s)

    def resume(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        """Let all members leave and wait for the end."""
        assert self._process.stdin is not None
        if self._process.poll() is None:
            self.resume()
        try:
            self._process.stdin.close()
        except BrokenPipeError:
            pass
        try:
            self._process.wait(DEADLINE_S)
        except subprocess.TimeoutExpired:
            self.errors.append(f"did not end within {DEADLINE_S} s")
            self._process.kill()
        self._end()

    def complaints(self) -> str:
        """What went wrong in it, with what it printed."""
        return "\n".join([*self._log.read_text(errors="replace").splitlines()[-LOG_LINES_SHOWN:], *self.errors])

    def _end(self) -> None:
        self._process.wait(DEADLINE_S)
        self._thread.join(DEADLINE_S)
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            try:
                pipe.close()
            except BrokenPipeError:
                pass

    def _tell(self, command: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(command) + "\n")
        self._process.stdin.flush()

    def _follow(self) -> None:
        """Until it ends; when it is killed its last line may be cut short."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if not line.endswith("\n"):
                break
            at_s, kind, *values = json.loads(line)
            try:
                self._note(at_s, kind, values)
            except Exception as error:
                self.errors.append(f"{line.strip()}: {error!r}")

    def _note(self, at_s: float, kind: str, values: list[Any]) -> None:
        if kind == "assigned":
            self._history.assigned(values[0], _partitions(values[1]), values[2], at_s=at_s)
        elif kind == "revoked":
            self._history.revoked(values[0], _partitions(values[1]), at_s=at_s)
        elif kind == "lost":
            self._history.lost(values[0], _partitions(values[1]), at_s=at_s)
        elif kind == "polled":
            member, where, offset, value = values
            self._history.polled(member, TopicPartition(*where), offset, value and value.encode(), at_s=at_s)
        elif kind == "committing":
            offsets = {TopicPartition(*where): offset for where, offset in values[2]}
            self._numbers[values[1]] = self._history.committing(values[0], offsets, at_s=at_s)
        elif kind == "committed":
            self._history.committed(self._numbers[values[0]], Outcome(values[1]), at_s=at_s)
        elif kind == "failed":
            self.errors.append(f"{values[0]}: {values[1]}")


def _partitions(rows: list[list[Any]]) -> list[TopicPartition]:
    return [TopicPartition(*row) for row in rows]


if __name__ == "__main__":
    main(*sys.argv[1:])
