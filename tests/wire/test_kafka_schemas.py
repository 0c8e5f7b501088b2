"""Every declaration of ours says what the schemas inside Apache Kafka's jars say."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID
from zipfile import ZipFile

import pytest

from penstock.wire.api import APIS
from penstock.wire.schema import NO_VERSIONS, Field, Kind, Message, Versions, parse_versions, schema_of

pytestmark = pytest.mark.kafka

JARS = ("kafka-clients", "kafka-group-coordinator", "kafka-transaction-coordinator")
KEYS_OF_KRAFT = {52, 53, 54, 55, 58, 59, 62, 63, 70, 73, 80, 81, 82}  # its controllers and brokers; we have ZooKeeper
KEYS_OF_SHARE_STATE = {83, 84, 85, 86, 87}  # between its brokers
KEYS_REMOVED = {4, 5, 6, 7}
DIFFERENT_RANGES = {
    "ProduceRequest": "0-13",  # so that 0-2 can be refused with an answer
    "ProduceResponse": "0-13",
    "InitProducerIdRequest": "0-5",  # 6 is not stable
    "InitProducerIdResponse": "0-5",
}
IGNORABLE_HERE = {"ElectLeadersResponse.error_code"}  # version 0 says it in its rows; Kafka leaves it out by hand
FIRST_OWN_TAG = 10000  # Kafka and its tools pass over tagged fields that they do not know
TYPES = {
    "bool": Kind.BOOL,
    "int8": Kind.INT8,
    "int16": Kind.INT16,
    "int32": Kind.INT32,
    "int64": Kind.INT64,
    "uint16": Kind.UINT16,
    "uint32": Kind.UINT32,
    "float64": Kind.FLOAT64,
    "uuid": Kind.UUID,
    "string": Kind.STRING,
    "bytes": Kind.BYTES,
    "records": Kind.RECORDS,
}
ZERO = {"bool": False, "float64": 0.0, "uuid": UUID(int=0), "string": "", "bytes": b""}


@pytest.fixture(scope="session")
def schemas(kafka_libs: Path) -> dict[str, dict[str, Any]]:
    found = {}
    for jar in JARS:
        (path,) = kafka_libs.glob(f"{jar}-[0-9]*.jar")
        with ZipFile(path) as archive:
            for name in archive.namelist():
                if name.startswith("common/message/") and name.endswith(".json"):
                    text = archive.read(name).decode()
                    schema = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))
                    found[schema["name"]] = schema
    return found


def test_a_declaration(message_class: type[Message], schemas: dict[str, dict[str, Any]]) -> None:
    theirs = schemas[message_class.__name__]
    ours = schema_of(message_class)
    assert ours.versions == parse_versions(DIFFERENT_RANGES.get(message_class.__name__, theirs["validVersions"]))
    assert ours.flexible == parse_versions(theirs["flexibleVersions"])
    structs = {each["name"]: each["fields"] for each in theirs.get("commonStructs", [])}
    compare_fields(message_class.__name__, ours.fields, theirs["fields"], ours.versions, structs)


def compare_fields(
    path: str, ours: tuple[Field, ...], theirs: list[Any], versions: Versions, structs: dict[str, Any]
) -> None:
    relevant = [each for each in theirs if overlaps(parse_versions(versions_text(each)), versions)]
    ours = tuple(each for each in ours if each.tag is None or each.tag < FIRST_OWN_TAG)
    assert [each.name for each in ours] == [snake_case(each["name"]) for each in relevant], path
    for our_field, their_field in zip(ours, relevant, strict=True):
        compare_field(f"{path}.{our_field.name}", our_field, their_field)
        if our_field.struct is not None:
            nested = their_field.get("fields") or structs[their_field["type"].removeprefix("[]")]
            compare_fields(f"{path}.{our_field.name}", schema_of(our_field.struct).fields, nested, versions, structs)


def compare_field(path: str, ours: Field, theirs: dict[str, Any]) -> None:
    element = theirs["type"].removeprefix("[]")
    tagged = theirs.get("taggedVersions", "none")
    assert ours.is_array == theirs["type"].startswith("[]"), path
    assert ours.kind is TYPES.get(element, Kind.STRUCT), path
    assert ours.versions == parse_versions(versions_text(theirs)), path
    assert ours.nullable == parse_versions(theirs.get("nullableVersions", "none")), path
    assert ours.tag == theirs.get("tag"), path
    assert parse_versions(tagged) == (NO_VERSIONS if ours.tag is None else ours.versions), path
    assert ours.ignorable == (theirs.get("ignorable", False) or path in IGNORABLE_HERE), path
    if ours.kind is not Kind.RECORDS:  # Kafka's default there is a null that not every version can encode
        assert ours.default == expected_default(theirs, ours), path


def expected_default(theirs: dict[str, Any], ours: Field) -> Any:
    given = theirs.get("default") or ""  # a null that is not the word "null" is no default to Kafka
    if given == "null":
        return None
    if ours.is_array:
        return []
    if ours.struct is not None:
        return ours.struct
    if given == "":
        return ZERO.get(theirs["type"], 0)
    if theirs["type"] == "bool":
        return str(given).lower() == "true"
    return given if theirs["type"] == "string" else int(str(given), 0)


def versions_text(field: dict[str, Any]) -> str:
    text: str = field.get("versions") or field["taggedVersions"]
    return text


def overlaps(one: Versions, other: Versions) -> bool:
    return one.first <= other.last and other.first <= one.last


def snake_case(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower()


def test_no_api_is_missing(schemas: dict[str, dict[str, Any]]) -> None:
    kafkas = {each["apiKey"]: name for name, each in requests(schemas)}
    expected = kafkas.keys() - KEYS_OF_KRAFT - KEYS_OF_SHARE_STATE - KEYS_REMOVED
    assert set(APIS) == expected
    for key, api in APIS.items():
        assert api.name == kafkas[key].removesuffix("Request")


def requests(schemas: dict[str, dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any]]]:
    return ((name, each) for name, each in schemas.items() if each["type"] == "request")


def test_no_record_kind_is_missing(schemas: dict[str, dict[str, Any]], messages: list[type[Message]]) -> None:
    kafkas = {name for name, each in schemas.items() if each["type"] in ("coordinator-key", "coordinator-value")}
    assert kafkas <= {each.__name__ for each in messages}
