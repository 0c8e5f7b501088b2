"""Clusters for one test each, and what was measured at the end of the run."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.testing.zookeeper_processes import NoApacheZooKeeper, require_zookeeper

from .clusters import StormyCluster, laptop_cluster, zookeeper_cluster
from .measured import lines

KINDS = {"laptop": laptop_cluster, "zookeeper": zookeeper_cluster}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Clients leave sockets to the garbage collector when a broker goes away; no fault of what is tested."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))


@pytest.fixture(autouse=True)
def _swept() -> Iterator[None]:
    yield
    gc.collect()


@pytest.fixture(params=["laptop", pytest.param("zookeeper", marks=[pytest.mark.zookeeper, pytest.mark.slow])])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StormyCluster]:
    """Three brokers: `penstock up --brokers 3`, and in the long run three `penstock broker` with Apache ZooKeeper."""
    if request.param == "zookeeper":
        check_for_zookeeper()
    with KINDS[request.param](tmp_path) as started:
        yield started


@pytest.fixture
def on_zookeeper(tmp_path: Path) -> Iterator[StormyCluster]:
    """Three `penstock broker` with Apache ZooKeeper."""
    check_for_zookeeper()
    with zookeeper_cluster(tmp_path) as started:
        yield started


def check_for_zookeeper() -> None:
    try:
        require_zookeeper()
    except NoApacheZooKeeper as missing:
        pytest.skip(f"NOT TESTED WITH APACHE ZOOKEEPER: {missing}")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if found := lines():
        terminalreporter.section("clusters of real processes")
        for line in found:
            terminalreporter.write_line(line)
