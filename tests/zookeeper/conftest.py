"""Real servers for the tests with the mark `zookeeper`: Apache ZooKeeper, alone and as an ensemble, and our keeper."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.testing.zookeeper_processes import (
    ApacheZooKeeper,
    KeeperProcess,
    NoApacheZooKeeper,
    require_zookeeper,
    zookeeper_ensemble,
)


def _require() -> None:
    try:
        require_zookeeper()
    except NoApacheZooKeeper as missing:
        pytest.skip(f"NOT TESTED AGAINST APACHE ZOOKEEPER: {missing}")


@pytest.fixture(scope="session")
def apache_zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheZooKeeper]:
    """One server of Apache ZooKeeper for the whole run: let each test use a znode of its own."""
    _require()
    with ApacheZooKeeper(tmp_path_factory.mktemp("zookeeper") / "server") as server:
        yield server


@pytest.fixture(scope="session")
def ensemble(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ApacheZooKeeper]]:
    """Three servers that are one service; whoever stops one starts it again."""
    _require()
    with zookeeper_ensemble(tmp_path_factory.mktemp("ensemble")) as servers:
        yield servers


@pytest.fixture(scope="session")
def keeper_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KeeperProcess]:
    """`penstock keeper` for the whole run."""
    with KeeperProcess(tmp_path_factory.mktemp("keeper") / "data") as keeper:
        yield keeper


@pytest.fixture
def is_long(request: pytest.FixtureRequest) -> bool:
    return bool(request.config.getoption("--long"))
