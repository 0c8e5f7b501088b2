"""Fixtures for tests that want a real broker. Name this module in the `pytest_plugins` of your conftest.py:

pytest_plugins = ["penstock.testing.pytest_plugin"]

def test_orders(penstock_broker):
    producer = Producer({"bootstrap.servers": penstock_broker.bootstrap})
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from penstock.testing.broker_process import BrokerProcess

StartPenstock = Callable[..., BrokerProcess]


@pytest.fixture(scope="session")
def penstock_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One broker for all tests of the run: let each test use topics of its own, and leave it running."""
    with BrokerProcess(tmp_path_factory.mktemp("penstock") / "data") as broker:
        yield broker


@pytest.fixture
def start_penstock(tmp_path: Path) -> Iterator[StartPenstock]:
    """Starts brokers for one test only: `start_penstock(settings={…})`; each gets a folder unless `data` is given."""
    with ExitStack() as brokers:
        count = 0

        def start(**options: object) -> BrokerProcess:
            nonlocal count
            count += 1
            options.setdefault("data", tmp_path / f"broker-{count}")
            return brokers.enter_context(BrokerProcess(**options))  # type: ignore[arg-type]

        yield start
