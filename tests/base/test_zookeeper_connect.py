"""The address of a ZooKeeper ensemble: every form that people write, and what is wrong with the others."""

from __future__ import annotations

import re

import pytest

from penstock.base.broker_settings import load_broker_settings
from penstock.base.settings import SettingsError
from penstock.base.world import Address
from penstock.base.zookeeper_connect import ZooKeeperConnect, parse_zookeeper_connect


@pytest.mark.parametrize(
    ("text", "servers", "chroot"),
    [
        ("localhost:2181", [("localhost", 2181)], ""),
        ("localhost", [("localhost", 2181)], ""),
        ("localhost:2181/", [("localhost", 2181)], ""),
        ("a:1,b:2,c:3/penstock", [("a", 1), ("b", 2), ("c", 3)], "/penstock"),
        (" a:1 , b /a/b.c/..d/ ", [("a", 1), ("b", 2181)], "/a/b.c/..d"),
        ("[::1]:2181,[fe80::1%eth0]/x", [("::1", 2181), ("fe80::1%eth0", 2181)], "/x"),
    ],
)
def test_forms(text: str, servers: list[tuple[str, int]], chroot: str) -> None:
    expected = ZooKeeperConnect(tuple(Address(*server) for server in servers), chroot)
    assert parse_zookeeper_connect(text) == expected
    assert parse_zookeeper_connect(str(expected)) == expected


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "'' is not HOST:PORT"),
        ("a:1,", "'' is not HOST:PORT"),
        ("a:0", "'a:0' is not HOST:PORT"),
        ("a:65536", "is not HOST:PORT"),
        ("a:x", "is not HOST:PORT"),
        ("::1:2181", "an IPv6 address in brackets"),
        ("a b:1", "is not HOST:PORT"),
        ("/only", "'' is not HOST:PORT"),
        ("a:1/x,b:2/x", "the chroot comes once, after the last server"),
        ("a:1//x", "is not a path of ZooKeeper"),
        ("a:1/x/../y", "is not a path of ZooKeeper"),
        ("a:1/.", "is not a path of ZooKeeper"),
        ("a:1,b:2,a:1", "a:1 is named twice"),
    ],
)
def test_what_is_wrong_is_said(text: str, problem: str) -> None:
    with pytest.raises(ValueError, match=re.escape(problem)):
        parse_zookeeper_connect(text)


def test_it_is_checked_with_the_other_settings() -> None:
    assert load_broker_settings({"zookeeper.connect": "a:1,b:2/c"}).text("zookeeper.connect") == "a:1,b:2/c"
    with pytest.raises(SettingsError) as refused:
        load_broker_settings({"zookeeper.connect": "a:1:2"})
    assert "zookeeper.connect: 'a:1:2' is not HOST:PORT" in str(refused.value)
