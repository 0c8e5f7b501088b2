"""Three brokers as a site for scenarios: each time one of them is killed, and in a storm all the time.

The brokers die in turn, every second time the one that is the controller. The next one dies when the last one is back
and everything is in sync: of three brokers one may be lost.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from threading import Event, Thread

from penstock.testing.cluster_processes import ClusterProcesses
from penstock.testing.cluster_sight import ClusterSight

BROKERS = 3
#: When brokers of any of these sites were killed, by the monotonic clock.
KILLED_S: list[float] = []
#: How long everything is well between two kills.
REST_S = 2.0
DOWN_S = 0.5


class ClusterSite:
    """See the head of this file."""

    def __init__(self, processes: ClusterProcesses) -> None:
        self._processes = processes
        self._sight = ClusterSight({one.broker_id: one.bootstrap for one in processes})
        self._kills = count()
        self._victim = 0

    @property
    def bootstrap(self) -> str:
        return self._processes.bootstrap

    def kill(self) -> None:
        """End the next one at once."""
        number = next(self._kills)
        self._victim = self._sight.controller() if number % 2 else number // 2 % BROKERS
        KILLED_S.append(time.monotonic())
        self._processes.kill(self._victim)

    def start(self) -> None:
        """Bring it back."""
        self._processes[self._victim].start()
        self._sight.wait_in_sync()

    def log_text(self) -> str:
        return "\n".join(f"── broker {one.broker_id}\n{one.log_text()[-4000:]}" for one in self._processes)


@contextmanager
def cluster_site(folder: Path, settings: Mapping[str, str]) -> Iterator[ClusterSite]:
    with ClusterProcesses(BROKERS, folder, settings=settings) as processes:
        yield ClusterSite(processes)


@contextmanager
def stormy_site(folder: Path, settings: Mapping[str, str]) -> Iterator[ClusterSite]:
    """One whose brokers are killed as long as it is used."""
    is_over = Event()
    errors: list[Exception] = []

    def kill_in_turn(site: ClusterSite) -> None:
        try:
            while not is_over.wait(REST_S):
                site.kill()
                is_over.wait(DOWN_S)
                site.start()
        except Exception as error:
            errors.append(error)

    with cluster_site(folder, settings) as site:
        killer = Thread(target=kill_in_turn, args=(site,), daemon=True)
        killer.start()
        yield site
        is_over.set()
        killer.join()
    if errors:
        raise errors[0]
