"""How long a partition of a simulated cluster cannot be written to when its leader goes (promise P6), and what clients
notice of a planned restart."""

from __future__ import annotations

import asyncio

import pytest

from penstock.base.errors import Error
from penstock.testing.sim_cluster_scenario import SESSION_TIMEOUT_S, ClusterScenario

pytestmark = pytest.mark.sim


@pytest.mark.parametrize("is_controller", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_a_dead_leader_with_a_watcher_is_replaced_within_a_second(seed: int, is_controller: bool) -> None:
    async def script(scenario: ClusterScenario) -> None:
        victim = await scenario.have_it_lead(is_controller=is_controller)
        killed_s = scenario.simulation.loop.time()
        victim.kill()
        assert await scenario.write() - killed_s < 1.0

    ClusterScenario(seed, has_watchers=True).run(script)


@pytest.mark.parametrize("seed", range(3))
def test_a_leader_that_stands_still_is_replaced_when_its_session_ends(seed: int) -> None:
    async def script(scenario: ClusterScenario) -> None:
        victim = scenario.leader
        assert victim.process is not None
        paused_s = scenario.simulation.loop.time()
        victim.process.pause()
        assert await scenario.write() - paused_s < SESSION_TIMEOUT_S + 5.0  # the client loses time, too
        victim.process.resume()
        await scenario.until_in_sync()

    ClusterScenario(seed, has_watchers=True).run(script)


@pytest.mark.parametrize("seed", range(3))
def test_a_rolling_restart_is_hardly_noticed(seed: int) -> None:
    async def script(scenario: ClusterScenario) -> None:
        is_over = False

        async def restart_all() -> None:
            nonlocal is_over
            for broker in scenario.cluster.brokers:
                await broker.stop()
                await broker.start()
                await scenario.until_in_sync()
            is_over = True

        restarting = asyncio.ensure_future(restart_all())
        longest_s, last_s = 0.0, scenario.simulation.loop.time()
        while not is_over:
            now_s = await scenario.write()
            longest_s, last_s = max(longest_s, now_s - last_s), now_s
        await restarting
        assert longest_s < 0.5
        assert set(scenario.errors) <= {Error.NOT_LEADER_OR_FOLLOWER, Error.NETWORK_EXCEPTION, Error.REQUEST_TIMED_OUT}

    ClusterScenario(seed, has_watchers=False).run(script)
