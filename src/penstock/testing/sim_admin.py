"""A simulated administrator: topics come and go and producer ids are handed out, while the broker fails under it.

Every topic has a name of its own and is created once, and perhaps deleted once. So at the end it is known of each
whether it must be there, must not, or may be (an answer was lost). A change that was refused for want of space must
not have happened.
"""

from __future__ import annotations

import asyncio
from enum import Enum

from penstock.base.errors import ApiError, Error
from penstock.base.world import World
from penstock.testing.history import History
from penstock.testing.sim_client import SimClient
from penstock.testing.sim_workload import RECONNECT_S, REQUEST_TIMEOUT_S, SimWorker
from penstock.wire.messages.k03_metadata import MetadataRequest
from penstock.wire.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicsRequestTopic


class Told(Enum):
    """What is known of a topic."""

    THERE = "there"
    GONE = "gone"
    NOT_SURE = "not sure"


class SimAdmin(SimWorker):
    """See the head of this file."""

    def __init__(self, world: World, host: str, port: int, name: str, history: History, pause_s_max: float) -> None:
        super().__init__(world, host, port, name, history)
        self._pause_s_max = pause_s_max
        self._topics: dict[str, Told] = {}
        self._producer_ids: set[int] = set()

    async def run(self) -> None:
        """Go on until cancelled."""
        while True:
            work = (self._create, self._create, self._delete, self._take_producer_id)[self._world.random.randrange(4)]
            try:
                async with asyncio.timeout(REQUEST_TIMEOUT_S):
                    await work(await self._connected())
            except OSError:
                self._disconnect()
                await asyncio.sleep(RECONNECT_S)
            except ApiError as error:
                self._count(error.error)
                if not error.error.retriable:
                    self._history.problems.append(f"{self.name}: unexpected {error.error.name}: {error}")
            await asyncio.sleep(self._world.random.random() * self._pause_s_max)

    async def _create(self, client: SimClient) -> None:
        topic = f"{self.name}-{len(self._topics)}"
        self._topics[topic] = Told.NOT_SURE
        try:
            await client.create_topic(topic)
        except ApiError as error:
            if error.error is Error.KAFKA_STORAGE_ERROR:
                self._topics[topic] = Told.GONE
            raise
        self._topics[topic] = Told.THERE

    async def _delete(self, client: SimClient) -> None:
        there = [topic for topic, told in self._topics.items() if told is Told.THERE]
        if not there:
            return
        topic = there[self._world.random.randrange(len(there))]
        self._topics[topic] = Told.NOT_SURE
        request = DeleteTopicsRequest(topics=[DeleteTopicsRequestTopic(name=topic)], timeout_ms=10_000)
        error = Error((await client.call(request)).responses[0].error_code)
        self._topics[topic] = Told.THERE if error is Error.KAFKA_STORAGE_ERROR else Told.GONE
        if error is not Error.NONE:
            raise ApiError(error)

    async def _take_producer_id(self, client: SimClient) -> None:
        producer_id = await client.init_producer_id()
        if producer_id in self._producer_ids:
            self._history.problems.append(f"{self.name}: producer id {producer_id} was given twice")
        self._producer_ids.add(producer_id)

    async def check(self, client: SimClient) -> None:
        """Compare what it was told with what is there."""
        found = {topic.name for topic in (await client.call(MetadataRequest(topics=None))).topics}
        for topic, told in self._topics.items():
            if told is not Told.NOT_SURE and (topic in found) is not (told is Told.THERE):
                self._history.problems.append(f"topic {topic} should be {told.value}")
