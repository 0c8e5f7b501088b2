"""The story of a simulated run: virtual time and one line for each event, equal for equal seeds."""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable


class Trace:
    """What happened when: equal for equal seeds. Keeps the last `size_max` events, and a digest of all."""

    def __init__(self, time: Callable[[], float], size_max: int | None = None) -> None:
        self._time = time
        self._digest = hashlib.sha256()
        self.entries: deque[tuple[float, str]] = deque(maxlen=size_max)

    def add(self, text: str) -> None:
        now = self._time()
        self.entries.append((now, text))
        self._digest.update(f"{now!r} {text}\n".encode())

    def digest(self) -> str:
        return self._digest.hexdigest()

    def __str__(self) -> str:
        return "\n".join(f"{time:12.6f} {text}" for time, text in self.entries)
