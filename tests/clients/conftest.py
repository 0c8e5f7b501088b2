"""The clients under test, one broker for all of them, and topics of their own for every test.

`PENSTOCK_TEST_BOOTSTRAP=HOST:PORT` runs the scenarios against a broker that is already there, of any make: what fails
there as well is no fault of ours.
"""

from __future__ import annotations

import gc
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from penstock.testing.broker_process import BrokerProcess
from penstock.testing.pytest_plugin import penstock_broker, start_penstock  # noqa: F401

from .aiokafka_client import AiokafkaClient
from .client import Admin, Client
from .confluent_client import ConfluentClient
from .group_client import GroupClient
from .group_clients import GROUP_CLIENTS, TRANSACTIONAL_CLIENTS, group_client
from .kafka_python_client import KafkaPythonClient
from .kcat_client import PROGRAM, KcatClient
from .new_topics import create_topics
from .sites import CLUSTER, KAFKA, PENSTOCK, STORM, StartSite, site, sites

LIBRARIES = (ConfluentClient, KafkaPythonClient, AiokafkaClient)
CLIENTS = (*LIBRARIES, KcatClient)

NewTopic = Callable[..., str]

#: What cannot be promised where brokers die all the time, by how the test's id goes on.
NEEDS_QUIET = {
    "test_groups.py::test_only_members_commit": "a member whose goodbye is lost stays a member for its session",
    "test_groups.py::test_assignors_share_out": "a member whose goodbye is lost stays a member for its session",
    f"test_transactions.py::.*{KafkaPythonClient.name}": "kafka-python 3.0 forgets a request when a coordinator dies",
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """kafka-python leaves sockets to the garbage collector when a broker goes away; no fault of what is tested."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.filterwarnings("ignore::ResourceWarning"))
            if STORM in item.name:
                for reason in (why for start, why in NEEDS_QUIET.items() if re.search(start, item.nodeid)):
                    item.add_marker(pytest.mark.skip(f"not in a storm: {reason}"))


@pytest.fixture(scope="module", autouse=True)
def _swept() -> Iterator[None]:
    """Have what it leaves collected here, where that is not taken for a fault, and not in some later test."""
    yield
    gc.collect()


@pytest.fixture(scope="session")
def bootstrap(request: pytest.FixtureRequest) -> str:
    """The address of the broker that the scenarios share."""
    if given := os.environ.get("PENSTOCK_TEST_BOOTSTRAP"):
        return given
    broker: BrokerProcess = request.getfixturevalue("penstock_broker")
    return broker.bootstrap


@pytest.fixture(scope="session")
def all_clients(bootstrap: str) -> Iterator[dict[str, Client]]:
    """Every client by its name; kcat only where it is installed."""
    clients: dict[str, Client] = {kind.name: kind(bootstrap) for kind in CLIENTS if kind is not KcatClient or PROGRAM}
    yield clients
    for client in clients.values():
        client.close()


@pytest.fixture(params=[kind.name for kind in CLIENTS])
def client(request: pytest.FixtureRequest, all_clients: dict[str, Client]) -> Client:
    """Each client in turn."""
    if request.param not in all_clients:
        pytest.skip(f"{request.param} is not installed")
    return all_clients[request.param]


@pytest.fixture(params=[kind.name for kind in LIBRARIES])
def library(request: pytest.FixtureRequest, all_clients: dict[str, Client]) -> Client:
    """Each client that is a library, with producers that stay and admin calls."""
    return all_clients[request.param]


@pytest.fixture(scope="session")
def admin(all_clients: dict[str, Client]) -> Iterator[Admin]:
    """Admin calls for setting up a test."""
    with all_clients[ConfluentClient.name].admin() as admin:
        yield admin


@pytest.fixture
def new_topic(admin: Admin) -> NewTopic:
    """Creates a topic with a name of its own: `new_topic(partitions=3, settings={…})`."""
    return topic_maker(admin)


def topic_maker(admin: Admin) -> NewTopic:
    def create(partitions: int = 1, settings: dict[str, str] | None = None) -> str:
        name = f"t-{uuid4().hex[:12]}"
        create_topics(admin, {name: partitions}, settings)
        return name

    return create


# Groups and transactions: on Penstock and, in the long run, on Apache Kafka, and on a cluster whose brokers are killed

ON_KAFKA = pytest.param(KAFKA, marks=[pytest.mark.kafka, pytest.mark.slow])
ON_CLUSTER = pytest.param(CLUSTER, marks=[pytest.mark.cluster, pytest.mark.slow])
IN_STORM = pytest.param(STORM, marks=[pytest.mark.cluster, pytest.mark.slow])


@pytest.fixture(scope="session", params=[PENSTOCK, ON_KAFKA, IN_STORM])
def group_bootstrap(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of the broker that scenarios of groups and transactions share."""
    given = os.environ.get("PENSTOCK_TEST_BOOTSTRAP")
    if given and request.param == PENSTOCK:
        yield given
        return
    if request.param == KAFKA:
        request.getfixturevalue("kafka_libs")
    with site(request.param, tmp_path_factory.mktemp("site")) as broker:
        yield broker.bootstrap


@pytest.fixture(params=[PENSTOCK, ON_KAFKA, pytest.param(CLUSTER, marks=pytest.mark.cluster)])
def start_site(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StartSite]:
    """Starts brokers for one test only, which may kill them."""
    if request.param == KAFKA:
        request.getfixturevalue("kafka_libs")
    with sites(request.param, tmp_path) as start:
        yield start


@pytest.fixture(scope="session")
def all_groups(group_bootstrap: str) -> Iterator[dict[str, GroupClient]]:
    """Every client that takes part in groups, by its name."""
    clients = {name: group_client(name, group_bootstrap) for name in GROUP_CLIENTS}
    yield clients
    for client in clients.values():
        client.close()


@pytest.fixture(params=GROUP_CLIENTS)
def groups(request: pytest.FixtureRequest, all_groups: dict[str, GroupClient]) -> GroupClient:
    """Each client in turn."""
    return all_groups[request.param]


@pytest.fixture(params=TRANSACTIONAL_CLIENTS)
def transactional(request: pytest.FixtureRequest, all_groups: dict[str, GroupClient]) -> GroupClient:
    """Each client that has transactions of its own, in turn."""
    return all_groups[request.param]


@pytest.fixture(scope="session")
def group_admin(all_groups: dict[str, GroupClient]) -> Iterator[Admin]:
    """`admin`, on the broker of the groups."""
    with all_groups[ConfluentClient.name].plain.admin() as admin:
        yield admin


@pytest.fixture
def new_group_topic(group_admin: Admin) -> NewTopic:
    """`new_topic`, on the broker of the groups."""
    return topic_maker(group_admin)
