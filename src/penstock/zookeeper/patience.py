"""Asking again until the coordination service answers: for what must be known before anything else can go on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import TypeVar

from penstock.zookeeper.coordination import Coordination, SessionState
from penstock.zookeeper.errors import ConnectionLossError, SessionExpiredError

logger = logging.getLogger(__name__)

RETRY_S = 0.1

T = TypeVar("T")


async def until_answered(coordination: Coordination, ask: Callable[[], Awaitable[T]]) -> T:
    """What `ask` gives, asked again after a lost connection or session; it must be right to do it twice."""
    while True:
        try:
            return await ask()
        except (ConnectionLossError, SessionExpiredError) as error:
            if coordination.state in (SessionState.CLOSED, SessionState.FAILED):
                raise  # nothing will come any more
            logger.warning("the coordination service is asked again: %s", error)
            await asyncio.sleep(RETRY_S)
