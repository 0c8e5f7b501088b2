"""What a partition tells those who wait on it for something to read."""

from __future__ import annotations

from typing import Protocol


class FetchWait(Protocol):
    """A fetch that waits for something to happen in any of its partitions."""

    def on_bytes(self, size_bytes: int) -> None:
        """So many more bytes can be read now."""

    def on_change(self) -> None:
        """Something that must be told now: an error, or that the partition is gone."""


class FollowerWait(FetchWait, Protocol):
    """A follower of a partition that is led here, between its fetches too."""

    def on_committed(self) -> None:
        """The high watermark has moved."""

    def say_when(self) -> None:
        """Let the leader know when this follower has last asked; done by itself when it asks for something else."""
