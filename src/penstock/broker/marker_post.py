"""Markers for partitions that other brokers lead, on their way there and back.

What is to go to one broker in the same turn of the loop goes in one request: the markers of one transaction for all its
partitions there, those of thousands that are committed at once, and those of transactions whose ends were decided in
the same batch.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import NamedTuple

from penstock.base.errors import Error
from penstock.base.identifiers import TopicPartition
from penstock.base.steps import ProducerEpoch
from penstock.broker.peers import PeerError, Peers
from penstock.wire.messages.k27_write_txn_markers import (
    API,
    WriteTxnMarkersRequest,
    WriteTxnMarkersRequestMarker,
    WriteTxnMarkersRequestTopic,
    WriteTxnMarkersResponse,
)

logger = logging.getLogger(__name__)

ANSWERED_WITHIN_S = 30.0


class Ending(NamedTuple):
    """One marker for one partition."""

    producer: ProducerEpoch
    is_commit: bool
    coordinator_epoch: int
    transaction_version: int


class _Parcel(NamedTuple):
    """The markers for one partition, and whoever waits to hear what became of each."""

    name: TopicPartition
    endings: Sequence[Ending]
    is_wanted: Callable[[], bool]
    outcomes: asyncio.Future[list[Error]]

    def end(self, outcomes: list[Error]) -> None:
        if not self.outcomes.done():
            self.outcomes.set_result(outcomes)


class MarkerPost:
    """See the head of this file."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers
        self._parcels: dict[int, list[_Parcel]] = {}  # by broker, until the end of the turn
        self._tasks: set[asyncio.Task[None]] = set()

    async def send(
        self, node_id: int, name: TopicPartition, endings: Sequence[Ending], is_wanted: Callable[[], bool]
    ) -> list[Error]:
        """Have a broker write markers into a partition; what became of each.

        NETWORK_EXCEPTION: that is not known. What is not wanted any more when it is to be sent is not sent.
        """
        loop = asyncio.get_running_loop()
        parcel = _Parcel(name, endings, is_wanted, loop.create_future())
        waiting = self._parcels.setdefault(node_id, [])
        waiting.append(parcel)
        if len(waiting) == 1:
            loop.call_soon(self._post, node_id)
        return await parcel.outcomes

    def _post(self, node_id: int) -> None:
        task = asyncio.get_running_loop().create_task(self._ask(node_id, self._parcels.pop(node_id)))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    async def _ask(self, node_id: int, parcels: Sequence[_Parcel]) -> None:
        wanted = []
        for parcel in parcels:
            if parcel.is_wanted():
                wanted.append(parcel)
            else:
                parcel.end([Error.NOT_COORDINATOR for _ in parcel.endings])
        if not wanted:
            return
        outcomes: dict[tuple[int, TopicPartition], Error] = {}
        try:
            response = await self._peers.ask(node_id, API, request_of(wanted), timeout_s=ANSWERED_WITHIN_S)
            outcomes = _outcomes_of(response)
        except (PeerError, ValueError) as error:  # the second: an error that only a newer release knows
            logger.warning("markers wait: %s", error)
        finally:
            for parcel in wanted:
                parcel.end(
                    [
                        outcomes.get((each.producer.producer_id, parcel.name), Error.NETWORK_EXCEPTION)
                        for each in parcel.endings
                    ]
                )


def request_of(parcels: Sequence[_Parcel]) -> WriteTxnMarkersRequest:
    """One marker of the request for each transaction, with all its partitions."""
    indexes: dict[Ending, dict[str, list[int]]] = {}
    for name, endings, _, _ in parcels:
        for ending in endings:
            indexes.setdefault(ending, {}).setdefault(name.topic, []).append(name.partition)
    return WriteTxnMarkersRequest(
        markers=[
            WriteTxnMarkersRequestMarker(
                producer_id=ending.producer.producer_id,
                producer_epoch=ending.producer.producer_epoch,
                transaction_result=ending.is_commit,
                coordinator_epoch=ending.coordinator_epoch,
                transaction_version=ending.transaction_version,
                topics=[
                    WriteTxnMarkersRequestTopic(name=topic, partition_indexes=found) for topic, found in topics.items()
                ],
            )
            for ending, topics in indexes.items()
        ]
    )


def _outcomes_of(response: WriteTxnMarkersResponse) -> dict[tuple[int, TopicPartition], Error]:
    return {
        (marker.producer_id, TopicPartition(topic.name, part.partition_index)): Error(part.error_code)
        for marker in response.markers
        for topic in marker.topics
        for part in topic.partitions
    }
