from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.errors import ApiError, Error
from penstock.log.producer_snapshot import DamagedSnapshot, decode_snapshot, encode_snapshot
from penstock.log.producers import ProducerStates
from penstock.wire.batch import TRANSACTIONAL, BatchHeader
from penstock.wire.control import ControlType

LAST = 2**31 - 1


def header(sequence: int, count: int = 1, *, producer: int = 1, epoch: int = 0, attributes: int = 0) -> BatchHeader:
    return BatchHeader(0, 100, 0, 2, 0, attributes, count - 1, 10, 10 + sequence, producer, epoch, sequence, count)


def appended(*batches: BatchHeader) -> ProducerStates:
    states = ProducerStates()
    offset = 0
    for batch in batches:
        assert states.check(batch) is None
        states.note(batch, offset)
        offset += batch.last_offset_delta + 1
    return states


def refusal(states: ProducerStates, batch: BatchHeader) -> Error:
    with pytest.raises(ApiError) as caught:
        states.check(batch)
    return caught.value.error


@pytest.mark.parametrize("sequence", [0, 1, 4711, LAST])
def test_an_unknown_producer_may_begin_anywhere(sequence: int) -> None:
    appended(header(sequence))


def test_sequences_must_follow_each_other() -> None:
    states = appended(header(0, 3), header(3, 2))
    assert refusal(states, header(6)) is Error.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refusal(states, header(4)) is Error.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert states.check(header(5, 9)) is None


def test_each_of_the_last_five_batches_is_known_again() -> None:
    states = appended(*(header(2 * number, 2) for number in range(7)))
    for number in range(2, 7):
        repeated = states.check(header(2 * number, 2))
        assert repeated is not None
        assert (repeated.first_offset, repeated.last_offset) == (2 * number, 2 * number + 1)
    assert refusal(states, header(2, 2)) is Error.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_repeated_beginning_with_another_length_is_no_duplicate() -> None:
    assert refusal(appended(header(0, 3), header(3, 3)), header(3, 2)) is Error.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_sequences_wrap() -> None:
    states = appended(header(LAST - 1, 4), header(2))
    repeated = states.check(header(LAST - 1, 4))
    assert repeated is not None and repeated.last_sequence == 1
    assert states.check(header(3)) is None
    assert appended(header(LAST, 1), header(0)).get(1) is not None


def test_an_older_epoch_is_fenced_and_a_newer_one_begins_with_zero() -> None:
    states = appended(header(5, epoch=3))
    assert refusal(states, header(6, epoch=2)) is Error.INVALID_PRODUCER_EPOCH
    assert refusal(states, header(6, epoch=4)) is Error.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert states.check(header(0, epoch=4)) is None


def test_a_producer_without_a_sequence_is_refused() -> None:
    assert refusal(ProducerStates(), header(-1)) is Error.INVALID_RECORD
    assert refusal(ProducerStates(), header(0, epoch=-1)) is Error.INVALID_RECORD


def test_a_transaction_holds_the_last_stable_offset() -> None:
    states = appended(
        header(0, attributes=TRANSACTIONAL), header(0, producer=2, attributes=TRANSACTIONAL), header(0, producer=3)
    )
    assert states.first_open_offset == 0
    assert states.last_stable_offset(3) == 0
    assert refusal(states, header(1, producer=2)) is Error.INVALID_TXN_STATE
    aborted = states.note_marker(header(-1), ControlType.ABORT, 7, 3)
    assert aborted is not None and (aborted.first_offset, aborted.last_offset, aborted.last_stable_offset) == (0, 3, 1)
    assert states.last_stable_offset(3) == 0  # the marker is not below the high watermark yet
    assert states.last_stable_offset(4) == 1
    assert states.note_marker(header(-1, producer=2), ControlType.COMMIT, 7, 4) is None
    assert states.last_stable_offset(5) == 5


def test_markers_fence() -> None:
    states = appended(header(0, epoch=2, attributes=TRANSACTIONAL))
    states.note_marker(header(-1, epoch=2), ControlType.COMMIT, 7, 1)
    states.check_marker(1, 2, 7)
    for epoch, coordinator, error in [
        (1, 7, Error.INVALID_PRODUCER_EPOCH),
        (2, 6, Error.TRANSACTION_COORDINATOR_FENCED),
    ]:
        with pytest.raises(ApiError) as caught:
            states.check_marker(1, epoch, coordinator)
        assert caught.value.error is error


def test_silent_producers_expire_unless_a_transaction_is_open() -> None:
    states = appended(header(0), header(0, producer=2), header(0, producer=3, attributes=TRANSACTIONAL))
    assert states.expire(1000, 50) == []
    states.note(header(1, producer=2), 5)
    assert states.expire(1049, 50) == []
    assert states.expire(1050, 50) == [1]
    assert [state.producer_id for state in states] == [2, 3]
    assert states.expire(1099, 50) == [2]
    assert states.expire(9999, 50) == []


histories = st.lists(
    st.tuples(st.integers(1, 3), st.integers(0, 2), st.integers(1, 4), st.booleans(), st.booleans()), max_size=40
)


@given(histories)
def test_a_snapshot_holds_everything(history: list[tuple[int, int, int, bool, bool]]) -> None:
    states = ProducerStates()
    offset = 0
    for producer, epoch, count, transactional, marker in history:
        attributes = TRANSACTIONAL if transactional else 0
        if marker:
            states.note_marker(header(-1, producer=producer, epoch=epoch), ControlType.COMMIT, 3, offset)
        else:
            states.note(header(offset, count, producer=producer, epoch=epoch, attributes=attributes), offset)
        offset += count
    assert decode_snapshot(encode_snapshot(states)) == list(states)


def test_a_snapshot_of_kafka_has_one_batch_for_each_producer() -> None:
    ours = encode_snapshot(appended(*(header(number) for number in range(3))))
    kafka = bytearray(ours[: ours.index(b"PNSK")])
    with pytest.raises(DamagedSnapshot):
        decode_snapshot(bytes(kafka))
    single = encode_snapshot(appended(header(2)))
    assert b"PNSK" in ours and decode_snapshot(single)[0].last_sequence == 2


@given(st.integers(0, 200), st.integers(1, 255))
def test_any_damage_of_a_snapshot_is_seen(position: int, mask: int) -> None:
    content = bytearray(encode_snapshot(appended(*(header(number) for number in range(4)))))
    content[position % len(content)] ^= mask
    with pytest.raises(DamagedSnapshot):
        decode_snapshot(bytes(content))


@given(st.integers(0, 10_000))
def test_a_snapshot_that_is_cut_short_is_seen(size: int) -> None:
    content = encode_snapshot(appended(*(header(number) for number in range(4))))
    with pytest.raises(DamagedSnapshot):
        decode_snapshot(content[: size % len(content)])


@given(st.lists(st.tuples(st.integers(0, 4), st.integers(1, 3)), max_size=60))
def test_a_producer_with_five_in_flight_is_never_duplicated_or_reordered(sends: list[tuple[int, int]]) -> None:
    """A retry goes back by up to four batches; the log ends with each record once, in order."""
    states = ProducerStates()
    sent: list[tuple[int, int]] = []  # (first sequence, count)
    log: list[int] = []
    for back, count in sends:
        if back and back <= len(sent):
            sequence, size = sent[-back]
        else:
            sequence, size = len(log), count
            sent.append((sequence, size))
        batch = header(sequence, size)
        repeated = states.check(batch)
        if repeated is None:
            states.note(batch, len(log))
            log += range(sequence, sequence + size)
        else:
            assert repeated.first_offset == sequence
    assert log == list(range(len(log)))


def test_a_flood_of_producers_pushes_out_those_that_were_silent_for_longest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.log.producers.PRODUCERS_MAX", 100)
    states = ProducerStates()
    open_transaction = header(0, producer=0, attributes=TRANSACTIONAL)
    states.note(open_transaction, 0)
    for number in range(1, 1000):
        states.note(header(number, producer=number), number)
        assert len(states) <= 100
    assert states.get(0) is not None
    assert states.get(999) is not None
    assert states.get(1) is None
