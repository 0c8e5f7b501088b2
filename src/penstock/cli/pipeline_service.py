"""The shell of `penstock pipeline up`: looks at the folder, runs a process for each pipeline, and does what is decided.

`pipelines/service.py` decides. Here is one loop that tells it what happened: the folder as it is now, a process that
ended, a signal. Each pipeline is the process `penstock pipeline run FILE`, each check of a changed file is
`penstock pipeline check FILE`; none of them outlives this process (`owned_process.py`).

Pipelines start one after the other: Spark gives its Python processes ten seconds to come up, and gives up on a small
machine where many start at once.
"""

from __future__ import annotations

import hashlib
import signal
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from pathlib import Path
from types import FrameType

from penstock.cli.owned_process import OwnedProcess
from penstock.pipelines.reading import read_file
from penstock.pipelines.reading_nodes import PipelineMistakes
from penstock.pipelines.service import Action, Check, Kill, Reading, Rules, Say, Service, Start, Stop
from penstock.pipelines.service_status import ServiceStatus, only_service, write_service_status
from penstock.pipelines.specification import PythonStep
from penstock.pipelines.status import State, read_status

SUFFIXES = (".yaml", ".yml")
FILE_BYTES_MAX = 1 << 20
LOOK_S = 1.0
POLL_S = 0.2
CHECK_S_MAX = 120.0
END_S_MAX = 10.0
#: After this time the next one starts, whether the one before runs or not.
STARTING_S_MAX = 90.0
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

Tell = Callable[[str, str, bool], None]
#: Whether the pipeline of this name, started at this time, is past its start.
HasStarted = Callable[[str, float], bool]
PROGRAM = (sys.executable, "-m", "penstock.cli", "pipeline")


class _Checked:
    """A check that goes on beside the running pipeline."""

    def __init__(self, process: OwnedProcess, digest: str, until_s: float) -> None:
        self.process = process
        self.digest = digest
        self.until_s = until_s


@dataclass(frozen=True, slots=True)
class _Looked:
    """What a file says, for as long as it does not change."""

    stamp: str
    name: str
    problem: str | None
    modules: tuple[Path, ...] = ()
    """the files of the Python functions that it names"""


class _Starting:
    """The one pipeline that is coming up."""

    def __init__(self, file: str, name: str, until_s: float) -> None:
        self.file = file
        self.name = name
        self.since_s = time.time()
        self.until_s = until_s


class FolderService:
    """See the head of this file. `tell(name, text, is_bad)` gets what the service and its pipelines say."""

    def __init__(
        self,
        folder: Path,
        state_folder: Path,
        options: Sequence[str],
        tell: Tell,
        *,
        rules: Rules | None = None,
        program: Sequence[str] = PROGRAM,
        has_started: HasStarted | None = None,
    ) -> None:
        self._folder = folder.resolve()
        self._state_folder = state_folder.resolve()
        self._options = [*options]
        self._program = [*program]
        self._tell = tell
        self._service = Service(rules or Rules())
        self._readings: dict[str, Reading] = {}
        self._looked: dict[str, _Looked] = {}
        self._was_empty = False
        self._running: dict[str, OwnedProcess] = {}
        self._checks: dict[str, _Checked] = {}
        self._to_start: deque[str] = deque()
        self._starting: _Starting | None = None
        self._has_started = has_started or partial(_has_started, self._state_folder)
        self._stops_asked = 0
        self._stops_done = 0
        self._woken = threading.Event()
        self._since_s = time.time()
        self._written: ServiceStatus | None = None

    def run(self) -> None:
        """Until a signal asks it to end and everything has ended. ServiceRuns if the folder has a service already."""
        before = {number: signal.signal(number, self._asked) for number in SIGNALS}
        try:
            with only_service(self._state_folder, str(self._folder)):
                self._loop()
        finally:
            self._end_all()
            for number, handler in before.items():
                signal.signal(number, handler)

    def _asked(self, _number: int, _frame: FrameType | None) -> None:
        self._stops_asked += 1
        self._woken.set()

    def _loop(self) -> None:
        look_at_s = 0.0
        while not self._service.is_idle:
            now_s = time.monotonic()
            self._pass_on_stops(now_s)
            if now_s >= look_at_s:
                self._perform(self._service.saw(self._look(), now_s), now_s)
                look_at_s = now_s + LOOK_S
            self._take_in_ends(now_s)
            self._take_in_checks(now_s)
            self._perform(self._service.passed(now_s), now_s)
            self._start_next(now_s)
            self._write_status()
            self._woken.wait(POLL_S)
            self._woken.clear()

    def _pass_on_stops(self, now_s: float) -> None:
        while self._stops_done < self._stops_asked:
            self._stops_done += 1
            self._perform(self._service.stop(now_s), now_s)

    # What happened

    def _look(self) -> dict[str, Reading]:
        """Every file of the folder; what has not changed since the last look is not read again."""
        found = {}
        try:
            paths = sorted(self._folder.iterdir())
        except OSError as error:
            self._tell(self._folder.name, f"the folder cannot be read, so nothing changes: {error.strerror}", True)
            return self._readings
        for path in paths:
            if path.suffix in SUFFIXES and not path.name.startswith(".") and path.is_file():
                reading = self._read(path)
                if reading is not None:
                    found[path.name] = reading
        self._readings = found
        if not found and not self._was_empty:
            self._tell(
                self._folder.name, "there are no pipelines (*.yaml) in this folder; they start as they appear", False
            )
        self._was_empty = not found
        return found

    def _read(self, path: Path) -> Reading | None:
        try:
            about = path.stat()
            if about.st_size > FILE_BYTES_MAX:
                return Reading(str(about.st_size), path.stem, f"it is larger than {FILE_BYTES_MAX >> 20} MiB")
            content = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            return Reading("", path.stem, str(error.strerror))
        # with the time, so that `touch` makes a pipeline start anew, say after a schema file has changed
        stamp = hashlib.sha256(content + str(about.st_mtime_ns).encode()).hexdigest()
        looked = self._looked.get(path.name)
        if looked is None or looked.stamp != stamp:
            looked = self._looked[path.name] = _look_into(path, stamp)
        times = "".join(f" {_changed_ns(module)}" for module in looked.modules)
        return Reading(hashlib.sha256(f"{stamp}{times}".encode()).hexdigest(), looked.name, looked.problem)

    def _take_in_ends(self, now_s: float) -> None:
        for file, process in list(self._running.items()):
            code = process.poll()
            if code is not None:
                del self._running[file]
                process.close()
                self._perform(self._service.ended(file, code, process.why(), now_s), now_s)

    def _take_in_checks(self, now_s: float) -> None:
        for file, check in list(self._checks.items()):
            code = check.process.poll()
            if code is None and now_s < check.until_s:
                continue
            del self._checks[file]
            problem: str | None = None
            if code is None:
                check.process.end(END_S_MAX)
                problem = f"the check did not end within {CHECK_S_MAX:g} s"
            else:
                check.process.close()
                problem = None if code == 0 else _mistakes(check.process, str(self._folder / file))
            self._perform(self._service.checked(file, check.digest, problem, now_s), now_s)

    # What is done

    def _perform(self, actions: Sequence[Action], now_s: float) -> None:
        for action in actions:
            match action:
                case Say(file, text, is_bad):
                    self._tell(file, text, is_bad)
                case Start(file):
                    self._to_start.append(file)
                case Check(file, digest):
                    self._check(file, digest, now_s)
                case Stop(file) | Kill(file) if file in self._to_start:
                    self._to_start.remove(file)
                    self._perform(self._service.ended(file, 0, "", now_s), now_s)
                case Stop(file):
                    self._running[file].stop()
                case Kill(file):
                    self._running[file].kill()

    def _check(self, file: str, digest: str, now_s: float) -> None:
        try:
            process = OwnedProcess([*self._program, "check", str(self._folder / file), *_settings(self._options)])
        except OSError as error:
            self._perform(self._service.checked(file, digest, f"it cannot be checked: {error}", now_s), now_s)
            return
        self._checks[file] = _Checked(process, digest, now_s + CHECK_S_MAX)

    def _start_next(self, now_s: float) -> None:
        """The first that waits, once the one before is past its start."""
        before = self._starting
        if before is not None:
            is_coming_up = before.file in self._running and not self._has_started(before.name, before.since_s)
            if is_coming_up and now_s < before.until_s:
                return
            self._starting = None
        if self._to_start:
            self._start(self._to_start.popleft(), now_s)

    def _start(self, file: str, now_s: float) -> None:
        reading = self._readings.get(file)
        say = partial(self._pass_on, reading.name if reading else file)
        command = [*self._program, "run", str(self._folder / file), "--state", str(self._state_folder), *self._options]
        self._tell(file, "starting", False)
        self._starting = _Starting(file, reading.name if reading else file, now_s + STARTING_S_MAX)
        try:
            self._running[file] = OwnedProcess(command, on_output=say, on_error=say)
        except OSError as error:
            self._perform(self._service.ended(file, 1, f"it cannot be started: {error}", now_s), now_s)

    def _pass_on(self, name: str, line: str) -> None:
        self._tell(name, line, False)

    def _write_status(self) -> None:
        reports = tuple(self._service.reports(time.monotonic()))
        status = ServiceStatus(str(self._folder), reports, since_s=self._since_s, changed_s=time.time())
        if self._written is None or self._written.reports != reports:
            write_service_status(self._state_folder, status)
            self._written = status

    def _end_all(self) -> None:
        """Nothing is left running, whatever went wrong."""
        left = [*self._running.values(), *(check.process for check in self._checks.values())]
        for process in left:
            process.stop()
        for process in left:
            process.end(END_S_MAX)


def _has_started(state_folder: Path, name: str, since_s: float) -> bool:
    try:
        status = read_status(state_folder, name)
    except ValueError:
        return False
    return status is not None and status.since_s >= since_s and status.state is not State.STARTING


def _mistakes(check: OwnedProcess, file: str) -> str:
    """What a check said about the file: each mistake is a line that begins with it."""
    told = [line.removeprefix(file).lstrip(":").strip() for line in check.last_errors if line.startswith(file)]
    told = [f"line {line}" if line[:1].isdecimal() else line for line in told]
    return "; ".join(line for line in told if " note: " not in line) or check.why()


def _settings(options: Sequence[str]) -> list[str]:
    """Spark's settings, which a check needs as well; it runs here, whatever the master is."""
    pairs = pairwise(options)
    return [word for name, value in pairs if name == "--conf" for word in (name, value)]


def _look_into(path: Path, stamp: str) -> _Looked:
    try:
        pipeline = read_file(path)
    except PipelineMistakes as found:
        return _Looked(stamp, path.stem, "; ".join(str(mistake) for mistake in found.mistakes))
    except OSError as error:
        return _Looked(stamp, path.stem, str(error.strerror))
    named = {step.module for step in pipeline.steps.values() if isinstance(step, PythonStep)}
    return _Looked(stamp, pipeline.name, None, tuple(_file_of(path.parent, module) for module in sorted(named)))


def _file_of(folder: Path, module: str) -> Path:
    """Where a module of the user's project would be; one that is installed is not there, and does not change."""
    place = folder.joinpath(*module.split("."))
    return place / "__init__.py" if place.is_dir() else place.with_suffix(".py")


def _changed_ns(file: Path) -> int:
    try:
        return file.stat().st_mtime_ns
    except OSError:
        return 0
