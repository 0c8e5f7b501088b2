"""Runs a program that must not outlive its owner: `python -m penstock.cli.owned FD PROGRAM…`; see `owned_process.py`.

FD is the reading end of a pipe whose other end only the owner has. It closes when the owner ends, however that is: then
the program is asked to end, and after a while everything in its process group is ended. Signals are passed on. When the
program has ended, whatever it left in the group (Spark's Java, say) is asked to end too, and the exit code is its own.

This module imports next to nothing, because it stays for as long as the program does.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time

PATIENCE_S = 60.0
PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main() -> int:
    """Run the program to its end; returns its exit code, 128 and the number for a signal."""
    owner_fd = int(sys.argv[1])
    asked: list[int] = []
    woken_fd = _wake_by_signals()
    for number in PASSED_ON:
        signal.signal(number, lambda number, _: asked.append(number))
    program = subprocess.Popen(sys.argv[2:])
    _wait(program, owner_fd, woken_fd, asked)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.killpg(0, signal.SIGTERM)
    code = program.returncode
    return code if code >= 0 else 128 - code


def _wake_by_signals() -> int:
    """A descriptor that can be read whenever a signal has come, that of an ended program included."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    os.set_blocking(writing, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    return reading


def _wait(program: subprocess.Popen[bytes], owner_fd: int, woken_fd: int, asked: list[int]) -> None:
    """Until the program has ended; does not come back if it had to be ended."""
    watched = [owner_fd, woken_fd]
    end_at_s: float | None = None
    while program.poll() is None:
        if asked:
            asked.clear()
            program.terminate()
        left_s = None if end_at_s is None else max(0.0, end_at_s - time.monotonic())
        if left_s == 0.0:
            os.killpg(0, signal.SIGKILL)
        ready = select.select(watched, [], [], left_s)[0]
        if woken_fd in ready:
            os.read(woken_fd, 4096)
        if owner_fd in ready:
            watched.remove(owner_fd)
            end_at_s = time.monotonic() + PATIENCE_S
            program.terminate()


if __name__ == "__main__":
    sys.exit(main())
