"""The decisions of `penstock pipeline up`: which pipeline of a folder is to run, end, be exchanged or tried again.

A machine without processes, files or a clock. It is told what happened (the files of the folder as they are now, a
process that ended, a check that came to an end, the time) and answers with what to do. Each file has one `_Charge`, and
`_Charge.decide` is the one place that looks at all of it and takes the next step:

- a file that reads well runs; one that is gone is stopped;
- a changed file is checked while the old one goes on running, and only then exchanged; if the change is broken, the old
  one keeps running and the problem is told;
- what failed starts again after a pause that doubles while it keeps failing; what finished rests until its file
  changes;
- two files never run a pipeline of the same name, since they would share its checkpoints.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum


@dataclass(frozen=True, slots=True)
class Rules:
    """How patient the service is."""

    pause_s: float = 2.0
    pause_s_max: float = 120.0
    settled_s: float = 60.0  # whoever ran for so long starts with the shortest pause again
    stop_s_max: float = 60.0


@dataclass(frozen=True, slots=True)
class Reading:
    """What one look at a file found: its content in short, and the pipeline's name or why it cannot be read."""

    digest: str
    name: str
    problem: str | None = None


# What the shell is asked to do.


@dataclass(frozen=True, slots=True)
class Start:
    """Run the pipeline of this file."""

    file: str


@dataclass(frozen=True, slots=True)
class Check:
    """Find out whether this content of the file would run, and report it with `Service.checked`."""

    file: str
    digest: str


@dataclass(frozen=True, slots=True)
class Stop:
    """Ask the pipeline of this file to stop."""

    file: str


@dataclass(frozen=True, slots=True)
class Kill:
    """It did not stop in time: end it."""

    file: str


@dataclass(frozen=True, slots=True)
class Say:
    """Tell the people who watch."""

    file: str
    text: str
    is_bad: bool = False


Action = Start | Check | Stop | Kill | Say


class Doing(StrEnum):
    """What the service does with a file, for `status`."""

    RUNNING = "running"
    CHECKING = "checking"
    STOPPING = "stopping"
    WAITING = "waiting"
    FINISHED = "finished"
    BROKEN = "broken"


@dataclass(frozen=True, slots=True)
class Report:
    """One file, in words and figures."""

    file: str
    name: str
    doing: Doing
    problem: str | None
    failures: int
    starts_again_in_s: int | None


@dataclass(slots=True)
class _Running:
    """The process that runs the pipeline, and what it was started from."""

    reading: Reading
    started_s: float
    kill_at_s: float | None = None  # it was asked to stop
    was_killed: bool = False


@dataclass(slots=True)
class _Charge:
    """One file and all that is known of it."""

    file: str
    rules: Rules
    seen: Reading | None = None
    wanted: Reading | None = None  # None: the file is gone
    running: _Running | None = None
    checking: str | None = None
    approved: str | None = None
    refused: tuple[str, str] | None = None  # a change that was checked and is broken: its digest and why
    finished: str | None = None
    failures: int = 0
    failure: str | None = None
    pause_s: float = 0.0
    start_at_s: float | None = None
    told: str | None = None

    def see(self, reading: Reading | None) -> None:
        """A change counts when two looks agree, so that no half-written file does; the first look counts at once."""
        if reading == self.seen or (self.wanted is None and self.running is None):
            self._want(reading)
        self.seen = reading

    def _want(self, reading: Reading | None) -> None:
        if reading == self.wanted:
            return
        self.wanted = reading
        self.start_at_s = None  # who changes the file wants to see at once whether that helped
        self.pause_s = 0.0
        if reading is None or self.refused is None or self.refused[0] != reading.digest:
            self.refused = None

    def decide(self, now_s: float, taken: Mapping[str, str]) -> list[Action]:
        """The next step. `taken` are the names of pipelines that belong to other files, and the files."""
        if self.running is not None:
            return self._decide_running(self.running, now_s)
        wanted = self.wanted
        if wanted is None or self.checking is not None:
            return []
        if wanted.problem is not None:
            return self._tell(f"cannot be read: {wanted.problem}")
        if wanted.digest == self.finished or (self.start_at_s is not None and now_s < self.start_at_s):
            return []
        if (other := taken.get(wanted.name)) is not None:
            return self._tell(f"waits, because {other} has a pipeline of the same name, '{wanted.name}'")
        self.running = _Running(wanted, now_s)
        self.start_at_s = self.finished = self.told = None
        return [Start(self.file)]

    def _decide_running(self, running: _Running, now_s: float) -> list[Action]:
        if now_s - running.started_s >= self.rules.settled_s:
            self.failures, self.failure, self.pause_s = 0, None, 0.0
        if running.kill_at_s is not None:
            if now_s < running.kill_at_s or running.was_killed:
                return []
            running.was_killed = True
            return [
                Say(self.file, f"did not stop within {self.rules.stop_s_max:g} s and is ended", True),
                Kill(self.file),
            ]
        wanted = self.wanted
        if wanted is None:
            return self._stop(running, now_s, "the file is gone: stopping")
        if wanted.digest == running.reading.digest:
            self.told = None
            return []
        if wanted.problem is not None:
            return self._tell(f"the change cannot be read, the old one keeps running: {wanted.problem}")
        if self.refused is not None and self.refused[0] == wanted.digest:
            return self._tell(f"the change is broken, the old one keeps running: {self.refused[1]}")
        if self.approved == wanted.digest:
            return self._stop(running, now_s, "has changed: starting it anew")
        if self.checking is not None:
            return []
        self.checking = wanted.digest
        return [Say(self.file, "has changed: checking it"), Check(self.file, wanted.digest)]

    def _stop(self, running: _Running, now_s: float, why: str) -> list[Action]:
        running.kill_at_s = now_s + self.rules.stop_s_max
        self.told = None
        return [Say(self.file, why), Stop(self.file)]

    def stop_for_good(self, now_s: float) -> list[Action]:
        """The whole service ends."""
        self.wanted = self.seen = None
        if self.running is None or self.running.kill_at_s is not None:
            return []
        return self._stop(self.running, now_s, "stopping")

    def hurry(self, now_s: float) -> None:
        """Who is stopping has no time left."""
        if self.running is not None and self.running.kill_at_s is not None:
            self.running.kill_at_s = now_s

    def checked(self, digest: str, problem: str | None) -> None:
        """A check has ended; what it says about another content than the one that is wanted now is forgotten."""
        if self.checking != digest:
            return
        self.checking = None
        if problem is None:
            self.approved = digest
        else:
            self.refused = (digest, problem)

    def ended(self, code: int, reason: str, now_s: float) -> list[Action]:
        """Its process has ended: as it was asked to, because there was nothing more to do, or by a failure."""
        running = self.running
        if running is None:
            return []
        self.running = None
        if running.kill_at_s is not None:
            return [Say(self.file, "has stopped")]
        if code == 0:
            self.finished, self.failures, self.failure = running.reading.digest, 0, None
            return [Say(self.file, "has finished; it runs again when its file changes")]
        if now_s - running.started_s >= self.rules.settled_s:
            self.failures, self.pause_s = 0, 0.0
        self.failures += 1
        self.failure = reason
        self.pause_s = min(max(2 * self.pause_s, self.rules.pause_s), self.rules.pause_s_max)
        self.start_at_s = now_s + self.pause_s
        return [Say(self.file, f"has failed and starts again in {self.pause_s:g} s: {reason}", True)]

    def _tell(self, text: str) -> list[Action]:
        """A problem is said once, not at every look."""
        if text == self.told:
            return []
        self.told = text
        return [Say(self.file, text, True)]

    @property
    def is_over(self) -> bool:
        return self.wanted is None and self.seen is None and self.running is None and self.checking is None

    def report(self, now_s: float) -> Report:
        reading = self.running.reading if self.running else self.wanted or self.seen
        waits_s = None if self.start_at_s is None or self.running else max(0, round(self.start_at_s - now_s))
        return Report(
            file=self.file,
            name=reading.name if reading else self.file,
            doing=self._doing(),
            problem=self.told or self.failure,
            failures=self.failures,
            starts_again_in_s=waits_s,
        )

    def _doing(self) -> Doing:
        if self.running is not None:
            if self.running.kill_at_s is not None:
                return Doing.STOPPING
            return Doing.CHECKING if self.checking else Doing.RUNNING
        if self.wanted is not None and self.wanted.problem is not None:
            return Doing.BROKEN
        return Doing.FINISHED if self.wanted and self.wanted.digest == self.finished else Doing.WAITING


@dataclass(slots=True)
class Service:
    """All files of a folder. Every method that learns something returns what is to be done."""

    rules: Rules = field(default_factory=Rules)
    _charges: dict[str, _Charge] = field(default_factory=dict)
    _is_stopping: bool = False

    def saw(self, files: Mapping[str, Reading], now_s: float) -> list[Action]:
        """The folder as it is now."""
        if self._is_stopping:
            return self.passed(now_s)
        for file in files:
            self._charges.setdefault(file, _Charge(file, self.rules))
        for file, charge in self._charges.items():
            charge.see(files.get(file))
        return self.passed(now_s)

    def checked(self, file: str, digest: str, problem: str | None, now_s: float) -> list[Action]:
        """A check has ended, with a problem or without."""
        if (charge := self._charges.get(file)) is not None:
            charge.checked(digest, problem)
        return self.passed(now_s)

    def ended(self, file: str, code: int, reason: str, now_s: float) -> list[Action]:
        """The process of a file has ended."""
        said = self._charges[file].ended(code, reason, now_s)
        return [*said, *self.passed(now_s)]

    def stop(self, now_s: float) -> list[Action]:
        """The service is to end; asked a second time, it waits for nobody."""
        if self._is_stopping:
            for charge in self._charges.values():
                charge.hurry(now_s)
        self._is_stopping = True
        actions: list[Action] = []
        for charge in self._charges.values():
            actions += charge.stop_for_good(now_s)
        return [*actions, *self.passed(now_s)]

    def passed(self, now_s: float) -> list[Action]:
        """Time has passed: whoever is due starts, whoever is late is ended."""
        self._charges = {file: charge for file, charge in self._charges.items() if not charge.is_over}
        actions: list[Action] = []
        for file in sorted(self._charges):
            actions += self._charges[file].decide(now_s, self._names_beside(file))
        return actions

    @property
    def is_idle(self) -> bool:
        """Nothing runs any more, and nothing will."""
        return self._is_stopping and all(charge.running is None for charge in self._charges.values())

    def reports(self, now_s: float) -> list[Report]:
        """What each file is doing."""
        return [self._charges[file].report(now_s) for file in sorted(self._charges)]

    def _names_beside(self, file: str) -> dict[str, str]:
        """The pipelines of other files: those that run, and those whose file comes first."""
        others = [charge for charge in self._charges.values() if charge.file != file]
        return {**_first_names(others, file), **_running_names(others)}


def _running_names(charges: Iterable[_Charge]) -> dict[str, str]:
    return {charge.running.reading.name: charge.file for charge in charges if charge.running is not None}


def _first_names(charges: Iterable[_Charge], file: str) -> dict[str, str]:
    wanted = ((charge.wanted, charge.file) for charge in charges if charge.file < file)
    return {reading.name: other for reading, other in wanted if reading is not None and reading.problem is None}
