"""Fetching from one leader, for all partitions of this broker that follow it: one connection, one session.

Each partition is in one of four states. To be **asked** for: the next request names it, with its position. **Asked**:
the leader knows, and answers when there is news. **Busy**: what came is being appended or cut in the background.
**Resting**: after a failure, or held back by a limit. Only the first kind is in a request, only those with news are in
an answer; so both cost by what happens, not by the number of partitions.

Whenever an answer is worked off the next request goes out. A partition that becomes ready later need not wait for the
answer to that one: another request is sent behind it, and the leader answers the first at once. An answer counts for a
partition only if it belongs to the request that named it last, so that nothing is appended for a position, or an epoch,
that is not the present one any more.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from enum import Enum
from typing import NamedTuple
from uuid import UUID

from penstock import __version__
from penstock.base.errors import ApiError, Error
from penstock.base.world import Address, World
from penstock.broker.follower_link import FollowerLink, LinkEnded
from penstock.broker.inter_broker import InterBroker
from penstock.broker.log_cuts import cut_back, place
from penstock.broker.membership import Membership
from penstock.broker.partition import Partition
from penstock.broker.replica_throttle import Limit
from penstock.broker.topics import INTERNAL_TOPICS
from penstock.replication.follower import EpochEnd, place_after_out_of_range
from penstock.sasl.exchange import LoginFailed
from penstock.wire.fetch_answer import FollowerAnswer, read_fetch_answer
from penstock.wire.messages.k01_fetch import API as FETCH
from penstock.wire.messages.k01_fetch import (
    FetchRequest,
    FetchRequestForgottenTopic,
    FetchRequestPartition,
    FetchRequestReplicaState,
    FetchRequestTopic,
)
from penstock.wire.messages.k02_list_offsets import API as LIST_OFFSETS
from penstock.wire.messages.k02_list_offsets import (
    ListOffsetsRequest,
    ListOffsetsRequestPartition,
    ListOffsetsRequestTopic,
)
from penstock.wire.messages.k18_api_versions import API as API_VERSIONS
from penstock.wire.messages.k18_api_versions import ApiVersionsRequest

logger = logging.getLogger(__name__)

API_VERSIONS_VERSION = 3  # one that every release understands
FETCH_VERSION_MIN = 15  # the first that says in which of its lives a broker fetches
LATEST, EARLIEST = -1, -2
FETCHES_IN_FLIGHT_MAX = 2
APPENDED_IN_A_ROW_BYTES_MAX = 1 << 20  # then others have their turn
BACKOFF_S_MIN = 0.01
HELD_BACK_S = 0.1
NO_SESSION = 0

#: The leader, or this broker, does not know yet what was decided; soon both do.
_SOON_OVER = frozenset(
    {
        Error.NOT_LEADER_OR_FOLLOWER,
        Error.FENCED_LEADER_EPOCH,
        Error.UNKNOWN_LEADER_EPOCH,
        Error.UNKNOWN_TOPIC_ID,
        Error.UNKNOWN_TOPIC_OR_PARTITION,
    }
)


class FetchRules(NamedTuple):
    """The settings `replica.fetch.*`, and how long a leader may be silent."""

    wait_ms_max: int
    bytes_min: int
    partition_bytes_max: int
    answer_bytes_max: int
    backoff_s_max: float
    connect_s_max: float
    silence_s_max: float


class Registration(NamedTuple):
    """Where a leader is, in which of its lives."""

    address: Address
    epoch: int


class State(Enum):
    """See the head of this file."""

    TO_ASK = "to be asked for"
    ASKED = "asked"
    BUSY = "busy"
    RESTING = "resting"


class Followed:
    """One partition, while it follows this leader."""

    __slots__ = ("epoch", "failures", "log_start_offset", "named_in", "partition", "resting", "state")

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.epoch = partition.epoch
        self.state = State.RESTING
        self.named_in = 0  # the number of the fetch; 0: of none on this connection
        self.log_start_offset = 0  # as the leader was told
        self.failures = 0  # in a row
        self.resting: asyncio.TimerHandle | None = None


class FollowerFetcher:
    """See the head of this file."""

    def __init__(
        self,
        world: World,
        membership: Membership,
        leader_id: int,
        registration: Callable[[], Registration | None],
        rules: FetchRules,
        limit: Limit,
        inter_broker: InterBroker,
    ) -> None:
        self._world = world
        self._inter_broker = inter_broker
        self._membership = membership
        self._leader_id = leader_id
        self._registration = registration
        self._rules = rules
        self._limit = limit
        self._followed: dict[Partition, Followed] = {}
        self._by_key: dict[tuple[bytes, int], Followed] = {}
        self._to_ask: dict[Followed, None] = {}
        self._to_forget: dict[tuple[UUID, int], None] = {}
        self._is_planned = False
        self._appending: set[asyncio.Task[None]] = set()
        self._cutting: set[asyncio.Task[None]] = set()
        self._task: asyncio.Task[None] | None = None
        self._news = asyncio.Event()
        self._failures = 0  # of connections, in a row
        self.on_broken: Callable[[], None] = lambda: None
        # the connection, and what belongs to it
        self._link: FollowerLink | None = None
        self._connected_to: Registration | None = None
        self._broker_epoch = -1  # ours
        self._fetch_version = self._offsets_version = 0
        self._number = 0  # of the last fetch
        self._fetches_in_flight = 0
        self._session_id = NO_SESSION
        self._session_epoch = 0

    # ── which partitions ─────────────────────────────────────────────────────────────────────────────────────────

    def __len__(self) -> int:
        return len(self._followed)

    def follow(self, partition: Partition) -> None:
        """Fetch for a partition from now on, in the epoch that is in force there."""
        self._take_out(partition)
        followed = self._followed[partition] = Followed(partition)
        self._by_key[partition.topic_id.bytes, partition.name.partition] = followed
        self._ready(followed)
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._run())

    def leave(self, partition: Partition) -> None:
        """It does not follow this leader any more."""
        self._take_out(partition)
        if not self._followed:
            self._end()

    def _take_out(self, partition: Partition) -> None:
        followed = self._followed.pop(partition, None)
        if followed is None:
            return
        topic_id, index = partition.topic_id, partition.name.partition
        del self._by_key[topic_id.bytes, index]
        self._to_ask.pop(followed, None)
        if followed.named_in:
            self._to_forget[topic_id, index] = None
        if followed.resting is not None:
            followed.resting.cancel()

    def view_changed(self) -> None:
        """The leader may have another address, or another life; or this broker has."""
        registration = self._registration()
        if self._link is not None and registration is not None and registration != self._connected_to:
            self._link.end("it has registered anew")
        self._news.set()

    def _end(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None

    async def stop(self) -> None:
        """Fetch nothing any more; returns when nothing is changed in the background."""
        unfinished = [*self._appending, *self._cutting, *([self._task] if self._task is not None else ())]
        for partition in list(self._followed):
            self.leave(partition)
        for appending in self._appending:
            appending.cancel()
        if unfinished:
            await asyncio.wait(unfinished)

    # ── the connection ───────────────────────────────────────────────────────────────────────────────────────────

    async def _run(self) -> None:
        while True:
            try:
                await self._fetch_while_connected()
            except (OSError, LinkEnded) as error:
                say = logger.debug if self._failures else logger.warning
                say("broker %d is asked again for its records: %s", self._leader_id, error)
            except Exception:
                logger.exception("fetching from broker %d failed, and begins anew", self._leader_id)
            self.on_broken()
            self._failures += 1
            await self._wait_for_news(self._backoff_s(self._failures))

    async def _wait_for_news(self, seconds_max: float) -> None:
        self._news.clear()
        alarm = asyncio.get_running_loop().call_later(seconds_max, self._news.set)
        try:
            await self._news.wait()
        finally:
            alarm.cancel()

    def _backoff_s(self, failures: int) -> float:
        return min(self._rules.backoff_s_max, BACKOFF_S_MIN * 2.0 ** min(failures - 1, 20))

    async def _fetch_while_connected(self) -> None:
        """Returns never; OSError or LinkEnded say why it ended."""
        while self._membership.epoch < 0 or (registration := self._registration()) is None:
            await self._wait_for_news(self._rules.backoff_s_max)
        self._connected_to, self._broker_epoch = registration, self._membership.epoch
        async with asyncio.timeout(self._rules.connect_s_max):
            stream = await self._inter_broker.connect(*registration.address)
        link = FollowerLink(stream, self._world.clock, f"penstock-follower-{self._membership.broker_id}")
        try:
            await self._learn_versions(link)
            await self._log_in(link)
            self._begin_session(link)
            while not link.is_over:
                await asyncio.wait([link.over], timeout=self._rules.silence_s_max / 2)
                if link.silent_s > self._rules.silence_s_max:
                    link.end(f"not a byte for {link.silent_s:.1f} s")
            raise LinkEnded(link.over.result())
        finally:
            self._link = None
            link.end("given up")

    async def _learn_versions(self, link: FollowerLink) -> None:
        request = ApiVersionsRequest(client_software_name="penstock", client_software_version=__version__)
        try:
            async with asyncio.timeout(self._rules.silence_s_max):
                answer = await link.ask(API_VERSIONS, API_VERSIONS_VERSION, request)
        except TimeoutError:
            raise LinkEnded("it does not say what it serves") from None
        highest = {row.api_key: row.max_version for row in answer.api_keys}
        self._fetch_version = min(FETCH.max_version, highest.get(FETCH.key, -1))
        self._offsets_version = min(LIST_OFFSETS.max_version, highest.get(LIST_OFFSETS.key, -1))
        if self._fetch_version < FETCH_VERSION_MIN or self._offsets_version < LIST_OFFSETS.min_version:
            raise LinkEnded("it does not speak a version of Fetch that we do")

    async def _log_in(self, link: FollowerLink) -> None:
        try:
            async with asyncio.timeout(self._rules.silence_s_max):
                await self._inter_broker.log_in(link)
        except TimeoutError:
            raise LinkEnded("it does not answer the login") from None
        except LoginFailed as failed:
            raise LinkEnded(str(failed)) from None

    def _begin_session(self, link: FollowerLink) -> None:
        self._link = link
        self._fetches_in_flight = 0
        self._session_id, self._session_epoch = NO_SESSION, 0
        self._to_forget.clear()
        for followed in self._followed.values():
            followed.named_in = 0
            if followed.state is State.ASKED:
                self._ready(followed)
        self._ask()

    # ── asking ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _ready(self, followed: Followed) -> None:
        """A partition can be fetched for, from the end of its log."""
        partition = followed.partition
        if self._followed.get(partition) is not followed or partition.is_gone:
            return  # nothing of one that is gone will ever be synced
        if self._is_held_back(partition):
            self._rest(followed, HELD_BACK_S)
        elif _lacks_room(partition):
            self._rest(followed, self._rules.backoff_s_max)
        elif partition.must_sync:
            self._work_on(followed, partition.until_synced, self._appending)
        else:
            followed.state = State.TO_ASK
            self._to_ask[followed] = None
            self._ask_soon()

    def _is_held_back(self, partition: Partition) -> bool:
        """Whether a replica that is limited has got enough for now."""
        return (
            partition.name.partition in partition.config.throttled_as_follower
            and self._membership.broker_id not in partition.state.isr
            and self._limit.throttle.is_used_up(self._world.clock.monotonic(), self._limit.bytes_per_s_max())
        )

    def _ask_soon(self) -> None:
        """Ask after what is being done now, for all that is ready then."""
        if not self._is_planned:
            self._is_planned = True
            asyncio.get_running_loop().call_soon(self._ask_as_planned)

    def _ask_as_planned(self) -> None:
        if self._is_planned:
            self._ask()

    def _ask(self, *, is_urgent: bool = False) -> None:
        """Send the next fetch, unless there is one in flight and nothing new to ask for."""
        self._is_planned = False
        link = self._link
        if link is None or link.is_over or self._fetches_in_flight >= FETCHES_IN_FLIGHT_MAX:
            return
        if self._fetches_in_flight and (self._session_id == NO_SESSION or not (self._to_ask or is_urgent)):
            return
        if self._session_id == NO_SESSION and not self._to_ask:
            return
        if self._membership.epoch != self._broker_epoch:
            link.end("this broker has registered anew")
            return
        self._number = number = self._number + 1
        request = self._request(number)
        self._fetches_in_flight += 1
        self._session_epoch = 1 if self._session_epoch == 0x7FFFFFFF else self._session_epoch + 1
        link.request(FETCH, self._fetch_version, request, lambda frame, at: self._take(link, number, frame, at))

    def _request(self, number: int) -> FetchRequest:
        rules = self._rules
        named: dict[UUID, list[FetchRequestPartition]] = {}
        for followed in self._to_ask:
            partition, log = followed.partition, followed.partition.log
            followed.epoch = partition.epoch
            followed.named_in = number
            followed.log_start_offset = log.start_offset
            followed.state = State.ASKED
            row = FetchRequestPartition(
                partition=partition.name.partition,
                current_leader_epoch=followed.epoch,
                fetch_offset=log.end_offset,
                last_fetched_epoch=log.epochs.latest,
                log_start_offset=log.start_offset,
                partition_max_bytes=rules.partition_bytes_max,
            )
            named.setdefault(partition.topic_id, []).append(row)
        forgotten: dict[UUID, list[int]] = {}
        for topic_id, index in self._to_forget:
            forgotten.setdefault(topic_id, []).append(index)
        self._to_ask.clear()
        self._to_forget.clear()
        return FetchRequest(
            replica_state=FetchRequestReplicaState(
                replica_id=self._membership.broker_id, replica_epoch=self._broker_epoch
            ),
            max_wait_ms=rules.wait_ms_max,
            min_bytes=rules.bytes_min,
            max_bytes=rules.answer_bytes_max,
            session_id=self._session_id,
            session_epoch=self._session_epoch,
            topics=[FetchRequestTopic(topic_id=topic_id, partitions=rows) for topic_id, rows in named.items()],
            forgotten_topics_data=[
                FetchRequestForgottenTopic(topic_id=topic_id, partitions=indexes)
                for topic_id, indexes in forgotten.items()
            ],
        )

    # ── what comes ───────────────────────────────────────────────────────────────────────────────────────────────

    def _take(self, link: FollowerLink, number: int, frame: memoryview, position: int) -> None:
        """An answer has come."""
        answer = read_fetch_answer(frame, position)
        if answer.error:
            link.end(f"it answers with error {answer.error}")
            return
        self._failures = 0
        if answer.session_id != self._session_id:
            self._session_id = answer.session_id
            if answer.session_id == NO_SESSION:
                self._session_epoch = 0
        self._work_off(link, number, iter(answer.partitions))

    def _work_off(self, link: FollowerLink, number: int, answers: Iterator[FollowerAnswer]) -> None:
        """Take an answer's partitions one after the other; large ones with a turn for others in between."""
        size_bytes = 0
        for answer in answers:
            followed = self._by_key.get((answer.topic_id, answer.partition))
            if followed is not None and followed.state is State.ASKED and followed.named_in <= number:
                self._take_partition(link, followed, answer)
            size_bytes += len(answer.records or b"")
            if size_bytes >= APPENDED_IN_A_ROW_BYTES_MAX:
                asyncio.get_running_loop().call_soon(self._go_on, link, number, answers)
                return
        if link is self._link:
            self._fetches_in_flight -= 1
            self._ask()
        link.done()

    def _go_on(self, link: FollowerLink, number: int, answers: Iterator[FollowerAnswer]) -> None:
        try:
            self._work_off(link, number, answers)
        except Exception as error:  # a bug of ours, which must not be the end of the fetching
            logger.exception("an answer of broker %d could not be taken", self._leader_id)
            link.end(f"an answer that could not be taken: {error}")

    def _take_partition(self, link: FollowerLink, followed: Followed, answer: FollowerAnswer) -> None:
        partition, epoch = followed.partition, followed.epoch
        try:
            if answer.error:
                self._refused(link, followed, Error(answer.error))
            elif answer.diverging is not None:
                diverging = EpochEnd(*answer.diverging)
                self._work_on(followed, lambda: cut_back(partition, epoch, diverging), self._cutting)
            elif answer.records is not None:
                self._append(link, followed, answer, answer.records)
            else:
                partition.take_high_watermark(epoch, answer.high_watermark, answer.log_start_offset)
                followed.failures = 0
                if partition.log.start_offset != followed.log_start_offset:
                    self._ready(followed)
        except ApiError as error:
            self._failed(followed, error)
        except Exception:
            logger.exception("%s: what broker %d sent could not be taken", partition.name, self._leader_id)
            self._rest(followed, self._rules.backoff_s_max)

    def _append(self, link: FollowerLink, followed: Followed, answer: FollowerAnswer, records: memoryview) -> None:
        partition, epoch = followed.partition, followed.epoch
        if _lacks_room(partition):
            raise ApiError(Error.KAFKA_STORAGE_ERROR, "the disk is nearly full")
        if partition.name.partition in partition.config.throttled_as_follower:
            self._limit.throttle.record(len(records), self._world.clock.monotonic())

        def append() -> None:
            partition.append_fetched(epoch, records, answer.high_watermark, answer.log_start_offset)

        if partition.is_syncing:
            link.keep_buffer()
            self._work_on(followed, lambda: partition.in_turn(append), self._appending)
        else:
            append()
            followed.failures = 0
            self._ready(followed)

    def _refused(self, link: FollowerLink, followed: Followed, error: Error) -> None:
        if error is Error.OFFSET_OUT_OF_RANGE:
            self._work_on(followed, lambda: self._place_anew(link, followed), self._cutting)
            self._ask(is_urgent=True)
        else:
            raise ApiError(error, f"said by broker {self._leader_id}")

    # ── in the background ────────────────────────────────────────────────────────────────────────────────────────

    def _work_on(self, followed: Followed, work: Callable[[], Awaitable[None]], among: set[asyncio.Task[None]]) -> None:
        followed.state = State.BUSY
        task = asyncio.get_running_loop().create_task(self._work(followed, work))
        among.add(task)
        task.add_done_callback(among.discard)

    async def _work(self, followed: Followed, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except ApiError as error:
            self._failed(followed, error)
        except LinkEnded:
            self._rest(followed, BACKOFF_S_MIN)
        except Exception:
            logger.exception("%s: what broker %d sent could not be taken", followed.partition.name, self._leader_id)
            self._rest(followed, self._rules.backoff_s_max)
        else:
            followed.failures = 0
            self._ready(followed)

    async def _place_anew(self, link: FollowerLink, followed: Followed) -> None:
        """The leader does not have what comes at the end of our log: find out where to go on."""
        partition, epoch = followed.partition, followed.epoch
        start_offset, end_offset = await asyncio.gather(
            self._offset_of(link, partition, epoch, EARLIEST), self._offset_of(link, partition, epoch, LATEST)
        )
        placed = place_after_out_of_range(partition.log.end_offset, start_offset, end_offset)
        if placed.offset == partition.log.end_offset:
            raise ApiError(Error.OFFSET_OUT_OF_RANGE, f"the leader has {start_offset} to {end_offset}")
        await place(partition, epoch, placed)

    async def _offset_of(self, link: FollowerLink, partition: Partition, epoch: int, timestamp: int) -> int:
        index = partition.name.partition
        part = ListOffsetsRequestPartition(partition_index=index, current_leader_epoch=epoch, timestamp=timestamp)
        topic = ListOffsetsRequestTopic(name=partition.name.topic, partitions=[part])
        request = ListOffsetsRequest(replica_id=self._membership.broker_id, topics=[topic])
        answer = (await link.ask(LIST_OFFSETS, self._offsets_version, request)).topics[0].partitions[0]
        if answer.error_code:
            raise ApiError(Error(answer.error_code), f"said by broker {self._leader_id}")
        offset: int = answer.offset
        return offset

    def _failed(self, followed: Followed, error: ApiError) -> None:
        followed.failures += 1
        if error.error in _SOON_OVER:
            self._rest(followed, self._backoff_s(followed.failures))
            return
        say = logger.warning if followed.failures == 1 else logger.debug
        say("%s: fetched again in a moment: %s", followed.partition.name, error)
        self._rest(followed, self._rules.backoff_s_max)

    def _rest(self, followed: Followed, seconds: float) -> None:
        if self._followed.get(followed.partition) is followed:
            followed.state = State.RESTING
            followed.resting = asyncio.get_running_loop().call_later(seconds, self._ready, followed)


def _lacks_room(partition: Partition) -> bool:
    """Whether the disk is so full that only groups and transactions may use the rest of it."""
    return not partition.takes_writes and partition.name.topic not in INTERNAL_TOPICS
