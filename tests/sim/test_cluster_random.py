"""Random runs of whole clusters: clients write and read while brokers, the keeper and the network fail; the invariants
are looked at after every event, and at the end everything must heal and the history of the clients is judged.

A seed that fails is run again with `python tests/sim/test_cluster_random.py SEED`, which prints what happened, with
what the brokers logged. Many seeds: `make sim SEEDS=1000`.
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import traceback

import pytest

from penstock.testing.sim_cluster_run import ClusterRun, StoryHandler
from penstock.testing.sim_seeds import run_seeds

pytestmark = pytest.mark.sim

SEEDS = 60
LONG_SEEDS = 2000


def test_clusters_keep_their_promises(request: pytest.FixtureRequest) -> None:
    """On all cores; the story of each seed that fails is in the output."""
    tally = run_seeds(range(LONG_SEEDS if request.config.getoption("--long") else SEEDS))
    print(tally)
    assert not tally.failed
    assert tally.operations > 1000 * tally.runs


def _digest_in_another_process(seed: int, hash_seed: str) -> str:
    program = f"import logging; from penstock.testing.sim_seeds import run_seed; print(run_seed({seed}).digest)"
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    done = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_the_same_seed_gives_the_same_run_whatever_the_hashes_are() -> None:
    digests = {_digest_in_another_process(1000, hash_seed) for hash_seed in ("0", "1", "4711")}
    assert digests == {ClusterRun(1000).run().digest}


def test_another_seed_gives_another_run() -> None:
    assert ClusterRun(1000).run().digest != ClusterRun(1001).run().digest


def main(seed: int) -> None:
    """Run a seed again and tell everything."""
    run = ClusterRun(seed)
    root = logging.getLogger("penstock")
    root.addHandler(StoryHandler(run.invariants))
    root.setLevel(logging.INFO)
    root.propagate = False
    result = run.run()
    print(run.story(lines_max=100_000))
    if run.error is not None:
        traceback.print_exception(run.error)
    print(*result.problems[:20], sep="\n")
    print(f"{result.virtual_s:.1f} s, {result.operations} operations, {result.events} events, {dict(result.faults)}")


if __name__ == "__main__":
    main(int(sys.argv[1]))
