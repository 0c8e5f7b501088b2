"""How late the event loop is, with a clock that the test turns."""

from __future__ import annotations

import asyncio

import pytest

from penstock.broker.loop_delay import LOOK_S, WINDOW_S, LoopDelay
from penstock.testing.sim_world import Simulation


class Clock:
    """As late as the test says."""

    def __init__(self) -> None:
        self.late_s = 0.0

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time() + self.late_s

    def wall_ms(self) -> int:
        return 0


def test_the_largest_delay_is_kept_for_a_while() -> None:
    clock = Clock()
    delay = LoopDelay(clock)

    async def drive() -> None:
        delay.start()
        await asyncio.sleep(1.01)
        assert delay.max_s == pytest.approx(0, abs=1e-6)
        clock.late_s = 0.3
        await asyncio.sleep(LOOK_S)
        assert delay.max_s == pytest.approx(0.3)
        clock.late_s = 0.4  # later by 0.1
        await asyncio.sleep(WINDOW_S)
        assert delay.max_s == pytest.approx(0.3)
        await asyncio.sleep(2 * WINDOW_S)
        assert delay.max_s == pytest.approx(0, abs=1e-6)
        delay.stop()

    with Simulation(1, limit_s=1000) as simulation:
        simulation.run(drive())
