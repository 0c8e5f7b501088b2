"""Transactions: committed, aborted, left open until they time out, fenced; and who sees what of them, and when."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from threading import Event, Thread

import pytest

from penstock.base.identifiers import TopicPartition
from penstock.testing.histories.client_history import ClientHistory
from penstock.testing.histories.facts import Stretch

from .client import DEADLINE_S, Message, Reader, Refused
from .conftest import NewTopic
from .group_client import GroupClient, MemberOptions, NobodyWatches
from .group_clients import TRANSACTIONAL_CLIENTS, group_client
from .message_flow import MessageFlow
from .noted_transactions import NotedProducer
from .polling import joined, shares
from .sites import StartSite
from .whole_topics import is_last, judge, read_topics

pytestmark = pytest.mark.clients

PARTITIONS = 3
#: How long a reader is asked that must not be given anything.
NOTHING_S = 0.3
SHORT_TIMEOUT_MS = 1_000


class Scene:
    """A topic, the history of what is done with it, and the judge at the end."""

    def __init__(self, groups: GroupClient, topic: str, partitions: int = PARTITIONS) -> None:
        self.groups = groups
        self.topic = topic
        self.partitions = [TopicPartition(topic, number) for number in range(partitions)]
        self.history = ClientHistory(time.monotonic)
        self._producers = 0

    @contextmanager
    def producer(self, transactional_id: str = "", **options: int) -> Iterator[NotedProducer]:
        """A producer; with an id of its own if none is named."""
        self._producers += 1
        name = f"producer-{self._producers}"
        chosen = f"{transactional_id or name}-of-{self.topic}"
        with self.groups.transactional_producer(chosen, **options) as producer:
            yield NotedProducer(producer, self.history, name, chosen)

    def reader(self, *, committed_only: bool) -> Iterator[Reader]:
        numbers = range(len(self.partitions))
        return self.groups.plain.reader(self.topic, numbers, committed_only=committed_only)  # type: ignore[return-value]

    def write_outside(self, partition: int = 0) -> bytes:
        """A message that belongs to no transaction."""
        value = self.history.sending("outside", self.history.sent, self.partitions[partition])
        ((_, offset),) = self.groups.plain.produce(self.topic, [Message(value, partition=partition)])
        self.history.acked(value, offset)
        return value

    def judge(self) -> None:
        judge(self.history, read_topics(self.groups.plain.bootstrap, self.partitions))


@pytest.fixture
def scene(transactional: GroupClient, new_group_topic: NewTopic) -> Scene:
    return Scene(transactional, new_group_topic(partitions=PARTITIONS))


def values(messages: Sequence[Message]) -> list[bytes | None]:
    return [message.value for message in messages]


def test_committed_ones_are_seen_and_aborted_ones_are_not(scene: Scene) -> None:
    with scene.producer() as producer:
        first = producer.transact(scene.partitions, is_commit=True)
        aborted = producer.transact(scene.partitions, is_commit=False)
        second = producer.transact(scene.partitions * 2, is_commit=True)
    with scene.reader(committed_only=True) as reader:
        assert sorted(values(reader.read(9))) == sorted(first + second)
        assert reader.poll(NOTHING_S) == []
    with scene.reader(committed_only=False) as reader:
        assert sorted(values(reader.read(12))) == sorted(first + aborted + second)
    scene.judge()


def test_an_open_one_holds_back_what_comes_after_it(scene: Scene) -> None:
    here = scene.partitions[:1]
    with scene.producer() as producer, scene.producer() as other, scene.reader(committed_only=True) as reader:
        before = scene.write_outside()
        transaction = producer.begin()
        opened = producer.send(transaction, here)
        later = other.transact(here, is_commit=True)
        outside = scene.write_outside()
        with scene.reader(committed_only=False) as impatient:
            assert values(impatient.read(4)) == [before, *opened, *later, outside]
        assert values(reader.read(1)) == [before]
        assert reader.poll(NOTHING_S) == []
        producer.end(transaction, is_commit=True)
        assert values(reader.read(3)) == [*opened, *later, outside]
    scene.judge()


def test_one_that_nobody_ends_is_aborted_in_time(scene: Scene) -> None:
    here = scene.partitions[:1]
    with scene.reader(committed_only=True) as reader, scene.producer("a", timeout_ms=SHORT_TIMEOUT_MS) as producer:
        transaction = producer.begin()
        producer.send(transaction, here)
        outside = scene.write_outside()
        assert values(reader.read(1)) == [outside]
        with pytest.raises(Refused):
            producer.end(transaction, is_commit=True)
    with scene.reader(committed_only=True) as reader, scene.producer("a") as producer:
        again = producer.transact(here, is_commit=True)
        assert values(reader.read(2)) == [outside, *again]
    scene.judge()


def test_a_second_producer_fences_the_first(scene: Scene) -> None:
    here = scene.partitions[:1]
    with scene.reader(committed_only=True) as reader, ExitStack() as stack:
        old = stack.enter_context(abandoned(scene, "same"))
        kept = old.transact(here, is_commit=True)
        transaction = old.begin()
        old.send(transaction, here)
        with scene.producer("same") as new:
            again = new.transact(here, is_commit=True)
            with pytest.raises(Refused):
                old.end(transaction, is_commit=True)
            more = new.transact(here, is_commit=True)
        assert values(reader.read(3)) == [*kept, *again, *more]
        assert reader.poll(NOTHING_S) == []
    scene.judge()


@contextmanager
def abandoned(scene: Scene, transactional_id: str) -> Iterator[NotedProducer]:
    """A producer that may fail when it is closed."""
    with ExitStack() as stack:
        yield stack.enter_context(scene.producer(transactional_id))
        try:
            stack.close()
        except (Refused, RuntimeError):
            pass


# Offsets in transactions


@pytest.mark.parametrize("is_commit", [True, False])
def test_offsets_are_committed_with_the_transaction(scene: Scene, is_commit: bool) -> None:
    where = scene.partitions[0]
    group = f"group-of-{scene.topic}"
    scene.write_outside()
    with joined(scene.groups, MemberOptions(group, (scene.topic,), session_timeout_ms=30_000)) as (member,):
        shares([member], PARTITIONS)
        member.take(1)
        member.commit({where: 0})
        with scene.producer() as producer:
            transaction = producer.begin()
            producer.send(transaction, scene.partitions[1:2])
            producer.producer.send_offsets({where: 1}, member.do(lambda client: client.identity()), group)
            producer.end(transaction, is_commit=is_commit)
        with scene.groups.outsider(group, [where]) as outsider:
            assert outsider.committed(where) == (1 if is_commit else 0)
    scene.judge()


def test_offsets_of_a_member_that_was_thrown_out_are_refused(scene: Scene) -> None:
    if not scene.groups.fences_offsets:
        pytest.skip(f"{scene.groups.name} does not say whose offsets they are")
    where = scene.partitions[0]
    group = f"group-of-{scene.topic}"
    options = MemberOptions(
        group, (scene.topic,), session_timeout_ms=SHORT_TIMEOUT_MS, max_poll_interval_ms=SHORT_TIMEOUT_MS
    )
    scene.write_outside()
    old = scene.groups.join(options, NobodyWatches())
    try:
        deadline_s = time.monotonic() + DEADLINE_S
        while not old.poll(0.2):
            assert time.monotonic() < deadline_s
        identity = old.identity()
        with joined(scene.groups, MemberOptions(group, (scene.topic,), session_timeout_ms=30_000)) as (member,):
            shares([member], PARTITIONS)
            with scene.producer() as producer:
                transaction = producer.begin()
                producer.send(transaction, scene.partitions[1:2])
                with pytest.raises(Refused):
                    producer.producer.send_offsets({where: 1}, identity, group)
                producer.end(transaction, is_commit=False)
            assert member.committed(where) is None
    finally:
        old.close()
    scene.judge()


# A broker that is killed


@pytest.mark.parametrize("is_commit", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_open_ones_survive_their_broker(start_site: StartSite, is_commit: bool) -> None:
    """All clients at once, because a broker has many transactions."""
    site = start_site()
    with ExitStack() as stack:
        scenes = [Scene(group_client(name, site.bootstrap), name) for name in TRANSACTIONAL_CLIENTS]
        for scene in scenes:
            stack.callback(scene.groups.close)
        with scenes[0].groups.plain.admin() as admin:
            admin.create_topics({scene.topic: PARTITIONS for scene in scenes})
        producers = [stack.enter_context(scene.producer()) for scene in scenes]
        opened = []
        for scene, producer in zip(scenes, producers, strict=True):
            producer.transact(scene.partitions, is_commit=True)
            producer.transact(scene.partitions, is_commit=False)
            opened.append(producer.begin())
            producer.send(opened[-1], scene.partitions[:2])
        for scene in scenes:
            scene.history.interrupted()
        site.kill()
        site.start()
        for scene, producer, transaction in zip(scenes, producers, opened, strict=True):
            producer.send(transaction, scene.partitions[1:])
            producer.end(transaction, is_commit=is_commit)
            producer.transact(scene.partitions, is_commit=True)
        for scene in scenes:
            assert scene.history.errors == []
            scene.judge()


# Many at once


class Follower:
    """A reader that notes everything it is given, in a thread."""

    def __init__(self, scene: Scene, *, committed_only: bool) -> None:
        self._scene = scene
        self._committed_only = committed_only
        self._is_over = Event()
        self._error: Exception | None = None
        self._stretches: list[Stretch] = [
            scene.history.reading(f"follower {committed_only=}", where, 0, committed_only=committed_only)
            for where in scene.partitions
        ]
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def seen(self) -> int:
        return sum(len(stretch.seen) for stretch in self._stretches)

    def stop(self) -> None:
        self._is_over.set()
        self._thread.join(DEADLINE_S)
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            with self._scene.reader(committed_only=self._committed_only) as reader:
                while not self._is_over.is_set():
                    for message in reader.poll(0.1):
                        if is_last(message):
                            continue
                        assert message.partition is not None
                        self._scene.history.saw(self._stretches[message.partition], message.offset, message.value)
        except Exception as error:
            self._error = error


def transact_randomly(scene: Scene, count: int, seed: int) -> None:
    """Transactions with some messages each, of which every third one is aborted."""
    chance = random.Random(seed)
    with scene.producer() as producer:
        for _ in range(count):
            where = chance.choices(scene.partitions, k=chance.randint(1, 5))
            producer.transact(where, is_commit=chance.random() < 2 / 3)


@pytest.mark.parametrize("count", [12, pytest.param(200, marks=pytest.mark.slow)])
def test_committed_and_aborted_ones_side_by_side(scene: Scene, count: int) -> None:
    followers = [Follower(scene, committed_only=committed_only) for committed_only in (True, False)]
    flow = MessageFlow(scene.groups.plain, scene.history, scene.partitions)
    errors: list[Exception] = []

    def work(seed: int) -> None:
        try:
            transact_randomly(scene, count, seed)
        except Exception as error:
            errors.append(error)

    threads = [Thread(target=work, args=(seed,), daemon=True) for seed in range(3)]
    flow.start()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S + count)
    flow.stop()
    assert errors == []
    topics = read_topics(scene.groups.plain.bootstrap, scene.partitions)
    expected = [sum(map(len, rows.values())) for rows in (topics.committed, topics.everything)]
    for follower, total in zip(followers, expected, strict=True):
        scene.history.wait_for(lambda follower=follower, total=total: follower.seen() >= total, DEADLINE_S)
        follower.stop()
    assert 0 < expected[0] < expected[1]
    assert scene.history.errors == []
    judge(scene.history, topics)
