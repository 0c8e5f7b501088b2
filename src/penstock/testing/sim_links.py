"""The wires between simulated machines: how long a packet takes from one to another, and whether it gets there at all.

Each direction between two machines is a link of its own, so that a cut can be one way. A machine that is off, or cut
off, is a cut of all its links. What waits for a link registers here and is told to try again when something was mended.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Protocol

from penstock.testing.sim_loop import SimLoop

BUFFER_BYTES = 64 * 1024
DELAY_S = (0.0002, 0.002)
LOCAL_DELAY_S = (0.00001, 0.00005)
GIVE_UP_S = 924.0  # Linux: fifteen retransmissions
CONNECT_TIMEOUT_S = 127.0  # Linux: six tries


class Waiter(Protocol):
    """Something held up by a cut."""

    def retry(self) -> None: ...


class Links:
    """The state of every wire; machines are known by their names."""

    def __init__(self, loop: SimLoop, seed: int, partial_chance: float) -> None:
        self.loop = loop
        self.buffer_bytes = BUFFER_BYTES
        self.partial_chance = partial_chance
        self.give_up_s = GIVE_UP_S
        self.connect_timeout_s = CONNECT_TIMEOUT_S
        self.waiting: dict[Waiter, None] = {}
        self.default_delay_s = DELAY_S
        self._delays_s: dict[tuple[str, str], tuple[float, float]] = {}
        self._cut: set[tuple[str, str]] = set()
        self._off: set[str] = set()
        self._random = random.Random(f"network {seed}")

    def trace(self, text: str) -> None:
        self.loop.trace.add(text)

    def draw_delay_s(self, source: str, target: str) -> float:
        if source == target:
            return self._random.uniform(*LOCAL_DELAY_S)
        return self._random.uniform(*self._delays_s.get((source, target), self.default_delay_s))

    def draw_part(self, count: int) -> int:
        """How many of so many bytes one call moves: all, or by chance fewer, but at least one."""
        if count > 1 and self._random.random() < self.partial_chance:
            return 1 + self._random.randrange(count)
        return count

    def is_open(self, source: str, target: str) -> bool:
        return (source, target) not in self._cut and source not in self._off and target not in self._off

    # What a test does to them

    def set_delay(self, source: str, target: str, low_s: float, high_s: float) -> None:
        """How long packets take in this direction from now on."""
        self._delays_s[source, target] = low_s, high_s

    def cut(self, source: str, target: str) -> None:
        """Nothing gets from source to target; the other direction stays."""
        self.trace(f"cut {source} -> {target}")
        self._cut.add((source, target))

    def cut_both(self, one: str, other: str) -> None:
        self.cut(one, other)
        self.cut(other, one)

    def split(self, ones: Iterable[str], others: Iterable[str]) -> None:
        """Cut every link between the two groups, both ways."""
        targets = list(others)
        for one in ones:
            for other in targets:
                self.cut_both(one, other)

    def heal(self, one: str, other: str) -> None:
        """Mend both directions; what waited goes on."""
        self.trace(f"heal {one} <-> {other}")
        self._cut -= {(one, other), (other, one)}
        self._retry()

    def heal_all(self) -> None:
        self.trace("heal all")
        self._cut.clear()
        self._retry()

    def switch_off(self, host: str) -> None:
        self._off.add(host)

    def switch_on(self, host: str) -> None:
        self._off.discard(host)
        self._retry()

    def _retry(self) -> None:
        waiting, self.waiting = self.waiting, {}
        for waiter in waiting:
            waiter.retry()
