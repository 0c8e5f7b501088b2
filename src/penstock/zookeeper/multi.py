"""Several operations in one request: MULTI, which takes effect whole or not at all, and MULTI_READ.

Each operation, and each result, has a header with its kind before it; one more header says that it was the last.

ZooKeeper takes the kind of a creation from its flags alone here, and of an ordinary one it tells the path and no stat.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from penstock.zookeeper import operations as ops
from penstock.zookeeper.errors import BadArgumentsError, MarshallingError
from penstock.zookeeper.jute import Bool, Int, Reader, Writer, read_record, write_integer, write_record
from penstock.zookeeper.protocol import (
    CONTAINER,
    REQUESTS,
    SEQUENTIAL_WITH_TTL,
    WITH_TTL,
    OnlyPath,
    OnlyStat,
    Op,
    PathStat,
    request_of,
)

CREATIONS = (Op.CREATE, Op.CREATE2, Op.CREATE_CONTAINER, Op.CREATE_TTL)
WRITES = (*CREATIONS, Op.DELETE, Op.SET_DATA, Op.CHECK)
READS = (Op.GET_DATA, Op.GET_CHILDREN)


class MultiHeader(NamedTuple):
    """Before each operation and each result, and at the end of them."""

    type: Int
    done: Bool
    error: Int


_END = MultiHeader(Op.ERROR, True, -1)


def read_multi(reader: Reader, allowed: Sequence[Op]) -> list[tuple[Op, Any]]:
    """The operations of a MULTI or a MULTI_READ."""
    found: list[tuple[Op, Any]] = []
    while True:
        header: MultiHeader = read_record(MultiHeader, reader)
        if header.done:
            return found
        if header.type not in allowed:
            raise MarshallingError(f"a multi with the operation {header.type}")
        op = Op(header.type)
        request = read_record(REQUESTS[op], reader)
        if op in CREATIONS and op is not Op.CREATE_TTL:
            if WITH_TTL <= request.flags <= SEQUENTIAL_WITH_TTL:
                raise MarshallingError("a time to live is missing")  # as ZooKeeper answers it
            op = Op.CREATE_CONTAINER if request.flags == CONTAINER else Op.CREATE
        found.append((op, request))


def write_multi(operations: Sequence[ops.Operation], out: Writer) -> None:
    for operation in operations:
        if isinstance(operation, ops.SetAcl):
            raise BadArgumentsError("ZooKeeper takes no access control list in a multi")
        op, request = request_of(operation)
        write_record(MultiHeader(op, False, -1), out)
        write_record(request, out)
    write_record(_END, out)


def write_multi_results(asked: Sequence[Op], results: Sequence[Any], out: Writer) -> None:
    """The answer: a result for each operation; if one of a MULTI failed, an error for each. Records go as they are."""
    for op, result in zip(asked, results, strict=True):
        match result:
            case ops.Failed(code):
                write_record(MultiHeader(Op.ERROR, False, code), out)
                write_integer(code, out)
                continue
            case ops.Created(path, stat):
                record: Any = OnlyPath(path) if op is Op.CREATE or stat is None else PathStat(path, stat)
            case ops.Changed(stat):
                record = OnlyStat(stat)
            case ops.Done():
                record = ()
            case _:
                record = result
        write_record(MultiHeader(Op.CREATE2 if op is Op.CREATE_CONTAINER else op, False, 0), out)
        if record:
            write_record(record, out)
    write_record(_END, out)


def read_multi_results(reader: Reader) -> list[ops.Result]:
    results: list[ops.Result] = []
    while True:
        header: MultiHeader = read_record(MultiHeader, reader)
        if header.done:
            return results
        match header.type:
            case Op.ERROR:
                results.append(ops.Failed(reader.integer()))
            case Op.CREATE:
                results.append(ops.Created(reader.string()))
            case Op.CREATE2:
                results.append(ops.Created(*read_record(PathStat, reader)))
            case Op.SET_DATA:
                results.append(ops.Changed(reader.stat()))
            case Op.DELETE | Op.CHECK:
                results.append(ops.Done())
            case _:
                raise MarshallingError(f"a result of the unknown operation {header.type}")
