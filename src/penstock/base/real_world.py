"""The world as it is: this machine's clock, disk, network and entropy."""

from __future__ import annotations

import random
import time
from functools import partial

from penstock.base.real_disk import RealDisk
from penstock.base.real_network import RealNetwork
from penstock.base.world import World

_SUSPEND_AWARE_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class RealClock:
    """Wall time, and a monotonic time that counts while the machine sleeps (where the system has one)."""

    def __init__(self) -> None:
        self.monotonic = partial(time.clock_gettime, _SUSPEND_AWARE_CLOCK)  # every request asks it

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000


def real_world() -> World:
    """Everything real; make it once."""
    return World(
        clock=RealClock(), disk=RealDisk(), network=RealNetwork(), random=random.SystemRandom(), boot_id=_boot_id()
    )


def _boot_id() -> str:
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""
