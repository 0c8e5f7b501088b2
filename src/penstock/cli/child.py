"""How a watcher starts the process of its broker (`serve.py`), and what each of them holds of the other.

The broker has the reading end of a pipe whose writing end only the watcher has: it closes when the watcher ends,
however that is. Signals that a terminal sends to everybody in it are blocked in the broker: the watcher gets them, and
decides.

This module imports next to nothing, because the watcher does.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import Any

FOR_THE_WATCHER = (signal.SIGINT, signal.SIGHUP)


def lean_command(program: str, *descriptors: int) -> list[str]:
    """The command of a program that serves for long: without the columns of tracebacks, which would stay in memory."""
    return [sys.executable, "-X", "no_debug_ranges", "-m", program, *map(str, descriptors)]


def start_broker_process(order_fd: int, stdout_fd: int | None = None) -> tuple[int, int]:
    """Start it with an order (`server_process.py`); returns its process id, and our end of the pipe."""
    its_end, our_end = os.pipe()
    os.set_inheritable(its_end, True)
    os.set_inheritable(order_fd, True)
    redirect = [] if stdout_fd is None else [(os.POSIX_SPAWN_DUP2, stdout_fd, 1)]
    command = lean_command("penstock.cli.serve", order_fd, its_end)
    try:
        process_id = os.posix_spawn(
            sys.executable, command, os.environ, file_actions=redirect, setsigmask=FOR_THE_WATCHER
        )
    finally:
        os.close(its_end)
        os.close(order_fd)
    return process_id, our_end


def read_order(order_fd: int) -> Any:
    """What a serving program was told to do; the next process can read the same descriptor."""
    return json.loads(os.pread(order_fd, os.fstat(order_fd).st_size, 0))


def exit_code(status: int) -> int:
    """As a shell has it: 128 and the signal for a process that was ended by one."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code
