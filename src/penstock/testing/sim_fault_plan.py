"""How many faults a simulated cluster has to bear, and of which kinds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class FaultPlan:
    """How many faults, how long between them, how likely each kind is, and how often one begins before another ends."""

    count: int = 8
    pause_s_max: float = 3.0
    overlap_chance: float = 0.5
    length: float = 1.0
    """How long they last, compared with the usual."""
    weights: Mapping[str, int] = field(default_factory=dict)
    is_any_power_loss_allowed: bool = False
