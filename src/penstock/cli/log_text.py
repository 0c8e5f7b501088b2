"""What `penstock log` prints for a batch, a record, an index entry and a problem: as text and as JSON."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

from penstock.base.world import Disk
from penstock.cli.failure import Failure
from penstock.cli.message_format import show_bytes
from penstock.cli.timestamps import format_timestamp
from penstock.log import names
from penstock.log.inspect import (
    DamagedSnapshot,
    FolderSummary,
    InspectedBatch,
    Problem,
    read_offset_index,
    read_snapshot,
    read_time_index,
    read_txn_index,
)
from penstock.wire.batch import COMPRESSION_MASK, CONTROL, LOG_APPEND_TIME, NO_PRODUCER_ID, TRANSACTIONAL, BatchHeader
from penstock.wire.records import Record

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def batch_text(batch: InspectedBatch) -> str:
    """A batch as one line of words."""
    header = batch.header
    words = [
        f"offset={header.base_offset}..{header.last_offset}",
        f"position={batch.position}",
        f"bytes={header.size_bytes}",
        f"records={header.record_count}",
        f"codec={_codec(header)}",
        f"time={format_timestamp(header.max_timestamp)}",
        f"leader-epoch={header.leader_epoch}",
    ]
    if header.producer_id != NO_PRODUCER_ID:
        words.append(f"producer={header.producer_id}/{header.producer_epoch} sequence={header.base_sequence}")
    words += _marks(header)
    if batch.control is not None:
        words.append(f"marker={batch.control.type.name.lower()} coordinator-epoch={batch.control.coordinator_epoch}")
    if batch.problem is not None:
        words.append(f"PROBLEM: {batch.problem}")
    return " ".join(words)


def record_texts(batch: InspectedBatch, terminal: bool) -> Iterator[str]:
    """The records of a batch, one line each."""
    for record in batch.records:
        headers = ",".join(f"{name}={_text(value, terminal)}" for name, value in record.headers)
        key, value = _text(record.key, terminal), _text(record.value, terminal)
        time = format_timestamp(record.timestamp)
        yield f"  offset={record.offset} time={time} key={key} value={value}" + (
            f" headers={headers}" if headers else ""
        )


def batch_document(batch: InspectedBatch) -> dict[str, Any]:
    """A batch as JSON; records are there if they were read."""
    header = batch.header
    document: dict[str, Any] = {
        "file": batch.path,
        "position": batch.position,
        **header.as_dict(),
        "last_offset": header.last_offset,
        "size_bytes": header.size_bytes,
        "codec": _codec(header),
        "log_append_time": bool(header.attributes & LOG_APPEND_TIME),
        "transactional": bool(header.attributes & TRANSACTIONAL),
        "control": bool(header.attributes & CONTROL),
        "problem": batch.problem,
    }
    if batch.control is not None:
        document["marker"] = batch.control.type.name.lower()
        document["coordinator_epoch"] = batch.control.coordinator_epoch
    if batch.records:
        document["records"] = [_record_document(record) for record in batch.records]
    return document


def _record_document(record: Record) -> dict[str, Any]:
    document: dict[str, Any] = {"offset": record.offset, "timestamp": record.timestamp}
    for name, content in (("key", record.key), ("value", record.value)):
        try:
            document[name] = None if content is None else content.decode()
        except UnicodeDecodeError:
            document[name] = base64.b64encode(content or b"").decode()
            document[f"{name}_encoding"] = "base64"
    document["headers"] = [[name, _text(value, False)] for name, value in record.headers]
    return document


def problem_text(problem: Problem) -> str:
    """A problem as one line."""
    where = problem.path if problem.position is None else f"{problem.path} at {problem.position}"
    return f"PROBLEM: {where}: {problem.text}"


def problem_document(problem: Problem) -> dict[str, Any]:
    """A problem as JSON."""
    return {"file": problem.path, "position": problem.position, "problem": problem.text}


def summary_text(summary: FolderSummary) -> str:
    """What was checked in a folder, as one line."""
    if not summary.segments:
        return f"{summary.path}: empty"
    text = (
        f"{summary.path}: {summary.segments} segment{'s' * (summary.segments != 1)}, {summary.batches} "
        f"batch{'es' * (summary.batches != 1)}, {summary.size_bytes} bytes, "
        f"offsets {summary.start_offset} to {summary.end_offset}"
    )
    if summary.open_transactions:
        count = f"{summary.open_transactions} transaction{'s' * (summary.open_transactions != 1)}"
        text += f", {count} open since offset {summary.first_open_offset}"
    return text


def summary_document(summary: FolderSummary) -> dict[str, Any]:
    """What was checked in a folder, as JSON."""
    return {
        "folder": summary.path,
        "segments": summary.segments,
        "batches": summary.batches,
        "size_bytes": summary.size_bytes,
        "start_offset": summary.start_offset,
        "end_offset": summary.end_offset,
        "open_transactions": summary.open_transactions,
        "first_open_offset": summary.first_open_offset,
    }


def index_documents(disk: Disk, path: str) -> Iterator[dict[str, Any]]:
    """The entries of an index or snapshot file, as JSON."""
    name = PurePath(path).name
    suffix = PurePath(path).suffix
    base_offset = names.offset_of(name, suffix)
    if base_offset is None:
        raise Failure(f"{path} is not called after an offset, as the files of a log are")
    if suffix == names.INDEX:
        for offset, position in read_offset_index(disk, path, base_offset):
            yield {"offset": offset, "position": position}
    elif suffix == names.TIME_INDEX:
        for timestamp, offset in read_time_index(disk, path, base_offset):
            yield {"timestamp": timestamp, "offset": offset}
    elif suffix == names.TXN_INDEX:
        for transaction in read_txn_index(disk, path):
            yield transaction._asdict()
    else:
        yield from _producers(disk, path)


def _producers(disk: Disk, path: str) -> Iterator[dict[str, Any]]:
    try:
        producers = read_snapshot(disk, path)
    except DamagedSnapshot as problem:
        raise Failure(f"{path}: {problem}") from problem
    for producer in producers:
        yield {
            "producer_id": producer.producer_id,
            "epoch": producer.epoch,
            "last_sequence": producer.last_sequence,
            "last_offset": producer.last_offset,
            "last_timestamp": producer.last_timestamp,
            "coordinator_epoch": producer.coordinator_epoch,
            "transaction_first_offset": producer.transaction_first_offset,
        }


def index_text(document: dict[str, Any]) -> str:
    """An entry as one line of words."""
    return " ".join(f"{name.replace('_', '-')}={value}" for name, value in document.items())


def _codec(header: BatchHeader) -> str:
    number = header.attributes & COMPRESSION_MASK
    return CODECS[number] if number < len(CODECS) else f"unknown({number})"


def _marks(header: BatchHeader) -> list[str]:
    marks = ((TRANSACTIONAL, "transactional"), (CONTROL, "control"), (LOG_APPEND_TIME, "log-append-time"))
    return [word for bit, word in marks if header.attributes & bit]


def _text(content: bytes | None, terminal: bool) -> str:
    return "null" if content is None else show_bytes(content, terminal).decode()
