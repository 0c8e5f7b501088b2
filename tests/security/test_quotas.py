"""For whom a limit counts, and where it is kept."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.errors import ApiError, Error
from penstock.security.quota_changes import Change, altered, checked_changes, checked_entity, checked_filter
from penstock.security.quotas import (
    ANY,
    CLIENT_ID,
    CONNECTION,
    FETCH,
    IP,
    MUTATION,
    PRODUCE,
    REQUEST,
    USER,
    Entity,
    QuotaTable,
    config_name,
    entity_of,
    quotas_in,
)

names = st.text(min_size=1, max_size=12)
some_names = st.sampled_from(["alice", "bob", "<default>", "a/b", "a,b", "%", "..", ".", "é", "ANONYMOUS", "users"])
part = st.one_of(st.none(), st.just(ANY), some_names, names)
clients = st.tuples(part, part).filter(lambda pair: pair != (None, None)).map(lambda pair: Entity(*pair))


@given(st.one_of(clients, st.one_of(st.just(ANY), names).map(lambda ip: Entity(ip=ip))))
def test_every_entity_has_a_place_of_its_own(entity: Entity) -> None:
    config_type, name = config_name(entity)
    assert entity_of(config_type, name) == entity
    assert "/" not in name and name not in ("", ".", "..") and name.isprintable()
    assert Entity.of_parts(entity.parts()) == entity


def test_where_limits_are_kept() -> None:
    assert config_name(Entity("alice")) == ("users", "alice")
    assert config_name(Entity("alice", "app")) == ("users", "alice,app")
    assert config_name(Entity(ANY, ANY)) == ("users", "<default>,<default>")
    assert config_name(Entity("<default>")) == ("users", "%3Cdefault%3E")
    assert config_name(Entity(None, "a,b")) == ("clients", "a%2Cb")
    assert config_name(Entity(ip="::1")) == ("ips", "::1")


def ladder(user: str, client_id: str) -> list[Entity]:
    """The documented order, nearest first."""
    users = [user, ANY]
    order = []
    for each in users:
        order += [Entity(each, client_id), Entity(each, ANY), Entity(each)]
    return [*order, Entity(None, client_id), Entity(None, ANY)]


@given(st.dictionaries(clients, st.floats(1, 1e9), max_size=12), some_names, some_names)
def test_the_nearest_limit_counts(limits: dict[Entity, float], user: str, client_id: str) -> None:
    table = QuotaTable({FETCH: limits})
    nearest = next((entity for entity in ladder(user, client_id) if entity in limits), None)
    match = table.match(FETCH, user, client_id)
    if nearest is None:
        assert match is None
    else:
        assert match is not None and match.limit == limits[nearest]
        assert match.user == (None if nearest.user is None else user)
        assert match.client_id == (None if nearest.client_id is None else client_id)
    assert table.match(PRODUCE, user, client_id) is None


def test_kinds_of_limits_count_by_themselves() -> None:
    table = QuotaTable.of(
        {
            "users/alice": {PRODUCE: "100", "SCRAM-SHA-256": "something else"},
            "clients/<default>": {PRODUCE: "5", FETCH: "7"},
            "topics/orders": {"retention.ms": "1"},
            "ips/<default>": {CONNECTION: "3"},
            "ips/0:0:0:0:0:0:0:1": {CONNECTION: "9"},
        }
    )
    assert table.limits_clients
    assert table.match(PRODUCE, "alice", "app") == ("alice", None, 100.0)
    assert table.match(FETCH, "alice", "app") == (None, "app", 7.0)
    assert table.match(REQUEST, "alice", "app") is None
    assert table.connections_per_s("::1") == 9
    assert table.connections_per_s("10.0.0.1") == 3
    assert QuotaTable.of({}).connections_per_s("10.0.0.1") is None
    assert not QuotaTable.of({"ips/<default>": {CONNECTION: "3"}}).limits_clients


def test_what_is_no_limit_is_not_told() -> None:
    configs = {"users/alice": {"SCRAM-SHA-256": "x"}, "users/bob": {"SCRAM-SHA-256": "x", MUTATION: "0.5"}}
    assert list(quotas_in(configs)) == [(Entity("bob"), {MUTATION: 0.5})]


@pytest.mark.parametrize(
    "parts",
    [
        [],
        [("group", "g")],
        [(USER, "a"), (USER, "b")],
        [(USER, "")],
        [(IP, "127.0.0.1"), (USER, "a")],
        [(IP, "not an address")],
    ],
)
def test_entities_that_cannot_be(parts: list[tuple[str, str | None]]) -> None:
    with pytest.raises(ApiError) as raised:
        checked_entity(parts)
    assert raised.value.error is Error.INVALID_REQUEST


def test_entities_that_can_be() -> None:
    assert checked_entity([(USER, "a"), (CLIENT_ID, None)]) == Entity("a", ANY)
    assert checked_entity([(IP, None)]) == Entity(ip=ANY)
    assert checked_entity([(IP, "::1")]) == Entity(ip="::1")


@pytest.mark.parametrize(
    ("entity", "changes"),
    [
        (Entity("a"), [Change(PRODUCE, 1.5)]),
        (Entity("a"), [Change(PRODUCE, float("nan"))]),
        (Entity("a"), [Change(PRODUCE, 1e30)]),
        (Entity("a"), [Change(REQUEST, float("inf"))]),
        (Entity("a"), [Change(CONNECTION, 1)]),
        (Entity("a"), [Change("retention.ms", 1)]),
        (Entity("a"), [Change(PRODUCE, 1), Change(PRODUCE, None)]),
        (Entity(ip="::1"), [Change(PRODUCE, 1)]),
        (Entity(ip="::1"), [Change(CONNECTION, 2**31)]),
        (Entity(ip="::1"), [Change(CONNECTION, 0.5)]),
    ],
)
def test_changes_that_cannot_be(entity: Entity, changes: list[Change]) -> None:
    with pytest.raises(ApiError):
        checked_changes(entity, changes)


def test_changes() -> None:
    changes = checked_changes(Entity("a"), [Change(PRODUCE, 1024.0), Change(FETCH, None), Change(REQUEST, 12.5)])
    assert changes == {PRODUCE: "1024", FETCH: None, REQUEST: "12.5"}
    assert altered({FETCH: "1", "SCRAM-SHA-256": "x"}, changes) == {
        "SCRAM-SHA-256": "x",
        PRODUCE: "1024",
        REQUEST: "12.5",
    }


EVERYBODY = [Entity("a"), Entity("a", "c"), Entity(ANY), Entity(ANY, "c"), Entity(None, "c"), Entity(ip="::1")]


@pytest.mark.parametrize(
    ("components", "is_strict", "expected"),
    [
        ([], False, EVERYBODY),
        ([], True, []),
        ([(USER, 0, "a")], False, [Entity("a"), Entity("a", "c")]),
        ([(USER, 0, "a")], True, [Entity("a")]),
        ([(USER, 1, None)], False, [Entity(ANY), Entity(ANY, "c")]),
        ([(USER, 2, None)], True, [Entity("a"), Entity(ANY)]),
        ([(CLIENT_ID, 2, None)], False, [Entity("a", "c"), Entity(ANY, "c"), Entity(None, "c")]),
        ([(USER, 2, None), (CLIENT_ID, 0, "c")], True, [Entity("a", "c"), Entity(ANY, "c")]),
        ([(IP, 2, None)], False, [Entity(ip="::1")]),
        ([(USER, 0, "nobody")], False, []),
    ],
)
def test_filters(components: list[tuple[str, int, str | None]], is_strict: bool, expected: list[Entity]) -> None:
    wanted = checked_filter(components, is_strict=is_strict)
    assert [entity for entity in EVERYBODY if entity in wanted] == expected


@pytest.mark.parametrize(
    ("components", "error"),
    [
        ([("", 0, "a")], Error.INVALID_REQUEST),
        ([(USER, 0, "a"), (USER, 2, None)], Error.INVALID_REQUEST),
        ([("group", 0, "a")], Error.UNSUPPORTED_VERSION),
        ([(USER, 0, None)], Error.INVALID_REQUEST),
        ([(USER, 1, "a")], Error.INVALID_REQUEST),
        ([(USER, 2, "a")], Error.INVALID_REQUEST),
        ([(USER, 3, None)], Error.INVALID_REQUEST),
        ([(IP, 2, None), (USER, 2, None)], Error.INVALID_REQUEST),
    ],
)
def test_filters_that_cannot_be(components: list[tuple[str, int, str | None]], error: Error) -> None:
    with pytest.raises(ApiError) as raised:
        checked_filter(components, is_strict=False)
    assert raised.value.error is error
