"""Handing out producer ids in blocks, so that an id is never used twice, whoever crashes when.

A broker takes a block with one conditional write and uses it from memory; what is left of it when the broker ends is
lost, and nobody minds. The write needs no fence: the version decides who gets the block.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.base.errors import ApiError, Error
from penstock.zookeeper.operations import SetData
from penstock.zookeeper.znodes import PRODUCER_ID_BLOCK_SIZE, ProducerIds

PRODUCER_ID_MAX = 2**63 - 1


class ProducerIdBlock(NamedTuple):
    """The ids of a block, and the write that must succeed before any of them is used (else read again)."""

    ids: range
    operation: SetData


def next_block(current: ProducerIds, version: int, broker_id: int) -> ProducerIdBlock:
    """The next block for a broker, after what `/producer_ids` holds in this version."""
    end = current.next_id + PRODUCER_ID_BLOCK_SIZE
    if end > PRODUCER_ID_MAX:
        raise ApiError(Error.UNKNOWN_SERVER_ERROR, "all producer ids have been handed out")
    content = ProducerIds(next_id=end, broker_id=broker_id).encode()
    return ProducerIdBlock(range(current.next_id, end), SetData(ProducerIds.PATH, content, version))
