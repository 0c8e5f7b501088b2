"""A process that belongs to this one: its output comes line by line, and it ends when we do, however we end.

It is started as the child of a small program (`owned.py`) in a process group of its own, so that a Ctrl-C in the
terminal reaches only us, and we decide. `kill` ends the whole group.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import IO

LINE_CHARS_MAX = 1 << 16
LAST_LINES_MAX = 30
DRAIN_S_MAX = 5.0

OnLine = Callable[[str], None]


class OwnedProcess:
    """See the head of this file. Callbacks run in threads of their own; `last_errors` are the last lines of stderr."""

    def __init__(
        self,
        command: Sequence[str],
        *,
        on_output: OnLine | None = None,
        on_error: OnLine | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.last_errors: deque[str] = deque(maxlen=LAST_LINES_MAX)
        its_end, self._our_end = os.pipe()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "penstock.cli.owned", str(its_end), *command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                pass_fds=(its_end,),
                start_new_session=True,
                env=None if environment is None else {**os.environ, **environment},
                text=True,
                errors="replace",
            )
        except OSError:
            os.close(self._our_end)
            raise
        finally:
            os.close(its_end)
        self._readers = [
            self._read(self._process.stdout, on_output),
            self._read(self._process.stderr, self._keep_error if on_error is None else self._keeping(on_error)),
        ]

    @property
    def pid(self) -> int:
        """Of the process group; the program itself is a child of it."""
        return self._process.pid

    def poll(self) -> int | None:
        """The exit code, once it has ended."""
        return self._process.poll()

    def stop(self) -> None:
        """Ask it to end."""
        if self.poll() is None:
            self._process.terminate()

    def kill(self) -> None:
        """End it and everything it started at once."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def wait(self, timeout_s: float) -> int | None:
        """The exit code; None if it has not ended in this time."""
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            return None

    def end(self, patience_s: float) -> int:
        """Ask it to end, wait, end it if it takes too long, and let go of everything; the exit code."""
        self.stop()
        code = self.wait(patience_s)
        if code is None:
            self.kill()
            code = self._process.wait()
        self.close()
        return code

    def close(self) -> None:
        """For a process that has ended: take in what is left of its output, and let go of it."""
        for reader in self._readers:
            reader.join(DRAIN_S_MAX)
        with suppress(OSError):
            os.close(self._our_end)

    def why(self) -> str:
        """What it said last on stderr, in one line: the complaint of a command if there is one."""
        lines = [line.strip() for line in self.last_errors if line.strip()]
        complaints = [line.removeprefix("penstock: ") for line in lines if line.startswith("penstock: ")]
        return (complaints or lines or ["it said nothing"])[-1]

    def _keep_error(self, line: str) -> None:
        self.last_errors.append(line)

    def _keeping(self, on_error: OnLine) -> OnLine:
        def keep(line: str) -> None:
            self._keep_error(line)
            on_error(line)

        return keep

    def _read(self, stream: IO[str] | None, on_line: OnLine | None) -> threading.Thread:
        assert stream is not None
        reader = threading.Thread(target=_read_lines, args=(stream, on_line), daemon=True)
        reader.start()
        return reader


def _read_lines(stream: IO[str], on_line: OnLine | None) -> None:
    with stream:
        while line := stream.readline(LINE_CHARS_MAX):
            if on_line is not None:
                on_line(line.rstrip("\n"))
