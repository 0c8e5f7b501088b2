"""`make sim SEEDS=n`: many random runs of whole clusters, on all cores, and what they were altogether.

python -m penstock.testing.sim_seeds 500 --first 1000
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context

from penstock.testing.sim_cluster_run import ClusterRun, Profile, RunResult


def run_seed(seed: int, profile: Profile | None = None) -> RunResult:
    """One run, in silence."""
    logging.disable(logging.CRITICAL)
    return ClusterRun(seed, profile).run()


class Tally:
    """What many runs were altogether."""

    def __init__(self) -> None:
        self.failed: list[int] = []
        self.runs = 0
        self._virtual_s = 0.0
        self.operations = 0
        self._events = 0
        self._faults: Counter[str] = Counter()

    def add(self, result: RunResult) -> None:
        self.runs += 1
        self._virtual_s += result.virtual_s
        self.operations += result.operations
        self._events += result.events
        self._faults += result.faults
        if result.problems:
            self.failed.append(result.seed)

    def __str__(self) -> str:
        faults = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in self._faults.most_common())
        return (
            f"{self.runs} runs: {self._virtual_s / 3600:.1f} virtual hours, {self.operations:,} client operations, "
            f"{self._events:,} events, {self._faults.total():,} faults ({faults or 'none'})"
        )


def run_seeds(seeds: Iterable[int], profile: Profile | None = None, processes: int | None = None) -> Tally:
    """Run seeds on several processes; the story of each that fails is printed."""
    tally = Tally()
    with ProcessPoolExecutor(processes or os.cpu_count(), get_context("spawn")) as pool:
        for result in pool.map(partial(run_seed, profile=profile), seeds):
            tally.add(result)
            if result.problems:
                print(f"── seed {result.seed} ──", result.story, *result.problems[:5], sep="\n", flush=True)
    return tally


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("seeds", type=int, help="how many")
    parser.add_argument("--first", type=int, default=0, metavar="SEED", help="the first one")
    chosen = parser.parse_args()
    began_s = time.monotonic()
    tally = run_seeds(range(chosen.first, chosen.first + chosen.seeds))
    print(f"{tally}, in {time.monotonic() - began_s:.0f} s")
    if tally.failed:
        print(f"failed: {', '.join(map(str, tally.failed))}; again, with every line of the brokers' logs:")
        print(f"    python tests/sim/test_cluster_random.py {tally.failed[0]}")
    return 1 if tally.failed else 0


if __name__ == "__main__":
    sys.exit(main())
