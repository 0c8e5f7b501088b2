"""The watcher of one broker: what `penstock broker` becomes, and the parent of the process that serves.

It starts the broker, and each ends when the other does. When the broker's process has ended, however that was, the
watcher ends its session at ZooKeeper: so the cluster reacts in milliseconds to a process that died, on proof and not on
suspicion. It restarts nothing; it ends with the broker's exit code, and whoever runs it (systemd, say) decides.

It sleeps until a signal comes, and it imports little, because it stays for as long as the broker does.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable

from penstock.cli.child import exit_code, read_order, start_broker_process
from penstock.cli.session_end import ASKED_TRIES_S, end_session_of


def main() -> int:
    """Watch until the broker has ended; returns its exit code."""
    order_fd = int(sys.argv[1])
    order = read_order(order_fd)
    # A signal that is blocked waits until it is asked for: none can come at a wrong moment.
    stopping = _wanted(signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_BLOCK, {*stopping, signal.SIGCHLD})
    broker, _our_end_of_the_pipe = start_broker_process(order_fd)
    code, was_asked = _wait(broker, stopping)
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
            return exit_code(status), was_asked


if __name__ == "__main__":
    sys.exit(main())
