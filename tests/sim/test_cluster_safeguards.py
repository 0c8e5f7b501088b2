"""A simulator that finds nothing proves nothing unless it would find something: each safeguard is taken away, and runs
must fail because of it.

Each has a seed that is known to find it. A change anywhere shifts what a seed draws, so a few more are tried; with
`--long` all of 2,000 until one finds it, and the same runs must pass while the safeguard is there.
"""

from __future__ import annotations

from itertools import chain

import pytest

from penstock.testing.sim_cluster_run import ClusterRun
from penstock.testing.sim_safeguards import SAFEGUARDS, Safeguard

pytestmark = pytest.mark.sim

SEEDS = 60
LONG_SEEDS = 2000
SOUND_SEEDS = 20


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "safeguard" in metafunc.fixturenames:
        metafunc.parametrize("safeguard", SAFEGUARDS, ids=lambda each: each.name.replace(" ", "-"))


def test_its_absence_is_found(safeguard: Safeguard, request: pytest.FixtureRequest) -> None:
    seeds = range(LONG_SEEDS if request.config.getoption("--long") else SEEDS)
    assert any(safeguard.problems(seed) for seed in chain([safeguard.seed], seeds))


@pytest.mark.slow
def test_with_it_nothing_is_found(safeguard: Safeguard) -> None:
    for seed in range(SOUND_SEEDS):
        result = ClusterRun(seed, safeguard.profile).run()
        assert not result.problems, f"seed {seed}: {result.story}\n{result.problems[:3]}"


def test_there_are_twenty() -> None:
    assert len({each.name for each in SAFEGUARDS}) == 20
