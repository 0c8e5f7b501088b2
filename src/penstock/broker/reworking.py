"""Changing what is stored of a partition, beside the loop, while nothing is appended, synced or cut.

It is done in turn with all who wait to append. Whoever is woken by a future instead finds, where others always have
something to append, the next sync begun.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from penstock.base.errors import ApiError, Error
from penstock.broker.partition import Partition


def _nothing() -> None:
    pass


async def rework(
    partition: Partition,
    work: Callable[[], None],
    check: Callable[[], None] = _nothing,
    then: Callable[[], None] = _nothing,
) -> None:
    """Do the work in another thread, and `then` something on the loop before anybody else has their turn.

    `check` raises ApiError if it is not to be done any more. An OSError of the work fails the partition's directory.
    """
    begun: asyncio.Future[asyncio.Future[None]] = asyncio.get_running_loop().create_future()

    def begin() -> None:
        if begun.done():
            return
        try:
            check()
        except ApiError as error:
            begun.set_exception(error)
            return
        working = partition.begin_rework(work)
        if working is None and partition.exchange is not None:
            partition.exchange.add_done_callback(lambda _: begin())
        elif working is None:
            partition.when_writable(begin)
        else:
            working.add_done_callback(ended)
            begun.set_result(working)

    def ended(working: asyncio.Future[None]) -> None:
        error = None if working.cancelled() else working.exception()
        try:
            if isinstance(error, OSError):
                partition.storage_failed(str(error))
            elif error is None and not working.cancelled():
                then()
        finally:
            partition.end_rework()

    begin()
    working = await begun
    await asyncio.wait([working])
    try:
        working.result()
    except OSError as error:
        raise ApiError(Error.KAFKA_STORAGE_ERROR, str(error)) from error
