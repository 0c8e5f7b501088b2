"""Records go there and back; bytes that are none are refused, and never cost more than their size."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.zookeeper import operations as ops
from penstock.zookeeper.errors import MarshallingError
from penstock.zookeeper.jute import Reader, read_record, write_record
from penstock.zookeeper.multi import WRITES, read_multi, read_multi_results, write_multi, write_multi_results
from penstock.zookeeper.operations import Acl, Identity, Stat
from penstock.zookeeper.protocol import ANSWERS, REQUESTS, Op, operation_of

INTS = st.integers(-(1 << 31), (1 << 31) - 1)
LONGS = st.integers(-(1 << 63), (1 << 63) - 1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
ACLS = st.lists(st.builds(Acl, INTS, st.builds(Identity, TEXTS, TEXTS)), max_size=3).map(tuple)
STATS = st.builds(Stat, LONGS, LONGS, LONGS, LONGS, INTS, INTS, INTS, LONGS, INTS, INTS, LONGS)
KINDS: dict[str, st.SearchStrategy[Any]] = {
    "Int": INTS,
    "Long": LONGS,
    "Bool": st.booleans(),
    "Bytes": st.binary(max_size=20),
    "Text": TEXTS,
    "Texts": st.lists(TEXTS, max_size=3),
    "Acls": ACLS,
    "NodeStat": STATS,
}
RECORDS = sorted({*REQUESTS.values(), *ANSWERS.values()}, key=lambda record: record.__name__)


def records(cls: type[Any]) -> st.SearchStrategy[Any]:
    return st.builds(cls, *(KINDS[kind.__forward_arg__] for kind in cls.__annotations__.values()))


@pytest.mark.parametrize("cls", RECORDS, ids=lambda cls: cls.__name__)
def test_records_go_there_and_back(cls: type[Any]) -> None:
    @settings(max_examples=20, deadline=None)
    @given(records(cls), st.binary(max_size=3))
    def check(record: Any, rest: bytes) -> None:
        out = bytearray()
        write_record(record, out)
        reader = Reader(bytes(out) + rest)
        assert read_record(cls, reader) == record
        assert reader.position == len(out)
        for end in range(len(out)):
            with pytest.raises(MarshallingError):
                read_record(cls, Reader(bytes(out[:end])))

    check()


@pytest.mark.parametrize("cls", RECORDS, ids=lambda cls: cls.__name__)
@settings(max_examples=30, deadline=None)
@given(data=st.binary(max_size=100))
def test_any_bytes_are_a_record_or_refused(cls: type[Any], data: bytes) -> None:
    try:
        read_record(cls, Reader(data))
    except MarshallingError:
        pass


@given(st.binary(max_size=100))
def test_any_bytes_are_a_multi_or_refused(data: bytes) -> None:
    for read in (lambda reader: read_multi(reader, WRITES), read_multi_results):
        try:
            read(Reader(data))  # type: ignore[operator]
        except MarshallingError:
            pass


OPERATIONS = st.one_of(
    st.builds(ops.Create, TEXTS, st.binary(max_size=9), st.booleans(), st.booleans(), ACLS),
    st.builds(ops.Delete, TEXTS, INTS),
    st.builds(ops.SetData, TEXTS, st.binary(max_size=9), INTS),
    st.builds(ops.Check, TEXTS, INTS),
    st.builds(lambda path: ops.Create(path, container=True), TEXTS),
)


@settings(max_examples=50, deadline=None)
@given(st.lists(OPERATIONS, max_size=5))
def test_multis_go_there_and_back(operations: list[ops.Operation]) -> None:
    out = bytearray()
    write_multi(operations, out)
    assert [operation_of(*each) for each in read_multi(Reader(out), WRITES)] == operations


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_results_of_multis_go_there_and_back(data: st.DataObject) -> None:
    kinds = data.draw(st.lists(st.sampled_from([Op.CREATE, Op.DELETE, Op.SET_DATA, Op.CHECK, Op.CREATE_CONTAINER])))
    made: dict[Op, st.SearchStrategy[ops.Result]] = {
        Op.CREATE: TEXTS.map(ops.Created),
        Op.CREATE_CONTAINER: st.builds(ops.Created, TEXTS, STATS),
        Op.SET_DATA: st.builds(ops.Changed, STATS),
        Op.DELETE: st.just(ops.Done()),
        Op.CHECK: st.just(ops.Done()),
    }
    results = [data.draw(st.one_of(made[kind], st.builds(ops.Failed, INTS, st.just("")))) for kind in kinds]
    out = bytearray()
    write_multi_results(kinds, results, out)
    assert read_multi_results(Reader(out)) == results
