"""The table of APIs and the headers."""

from __future__ import annotations

from penstock.wire.api import APIS
from penstock.wire.headers import (
    RequestHeader,
    decode_request_header,
    decode_response_header,
    encode_request_header,
    encode_response_header,
    request_header_version,
    response_header_version,
)
from penstock.wire.messages.k00_produce import ProduceRequest, ProduceResponse
from penstock.wire.schema import declared_flexible, declared_versions


def test_a_row() -> None:
    produce = APIS[0]
    assert (produce.name, produce.request, produce.response) == ("Produce", ProduceRequest, ProduceResponse)
    assert (produce.min_version, produce.max_version, produce.flexible_since) == (0, 13, 9)
    handshake = APIS[17]
    assert handshake.flexible_since > handshake.max_version


def test_requests_and_responses_have_the_same_versions() -> None:
    for key, api in APIS.items():
        assert api.key == key
        assert declared_versions(api.request) == declared_versions(api.response), api.name
        assert declared_flexible(api.request) == declared_flexible(api.response), api.name
        assert (api.request.__name__, api.response.__name__) == (f"{api.name}Request", f"{api.name}Response")


def test_request_headers_round_trip() -> None:
    for key, version in ((0, 8), (0, 9), (17, 1), (18, 3), (18, 999), (12345, 3)):
        for client_id in (None, "", "client", "é" * 100):
            header = RequestHeader(key, version, -5, client_id)
            data = bytearray(b"..")
            encode_request_header(header, data)
            end = len(data)
            data += b"body"
            for buffer in (bytes(data), memoryview(data)):
                assert decode_request_header(buffer, 2) == (header, end)


def test_header_versions() -> None:
    assert [request_header_version(0, version) for version in (8, 9)] == [1, 2]
    assert [response_header_version(0, version) for version in (8, 9)] == [0, 1]
    assert {response_header_version(18, version) for version in range(5)} == {0}
    assert request_header_version(18, 3) == 2


def test_response_headers_round_trip() -> None:
    for key, version, size in ((0, 8, 4), (0, 9, 5), (18, 4, 4)):
        out = bytearray()
        encode_response_header(key, version, 77, out)
        assert len(out) == size
        assert decode_response_header(key, version, out + b"body") == (77, size)
