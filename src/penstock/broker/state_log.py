"""A partition of an internal topic, and the machine whose state it holds: a shard of the groups or of the transactions.

It lives as long as this broker leads the partition in one leader epoch; in the next another one takes its place, here
or elsewhere. The machine decides (`base/steps.py`); here its records are appended, replayed, and its answers given when
they are committed. These rules make that safe:

- Decisions are made one at a time and on the newest state. While the partition takes no appends (a sync) they queue.
  Their records are replayed at once and appended together at the end of the loop's turn: many requests share a batch.
- An answer waits until everything that was appended before it is committed, its own records or not: nobody is told
  what a crash could take back.
- Nothing is decided, and nothing told, while the broker's lease does not hold: another may be in charge already. Nor
  while the partition has too few replicas in sync, because no decision could be committed. For the machine time stands
  still meanwhile: nobody is thrown out for not being heard when nobody could be heard.
- When an append fails, what the machine holds in memory may be ahead of the log. It is thrown away and a new one is
  read from the log; whoever waits is told to look for the coordinator again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from penstock.base.errors import ApiError, Error
from penstock.base.steps import Moment, ProducerEpoch, StateRecord, Step, Token
from penstock.base.world import World
from penstock.broker.lease import Lease
from penstock.broker.partition import Partition
from penstock.broker.state_reading import Stored, StoredMarker, read_stored
from penstock.log.scan import DamagedLog
from penstock.wire.compression import Compression
from penstock.wire.records import Record, build_batch
from penstock.wire.state_records import StateCodec

logger = logging.getLogger(__name__)

WRITTEN_AT_ONCE_MAX = 500  # records in a batch of several decisions
REPLAYED_AT_ONCE_MAX = 500  # records; then others get their turn
RELOAD_AFTER_S = 1.0  # a disk that refused an append is not asked again at once,
RELOAD_AFTER_S_MAX = 60.0  # and one that cannot be read less and less often
LOOK_AGAIN_S = 0.2  # whether what keeps a shard from deciding is over

_COMMITTED = (Error.NONE, Error.NOT_ENOUGH_REPLICAS_AFTER_APPEND)


class Machine(Protocol):
    """What a shard is to its log."""

    def replay(self, record: StateRecord, producer: ProducerEpoch | None, offset: int) -> None:
        """A record is in the log; with a producer it counts only when that producer's transaction commits."""

    def replay_marker(self, producer: ProducerEpoch, *, is_commit: bool) -> None:
        """The end of a producer's transaction is in the log."""

    def start(self, now: Moment) -> Step:
        """The log has been read: begin to serve."""

    def next_deadline_ms(self) -> int | None:
        """When, by the monotonic clock, `on_time` wants to be called."""

    def on_time(self, now: Moment) -> Step:
        """Some time has passed."""


M = TypeVar("M", bound=Machine)


class Shape(NamedTuple, Generic[M]):
    """What all shards of one internal topic have in common."""

    codec: StateCodec
    make_machine: Callable[[int], M]  # for a leader epoch
    on_action: Callable[[StateLog[M], Any], None]
    compression: Compression


class StateLog(Generic[M]):
    """See the head of this file."""

    def __init__(self, partition: Partition, shape: Shape[M], world: World, lease: Lease) -> None:
        self.partition = partition
        self.epoch = partition.epoch
        self.machine: M = shape.make_machine(self.epoch)
        self.is_loaded = False
        self.was_read_again = False  # and has another machine than the first
        self._shape = shape
        self._world = world
        self._lease_holds = lease.holds
        self._unanswered: dict[asyncio.Future[Any], None] = {}
        self._queue: deque[Callable[[], None]] = deque()  # decisions that wait for a sync to end
        self._unwritten: list[Record] = []  # decided and replayed in this turn of the loop
        self._untold: list[Step] = []  # whose answers wait for that
        self._is_draining = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at_ms = 0
        self._postponed: list[Callable[[], None]] = []  # decisions that nobody waits for, until one can be made again
        self._still_since_ms: int | None = None  # when it was noticed that none can be made
        self._still_ms = 0  # how long it was like that before
        self._is_over = False
        self._loading = asyncio.ensure_future(self._load())
        partition.fetch_waits[self] = None

    @property
    def index(self) -> int:
        return self.partition.name.partition

    @property
    def is_over(self) -> bool:
        """Whether this broker does not lead the partition in this epoch any more."""
        partition = self.partition
        return self._is_over or partition.is_gone or partition.leader is None or partition.epoch != self.epoch

    @property
    def may_act(self) -> bool:
        """Whether nobody else can be in charge by now."""
        return self.is_loaded and not self.is_over and self._lease_holds()

    def check(self) -> None:
        """ApiError if this shard cannot be asked now."""
        if not self.is_over and not self.is_loaded:
            raise ApiError(Error.COORDINATOR_LOAD_IN_PROGRESS)
        error = self._problem()
        if error is not Error.NONE:
            raise ApiError(error)

    # ── standing still ───────────────────────────────────────────────────────────────────────────────────────────

    def _problem(self) -> Error:
        """Why nothing can be decided now; NONE if it can."""
        error = self._obstacle()
        if error is Error.NONE:
            if self._still_since_ms is not None:
                self._go_on()
        elif self._still_since_ms is None and not self._is_over:
            self._still_since_ms = self._monotonic_ms()
            self._look_again_later()
        return error

    def _obstacle(self) -> Error:
        leader = self.partition.leader
        if leader is None or self.is_over or not self._lease_holds():
            return Error.NOT_COORDINATOR
        return Error.NONE if leader.has_enough else Error.COORDINATOR_NOT_AVAILABLE

    def _look_again_later(self) -> None:
        asyncio.get_running_loop().call_later(LOOK_AGAIN_S, self._look_again)

    def _look_again(self) -> None:
        if self._still_since_ms is not None and not self._is_over and self._problem() is not Error.NONE:
            self._look_again_later()

    def _go_on(self) -> None:
        assert self._still_since_ms is not None
        self._still_ms += self._monotonic_ms() - self._still_since_ms
        self._still_since_ms = None
        postponed, self._postponed = self._postponed, []
        for work in postponed:
            self._when_writable(work)

    # ── asking ───────────────────────────────────────────────────────────────────────────────────────────────────

    async def ask(self, decide: Callable[[M, Token, Moment], Step]) -> Any:
        """The answer to a request, as soon as the machine gives one and it is safe to tell."""
        self.check()
        token = self._new_token()

        def work() -> None:
            error = self._problem()
            if error is Error.NONE:
                self._take(lambda now: decide(self.machine, token, now))
            else:
                _refuse(token, error)

        self._when_writable(work)
        return await token

    def _new_token(self) -> asyncio.Future[Any]:
        token: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._unanswered[token] = None
        token.add_done_callback(self._unanswered.pop)
        return token

    def do(self, decide: Callable[[M, Moment], Step]) -> None:
        """A decision that nobody waits for; nothing happens if the shard is not here any more."""
        if self.is_loaded and not self._is_over:
            self._when_possible(lambda now: decide(self.machine, now))

    def _when_possible(self, decide: Callable[[Moment], Step]) -> None:
        def work() -> None:
            if self._problem() is Error.NONE:
                self._take(decide)
            elif not self._is_over:
                self._postponed.append(work)

        self._when_writable(work)

    async def append_marker(
        self,
        producer: ProducerEpoch,
        *,
        is_commit: bool,
        coordinator_epoch: int,
        transaction_version: int,
        is_wanted: Callable[[], bool] = lambda: True,
    ) -> None:
        """End a producer's transaction in this partition, if that is wanted still; returns when that is committed."""
        self.check()
        token = self._new_token()

        def work() -> None:
            self._write()
            if token.done():
                return  # that failed: the shard is read again, and whoever asks for the marker asks again
            try:
                self.check()
                if not is_wanted():
                    raise ApiError(Error.NOT_COORDINATOR)
                self.partition.append_marker(
                    producer,
                    is_commit=is_commit,
                    coordinator_epoch=coordinator_epoch,
                    transaction_version=transaction_version,
                    now_ms=self._world.clock.wall_ms(),
                )
            except ApiError as error:
                token.set_exception(error)
                return
            self.machine.replay_marker(producer, is_commit=is_commit)
            self._when_committed(lambda: _answer(token, None))

        self._when_writable(work)
        await token

    def _when_writable(self, work: Callable[[], None]) -> None:
        if self._queue or self.partition.is_syncing:
            self._queue.append(work)
            if not self._is_draining:
                self._is_draining = True
                self.partition.when_writable(self._drain)
        else:
            work()

    def _drain(self) -> None:
        while self._queue and not self.partition.is_syncing:
            self._queue.popleft()()
        self._is_draining = bool(self._queue)
        if self._is_draining:
            self.partition.when_writable(self._drain)

    def _take(self, decide: Callable[[Moment], Step]) -> None:
        """Make a decision and carry it out."""
        if self._is_over or not self.is_loaded:
            return  # those who asked have been told
        now = self._now()
        try:
            step = decide(now)
            if step.records:
                self._put(step, now.wall_ms)
        except Exception as error:
            self._failed(error)
            return
        if step.answers or step.actions:
            if self._unwritten:
                self._untold.append(step)
            else:
                self._when_committed(lambda: self._tell(step))
        self._set_timer(now.monotonic_ms)

    def _put(self, step: Step, wall_ms: int) -> None:
        """Replay a step's records, and have them written before the loop's turn ends."""
        if step.producer is not None and self._unwritten:
            self._append(None)
        unwritten = self._unwritten
        first = len(unwritten)
        encode = self._shape.codec.encode
        for number, record in enumerate(step.records, first):
            unwritten.append(Record(number, wall_ms, *encode(record)))
        offset = self.partition.log.end_offset + first
        for record in step.records:
            self.machine.replay(record, step.producer, offset)
            offset += 1
        if step.producer is not None:
            self._append(step.producer)
        elif len(unwritten) >= WRITTEN_AT_ONCE_MAX:
            self._append(None)
        elif not first:
            asyncio.get_running_loop().call_soon(self._write)

    def _write(self) -> None:
        """Append what was decided in this turn."""
        if not self._unwritten:
            return
        if self.partition.is_syncing:
            self.partition.when_writable(self._write)
            return
        try:
            self._append(None)
        except Exception as error:
            self._failed(error)

    def _append(self, producer: ProducerEpoch | None) -> None:
        records, self._unwritten = self._unwritten, []
        told, self._untold = self._untold, []
        transactional = producer is not None
        producer_id, epoch = producer if producer is not None else (-1, -1)
        batch = build_batch(
            records,
            compression=self._shape.compression,
            transactional=transactional,
            producer_id=producer_id,
            producer_epoch=epoch,
        )
        self.partition.append_own(memoryview(bytearray(batch)), records[-1].timestamp)
        if told:
            self._when_committed(lambda: self._tell_all(told))

    def _failed(self, error: Exception) -> None:
        """What is in memory may be ahead of the log."""
        name = self.partition.name
        if self.is_over:
            self.end()
            return
        if isinstance(error, ApiError):
            logger.error("%s: a decision could not be written, the shard is read again: %s", name, error)
        else:
            logger.error("%s: a decision failed, the shard is read again", name, exc_info=error)
        self._reload(RELOAD_AFTER_S)

    def _when_committed(self, tell: Callable[[], None]) -> None:
        """Call back when all that is in the log now is committed, unless the shard has been read again by then."""
        partition, machine = self.partition, self.machine
        end_offset = partition.log.end_offset

        def committed(error: Error) -> None:
            if error in _COMMITTED and self.machine is machine:
                tell()

        if partition.high_watermark >= end_offset:
            tell()
        else:
            partition.when_committed(end_offset, committed)

    def _tell_all(self, steps: list[Step]) -> None:
        for step in steps:
            self._tell(step)

    def _tell(self, step: Step) -> None:
        obstacle = self._obstacle()  # the process may have stood still since the decision
        for token, response in step.answers:
            assert isinstance(token, asyncio.Future)
            if obstacle is Error.NONE:
                _answer(token, response)
            else:
                _refuse(token, obstacle)
        for action in step.actions:
            self._shape.on_action(self, action)

    # ── time ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def _monotonic_ms(self) -> int:
        return int(self._world.clock.monotonic() * 1000)

    def _now(self) -> Moment:
        """Now, for the machine: without the time in which it could do nothing."""
        return Moment(self._monotonic_ms() - self._still_ms, self._world.clock.wall_ms())

    def _set_timer(self, now_ms: int) -> None:
        """See to it that the machine is called in time; a call too early does no harm and sets the timer anew."""
        deadline_ms = self.machine.next_deadline_ms()
        if deadline_ms is None or (self._timer is not None and self._timer_at_ms <= deadline_ms):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at_ms = deadline_ms
        delay_s = max(0, deadline_ms - now_ms + 1) / 1000
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._time_has_come)

    def _time_has_come(self) -> None:
        self._timer = None
        self._when_possible(lambda now: self.machine.on_time(now))

    # ── loading, and the end ─────────────────────────────────────────────────────────────────────────────────────

    async def _load(self, after_s: float = 0.0) -> None:
        if after_s:
            await asyncio.sleep(after_s)
        partition = self.partition
        log = partition.log
        offset, end_offset = log.start_offset, log.end_offset
        replayed = 0
        try:
            while offset < end_offset:
                reading = partial(read_stored, log, offset, end_offset, self._shape.codec)
                offset, stored = await self._world.disk.run("read", reading)
                for each in stored:
                    self._replay(each)
                    replayed += 1
                    if replayed % REPLAYED_AT_ONCE_MAX == 0:
                        await asyncio.sleep(0)
        except Exception as error:
            if not self._is_over:
                is_expected = isinstance(error, ApiError | OSError | DamagedLog)
                trace = None if is_expected else error
                logger.error("%s cannot be read, and is tried again: %s", partition.name, error, exc_info=trace)
                self._reload(min(max(RELOAD_AFTER_S, 2 * after_s), RELOAD_AFTER_S_MAX))
            return
        if self._is_over:
            return
        self.is_loaded = True
        if replayed:
            logger.info("%s: %d records replayed", partition.name, replayed)
        self._when_possible(self.machine.start)

    def _replay(self, stored: Stored) -> None:
        if isinstance(stored.content, StoredMarker):
            self.machine.replay_marker(stored.content.producer, is_commit=stored.content.is_commit)
        else:
            self.machine.replay(stored.content, stored.producer, stored.offset)

    def _reload(self, after_s: float) -> None:
        """Throw away what is in memory and read the log again."""
        self._quiet(Error.NOT_COORDINATOR)
        self.machine = self._shape.make_machine(self.epoch)
        self.was_read_again = True
        self._loading = asyncio.ensure_future(self._load(after_s))

    def _quiet(self, error: Error) -> None:
        self.is_loaded = False
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._queue.clear()
        self._postponed.clear()
        self._unwritten, self._untold = [], []
        for token in list(self._unanswered):
            _refuse(token, error)

    def end(self) -> None:
        """The shard is not here any more: whoever waits is told to look elsewhere."""
        if not self._is_over:
            self._is_over = True
            self._loading.cancel()
            self._quiet(Error.NOT_COORDINATOR)
            self.partition.fetch_waits.pop(self, None)

    def on_bytes(self, size_bytes: int) -> None:
        """As one who waits on the partition; what grows it, this shard wrote itself."""

    def on_change(self) -> None:
        if self.is_over:
            self.end()


def _answer(token: asyncio.Future[Any], response: Any) -> None:
    if not token.done():
        token.set_result(response)


def _refuse(token: asyncio.Future[Any], error: Error) -> None:
    if not token.done():
        token.set_exception(ApiError(error))
