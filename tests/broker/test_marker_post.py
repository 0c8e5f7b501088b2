"""Markers on their way to other brokers: one request for each broker and turn, and an answer for everybody."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

from penstock.base.errors import Error
from penstock.base.identifiers import TopicPartition
from penstock.base.steps import ProducerEpoch
from penstock.broker.marker_post import Ending, MarkerPost
from penstock.broker.peers import PeerError, Peers
from penstock.wire.messages.k27_write_txn_markers import (
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
    WriteTxnMarkersResponseMarker,
    WriteTxnMarkersResponsePartition,
    WriteTxnMarkersResponseTopic,
)


class OtherBrokers:
    """Write down what they are asked, and answer as they are told."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, WriteTxnMarkersRequest]] = []
        self.errors: dict[tuple[int, TopicPartition], int] = {}
        self.failure: Exception | None = None
        self.may_answer = asyncio.Event()
        self.may_answer.set()

    async def ask(self, node_id: int, _api: Any, request: WriteTxnMarkersRequest, *, timeout_s: float) -> Any:
        self.asked.append((node_id, request))
        await self.may_answer.wait()
        if self.failure is not None:
            raise self.failure
        return WriteTxnMarkersResponse(
            markers=[
                WriteTxnMarkersResponseMarker(
                    producer_id=marker.producer_id,
                    topics=[
                        WriteTxnMarkersResponseTopic(
                            name=topic.name,
                            partitions=[
                                WriteTxnMarkersResponsePartition(
                                    partition_index=index,
                                    error_code=self.errors.get(
                                        (marker.producer_id, TopicPartition(topic.name, index)), Error.NONE
                                    ),
                                )
                                for index in topic.partition_indexes
                            ],
                        )
                        for topic in marker.topics
                    ],
                )
                for marker in request.markers
            ]
        )


def run(drive: Callable[[OtherBrokers, MarkerPost], Awaitable[None]]) -> None:
    async def main() -> None:
        others = OtherBrokers()
        post = MarkerPost(cast(Peers, others))
        await drive(others, post)
        await post.stop()

    asyncio.run(main())


def ending(producer_id: int) -> Ending:
    return Ending(ProducerEpoch(producer_id, 3), True, 9, 2)


A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def wanted() -> bool:
    return True


def test_one_request_for_each_broker() -> None:
    async def drive(others: OtherBrokers, post: MarkerPost) -> None:
        others.errors[1, A1] = Error.NOT_LEADER_OR_FOLLOWER
        outcomes: tuple[list[Error], ...] = tuple(
            await asyncio.gather(
                post.send(7, A0, [ending(1), ending(2)], wanted),
                post.send(8, B0, [ending(1)], wanted),
                post.send(7, A1, [ending(1)], wanted),
            )
        )
        assert outcomes == ([Error.NONE, Error.NONE], [Error.NONE], [Error.NOT_LEADER_OR_FOLLOWER])
        assert sorted(node_id for node_id, _ in others.asked) == [7, 8]
        request = dict(others.asked)[7]
        assert [
            (marker.producer_id, [(topic.name, topic.partition_indexes) for topic in marker.topics])
            for marker in request.markers
        ] == [(1, [("a", [0, 1])]), (2, [("a", [0])])]
        first = request.markers[0]
        told = first.producer_epoch, first.transaction_result, first.coordinator_epoch, first.transaction_version
        assert told == (3, True, 9, 2)

    run(drive)


def test_what_comes_later_does_not_wait() -> None:
    async def drive(others: OtherBrokers, post: MarkerPost) -> None:
        others.may_answer.clear()
        first = asyncio.ensure_future(post.send(7, A0, [ending(1)], wanted))
        while not others.asked:
            await asyncio.sleep(0)
        second = asyncio.ensure_future(post.send(7, A1, [ending(1)], wanted))
        while len(others.asked) < 2:
            await asyncio.sleep(0)
        others.may_answer.set()
        assert await first == await second == [Error.NONE]

    run(drive)


def test_what_is_not_wanted_any_more_is_not_sent() -> None:
    async def drive(others: OtherBrokers, post: MarkerPost) -> None:
        outcomes: tuple[list[Error], ...] = tuple(
            await asyncio.gather(post.send(7, A0, [ending(1)], lambda: False), post.send(7, A1, [ending(2)], wanted))
        )
        assert outcomes == ([Error.NOT_COORDINATOR], [Error.NONE])
        assert [marker.producer_id for marker in others.asked[0][1].markers] == [2]
        assert await post.send(7, A0, [ending(1)], lambda: False) == [Error.NOT_COORDINATOR]
        assert len(others.asked) == 1

    run(drive)


def test_without_an_answer_nobody_knows() -> None:
    async def drive(others: OtherBrokers, post: MarkerPost) -> None:
        others.failure = PeerError("away")
        assert await post.send(7, A0, [ending(1), ending(2)], wanted) == [Error.NETWORK_EXCEPTION] * 2
        others.failure = None
        others.errors[1, A0] = 12_345  # of a newer release
        assert await post.send(7, A0, [ending(1)], wanted) == [Error.NETWORK_EXCEPTION]

    run(drive)


def test_the_end() -> None:
    async def drive(others: OtherBrokers, post: MarkerPost) -> None:
        others.may_answer.clear()
        sending = asyncio.ensure_future(post.send(7, A0, [ending(1)], wanted))
        while not others.asked:
            await asyncio.sleep(0)
        await post.stop()
        assert await sending == [Error.NETWORK_EXCEPTION]

    run(drive)
