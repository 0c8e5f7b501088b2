"""Reading as a read_committed consumer does: what was aborted is passed over, what is open is not shown."""

from __future__ import annotations

from penstock.base.errors import ApiError, Error
from penstock.testing.sim_client import FETCH_VERSION, SimClient, batches_of
from penstock.wire.batch import CONTROL, TRANSACTIONAL
from penstock.wire.control import ControlType, read_control_record
from penstock.wire.messages.k01_fetch import (
    FetchRequest,
    FetchRequestPartition,
    FetchRequestTopic,
    FetchResponsePartition,
)
from penstock.wire.records import Record, read_records

READ_COMMITTED = 1


async def fetch_committed(
    client: SimClient, topic: str, partition: int, offset: int, *, max_bytes: int = 4096
) -> tuple[list[Record], int]:
    """The committed messages that one fetch brings, and the offset to go on from."""
    part = FetchRequestPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        isolation_level=READ_COMMITTED,
        topics=[FetchRequestTopic(topic=topic, partitions=[part])],
    )
    answer = await client.call(request, FETCH_VERSION)
    if answer.error_code:
        raise ApiError(Error(answer.error_code))
    found: FetchResponsePartition = answer.responses[0].partitions[0]
    if found.error_code:
        raise ApiError(Error(found.error_code))
    return _committed(found, offset)


async def read_committed(client: SimClient, topic: str, partition: int) -> list[Record]:
    """Every committed message of a partition."""
    records: list[Record] = []
    offset = 0
    while True:
        more, position = await fetch_committed(client, topic, partition, offset)
        if position == offset:
            return records
        records += more
        offset = position


def _committed(found: FetchResponsePartition, offset: int) -> tuple[list[Record], int]:
    aborted = sorted((row.first_offset, row.producer_id) for row in found.aborted_transactions or [])
    passing_over: set[int] = set()
    records: list[Record] = []
    position = offset
    for batch in batches_of(found):
        header = batch.header
        while aborted and aborted[0][0] <= header.last_offset:
            passing_over.add(aborted.pop(0)[1])
        content = memoryview(batch.content)
        if header.attributes & CONTROL:
            if read_control_record(content).type is ControlType.ABORT:
                passing_over.discard(header.producer_id)
        elif not (header.attributes & TRANSACTIONAL and header.producer_id in passing_over):
            records += [record for record in read_records(content) if record.offset >= offset]
        position = header.next_offset
    return records, position
