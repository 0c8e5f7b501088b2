"""The request that is written by hand is, byte by byte, the one that the codec writes."""

from __future__ import annotations

import pytest

from penstock.columnar.produce_request import VERSIONS, PartitionRecords, produce_parts
from penstock.wire.codec import encode
from penstock.wire.messages.k00_produce import ProduceRequest, ProduceRequestPartition, ProduceRequestTopic

ROWS = {
    "orders": [
        PartitionRecords(3, b"H" * 61, memoryview(b"a" * 300)),
        PartitionRecords(0, b"h" * 61, memoryview(b"b")),
    ],
    "items-ä": [PartitionRecords(7, b"i" * 61, memoryview(b"c" * 70_000))],
}


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("transactional_id", [None, "a transaction"])
def test_it_is_the_codecs(version: int, transactional_id: str | None) -> None:
    request = ProduceRequest(
        transactional_id=transactional_id,
        acks=-1,
        timeout_ms=30_000,
        topic_data=[
            ProduceRequestTopic(
                name=topic,
                partition_data=[
                    ProduceRequestPartition(index=row.partition, records=row.header + bytes(row.records))
                    for row in rows
                ],
            )
            for topic, rows in ROWS.items()
        ],
    )
    assert b"".join(produce_parts(version, transactional_id, -1, 30_000, ROWS)) == encode(request, version)


def test_records_are_not_copied() -> None:
    parts = produce_parts(12, None, -1, 30_000, ROWS)
    assert [part for part in parts if isinstance(part, memoryview)] == [
        row.records for rows in ROWS.values() for row in rows
    ]
