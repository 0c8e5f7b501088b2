"""The watcher of one broker: what `penstock broker` becomes, and the parent of the process that serves.

It starts the broker, and each ends when the other does. When the broker's process has ended, however that was, the
watcher ends its session at ZooKeeper: so the cluster reacts in milliseconds to a process that died, on proof and not on
suspicion. It restarts nothing; it ends with the broker's exit code, and whoever runs it (systemd, say) decides.

The broker notices the end of its watcher by a pipe whose other end the watcher has, and which closes with it. The
watcher sleeps until a signal comes. It imports little, because it stays for as long as the broker does.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Iterable

from penstock.cli.session_end import end_session_of

#: How long the end of a session is tried where somebody waits for the process to end.
ASKED_TRIES_S = 2.0


def main() -> int:
    """Watch until the broker has ended; returns its exit code."""
    order_fd = int(sys.argv[1])
    with os.fdopen(os.dup(order_fd), "rb") as file:
        order = json.load(file)
    os.lseek(order_fd, 0, os.SEEK_SET)
    # A signal that is blocked waits until it is asked for: none can come at a wrong moment.
    stopping = _wanted(signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_BLOCK, {*stopping, signal.SIGCHLD})
    code, was_asked = _wait(_start(order_fd), stopping)
    for number in stopping:
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    timeout_ms = order["watch"]["timeout_ms"]
    has_ended = end_session_of(
        order["data"],
        [(host, port) for host, port in order["watch"]["servers"]],
        timeout_ms=timeout_ms,
        tries_s=ASKED_TRIES_S if was_asked else timeout_ms / 1000,
    )
    if not has_ended:
        print("penstock: ZooKeeper cannot be reached: the broker's session ends by its timeout", file=sys.stderr)
    return code


def _wanted(*numbers: signal.Signals) -> list[signal.Signals]:
    """Those that nobody (nohup, say) has told us to ignore."""
    return [number for number in numbers if signal.getsignal(number) is not signal.SIG_IGN]


def _start(order_fd: int) -> int:
    """Start the broker with the order and its end of the pipe; our end closes when this process does."""
    its_end, _our_end = os.pipe()
    os.set_inheritable(its_end, True)
    command = [sys.executable, "-m", "penstock.cli.serve", str(order_fd), str(its_end)]
    broker = os.posix_spawn(sys.executable, command, os.environ, setsigmask=())
    os.close(its_end)
    os.close(order_fd)
    return broker


def _wait(broker: int, stopping: Iterable[signal.Signals]) -> tuple[int, bool]:
    """The broker's exit code, and whether it was asked to stop: by the first signal, and ended by the second."""
    awaited = {*stopping, signal.SIGCHLD}
    was_asked = False
    while True:
        if signal.sigwait(awaited) != signal.SIGCHLD:
            os.kill(broker, signal.SIGKILL if was_asked else signal.SIGTERM)
            was_asked = True
        ended, status = os.waitpid(broker, os.WNOHANG)
        if ended:
            code = os.waitstatus_to_exitcode(status)
            return code if code >= 0 else 128 - code, was_asked


if __name__ == "__main__":
    sys.exit(main())
