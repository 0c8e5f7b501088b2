"""Batches whose writers are committed at once, as a job on many machines writes them: each batch all of it, once.

A driver has tasks write a part of the batch each, in a transaction of its own; when all have prepared theirs, one
request commits them under the batch's number. Tasks are slow, die and are done again, sometimes while the first attempt
still writes, with the same transactional id; a commit is asked for until it is answered. If it is refused the whole
batch is written again. Every attempt writes messages of its own, so that it is known in the end which of them count.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from itertools import count

from penstock.base.errors import ApiError, Error
from penstock.base.identifiers import TopicPartition
from penstock.testing.histories.client_history import ClientHistory
from penstock.testing.histories.facts import Outcome
from penstock.testing.sim_routes import MOVED, TRANSACTION, Routes
from penstock.testing.sim_transactions import SimTransactions, Unanswered
from penstock.transactions.names import id_of_member
from penstock.wire.messages.k20000_prepare_transactions import (
    PrepareTransactionsRequest,
    PrepareTransactionsRequestTransaction,
)
from penstock.wire.messages.k20001_commit_transactions import (
    CommitTransactionsRequest,
    CommitTransactionsRequestTransaction,
)

SINK = "sink"
PARTITIONS = 2
TASKS = 2
ANSWER_WITHIN_S = 5.0
AGAIN_S = 0.2


@dataclass(slots=True)
class Attempt:
    """One attempt at a task: its transaction, as the history and as the cluster know it."""

    task: int
    transaction: str
    transactional_id: str
    producer_id: int
    producer_epoch: int


@dataclass(slots=True)
class CommittedBatch:
    """A batch that was to be committed, with the attempts that count."""

    number: int
    attempts: list[Attempt]
    outcome: Outcome = Outcome.UNKNOWN
    values: dict[str, list[bytes]] = field(default_factory=dict)


class SimBatches:
    """The driver and its tasks."""

    def __init__(self, new_routes: Callable[[str], Routes], name: str, history: ClientHistory) -> None:
        self.history = history
        self.is_finishing = False
        self.batches: list[CommittedBatch] = []
        self._driver = new_routes(name)
        self._first_tries = [new_routes(f"{name}-{task}") for task in range(TASKS)]
        self._second_tries = [new_routes(f"{name}-{task}-again") for task in range(TASKS)]
        self._name = name
        self._random = self._driver.world.random
        self._runs = count()
        self._attempts = count()
        self._values: dict[str, list[bytes]] = {}

    async def run(self) -> None:
        """One batch after the other."""
        for number in count():
            while not await self._batch(number):
                await asyncio.sleep(AGAIN_S)
            if self.is_finishing:
                return
            await asyncio.sleep(self._random.random())

    async def _batch(self, number: int) -> bool:
        """Write and commit a batch; False if it has to be written again."""
        run = next(self._runs)
        try:
            attempts = [await self._task(task, number, run) for task in range(TASKS)]
        except (ApiError, Unanswered):
            return False
        values = {each.transaction: self._values[each.transaction] for each in attempts}
        batch = CommittedBatch(number, attempts, values=values)
        self.batches.append(batch)
        late = [
            asyncio.get_running_loop().create_task(self._write(each.task, self._second_tries[each.task]))
            for each in attempts
            if self._random.random() < 0.25
        ]
        for each in attempts:
            self.history.ending(each.transaction, is_commit=True)
        batch.outcome = await self._commit(batch)
        for each in attempts:
            self.history.ended(each.transaction, batch.outcome)
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)
        return batch.outcome is Outcome.DONE

    async def _task(self, task: int, number: int, run: int) -> Attempt:
        attempt = await self._write(task, self._first_tries[task])
        named = PrepareTransactionsRequestTransaction(
            transactional_id=attempt.transactional_id,
            producer_id=attempt.producer_id,
            producer_epoch=attempt.producer_epoch,
        )
        request = PrepareTransactionsRequest(name=self._name, number=number, run=run, transactions=[named])
        error = await self._ask(request, attempt.transactional_id)
        if error is not Error.NONE:
            raise ApiError(error)
        return attempt

    async def _write(self, task: int, routes: Routes) -> Attempt:
        """One attempt writes its part of the batch, and leaves its transaction open."""
        transactional_id = id_of_member(self._name, str(task))
        writer = SimTransactions(routes, transactional_id, self.history, is_new=True)
        writer.label = f"{task}.{next(self._attempts)}"
        transaction = await writer.begin()
        self._values[transaction] = []
        for _ in range(1 + self._random.randrange(3)):
            where = TopicPartition(SINK, self._random.randrange(PARTITIONS))
            self._values[transaction].append(await writer.send(where))
        return Attempt(task, transaction, transactional_id, *writer.producer)

    async def _commit(self, batch: CommittedBatch) -> Outcome:
        rows = [
            CommitTransactionsRequestTransaction(
                transactional_id=each.transactional_id,
                producer_id=each.producer_id,
                producer_epoch=each.producer_epoch,
            )
            for each in batch.attempts
        ]
        request = CommitTransactionsRequest(name=self._name, number=batch.number, transactions=rows)
        error = await self._ask(request, batch.attempts[0].transactional_id)
        return Outcome.DONE if error is Error.NONE else Outcome.REFUSED

    async def _ask(self, request: PrepareTransactionsRequest | CommitTransactionsRequest, key: str) -> Error:
        """What was answered in the end, however long that takes."""
        while True:
            try:
                async with asyncio.timeout(ANSWER_WITHIN_S):
                    client = await self._driver.coordinator(key, TRANSACTION)
                    error = Error((await client.call(request)).error_code)
            except OSError:
                self._driver.start_over()
                await asyncio.sleep(AGAIN_S)
                continue
            except ApiError as nowhere:
                error = nowhere.error
            if error is Error.NONE or not (error.retriable or error is Error.CONCURRENT_TRANSACTIONS):
                return error
            if error in MOVED:
                self._driver.start_over()
            await asyncio.sleep(AGAIN_S)

    # ── the verdict ──────────────────────────────────────────────────────────────────────────────────────────────

    def problems(self, committed: Mapping[TopicPartition, Collection[bytes | None]]) -> list[str]:
        """What is wrong with the batches, beside what the history says of each of their transactions."""
        visible = {value for where, values in committed.items() if where.topic == SINK for value in values}
        found = []
        done: dict[int, int] = {}
        for batch in self.batches:
            shown = [any(value in visible for value in values) for values in batch.values.values()]
            if any(shown) and not all(shown):
                found.append(f"batch {batch.number} is there in part: {dict(zip(batch.values, shown, strict=True))}")
            done[batch.number] = done.get(batch.number, 0) + all(shown)
        return found + [f"batch {number} is there {times} times" for number, times in done.items() if times > 1]
