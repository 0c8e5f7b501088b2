"""Options and summary shared by every suite."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from penstock.testing.apache_kafka import NoApacheKafka, find_jars

HERE = Path(__file__).parent
#: They share a Java process, or several, that takes seconds to start.
TOGETHER = ("pipelines", "spark", "kafka_tools", "zookeeper", "handlers", "node")
#: By how long they take.
FIRST = ("pipelines", "spark", "clients", "cli", "sim", "kafka_tools", "columnar", "cluster", "log", "handlers")

# how long an example takes says more about the machine than about us
settings.register_profile("penstock", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("penstock")

# A shell that runs the tests in the background has them ignore Ctrl-C, and all that they start with them.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="run the long form of every suite")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--long"):
        slow = [item for item in items if item.get_closest_marker("slow")]
        if slow:
            config.hook.pytest_deselected(items=slow)
            items[:] = [item for item in items if not item.get_closest_marker("slow")]
    if hasattr(config, "workerinput"):
        _share_out(items)


def _share_out(items: list[pytest.Item]) -> None:
    """To several workers (pytest-xdist): what shares a server stays together, and the longest parts come first, so that
    no worker is left alone with one of them at the end."""
    for item in items:
        item.add_marker(pytest.mark.xdist_group(_part(item)))
    items.sort(key=lambda item: FIRST.index(folder) if (folder := _folder(item)) in FIRST else len(FIRST))


def _part(item: pytest.Item) -> str:
    """A folder whose tests share a server that is slow to start, or else a file."""
    folder = _folder(item)
    return folder if folder in TOGETHER else item.path.relative_to(HERE).as_posix()


def _folder(item: pytest.Item) -> str:
    return item.path.relative_to(HERE).parts[0]


@pytest.fixture(scope="session")
def kafka_libs() -> Path:
    """The folder with Apache Kafka's jars."""
    try:
        return find_jars()
    except NoApacheKafka as missing:
        pytest.skip(f"NOT TESTED AGAINST APACHE KAFKA: {missing}")
