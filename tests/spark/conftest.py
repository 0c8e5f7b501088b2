"""One Spark session, one broker, and topics of their own for the tests that need them."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

import penstock
from penstock.cli.doctor_checks import OK, check_java
from penstock.testing.broker_process import BrokerProcess

PROJECT = Path(__file__).resolve().parents[2]
#: Where Spark's Python workers find the package, and the test modules whose classes they are sent.
PYTHON_PATH = os.pathsep.join(
    [str(Path(penstock.__file__).parents[1]), str(PROJECT), *filter(None, [os.environ.get("PYTHONPATH")])]
)
WORKER_ENVIRONMENT = {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": PYTHON_PATH, "SPARK_LOCAL_IP": "127.0.0.1"}
SESSION_SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "1g",
}
BROKER_SETTINGS = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.num.partitions": "4",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "100",
}
CREATE_S_MAX = 30
FETCH_S_MAX = 600

MakeTopic = Callable[..., str]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """py4j and pyspark leave sockets to the garbage collector; no fault of what is tested."""
    java = check_java()
    lacks_java = pytest.mark.skip(reason=f"NOT TESTED WITH SPARK: java: {java.text}; {java.advice}")
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))
            if java.status != OK and item.get_closest_marker("spark"):
                item.add_marker(lacks_java)


@pytest.fixture(scope="session")
def connector_jars() -> str:
    """Spark's own Kafka connector, as `spark.jars` wants it."""
    script = PROJECT / "scripts" / "fetch-spark-connector"
    fetched = subprocess.run([script], capture_output=True, text=True, check=False, timeout=FETCH_S_MAX)
    if fetched.returncode:
        pytest.skip(f"NOT TESTED BESIDE SPARK'S CONNECTOR: {fetched.stderr.strip()}")
    return ",".join(fetched.stdout.split())


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A session with two cores, as a user of `pip install pyspark` has it."""
    from pyspark.sql import SparkSession

    before = {name: os.environ.get(name) for name in WORKER_ENVIRONMENT}
    os.environ.update(WORKER_ENVIRONMENT)
    builder = SparkSession.builder.master("local[2]").appName("penstock tests")
    session = builder.config(map=SESSION_SETTINGS).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """One broker for all tests of the run: let each use topics of its own, and leave it running."""
    with BrokerProcess(tmp_path_factory.mktemp("spark-broker") / "data", settings=BROKER_SETTINGS) as process:
        yield process


@pytest.fixture
def new_topic(broker: BrokerProcess) -> MakeTopic:
    """Makes a topic: `new_topic(partitions=3, settings={…})` returns its name."""
    return lambda **options: create_topic(broker.bootstrap, **options)


def create_topic(
    bootstrap: str, *, partitions: int = 1, replicas: int = 1, settings: dict[str, str] | None = None
) -> str:
    """A topic with a name that nobody else has."""
    name = f"topic-{uuid4().hex[:12]}"
    made = NewTopic(name, partitions, replicas, config=settings or {})
    admin = AdminClient({"bootstrap.servers": bootstrap})  # which must live as long as the request does
    for created in admin.create_topics([made]).values():
        created.result(CREATE_S_MAX)
    return name
