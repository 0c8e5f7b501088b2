"""One partition's batches against a broker that does what brokers do, and fails as they do: each once, in order."""

from __future__ import annotations

import random
from collections import deque

import pytest

from penstock.base.errors import ApiError, Error
from penstock.base.identifiers import TopicPartition
from penstock.base.steps import ProducerEpoch
from penstock.columnar.lanes import Batch, Lane, Seal
from penstock.wire.batch import check_produced_batch, read_header
from penstock.wire.compression import Compression

WHERE = TopicPartition("orders", 3)
SEAL = Seal(ProducerEpoch(7, 2), Compression.NONE, is_transactional=False)
IN_FLIGHT_MAX = 5
REMEMBERED = 5


def new_lane(**fields: int) -> Lane:
    return Lane(WHERE, 0.1, 1.0, **fields)  # type: ignore[arg-type]


def batch_of(number: int, count: int = 2) -> Batch:
    return Batch(memoryview(b"%05d" % number), count, 1000, 1001)


def number_of(batch: Batch) -> int:
    return int(bytes(batch.records))


class Leader:
    """What a partition's leader keeps of one producer: the last five batches; of a stranger it takes anything."""

    def __init__(self) -> None:
        self.log: list[int] = []
        self._remembered: deque[tuple[int, int]] = deque(maxlen=REMEMBERED)

    def append(self, batch: Batch) -> ApiError | None:
        header = read_header(batch.header)
        span = header.base_sequence, header.last_sequence
        if span in self._remembered:
            return None
        if self._remembered and header.base_sequence != (self._remembered[-1][1] + 1) & 0x7FFFFFFF:
            return ApiError(Error.OUT_OF_ORDER_SEQUENCE_NUMBER)
        self._remembered.append(span)
        self.log.append(number_of(batch))
        return None


def test_a_batch_is_sealed_when_it_is_sent() -> None:
    lane = new_lane(next_sequence=5)
    lane.waiting.append(batch_of(1, count=3))
    batch = lane.send(SEAL)
    header = check_produced_batch(memoryview(batch.header + bytes(batch.records)))
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.last_sequence) == (7, 2, 5, 7)
    assert (header.base_timestamp, header.max_timestamp, header.record_count) == (1000, 1001, 3)
    assert lane.next_sequence == 8


def test_sequences_wrap() -> None:
    lane = new_lane(next_sequence=2**31 - 2)
    lane.waiting += [batch_of(1, count=4), batch_of(2, count=1)]
    lane.send(SEAL)
    assert lane.answer(None, 0)
    assert read_header(lane.send(SEAL).header).base_sequence == 2
    assert lane.next_sequence == 3


def test_the_first_batch_goes_alone() -> None:
    lane = new_lane()
    lane.waiting += [batch_of(number) for number in range(3)]
    lane.send(SEAL)
    assert not lane.may_send(0)
    lane.answer(None, 0)
    lane.send(SEAL)
    assert lane.may_send(0)


def test_after_a_failure_everything_follows_in_order() -> None:
    lane = new_lane(is_known=True)
    lane.waiting += [batch_of(number) for number in range(4)]
    sent = [lane.send(SEAL) for _ in range(3)]
    assert lane.answer(ApiError(Error.NOT_ENOUGH_REPLICAS), 10.0) is None
    assert not lane.may_send(99.0)
    assert lane.answer(ApiError(Error.OUT_OF_ORDER_SEQUENCE_NUMBER), 10.0) is None
    assert lane.answer(ApiError(Error.OUT_OF_ORDER_SEQUENCE_NUMBER), 10.0) is None
    assert not lane.may_send(10.05)
    assert lane.may_send(10.1)
    assert lane.failing_since == 10.0
    headers = [batch.header for batch in sent]
    assert [lane.send(SEAL).header for _ in range(3)] == headers
    assert lane.answer(ApiError(Error.DUPLICATE_SEQUENCE_NUMBER), 11.0) is sent[0]
    assert lane.failing_since is None


def test_nothing_new_leaves_before_what_is_repeated_is_there() -> None:
    lane = new_lane(is_known=True)
    lane.waiting += [batch_of(number) for number in range(6)]
    sent = [lane.send(SEAL) for _ in range(5)]
    lane.answer(ApiError(Error.REQUEST_TIMED_OUT), 0.0)
    for batch in sent[1:]:
        assert lane.answer(None, 0.0) is batch
    assert lane.send(SEAL) is sent[0]
    assert not lane.may_send(9.0)
    lane.answer(None, 0.0)
    assert lane.may_send(9.0)


def test_out_of_order_without_a_failure_is_the_end() -> None:
    lane = new_lane(is_known=True)
    lane.waiting += [batch_of(0), batch_of(1)]
    lane.send(SEAL)
    lane.send(SEAL)
    lane.answer(None, 0)
    with pytest.raises(ApiError) as caught:
        lane.answer(ApiError(Error.OUT_OF_ORDER_SEQUENCE_NUMBER), 0)
    assert caught.value.error is Error.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.parametrize("error", [Error.UNKNOWN_PRODUCER_ID, Error.MESSAGE_TOO_LARGE, Error.PRODUCER_FENCED])
def test_what_does_not_pass_is_the_end(error: Error) -> None:
    lane = new_lane()
    lane.waiting.append(batch_of(0))
    lane.send(SEAL)
    with pytest.raises(ApiError):
        lane.answer(ApiError(error), 0)


def test_it_waits_longer_every_time() -> None:
    lane = new_lane()
    lane.waiting.append(batch_of(0))
    waits = []
    for _ in range(6):
        lane.send(SEAL)
        lane.lose_connection(ConnectionResetError(), 0.0)
        waits.append(lane.not_before)
    assert waits == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


@pytest.mark.parametrize("seed", range(200))
def test_each_batch_once_and_in_order(seed: int) -> None:
    chance = random.Random(seed)
    lane, leader = new_lane(), Leader()
    count = chance.randrange(1, 40)
    lane.waiting += [batch_of(number, chance.randrange(1, 5)) for number in range(count)]
    done: list[int] = []
    for now in range(1000, 100_000):
        flights: list[Batch] = []
        while lane.may_send(now) and len(flights) < IN_FLIGHT_MAX:
            flights.append(lane.send(SEAL))
        lost_after = chance.randrange(len(flights) + 1) if chance.random() < 0.2 else None
        answers = [refuse_or_append(chance, leader, batch) for batch in flights]
        for index, answer in enumerate(answers):
            if index == lost_after:
                break
            if (batch := lane.answer(answer, now)) is not None:
                done.append(number_of(batch))
        if lost_after is not None:
            lane.lose_connection(ConnectionResetError(), now)
        if lane.is_empty:
            break
    assert leader.log == list(range(count))
    assert sorted(done) == leader.log


def refuse_or_append(chance: random.Random, leader: Leader, batch: Batch) -> ApiError | None:
    """Refuse before anything happens, or append and say that it failed, or say what is true."""
    fate = chance.random()
    if fate < 0.15:
        return ApiError(Error.NOT_ENOUGH_REPLICAS)
    answer = leader.append(batch)
    if answer is None and fate < 0.3:
        return ApiError(Error.REQUEST_TIMED_OUT)
    return answer
