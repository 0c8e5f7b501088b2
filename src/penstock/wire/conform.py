"""What a topic asks of the inside of a batch: another compression than the producer chose, or a key in every record.

This is one of the few places that look at records. It costs what it costs, so it runs beside the event loop and only
for topics that ask for it.
"""

from __future__ import annotations

from dataclasses import dataclass

from penstock.base.errors import ApiError, Error
from penstock.wire.batch import check_produced_batch
from penstock.wire.compression import Compression, CompressionError
from penstock.wire.records import RecordError, read_columns, seal_batch


@dataclass(frozen=True, slots=True)
class InsideRules:
    """`compression` None: as the producer sent it. `level` None: the codec's own default."""

    compression: Compression | None = None
    level: int | None = None
    needs_keys: bool = False

    def __bool__(self) -> bool:
        return self.compression is not None or self.needs_keys


def conform(batch: memoryview, rules: InsideRules) -> memoryview:
    """The batch as the topic wants it, itself if it is so already; ApiError if it cannot be."""
    header = check_produced_batch(batch)
    keeps_codec = rules.compression is None or header.compression == rules.compression
    if keeps_codec and not rules.needs_keys:
        return batch
    try:
        _, area, columns = read_columns(batch)
        if rules.needs_keys and min(columns.key_length) < 0:
            raise ApiError(Error.INVALID_RECORD, "every record of a compacted topic needs a key")
        if keeps_codec:
            return batch
        assert rules.compression is not None
        sealed = seal_batch(
            area,
            header.record_count,
            last_offset_delta=header.last_offset_delta,
            base_timestamp=header.base_timestamp,
            max_timestamp=header.max_timestamp,
            compression=rules.compression,
            level=rules.level,
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            transactional=header.is_transactional,
        )
    except (RecordError, CompressionError) as error:
        raise ApiError(Error.INVALID_RECORD, str(error)) from error
    return memoryview(bytearray(sealed))
