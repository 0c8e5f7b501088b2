"""Decisions of the controller that say more than their plans: what came of each part of a request."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from penstock.broker.controller_role import ControllerRole
from penstock.controller.plan import ClusterState, Plan


class Outcome(Protocol):
    """A decision: its plans, and whatever else there is to tell."""

    @property
    def plans(self) -> Sequence[Plan]: ...


O = TypeVar("O", bound=Outcome)  # noqa: E741


async def carried_out(role: ControllerRole, decision: Callable[[ClusterState], O]) -> O:
    """Make a decision and carry out its plans; what the decision was that held, once this broker's view has it."""
    made: list[O] = []

    def decide(state: ClusterState) -> Sequence[Plan]:
        made.append(decision(state))
        return made[-1].plans

    await role.decide(decide)
    return made[-1]
