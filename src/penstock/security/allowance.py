"""What somebody may use: the meters that count for one connection."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.security.principal import Principal
from penstock.security.quota_rates import Meter


@dataclass(slots=True)
class Allowance:
    """Where a connection has no limit of a kind, there is no meter. `version` is that of the limits."""

    principal: Principal
    version: int
    produce: Meter | None
    fetch: Meter | None
    request: Meter | None
