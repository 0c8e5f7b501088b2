"""Our bytes are those of two independent encoders, kafka-python's and kio's, wherever they know a message.

Both build their messages from fields in the order of Kafka's schemas, as ours are declared, so fields are matched by
their order in a version; names differ here and there (kio drops units). Where a reference is known to be wrong or
behind, it is listed with the reason.
"""

from __future__ import annotations

import dataclasses
import io
import re
import warnings
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pkgutil import resolve_name
from typing import Any, get_args, get_type_hints

import pytest
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer

from penstock.wire.api import APIS
from penstock.wire.codec import encode
from penstock.wire.headers import RequestHeader, encode_request_header, response_header_version
from penstock.wire.schema import Field, Message, declared_versions, default_of, schema_of

with warnings.catch_warnings():  # kafka-python reads its schemas in a way that Python 3.11 calls deprecated
    warnings.simplefilter("ignore", DeprecationWarning)
    import kafka.protocol.admin
    import kafka.protocol.consumer
    import kafka.protocol.metadata
    import kafka.protocol.producer
    import kafka.protocol.sasl
    from kafka.protocol.schemas.fields.codecs import BitField

KAFKA_PYTHON_MODULES = (
    kafka.protocol.admin,
    kafka.protocol.consumer,
    kafka.protocol.metadata,
    kafka.protocol.producer,
    kafka.protocol.sasl,
)


API_MESSAGES = [cls for api in APIS.values() for cls in (api.request, api.response)]


def versions(cls: type[Message]) -> range:
    declared = declared_versions(cls)
    return range(declared.first, declared.last + 1)


def present_fields(instance: Any, version: int) -> list[Field]:
    return [each for each in schema_of(type(instance)).fields if version in each.versions]


def variants(cls: type[Message], version: int, samples: Any) -> Iterator[Any]:
    yield cls()
    yield samples.populated(cls, version)
    yield samples.populated(cls, version, nulls=True)


# kafka-python


def kafka_python_class(name: str) -> Any:
    return next((getattr(module, name) for module in KAFKA_PYTHON_MODULES if hasattr(module, name)), None)


def to_kafka_python(instance: Any, version: int, theirs: Any) -> Any:
    fields = [each for each in theirs._struct.fields.values() if each.for_version_q(version)]
    values = {}
    for our_field, their_field in zip(present_fields(instance, version), fields, strict=True):
        value = getattr(instance, our_field.name)
        if our_field.tag is not None and value == default_of(our_field):
            continue  # it would write a tagged field that is at its default, which is allowed and useless
        values[their_field.name] = kafka_python_value(value, version, their_field)
    return theirs(version=version, **values)


def kafka_python_value(value: Any, version: int, field: Any) -> Any:
    if value is None:
        return None
    if getattr(field, "_type", None) is BitField:
        return {bit for bit in range(32) if value >> bit & 1}
    if field.is_struct_array():
        return [to_kafka_python(each, version, field.data_class) for each in value]
    if field.is_struct():
        return to_kafka_python(value, version, field.data_class)
    return value


def kafka_python_versions() -> Iterator[tuple[type[Message], Any, int]]:
    for cls in API_MESSAGES:
        theirs = kafka_python_class(cls.__name__)
        if theirs is not None:
            yield from ((cls, theirs, version) for version in versions(cls) if version <= theirs.max_version)


def test_kafka_python(samples: Any) -> None:
    compared = 0
    for cls, theirs, version in kafka_python_versions():
        for instance in variants(cls, version, samples):
            expected = to_kafka_python(instance, version, theirs).encode(version=version)
            assert encode(instance, version) == bytes(expected), f"version {version}: {instance}"
        compared += 1
    assert compared > 400


# kio


def kio_class(name: str, version: int) -> Any:
    match = re.fullmatch(r"(\w+?)(Request|Response)", name)
    assert match is not None
    folder = re.sub(r"(?<!^)(?=[A-Z])", "_", match[1]).lower()
    try:
        return resolve_name(f"kio.schema.{folder}.v{version}.{match[2].lower()}:{name}")
    except ImportError:
        return None


def to_kio(instance: Any, version: int, theirs: Any) -> Any:
    fields = dataclasses.fields(theirs)
    types = get_type_hints(theirs)
    return theirs(
        **{
            theirs.name: kio_value(
                getattr(instance, ours.name), version, types[theirs.name], theirs.metadata.get("kafka_type")
            )
            for ours, theirs in zip(present_fields(instance, version), fields, strict=True)
        }
    )


def kio_value(value: Any, version: int, annotation: Any, kafka_type: str | None) -> Any:
    convert = {
        "error_code": ErrorCode,
        "timedelta_i32": lambda ms: timedelta(milliseconds=ms),
        "timedelta_i64": lambda ms: timedelta(milliseconds=ms),
        "datetime_i64": lambda ms: None if ms == -1 else datetime.fromtimestamp(ms / 1000, tz=UTC),
    }
    if value is None:
        return None
    if isinstance(value, list):
        return tuple(kio_value(each, version, annotation, kafka_type) for each in value)
    if kafka_type in convert:
        return convert[kafka_type](value)
    if dataclasses.is_dataclass(value):
        return to_kio(value, version, nested_kio_class(annotation))
    return value


def nested_kio_class(annotation: Any) -> Any:
    if dataclasses.is_dataclass(annotation):
        return annotation
    return next((found for each in get_args(annotation) if (found := nested_kio_class(each)) is not None), None)


def kio_versions() -> Iterator[tuple[type[Message], Any, int]]:
    for cls in API_MESSAGES:
        for version in versions(cls):
            theirs = kio_class(cls.__name__, version)
            if theirs is not None:
                yield cls, theirs, version


def test_kio(samples: Any) -> None:
    compared = 0
    for cls, theirs, version in kio_versions():
        for instance in variants(cls, version, samples):
            out = io.BytesIO()
            entity_writer(theirs)(out, to_kio(instance, version, theirs))
            assert encode(instance, version) == out.getvalue(), f"version {version}: {instance}"
        compared += 1
    assert compared > 500


# headers


@pytest.mark.parametrize("client_id", [None, "", "größe"])
def test_request_headers(client_id: str | None) -> None:
    for api in APIS.values():
        for version in range(api.min_version, api.max_version + 1):
            theirs = kio_class(api.request.__name__, version)
            if theirs is None:
                continue
            header_class = theirs.__header_schema__
            out = io.BytesIO()
            values = {"request_api_key": api.key, "request_api_version": version, "correlation_id": 7}
            entity_writer(header_class)(out, header_class(**values, client_id=client_id))
            ours = bytearray()
            encode_request_header(RequestHeader(api.key, version, 7, client_id), ours)
            assert bytes(ours) == out.getvalue(), f"{api.name} {version}"


def test_response_headers() -> None:
    for api in APIS.values():
        for version in range(api.min_version, api.max_version + 1):
            theirs = kio_class(api.response.__name__, version)
            if theirs is not None:
                assert response_header_version(api.key, version) == theirs.__header_schema__.__version__
