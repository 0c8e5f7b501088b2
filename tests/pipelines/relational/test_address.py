"""Where a table is: every form of an address, named connections, and mistakes."""

from __future__ import annotations

import pytest

from penstock.pipelines.relational.address import (
    AddressError,
    TableAddress,
    connection_name,
    is_named,
    parse_address,
    whole_address,
)
from penstock.pipelines.relational.failures import TableOptionError
from penstock.pipelines.relational.table_sink_options import parse_sink_options


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "postgresql://me:p%40ss%3A@db:6000/shop/items",
            TableAddress("postgresql", "shop", "items", None, "db", 6000, "me", "p@ss:"),
        ),
        ("postgres://db/shop/s.items", TableAddress("postgresql", "shop", "items", "s", "db", 5432)),
        ("postgresql://db/shop/a%2Eb", TableAddress("postgresql", "shop", "a.b", None, "db", 5432)),
        (
            "postgresql://[::1]:7/shop/t?sslmode=require",
            TableAddress("postgresql", "shop", "t", None, "::1", 7, settings=(("sslmode", "require"),)),
        ),
        ("mariadb://me@db/shop/a.b", TableAddress("mysql", "shop", "a.b", None, "db", 3306, "me")),
        ("sqlite:///data/shop.db/items", TableAddress("sqlite", "/data/shop.db", "items")),
        ("sqlite:shop.db/my%20items", TableAddress("sqlite", "shop.db", "my items")),
    ],
)
def test_addresses(text: str, expected: TableAddress) -> None:
    assert parse_address(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "",
        "items",
        "oracle://h/db/t",
        "postgresql://me:hunter2@db/shop",
        "postgresql://me:hunter2@db/shop/a/b",
        "postgresql://me:hunter2@db:99999/shop/t",
        "postgresql://me:hunter2@x@db/shop/t",
        "postgresql://me:hunter2@db/shop/a.b.c",
        "postgresql://me:hunter2@db/shop/t?sslmood=x",
        "mysql:shop/t",
        "sqlite://shop.db/t",
        "sqlite:t",
        "sqlite:shop.db/%00",
    ],
)
def test_mistakes_are_told_without_the_password(text: str) -> None:
    with pytest.raises(AddressError) as caught:
        parse_address(text)
    assert "hunter2" not in str(caught.value)


def test_a_password_is_never_shown() -> None:
    address = parse_address("postgresql://me:hunter2@db/shop/s.t")
    assert str(address) == "postgresql://me@db:5432/shop/s.t"
    assert "hunter2" not in repr(address)


def test_named_connections() -> None:
    connections = {"shop": "postgresql://me:pw@db/shopdb?sslmode=require", "file": "sqlite:///data/shop.db"}
    assert is_named("postgresql://shop/items")
    assert connection_name("postgresql://shop/items") == "shop"
    assert whole_address("postgresql://shop/s.items", connections) == (
        "postgresql://me:pw@db/shopdb/s.items?sslmode=require"
    )
    assert parse_address(whole_address("sqlite://file/items", connections)).database == "/data/shop.db"
    for whole in ("postgresql://db/shop/items", "sqlite:///data/shop.db/items", "sqlite:shop.db/items"):
        assert whole_address(whole, connections) == whole
    with pytest.raises(AddressError, match="no connection called 'shp'"):
        whole_address("postgresql://shp/items", connections)
    with pytest.raises(AddressError, match="is postgresql, and the table says mysql"):
        whole_address("mysql://shop/items", connections)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mode": "upsert"}, "option keys: is needed"),
        ({"mode": "upsert", "keys": "a,a"}, "twice"),
        ({"keys": "a"}, "belongs to mode upsert"),
        ({"mode": "merge"}, "insert or upsert or delete"),
        ({"txnAppId": "a"}, "for batch writes"),
        ({"queryName": "x" * 300}, "200 characters"),
        ({"retryFor": "soon"}, "such as 30s"),
        ({"kyes": "a"}, "did you mean keys"),
        ({"create": "perhaps"}, "true or false"),
    ],
)
def test_options_that_cannot_be(options: dict[str, str], message: str) -> None:
    with pytest.raises(TableOptionError, match=message):
        parse_sink_options({"url": "sqlite:a.db/t", **options}, is_stream=True)
