"""A connection on a stream that a test feeds by hand: frames in any pieces, answers in order, and every limit."""

from __future__ import annotations

import errno
import os
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.base.world import Address, Buffer, File
from penstock.broker.connection import (
    OWN_BUFFER_KEPT_BYTES_MAX,
    READ_RANGE_BYTES_MAX,
    SHARED_BUFFER_BYTES,
    SLOTS_MAX,
    UNSENT_BYTES_MAX,
    Connection,
    ConnectionBroken,
    FileRange,
    Intake,
    Response,
    Slot,
)
from penstock.testing.sim_disk import SimDisk

TIMEOUT_S = 10.0
MIB = 1 << 20


class FakeStream:
    """What the peer sends, in pieces; what it takes, up to a limit."""

    def __init__(self) -> None:
        self.peer = Address("peer", 1)
        self.local = Address("local", 2)
        self.incoming: deque[bytes] = deque()
        self.sent = bytearray()
        self.room_bytes = 1 << 40
        self.on_readable: Callable[[], None] | None = None
        self.on_writable: Callable[[], None] | None = None
        self.after: list[Callable[[], None]] = []
        self.is_closed = False

    def recv_into(self, buffer: Buffer) -> int:
        if not self.incoming:
            raise BlockingIOError
        piece = self.incoming.popleft()
        count = min(len(piece), len(buffer))
        memoryview(buffer)[:count] = piece[:count]
        if count < len(piece):
            self.incoming.appendleft(piece[count:])
        return count

    def send(self, data: Buffer) -> int:
        if self.is_closed:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))
        count = min(len(data), self.room_bytes)
        if not count:
            raise BlockingIOError
        self.room_bytes -= count
        self.sent += memoryview(data)[:count]
        return count

    def send_more(self, data: Buffer) -> int:
        return self.send(data)

    def send_file(self, file: File, offset: int, count: int) -> int:
        return self.send(file.read(count, offset))

    def watch_read(self, callback: Callable[[], None] | None) -> None:
        self.on_readable = callback

    def after_reading(self, callback: Callable[[], None]) -> None:
        self.after.append(callback)

    def watch_write(self, callback: Callable[[], None] | None) -> None:
        self.on_writable = callback

    def close(self) -> None:
        self.is_closed = True

    def arrive(self, *pieces: bytes) -> None:
        """Bytes arrive, and are read for as long as somebody wants them."""
        self.incoming.extend(pieces)
        while self.incoming and self.on_readable is not None and not self.is_closed:
            self.on_readable()
            while self.after:
                self.after.pop(0)()

    def take(self, room_bytes: int) -> None:
        """The peer takes so much more."""
        self.room_bytes += room_bytes
        while self.room_bytes and self.on_writable is not None and not self.is_closed:
            self.on_writable()

    def answers(self) -> list[bytes]:
        """The whole frames that were sent, without their sizes."""
        found, position = [], 0
        while position + 4 <= len(self.sent):
            end = position + 4 + int.from_bytes(self.sent[position : position + 4], "big")
            if end <= len(self.sent):
                found.append(bytes(self.sent[position + 4 : end]))
            position = end
        return found


@dataclass
class ManualClock:
    now: float = 0.0

    def wall_ms(self) -> int:
        return int(self.now * 1000)

    def monotonic(self) -> float:
        return self.now


Handler = Callable[[Connection, memoryview], Response | None]


def echo(_connection: Connection, frame: memoryview) -> Response | None:
    return framed(bytes(frame))


def framed(content: bytes) -> bytes:
    return len(content).to_bytes(4, "big") + content


@dataclass
class Peer:
    """One connection of a small server, and everything that happened on it."""

    intake: Intake = field(default_factory=lambda: Intake(64 * MIB, 16 * MIB))
    handler: Handler = echo
    clock: ManualClock = field(default_factory=ManualClock)

    def __post_init__(self) -> None:
        self.stream = FakeStream()
        self.frames: list[bytes] = []
        self.reasons: list[str | None] = []
        self.connection = Connection(
            self.stream,
            "PLAINTEXT",
            self.intake,
            self.clock,
            self._dispatch,
            lambda _, reason: self.reasons.append(reason),
        )

    def _dispatch(self, connection: Connection, frame: memoryview) -> Response | None:
        self.frames.append(bytes(frame))
        return self.handler(connection, frame)


class Waiting:
    """A handler whose answers come later."""

    def __init__(self) -> None:
        self.slots: list[tuple[Slot, bytes]] = []
        self.cancelled = 0

    def __call__(self, connection: Connection, frame: memoryview) -> Response | None:
        self.slots.append((connection.reserve(self._cancel), bytes(frame)))
        return None

    def _cancel(self) -> None:
        self.cancelled += 1

    def answer(self, connection: Connection, index: int) -> None:
        slot, content = self.slots[index]
        connection.fill(slot, framed(content))


def contents(sizes: Sequence[int]) -> list[bytes]:
    return [(bytes([number]) + bytes(range(251)) * (size // 251 + 1))[:size] for number, size in enumerate(sizes)]


# ── receiving ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_frames_cut_at_every_byte() -> None:
    sent = contents([8, 100, 9, 30])
    stream = b"".join(map(framed, sent))
    for cut in range(1, len(stream)):
        peer = Peer()
        peer.stream.arrive(stream[:cut], stream[cut:])
        assert peer.frames == sent
        assert peer.stream.answers() == sent
        assert peer.intake.owned_bytes == 0


def test_frames_byte_by_byte() -> None:
    sent = contents([8, 100, 9, 30])
    peer = Peer()
    peer.stream.arrive(*(bytes([byte]) for byte in b"".join(map(framed, sent))))
    assert peer.stream.answers() == sent


SIZES = st.lists(
    st.integers(8, 300) | st.sampled_from([4096, 4092, SHARED_BUFFER_BYTES - 4, 200_000]), min_size=1, max_size=8
)


@settings(deadline=None, max_examples=60)
@given(SIZES, st.lists(st.integers(1, 70_000), max_size=30), st.booleans())
def test_frames_in_any_pieces(sizes: list[int], cuts: list[int], waits: bool) -> None:
    sent = contents(sizes)
    stream = b"".join(map(framed, sent))
    waiting = Waiting()
    peer = Peer(handler=waiting if waits else echo)
    position = 0
    for cut in cuts:
        peer.stream.arrive(*([stream[position : position + cut]] if position < len(stream) else []))
        position += cut
    if position < len(stream):
        peer.stream.arrive(stream[position:])
    for index in reversed(range(len(waiting.slots))):
        waiting.answer(peer.connection, index)
    assert peer.frames == sent
    assert peer.stream.answers() == sent
    peer.connection.close(None)
    assert peer.intake.owned_bytes == 0


@pytest.mark.parametrize("size", [-1, 0, 7, 16 * MIB + 1, 2**31 - 1])
@pytest.mark.parametrize("before", [0, 1, 3])
def test_impossible_sizes_break_the_connection(size: int, before: int) -> None:
    peer = Peer()
    good = b"".join(map(framed, contents([20] * before)))
    peer.stream.arrive(good + size.to_bytes(4, "big", signed=True) + bytes(10))
    assert len(peer.stream.answers()) == before
    assert peer.stream.is_closed and "a frame of" in (peer.reasons[0] or "")
    assert peer.intake.owned_bytes == 0


def test_a_handler_that_breaks_the_connection_ends_it() -> None:
    def refuse(_connection: Connection, _frame: memoryview) -> Response | None:
        raise ConnectionBroken("no")

    peer = Peer(handler=refuse)
    peer.stream.arrive(framed(bytes(10)) * 3)
    assert len(peer.frames) == 1 and peer.reasons == ["no"]


def test_the_buffer_grows_with_what_arrived_and_not_with_what_is_claimed() -> None:
    peer = Peer()
    peer.stream.arrive((16 * MIB).to_bytes(4, "big") + bytes(1000))
    assert peer.intake.owned_bytes <= 4096
    peer.stream.arrive(bytes(100_000))
    assert peer.intake.owned_bytes < 300_000


def test_a_large_buffer_is_kept_for_the_next_large_frame_and_dropped_when_idle() -> None:
    peer = Peer()
    (large,) = contents([MIB])
    peer.stream.arrive(framed(large))
    assert peer.intake.owned_bytes == MIB + 4
    peer.stream.arrive(framed(large))
    assert peer.frames == [large, large] and peer.intake.owned_bytes == MIB + 4
    assert peer.connection.is_overdue(0.0, TIMEOUT_S) is None
    assert peer.intake.owned_bytes == 0
    peer.stream.arrive(framed(large))
    assert len(peer.frames) == 3


def test_a_huge_buffer_is_not_kept() -> None:
    peer = Peer()
    peer.stream.arrive(framed(bytes(OWN_BUFFER_KEPT_BYTES_MAX + MIB)))
    assert len(peer.frames) == 1 and peer.intake.owned_bytes == 0


def test_the_end_of_the_peer_ends_the_connection() -> None:
    peer = Peer()
    peer.stream.arrive(framed(bytes(10)) + b"\0\0", b"")
    assert peer.stream.is_closed and peer.reasons == [None] and peer.intake.owned_bytes == 0


# ── answering ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_answers_leave_in_the_order_of_their_requests() -> None:
    waiting = Waiting()
    peer = Peer()

    def even_ones_wait(connection: Connection, frame: memoryview) -> Response | None:
        return waiting(connection, frame) if frame[0] % 2 == 0 else framed(bytes(frame))

    peer.handler = even_ones_wait
    sent = [bytes([number]) * 10 for number in range(6)]
    peer.stream.arrive(b"".join(map(framed, sent)))
    assert peer.stream.answers() == []
    waiting.answer(peer.connection, 1)
    assert peer.stream.answers() == []
    waiting.answer(peer.connection, 0)
    assert peer.stream.answers() == sent[:4]
    waiting.answer(peer.connection, 2)
    assert peer.stream.answers() == sent


def test_an_answer_of_none_sends_nothing_and_keeps_the_order() -> None:
    waiting = Waiting()
    peer = Peer(handler=waiting)
    peer.stream.arrive(framed(b"a" * 8) + framed(b"b" * 8))
    waiting.answer(peer.connection, 1)
    peer.connection.fill(waiting.slots[0][0], None)
    assert peer.stream.answers() == [b"b" * 8]


def test_too_many_open_requests_stop_the_reading_until_some_are_answered() -> None:
    waiting = Waiting()
    peer = Peer(handler=waiting)
    sent = contents([10] * (SLOTS_MAX + 50))
    peer.stream.arrive(b"".join(map(framed, sent)))
    assert len(peer.frames) == SLOTS_MAX
    assert peer.stream.on_readable is None
    waiting.answer(peer.connection, 0)
    assert len(peer.frames) == SLOTS_MAX + 1
    for index in range(1, len(sent)):
        waiting.answer(peer.connection, index)
    assert peer.stream.answers() == sent and peer.stream.on_readable is not None


@pytest.mark.parametrize("pieces", [1, SLOTS_MAX + 50])
def test_too_many_answers_behind_one_that_waits_stop_the_reading(pieces: int) -> None:
    waiting = Waiting()
    peer = Peer(handler=waiting)
    sent = contents([10] * (SLOTS_MAX + 50))
    peer.stream.arrive(framed(sent[0]))
    peer.handler = echo
    peer.stream.arrive(*(map(framed, sent[1:]) if pieces > 1 else [b"".join(map(framed, sent[1:]))]))
    assert len(peer.frames) == SLOTS_MAX
    assert peer.stream.on_readable is None
    waiting.answer(peer.connection, 0)
    peer.stream.arrive()
    assert peer.stream.answers() == sent


def test_a_held_request_keeps_its_bytes_and_stops_the_next() -> None:
    held: list[memoryview] = []
    peer = Peer()

    def hold_the_first(connection: Connection, frame: memoryview) -> Response | None:
        if held:
            return framed(bytes(frame))
        held.append(frame)
        slots.append(connection.reserve())
        connection.hold()
        return None

    slots: list[Slot] = []
    peer.handler = hold_the_first
    sent = contents([50, 60, 70])
    peer.stream.arrive(framed(sent[0]) + framed(sent[1]) + framed(sent[2])[:10])
    other = Peer(intake=peer.intake)
    other.stream.arrive(framed(b"z" * 60_000))
    assert bytes(held[0]) == sent[0] and len(peer.frames) == 1
    peer.stream.arrive(framed(sent[2])[10:])
    assert len(peer.frames) == 1
    peer.connection.fill(slots[0], framed(sent[0]))
    peer.connection.release()
    peer.stream.arrive()
    assert peer.stream.answers() == sent
    for each in (peer, other):
        each.connection.close(None)
    assert peer.intake.owned_bytes == 0


@pytest.mark.parametrize("pieces", [1, 2])
def test_requests_that_waited_behind_a_held_one_are_answered_at_once(pieces: int) -> None:
    peer = Peer()
    slots: list[Slot] = []

    def hold_the_first(connection: Connection, frame: memoryview) -> Response | None:
        if slots:
            return framed(bytes(frame))
        slots.append(connection.reserve())
        connection.hold()
        return None

    peer.handler = hold_the_first
    sent = contents([30, 40, 50])
    stream = b"".join(map(framed, sent))
    peer.stream.arrive(*([stream] if pieces == 1 else [stream[:20], stream[20:]]))
    peer.connection.fill(slots[0], framed(sent[0]))
    peer.connection.release()
    if pieces == 2:
        peer.stream.arrive()  # the others are still to be read
    assert peer.stream.answers() == sent


@pytest.mark.parametrize("size_bytes", [6, READ_RANGE_BYTES_MAX + 1])
def test_a_file_range_goes_out_between_bytes(size_bytes: int) -> None:
    content = bytes(number % 251 for number in range(size_bytes + 10))
    file = SimDisk().open("/f", create=True)
    file.write([content], 0)
    waiting = Waiting()
    peer = Peer(handler=waiting)
    peer.stream.arrive(framed(bytes(8)))
    peer.stream.room_bytes = 0
    head = bytearray((8 + size_bytes).to_bytes(4, "big") + b"head")
    peer.connection.fill(waiting.slots[0][0], [head, FileRange(file, 2, size_bytes), bytearray(b"tail")])
    for _ in range(18):
        assert peer.stream.on_writable is not None
        peer.stream.take(-(-(size_bytes + 12) // 18))
    assert peer.stream.answers() == [b"head" + content[2 : 2 + size_bytes] + b"tail"]
    assert peer.stream.on_writable is None


def test_small_file_ranges_leave_with_what_is_around_them() -> None:
    file = SimDisk().open("/f", create=True)
    file.write([b"0123456789"], 0)
    parts: Response = [bytearray(b"\0\0\0\6a"), FileRange(file, 2, 2), bytearray(b"b"), FileRange(file, 8, 2)]
    peer = Peer(handler=lambda _connection, _frame: parts)
    peer.stream.send_file = peer.stream.send_more = None  # type: ignore[method-assign,assignment]
    peer.stream.arrive(framed(bytes(8)))
    assert peer.stream.answers() == [b"a23b89"]


@pytest.mark.parametrize("size_bytes", [5, READ_RANGE_BYTES_MAX + 1])
def test_a_file_that_ended_too_soon_ends_the_connection(size_bytes: int) -> None:
    file = SimDisk().open("/f", create=True)
    head = bytearray(size_bytes.to_bytes(4, "big"))
    peer = Peer(handler=lambda _connection, _frame: [head, FileRange(file, 0, size_bytes)])
    peer.stream.send_file = lambda _file, _offset, _count: 0  # type: ignore[method-assign]
    peer.stream.arrive(framed(bytes(8)))
    assert peer.stream.is_closed


@pytest.mark.parametrize("waits", [False, True])
def test_answers_that_nobody_takes_stop_the_reading(waits: bool) -> None:
    waiting = Waiting()
    peer = Peer(handler=waiting if waits else echo)
    peer.stream.room_bytes = 10
    sent = [bytes([number]) * 50_000 for number in range(100)]
    for content in sent:
        peer.stream.arrive(framed(content))
        for index in range(len(waiting.slots)):
            if not waiting.slots[index][0].is_filled:
                waiting.answer(peer.connection, index)
    assert len(peer.frames) * 50_000 < UNSENT_BYTES_MAX + 200_000
    assert peer.stream.on_readable is None
    while len(peer.stream.answers()) < 100:
        peer.stream.take(70_000)
        peer.stream.arrive()
        for index in range(len(waiting.slots)):
            if not waiting.slots[index][0].is_filled:
                waiting.answer(peer.connection, index)
    assert peer.stream.answers() == sent


def test_a_muted_connection_reads_nothing_until_it_may() -> None:
    peer = Peer()
    peer.connection.mute(True)
    peer.stream.arrive(framed(bytes(8)))
    assert peer.frames == []
    peer.connection.mute(False)
    peer.stream.arrive()
    assert len(peer.frames) == 1


# ── memory for unfinished frames ─────────────────────────────────────────────────────────────────────────────────


def test_a_frame_as_large_as_the_whole_budget_gets_through_alone() -> None:
    peer = Peer(intake=Intake(MIB, MIB))
    peer.stream.arrive(framed(bytes(MIB)))
    assert len(peer.frames) == 1


def test_unfinished_frames_together_stay_near_the_budget_and_one_always_gets_on() -> None:
    intake = Intake(4 * MIB, 2 * MIB)
    peers = [Peer(intake=intake) for _ in range(8)]
    content = framed(bytes(2 * MIB))
    for begin in range(0, len(content), 100_000):
        for peer in peers:
            peer.stream.arrive(content[begin : begin + 100_000])
        assert intake.owned_bytes <= 6 * MIB + 8 * 4096
    for _ in range(len(peers)):
        for peer in peers:
            peer.stream.arrive()
    assert all(len(peer.frames) == 1 for peer in peers)
    for peer in peers:
        peer.connection.close(None)
    assert intake.owned_bytes == 0 and intake.overdrawn is None


def test_a_closed_connection_gives_its_memory_to_those_who_wait() -> None:
    intake = Intake(2 * MIB, 2 * MIB)
    hogs = [Peer(intake=intake) for _ in range(3)]
    for hog in hogs:
        hog.stream.arrive(framed(bytes(2 * MIB))[:MIB])
    honest = Peer(intake=intake)
    honest.stream.arrive(framed(bytes(500_000)))
    for hog in hogs:
        hog.connection.close("hog")
    honest.stream.arrive()
    assert len(honest.frames) == 1
    honest.connection.close(None)
    assert intake.owned_bytes == 0


# ── time ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_frame_that_does_not_end_is_overdue() -> None:
    peer = Peer()
    peer.stream.arrive(framed(bytes(100))[:50])
    assert peer.connection.is_overdue(TIMEOUT_S - 1, TIMEOUT_S) is None
    assert peer.connection.is_overdue(TIMEOUT_S + 1, TIMEOUT_S) is not None


def test_each_frame_has_its_own_time() -> None:
    peer = Peer()
    for second in range(60):
        peer.clock.now = float(second)
        frame = framed(bytes(100))
        peer.stream.arrive(frame[3:] + frame[:3] if second else frame + frame[:3])
        assert peer.connection.is_overdue(second, TIMEOUT_S) is None


def test_a_held_request_is_not_overdue() -> None:
    def hold(connection: Connection, _frame: memoryview) -> Response | None:
        connection.reserve()
        connection.hold()
        return None

    peer = Peer(handler=hold)
    peer.stream.arrive(framed(bytes(10)) + b"\0")
    assert peer.connection.is_overdue(1000.0, TIMEOUT_S) is None


def test_answers_that_make_no_progress_are_overdue() -> None:
    peer = Peer()
    peer.stream.room_bytes = 0
    peer.stream.arrive(framed(bytes(100)))
    assert peer.connection.is_overdue(TIMEOUT_S - 1, TIMEOUT_S) is None
    peer.clock.now = TIMEOUT_S - 1
    peer.stream.take(5)
    assert peer.connection.is_overdue(TIMEOUT_S + 1, TIMEOUT_S) is None
    assert peer.connection.is_overdue(2 * TIMEOUT_S, TIMEOUT_S) is not None


# ── the end ──────────────────────────────────────────────────────────────────────────────────────────────────────


def test_closing_cancels_what_waits_once() -> None:
    waiting = Waiting()
    peer = Peer(handler=waiting)
    peer.stream.arrive(framed(bytes(8)) * 5)
    waiting.answer(peer.connection, 2)
    peer.connection.close("enough")
    peer.connection.close("again")
    assert waiting.cancelled == 4 and peer.reasons == ["enough"]
    waiting.answer(peer.connection, 0)
    assert peer.stream.answers() == []


def test_closing_with_a_held_request_gives_its_memory_back_and_its_end_is_harmless() -> None:
    def hold(connection: Connection, _frame: memoryview) -> Response | None:
        connection.reserve()
        connection.hold()
        return None

    peer = Peer(handler=hold)
    peer.stream.arrive(framed(bytes(100)) * 2)
    peer.connection.close(None)
    assert peer.intake.owned_bytes == 0
    peer.connection.release()
    assert peer.intake.owned_bytes == 0 and len(peer.frames) == 1


def test_a_connection_is_idle_only_with_nothing_under_way() -> None:
    waiting = Waiting()
    peer = Peer(handler=waiting)
    assert peer.connection.is_idle
    peer.stream.arrive(framed(bytes(8)))
    assert not peer.connection.is_idle
    waiting.answer(peer.connection, 0)
    assert peer.connection.is_idle
    peer.stream.arrive(b"\0")
    assert not peer.connection.is_idle
