"""Frames that lie about their size, never end, or come byte by byte; readers that never read; too many connections."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

from penstock.testing.raw_client import ConnectionEnded
from penstock.testing.sim_client import batch_of, produce_request
from penstock.wire.codec import encode
from penstock.wire.messages.k03_metadata import MetadataRequest
from penstock.wire.messages.k18_api_versions import ApiVersionsRequest

MIB = 1 << 20
SOON_S = 3.0  # promised is one second; the machine may be busy
API_VERSIONS = ApiVersionsRequest(client_software_name="raw", client_software_version="1")


@pytest.mark.parametrize(
    "size", [-1, -(2**31), 0, 1, 7, 100 * MIB + 1, 2**31 - 1], ids=lambda size: f"size_{size}".replace("-", "minus_")
)
def test_impossible_sizes_close_at_once(target: Any, size: int) -> None:
    with target.connect() as client:
        client.send(struct.pack(">i", size) + bytes(100))
        assert client.is_closed_within(SOON_S)


def test_a_good_request_before_an_impossible_one_is_answered(target: Any) -> None:
    with target.connect() as client:
        client.send(client.frame_of(API_VERSIONS, 3) + struct.pack(">i", -5))
        assert client.receive_frame()
        assert client.is_closed_within(SOON_S)


def test_nothing_is_allocated_by_what_a_frame_says(target: Any) -> None:
    target.forget_peak()
    before = target.peak_bytes()
    with ExitStack() as stack:
        for _ in range(40):
            client = stack.enter_context(target.connect())
            client.send(struct.pack(">ihhih", 100 * MIB, 0, 9, 1, 3) + b"raw" + bytes(2000))
        stack.enter_context(target.connect()).call(API_VERSIONS, 3)
        assert target.peak_bytes() - before < 20 * MIB


def test_arrays_and_strings_longer_than_the_frame_are_refused(target: Any) -> None:
    """A small frame whose array says it has two thousand million elements."""
    target.forget_peak()
    before = target.peak_bytes()
    for body in (struct.pack(">i", 2**31 - 1), struct.pack(">ih", 1, 32767) + b"short"):
        with target.connect() as client:
            client.send(client.frame(3, 1, body))
            assert client.is_closed_within(SOON_S)
    assert target.peak_bytes() - before < 20 * MIB


def test_half_a_frame_that_never_ends_is_given_up(target: Any) -> None:
    with target.connect() as client:
        client.send(struct.pack(">i", 1000) + bytes(500))
        began = time.monotonic()
        assert client.is_closed_within(10)
        assert time.monotonic() - began > 0.5


def test_a_size_that_never_ends_is_given_up(target: Any) -> None:
    with target.connect() as client:
        client.send(b"\0\0")
        assert client.is_closed_within(10)


def test_one_byte_at_a_time_is_answered_when_it_ends_in_time(target: Any) -> None:
    with target.connect() as client:
        for byte in client.frame_of(API_VERSIONS, 3):
            client.send(bytes([byte]))
        assert client.receive_frame()


def test_a_drip_that_never_ends_is_given_up(target: Any) -> None:
    """Some progress all the time does not help: the whole frame has its time."""
    with target.connect() as client:
        client.send(struct.pack(">i", 100_000))
        began = time.monotonic()
        while time.monotonic() - began < 15:
            client.send(b"x")
            if client.is_closed_within(0.05):
                return
        raise AssertionError("a drip was tolerated for 15 seconds")


def test_a_reader_that_never_reads_is_bounded_and_given_up(target: Any) -> None:
    for number in range(30):
        target.create_topic(f"a-long-name-to-make-answers-long-{number}-{'x' * 180}", 3)
    target.forget_peak()
    before = target.peak_bytes()
    with target.connect(receive_buffer_bytes=4096) as client:
        request = client.frame(3, 1, encode(MetadataRequest(topics=None), 1), client_id="x" * 2000)
        client.socket.settimeout(0.2)
        sent = 0
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            try:
                sent += client.socket.send(request)
            except TimeoutError:
                continue
            except OSError:
                break
            assert sent < 50 * MIB, "the broker took everything from somebody who reads nothing"
        else:
            raise AssertionError("a reader that never reads was never given up")
    assert target.peak_bytes() - before < 30 * MIB


def test_hogs_of_the_memory_for_requests_make_room(broker_with: Callable[..., Any]) -> None:
    """All of the budget is taken by requests that never end: whoever stands still is given up, the others get on."""
    target = broker_with(socket_request_max_bytes=str(2 * MIB), queued_max_request_bytes=str(4 * MIB))
    target.create_topic("hogged")
    with ExitStack() as stack:
        for _ in range(7):
            stack.enter_context(target.connect()).send(struct.pack(">i", 2 * MIB) + bytes(MIB))
        batch = batch_of([bytes(900_000)])
        began = time.monotonic()
        honest = stack.enter_context(target.connect())
        answer = honest.call(produce_request("hogged", 0, batch), 11).responses[0].partition_responses[0]
    assert answer.error_code == 0
    assert time.monotonic() - began < 4 * SOON_S


def test_more_connections_than_allowed_are_refused(broker_with: Callable[..., Any]) -> None:
    target = broker_with(max_connections="20")
    _check_limit(target, 20)


def test_more_connections_than_allowed_from_one_address_are_refused(broker_with: Callable[..., Any]) -> None:
    target = broker_with(max_connections_per_ip="12")
    _check_limit(target, 12)


def _check_limit(target: Any, limit: int) -> None:
    with ExitStack() as stack:
        open_now = [stack.enter_context(target.connect()) for _ in range(limit)]
        for client in open_now:
            client.call(API_VERSIONS, 3)
        for _ in range(100):
            with target.connect() as refused:
                refused.send(refused.frame_of(API_VERSIONS, 3))
                with pytest.raises(ConnectionEnded):
                    refused.receive_frame(SOON_S)
        for client in open_now:
            client.call(API_VERSIONS, 3)
    deadline = time.monotonic() + SOON_S
    while True:  # there is room again as soon as the broker has seen the ends
        try:
            with target.connect() as client:
                client.call(API_VERSIONS, 3)
            break
        except ConnectionEnded:
            assert time.monotonic() < deadline
    lines = [line for line in target.process.log_text().splitlines() if "max.connections" in line]
    assert 1 <= len(lines) <= 3 + SOON_S


def test_one_log_line_for_a_peer_in_a_second(broker_with: Callable[..., Any]) -> None:
    target = broker_with()
    began = time.monotonic()
    for number in range(300):
        with target.connect() as client:
            client.send(struct.pack(">i", -1) if number % 2 else client.frame(3, 1, b"\0"))
            assert client.is_closed_within(SOON_S)
    took_s = time.monotonic() - began
    lines = [line for line in target.process.log_text().splitlines() if "127.0.0.1: " in line]
    assert 1 <= len(lines) <= took_s + 2
