"""What the controller does by the clock, while this broker is it.

What follows from who comes and goes is done at once, by the role itself (`controller_role.py`). Here is what becomes
possible by the mere passing of time, or by a changed setting:

- leadership is given back to the preferred replicas (`auto.leader.rebalance.enable`);
- partitions without a leader are looked at again: perhaps a setting allows an unclean election by now;
- reassignments are completed of which everybody was in sync and nobody could lead;
- delegation tokens that have expired are removed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from penstock.base.errors import ApiError, Error
from penstock.base.settings import Settings
from penstock.broker.audit_log import Record
from penstock.broker.cluster_view import ClusterView, ViewChange
from penstock.broker.controller_role import ControllerRole
from penstock.broker.delegation_tokens import DelegationTokens
from penstock.controller.elections import members_changed
from penstock.controller.leader_balance import balance
from penstock.controller.reassignments import finish_possible, ongoing
from penstock.zookeeper.topic_znodes import NO_LEADER

logger = logging.getLogger(__name__)

REASSIGNMENTS_S = 10.0
BALANCE_STEP_S = 1.0  # between the steps of a balancing that takes several


class ControllerDuties:
    """See the head of this file."""

    def __init__(
        self,
        view: ClusterView,
        role: ControllerRole,
        settings: Callable[[], Settings],
        tokens: DelegationTokens,
        record: Record,
    ) -> None:
        self._view = view
        self._role = role
        self._settings = settings
        self._tokens = tokens
        self._record = record
        self._has_new_rules = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        view.on_change(self._view_changed)

    def start(self) -> None:
        settings = self._settings()
        balance_s = settings.integer("leader.imbalance.check.interval.seconds")
        unclean_s = settings.integer("unclean.leader.election.interval.ms") / 1000
        tokens_s = settings.integer("delegation.token.expiry.check.interval.ms") / 1000
        create_task = asyncio.get_running_loop().create_task
        self._tasks = [
            create_task(self._every(balance_s, self.balance)),
            create_task(self._every(unclean_s, self.elect, self._has_new_rules)),
            create_task(self._every(REASSIGNMENTS_S, self.finish_reassignments)),
            create_task(self._every(tokens_s, self.remove_expired_tokens)),
        ]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _every(
        self, period_s: float, duty: Callable[[], Awaitable[None]], hurry: asyncio.Event | None = None
    ) -> None:
        while True:
            await _wait(period_s, hurry)
            if not self._role.is_controller:
                continue
            try:
                await duty()
            except ApiError as error:
                if error.error is not Error.NOT_CONTROLLER:
                    logger.warning("%s comes again later: %s", duty.__name__, error.message)
            except Exception:
                logger.exception("%s failed", duty.__name__)

    async def _view_changed(self, change: ViewChange) -> None:
        if change.configs and self._role.is_controller and self._has_leaderless():
            self._has_new_rules.set()

    def _has_leaderless(self) -> bool:
        topics = self._view.topics.values()
        return any(partition.leader == NO_LEADER for topic in topics for partition in topic.partitions)

    # ── the duties ───────────────────────────────────────────────────────────────────────────────────────────────

    async def balance(self) -> None:
        """Give leadership back, step by step until there is nothing left to give."""
        while self._settings().flag("auto.leader.rebalance.enable"):
            plans = await self._role.decide(lambda state: balance(state, self._role.rules_of))
            if not plans:
                return
            topics = {plan.topic.name for plan in plans if plan.topic is not None}
            logger.info("leadership was given back to preferred replicas of %d topics", len(topics))
            await asyncio.sleep(BALANCE_STEP_S)

    async def elect(self) -> None:
        """Find leaders where there is none, as far as that is possible and allowed by now."""
        if self._has_leaderless():
            await self._role.decide(lambda state: members_changed(state, self._role.rules_of))

    async def finish_reassignments(self) -> None:
        """Complete what can be completed."""
        if ongoing(self._view.topics):
            await self._role.decide(lambda state: finish_possible(state, self._role.rules_of))

    async def remove_expired_tokens(self) -> None:
        """Until there are none left."""
        while removed := await self._tokens.remove_expired():
            for token in removed:
                self._record("token_removed", token_id=token.token_id, owner=token.owner, expired_ms=token.expires_ms)


async def _wait(period_s: float, hurry: asyncio.Event | None) -> None:
    """For so long, or until there is a reason to hurry."""
    if hurry is None:
        await asyncio.sleep(period_s)
        return
    alarm = asyncio.get_running_loop().call_later(period_s, hurry.set)
    await hurry.wait()
    alarm.cancel()
    hurry.clear()
