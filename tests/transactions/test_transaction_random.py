"""Random clients of both protocols, with duplicates, late requests, timeouts and crashes, judged by what readers see.

Whatever happens:
- the batches of one transaction are all committed or all aborted, and as its client was told if it was told;
- a producer that was replaced gets nothing done any more;
- no producer is given an epoch that another one had;
- everything that was decided is completed, and nothing stays open for ever.

Producers of the first protocol keep their epoch, so a request of theirs that comes late can meet their next
transaction. That is the window that the second protocol closed; here only theirs come at any time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.base.errors import Error
from penstock.base.identifiers import TopicPartition
from penstock.base.steps import ProducerEpoch
from penstock.transactions.settings import TransactionSettings
from penstock.transactions.transaction import EPOCH_MAX, Transaction

from .rig import Rig, Waiting

IDS = ("a", "b")
PARTITIONS = [TopicPartition("t", index) for index in range(3)]
RETRIED = (Error.CONCURRENT_TRANSACTIONS,)
QUICK = settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck))
THOROUGH = settings(max_examples=5_000, deadline=None, suppress_health_check=list(HealthCheck))

OPERATIONS = (
    *("take over", "go on", "abort", "repeat", "late", "late", "marker", "crash", "time"),
    *(["write"] * 7),
    *(["commit"] * 4),
)
LAZY_LOG, LAZY_MARKERS = 1, 2
Operation = tuple[str, int, int, int]
"""what, who, a number, and what is left undone after it: the commit of the log, the markers"""


def operations_of(data: bytes) -> Iterator[Operation]:
    """Bytes are much faster to make up than tuples."""
    for what, who, lazy in zip(data[::3], data[1::3], data[2::3], strict=False):
        yield OPERATIONS[what % len(OPERATIONS)], who % 6, who // 6 % 6, lazy % 4


steps = st.binary(min_size=60, max_size=300).map(lambda data: list(operations_of(data)))


@dataclass
class Client:
    """A producer as its own program sees it."""

    transactional_id: str
    is_new: bool
    producer: ProducerEpoch | None = None
    transaction: tuple[int, int] = (0, 0)
    """the tag of what is written: which client, its how manyeth transaction"""
    asked: tuple[str, Waiting, tuple[int, int]] | None = None
    is_broken: bool = False
    has_written: bool = False
    last: Callable[[], Waiting] | None = None
    again: str = ""
    """the kind of the last request, if it is to be sent again"""


@dataclass
class World:
    """Everything, and what the clients were told."""

    rig: Rig
    clients: list[Client] = field(default_factory=list)
    late: list[tuple[Client, ProducerEpoch | None, Callable[[], Waiting]]] = field(default_factory=list)
    wished: set[tuple[int, int]] = field(default_factory=set)
    """the transactions for which a commit was asked"""
    told: dict[tuple[int, int], str] = field(default_factory=dict)
    owners: dict[ProducerEpoch, int] = field(default_factory=dict)

    # ── requests ─────────────────────────────────────────────────────────────────────────────────────────────────

    def send(self, client: Client, kind: str, request: Callable[[], Waiting]) -> None:
        client.last = request
        client.asked = (kind, request(), client.transaction)
        if client.is_new:
            self.late.append((client, client.producer, request))

    def take_over(self, transactional_id: str, *, is_new: bool) -> None:
        client = Client(transactional_id, is_new, transaction=(len(self.clients), 0))
        self.clients.append(client)
        self.send(client, "init", lambda: self.rig.init(transactional_id, timeout_ms=50_000))

    def go_on(self, client: Client) -> None:
        if self.is_ready(client):
            named = client.producer
            self.send(client, "go on", lambda: self.rig.init(client.transactional_id, named, timeout_ms=50_000))

    def end(self, client: Client, *, commit: bool) -> None:
        if self.is_ready(client) and (client.has_written or not commit):
            producer = client.producer
            assert producer is not None
            if commit:
                self.wished.add(client.transaction)
            self.send(
                client,
                "commit" if commit else "abort",
                lambda: self.rig.end(client.transactional_id, producer, commit=commit, is_new=client.is_new),
            )

    def is_ready(self, client: Client) -> bool:
        return client.producer is not None and client.asked is None and not client.is_broken and not client.again

    def write(self, client: Client, name: TopicPartition) -> None:
        """Produce: the leader asks the machine, unless the transaction is open in the partition already."""
        if not self.is_ready(client):
            return
        producer, transactional_id, rig = client.producer, client.transactional_id, self.rig
        assert producer is not None
        if client.is_new:
            waiting = None if rig.is_open(name, producer) else rig.add(transactional_id, producer, name, is_new=True)
        else:
            added = rig.add(transactional_id, producer, name, is_new=False)
            rig.commit()
            if added.answer is not Error.NONE:
                client.is_broken = added.answer not in RETRIED
                return
            waiting = None if rig.is_open(name, producer) else rig.verify(transactional_id, producer, name)
        rig.commit()
        answer = Error.NONE if waiting is None else waiting.answer
        error = answer[name] if isinstance(answer, dict) else answer
        if error is Error.NONE:
            client.has_written = rig.append(name, producer, client.transaction)
            client.is_broken = not client.has_written
        elif error not in RETRIED:
            client.is_broken = True

    # ── answers ──────────────────────────────────────────────────────────────────────────────────────────────────

    def hear(self) -> None:
        """What has been answered since, each client takes in."""
        for client in self.clients:
            if client.asked is not None and client.asked[1].answers:
                kind, waiting, transaction = client.asked
                client.asked = None
                self._take_in(client, kind, waiting.answer, transaction)

    def _take_in(self, client: Client, kind: str, answer: object, transaction: tuple[int, int]) -> None:
        error = answer.error_code  # type: ignore[attr-defined]
        client.again = kind if error in RETRIED else ""
        if client.again:
            return
        if error != Error.NONE:
            client.is_broken = True
            return
        if kind in ("commit", "abort"):
            self.told[transaction] = "committed" if kind == "commit" else "aborted"
        client.transaction = (transaction[0], transaction[1] + 1)
        client.has_written = False
        if kind in ("init", "go on") or client.is_new:
            producer = ProducerEpoch(answer.producer_id, answer.producer_epoch)  # type: ignore[attr-defined]
            number = self.clients.index(client)
            assert producer.producer_epoch < EPOCH_MAX
            assert producer != client.producer or kind == "go on", "a transaction with the epoch of the one before"
            assert self.owners.setdefault(producer, number) == number, f"{producer} belongs to another"
            client.producer = producer

    def send_late(self, number: int) -> None:
        """Something that was sent before arrives, perhaps for the second time."""
        client, producer, request = self.late[number % len(self.late)]
        before = self.rig.machine.table.get(client.transactional_id)
        request()
        if before is not None and before.is_ongoing and producer is not None and producer != before.producer:
            assert self.rig.machine.table.get(client.transactional_id) == before, f"touched by {producer}"

    def crash(self, kept: int) -> None:
        self.rig.crash(kept)
        for client in self.clients:
            if client.asked is not None and not client.asked[1].answers and client.last is not None:
                self.send(client, client.asked[0], client.last)  # as a client does that lost its connection


def run(world: World, operations: list[Operation]) -> None:
    rig = world.rig
    for operation, first, second, lazy in operations:
        client = world.clients[-1 - first % min(3, len(world.clients))] if world.clients else None
        if operation == "take over" or client is None:
            world.take_over(IDS[first % len(IDS)], is_new=second % 3 > 0)
        elif operation == "go on":
            world.go_on(client)
        elif operation == "write":
            world.write(client, PARTITIONS[second % len(PARTITIONS)])
        elif operation in ("commit", "abort"):
            world.end(client, commit=operation == "commit")
        elif operation == "repeat" and client.last is not None and client.asked is not None:
            client.last()  # twice on its way; the client waits for one of them
        elif operation == "repeat" and client.last is not None and client.again:
            world.send(client, client.again, client.last)
        elif operation == "late" and world.late:
            world.send_late(6 * first + second)
        elif operation == "marker":
            rig.write_markers(1 + second)
        elif operation == "crash":
            if second % 2:
                rig.compact()
            world.crash(len(rig.batches) - first)
        elif operation == "time":
            rig.pass_time(20_000 * (1 + second))
        if not lazy & LAZY_LOG:
            rig.commit()
            if not lazy & LAZY_MARKERS:
                rig.settle()
        world.hear()


def judge(world: World) -> None:
    rig = world.rig
    rig.settle()
    world.hear()
    rig.pass_time(200_000)
    rig.settle()
    for transaction, fates in rig.fates().items():
        assert len(fates) == 1, f"{transaction} is partly {fates}"
        told = world.told.get(transaction)
        assert told is None or fates == {told}, f"{transaction} is {fates}, its client was told {told}"
        assert fates != {"open"}, f"{transaction} stays open"
        assert fates != {"committed"} or transaction in world.wished, f"{transaction}: nobody asked for a commit"
    assert not [each for each in rig.machine.table if each.is_ongoing]


def world_of(first_epoch: int) -> World:
    rig = Rig(TransactionSettings(timeout_check_interval_ms=5000), is_at_once=False)
    if first_epoch:
        rig.put(
            *(
                Transaction(
                    transactional_id=each,
                    producer_id=number,
                    producer_epoch=first_epoch,
                    timeout_ms=50_000,
                    last_update_ms=rig.now.wall_ms,
                )
                for number, each in enumerate(IDS)
            )
        )
        rig.commit()
    return World(rig)


epochs = st.sampled_from([0, EPOCH_MAX - 4, EPOCH_MAX - 2, EPOCH_MAX - 1])


@QUICK
@given(epochs, steps)
def test_random_clients(first_epoch: int, operations: list[Operation]) -> None:
    world = world_of(first_epoch)
    run(world, operations)
    judge(world)


@pytest.mark.slow
@THOROUGH
@given(epochs, steps)
def test_many_random_clients(first_epoch: int, operations: list[Operation]) -> None:
    world = world_of(first_epoch)
    run(world, operations)
    judge(world)
