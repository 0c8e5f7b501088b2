"""Options and summary shared by every suite."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parent.parent


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--long", action="store_true", help="run the long form of every suite")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--long"):
        return
    slow = [item for item in items if item.get_closest_marker("slow")]
    if slow:
        config.hook.pytest_deselected(items=slow)
        items[:] = [item for item in items if not item.get_closest_marker("slow")]


@pytest.fixture(scope="session")
def kafka_libs() -> Path:
    """The folder with Apache Kafka's jars: PENSTOCK_KAFKA_LIBS, or .cache/kafka/libs, fetched if need be."""
    named = os.environ.get("PENSTOCK_KAFKA_LIBS")
    if named is not None:
        if not any(Path(named).glob("kafka-clients-*.jar")):
            pytest.fail(f"PENSTOCK_KAFKA_LIBS is {named}, which has no Kafka jars")
        return Path(named)
    fetch = subprocess.run([PROJECT / "scripts" / "fetch-kafka"], capture_output=True, text=True, check=False)
    if fetch.returncode != 0:
        pytest.skip(f"NOT TESTED AGAINST APACHE KAFKA: {fetch.stderr.strip()}")
    return PROJECT / ".cache" / "kafka" / "libs"
