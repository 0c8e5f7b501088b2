"""A process that must not outlive its owner, with real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.cli.owned_process import OwnedProcess

END_S_MAX = 20.0

OBEDIENT = "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(3)); print('up', flush=True)\n"
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True)\n"
WAIT = "while True: signal.pause()"


def until(condition: Callable[[], bool], what: str) -> None:
    deadline_s = time.monotonic() + END_S_MAX
    while not condition():
        assert time.monotonic() < deadline_s, what
        threading.Event().wait(0.02)


def is_alive(pid: int) -> bool:
    """A process that nobody has waited for yet counts as ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def start(program: str) -> tuple[OwnedProcess, list[str]]:
    said: list[str] = []
    process = OwnedProcess([sys.executable, "-c", program], on_output=said.append)
    until(lambda: bool(said), "it does not come up")
    return process, said


def test_lines_and_the_exit_code_come_through() -> None:
    program = "import sys; print('one'); print('two'); sys.stderr.write('penstock: no such thing\\n'); sys.exit(4)"
    said: list[str] = []
    process = OwnedProcess([sys.executable, "-c", program], on_output=said.append)
    assert process.wait(END_S_MAX) == 4
    process.close()
    assert said == ["one", "two"]
    assert process.why() == "no such thing"


def test_it_ends_when_it_is_asked_to() -> None:
    process, _ = start(OBEDIENT + WAIT)
    assert process.end(END_S_MAX) == 3


def test_who_does_not_end_is_ended_with_all_it_started() -> None:
    inner = "import subprocess, sys; print(subprocess.Popen(['sleep', '600']).pid, flush=True)\n"
    process, said = start(STUBBORN + inner + WAIT)
    until(lambda: len(said) == 2, "no grandchild")
    assert process.end(0.2) == -signal.SIGKILL
    until(lambda: not is_alive(int(said[1])), "the grandchild is left")


def test_what_a_program_leaves_in_its_group_is_ended() -> None:
    said: list[str] = []
    program = "import subprocess; print(subprocess.Popen(['sleep', '600']).pid, flush=True)"
    process = OwnedProcess([sys.executable, "-c", program], on_output=said.append)
    assert process.wait(END_S_MAX) == 0
    process.close()
    until(lambda: not is_alive(int(said[0])), "the grandchild is left")


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_it_ends_with_its_owner(number: signal.Signals) -> None:
    program = OBEDIENT + "import os; print(os.getpid(), flush=True)\n" + WAIT
    owner_program = (
        "import sys, threading\n"
        "from penstock.cli.owned_process import OwnedProcess\n"
        f"OwnedProcess([sys.executable, '-c', {program!r}], on_output=lambda line: print(line, flush=True))\n"
        "threading.Event().wait()\n"
    )
    owner = subprocess.Popen([sys.executable, "-c", owner_program], stdout=subprocess.PIPE, text=True)
    assert owner.stdout is not None
    assert owner.stdout.readline() == "up\n"
    pid = int(owner.stdout.readline())
    os.kill(owner.pid, number)
    owner.wait(END_S_MAX)
    owner.stdout.close()
    until(lambda: not is_alive(pid), "it outlives its owner")
