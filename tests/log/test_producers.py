from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.errors import ApiError, Error
from penstock.log.producer_snapshot import DamagedSnapshot, decode_snapshot, encode_snapshot
from penstock.log.producers import ALL_STABLE, ProducerStates
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


def test_a_transaction_is_unstable_until_its_marker_is_below_the_high_watermark() -> None:
    states = appended(
        header(0, attributes=TRANSACTIONAL), header(0, producer=2, attributes=TRANSACTIONAL), header(0, producer=3)
    )
    assert states.first_open_offset == states.first_unstable_offset == 0
    assert refusal(states, header(1, producer=2)) is Error.INVALID_TXN_STATE
    aborted = states.note_marker(header(-1), ControlType.ABORT, 7, 3)
    assert aborted is not None and (aborted.first_offset, aborted.last_offset, aborted.last_stable_offset) == (0, 3, 1)
    states.high_watermark_moved(3)
    assert states.first_unstable_offset == 0
    states.high_watermark_moved(4)
    assert states.first_unstable_offset == 1
    assert states.note_marker(header(-1, producer=2), ControlType.COMMIT, 7, 4) is None
    assert states.first_unstable_offset == 1
    states.high_watermark_moved(5)
    assert states.first_unstable_offset == ALL_STABLE


def test_a_transaction_is_open_in_its_own_epoch_only() -> None:
    states = appended(header(0, epoch=2, attributes=TRANSACTIONAL), header(0, producer=2))
    assert states.is_open(1, 2)
    assert not states.is_open(1, 3) and not states.is_open(1, 1) and not states.is_open(2, 0)
    states.note_marker(header(-1, epoch=2), ControlType.COMMIT, 7, 1)
    assert not states.is_open(1, 2)


def marker_refusal(states: ProducerStates, epoch: int, coordinator: int, version: int) -> Error | None:
    try:
        states.check_marker(1, epoch, coordinator, version)
    except ApiError as refused:
        return refused.error
    return None


@pytest.mark.parametrize("version", [0, 1, 2])
def test_markers_fence(version: int) -> None:
    states = appended(header(0, epoch=2, attributes=TRANSACTIONAL))
    assert marker_refusal(ProducerStates(), 0, 0, version) is None
    assert marker_refusal(states, 1, 7, version) is Error.INVALID_PRODUCER_EPOCH
    assert marker_refusal(states, 3, 7, version) is None
    states.note_marker(header(-1, epoch=3), ControlType.COMMIT, 7, 1)
    assert marker_refusal(states, 3, 7, version) is None  # the same marker again
    assert marker_refusal(states, 2, 7, version) is Error.INVALID_PRODUCER_EPOCH
    assert marker_refusal(states, 3, 6, version) is Error.TRANSACTION_COORDINATOR_FENCED
    assert marker_refusal(states, 4, 8, version) is None


def test_a_marker_of_the_records_own_epoch_is_of_an_older_transaction_since_version_two() -> None:
    states = appended(header(0, epoch=2, attributes=TRANSACTIONAL))
    assert marker_refusal(states, 2, 7, 1) is None
    assert marker_refusal(states, 2, 7, 2) is Error.INVALID_PRODUCER_EPOCH


def test_after_a_marker_of_a_newer_epoch_sequences_begin_again() -> None:
    states = appended(header(0, 3, attributes=TRANSACTIONAL))
    states.note_marker(header(-1, epoch=1), ControlType.COMMIT, 7, 3)
    assert refusal(states, header(3, attributes=TRANSACTIONAL)) is Error.INVALID_PRODUCER_EPOCH
    assert refusal(states, header(3, epoch=1)) is Error.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert states.check(header(0, epoch=1)) is None
    state = states.get(1)
    assert state is not None and (state.epoch, state.last_sequence, state.last_offset) == (1, -1, -1)


def test_after_a_marker_of_the_same_epoch_sequences_go_on() -> None:
    states = appended(header(0, 3, attributes=TRANSACTIONAL))
    states.note_marker(header(-1), ControlType.COMMIT, 7, 3)
    repeated = states.check(header(0, 3, attributes=TRANSACTIONAL))
    assert repeated is not None and repeated == states.repeated(header(0, 3))
    assert refusal(states, header(0, 1)) is Error.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert states.repeated(header(0, 1)) is None and states.repeated(header(0, 3, epoch=1)) is None
    assert states.check(header(3)) is None


def test_the_records_of_a_group_have_no_sequence() -> None:
    states = ProducerStates()
    states.note(header(-1, 2, attributes=TRANSACTIONAL), 0)
    states.note(header(-1, 2, attributes=TRANSACTIONAL), 2)
    assert states.is_open(1, 0) and states.first_unstable_offset == 0
    state = states.get(1)
    assert state is not None and (state.last_sequence, state.last_offset) == (-1, 3)
    states.check_epoch(1, 0)
    with pytest.raises(ApiError) as caught:
        states.note_marker(header(-1, epoch=1), ControlType.COMMIT, 7, 4)
        states.check_epoch(1, 0)
    assert caught.value.error is Error.INVALID_PRODUCER_EPOCH


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


def test_a_flood_of_markers_is_one_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.log.producers.PRODUCERS_MAX", 100)
    states = appended(header(0, producer=0, attributes=TRANSACTIONAL))
    for number in range(1, 1000):
        states.note_marker(header(-1, producer=number), ControlType.ABORT, 7, number)
        assert len(states) <= 100
    assert states.is_open(0, 0)
