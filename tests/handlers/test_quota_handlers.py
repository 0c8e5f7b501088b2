"""DescribeClientQuotas and AlterClientQuotas, every version."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.base.errors import Error

ALTER, DESCRIBE = "AlterClientQuotas", "DescribeClientQuotas"
EXACT, DEFAULT, SPECIFIED = 0, 1, 2


def entity(**parts: str | None) -> list[dict[str, Any]]:
    return [{"entity_type": kind.replace("_", "-"), "entity_name": name} for kind, name in parts.items()]


def op(key: str, value: float | None) -> dict[str, Any]:
    return {"key": key, "value": 0.0 if value is None else value, "remove": value is None}


def entry(parts: list[dict[str, Any]], **values: float | None) -> dict[str, Any]:
    return {"entity": parts, "ops": [op(key, value) for key, value in values.items()]}


def component(kind: str, match_type: int, match: str | None = None) -> dict[str, Any]:
    return {"entity_type": kind, "match_type": match_type, "match": match}


def described(answer: Any) -> dict[tuple[tuple[str, str | None], ...], dict[str, float]]:
    assert answer.error_code == 0, answer
    return {
        tuple(sorted((part.entity_type, part.entity_name) for part in row.entity)): {
            value.key: value.value for value in row.values
        }
        for row in answer.entries
    }


def alter(client: Any, version: int, *entries: dict[str, Any], validate_only: bool = False, **more: Any) -> list[int]:
    answer = client.ask(ALTER, version, entries=list(entries), validate_only=validate_only, **more)
    return [row.error_code for row in answer.entries]


def describe(client: Any, version: int, *components: dict[str, Any], strict: bool = False, **more: Any) -> Any:
    return client.ask(DESCRIBE, version, components=list(components), strict=strict, **more)


@pytest.mark.parametrize("version", [0, 1])
def test_limits_are_set_told_and_taken_away(client: Any, version: int) -> None:
    name = f"{client.prefix}-{version}"
    parts = entity(client_id=name)
    filters = component("client-id", EXACT, name)
    key = (("client-id", name),)
    both = {"producer_byte_rate": 1024.0, "request_percentage": 12.5}
    assert alter(client, version, entry(parts, **both)) == [0]
    told = describe(client, version, filters, until=lambda answer: len(answer.entries) == 1)
    assert described(told) == {key: both}
    one = {"producer_byte_rate": 1024.0}
    assert alter(client, version, entry(parts, request_percentage=None)) == [0]
    told = describe(client, version, filters, until=lambda answer: described(answer) == {key: one})
    assert alter(client, version, entry(parts, producer_byte_rate=5), validate_only=True) == [0]
    assert described(describe(client, version, filters)) == {key: one}
    assert alter(client, version, entry(parts, producer_byte_rate=None, consumer_byte_rate=None)) == [0]
    told = describe(client, version, filters, until=lambda answer: not answer.entries)
    assert told.error_code == Error.NONE


def test_users_with_client_ids_and_odd_names(client: Any) -> None:
    user = f"{client.prefix}/ü,<default>%"
    assert alter(client, 1, entry(entity(user=user), producer_byte_rate=1)) == [0]
    assert alter(client, 1, entry(entity(user=user, client_id=None), consumer_byte_rate=2)) == [0]
    exact = component("user", EXACT, user)
    told = describe(client, 1, exact, strict=True, until=lambda answer: len(answer.entries) == 1)
    assert described(told) == {(("user", user),): {"producer_byte_rate": 1.0}}
    pair = describe(client, 1, exact, component("client-id", DEFAULT), until=lambda answer: len(answer.entries) == 1)
    assert described(pair) == {(("client-id", None), ("user", user)): {"consumer_byte_rate": 2.0}}
    alter(client, 1, entry(entity(user=user), producer_byte_rate=None))
    alter(client, 1, entry(entity(user=user, client_id=None), consumer_byte_rate=None))


@pytest.mark.parametrize(
    "wrong",
    [
        entry([], producer_byte_rate=1),
        entry(entity(group="g"), producer_byte_rate=1),
        entry(entity(user=""), producer_byte_rate=1),
        entry(entity(user="a", ip="127.0.0.1"), producer_byte_rate=1),
        entry(entity(user="a"), connection_creation_rate=1),
        entry(entity(user="a"), no_such_quota=1),
        entry(entity(user="a"), producer_byte_rate=1.5),
        entry(entity(ip="127.0.0.1"), producer_byte_rate=1),
        entry(entity(user="a"), producer_byte_rate=0),
        entry(entity(user="a"), request_percentage=-1),
        entry(entity(user="a"), controller_mutation_rate=0),
        entry(entity(ip="127.0.0.1"), connection_creation_rate=-1),
        entry(entity(ip="127.0.0.1"), connection_creation_rate=1.5),
    ],
)
def test_what_cannot_be_set(client: Any, wrong: dict[str, Any]) -> None:
    assert alter(client, 1, wrong, validate_only=True) == [Error.INVALID_REQUEST]


@pytest.mark.parametrize(
    ("components", "error"),
    [
        ([component("", EXACT, "a")], Error.INVALID_REQUEST),
        ([component("user", EXACT, "a"), component("user", SPECIFIED)], Error.INVALID_REQUEST),
        ([component("group", EXACT, "a")], Error.UNSUPPORTED_VERSION),
        ([component("user", EXACT)], Error.INVALID_REQUEST),
        ([component("user", DEFAULT, "a")], Error.INVALID_REQUEST),
        ([component("user", 7)], Error.INVALID_REQUEST),
        ([component("ip", SPECIFIED), component("user", SPECIFIED)], Error.INVALID_REQUEST),
    ],
)
def test_what_cannot_be_asked(client: Any, components: list[dict[str, Any]], error: Error) -> None:
    assert describe(client, 1, *components).error_code == error
