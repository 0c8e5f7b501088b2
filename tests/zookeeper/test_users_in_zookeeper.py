"""What brokers keep of users lies in ZooKeeper for the brokers alone, or is not kept: in Apache's and in our keeper."""

from __future__ import annotations

from pathlib import Path
from uuid import uuid4

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from penstock.base.errors import Error
from penstock.testing.broker_process import BrokerProcessError
from penstock.testing.cluster_processes import ClusterBroker
from penstock.testing.raw_client import RawClient
from penstock.testing.zookeeper_processes import ApacheZooKeeper, KeeperProcess
from penstock.wire.messages import k44_incremental_alter_configs as k44
from penstock.wire.messages import k51_alter_user_scram_credentials as k51

pytestmark = pytest.mark.zookeeper

DIGEST = {"zookeeper.auth.digest": "brokers:a secret"}
ALICE = "/config/scram/alice"


@pytest.fixture(params=["apache_zookeeper", "keeper_process"])
def place(request: pytest.FixtureRequest) -> str:
    """A part of a service that nobody else uses."""
    server: ApacheZooKeeper | KeeperProcess = request.getfixturevalue(request.param)
    return f"{server.address}/{uuid4().hex}"


def add_alice(broker: ClusterBroker) -> tuple[int, str | None]:
    new = k51.AlterUserScramCredentialsRequestUpsertion(
        name="alice", mechanism=2, iterations=4096, salt=b"salt" * 4, salted_password=b"p" * 64
    )
    host, port = broker.bootstrap.split(":")
    with RawClient(host, int(port)) as client:
        (row,) = client.call(k51.AlterUserScramCredentialsRequest(deletions=[], upsertions=[new])).results
    return row.error_code, row.error_message


def read(place: str, digest: str | None = None, path: str = ALICE) -> bytes:
    """A znode as ZooKeeper's own clients see it."""
    client = KazooClient(place, auth_data=[("digest", digest)] if digest else None)
    client.start(20)
    try:
        data: bytes = client.get(path)[0]
        return data
    finally:
        client.stop()
        client.close()


def test_with_an_identity_only_the_brokers_can_read(place: str, tmp_path: Path) -> None:
    with ClusterBroker(1, tmp_path / "data", zookeeper=place, settings=DIGEST) as broker:
        assert add_alice(broker) == (0, None)
        assert b"stored_key" in read(place, DIGEST["zookeeper.auth.digest"])
        for digest in (None, "brokers:guessed"):
            with pytest.raises(NoAuthError):
                read(place, digest)
    with pytest.raises(BrokerProcessError, match=r"zookeeper\.auth\.digest"):
        ClusterBroker(2, tmp_path / "other", zookeeper=place).start()


def test_without_one_nothing_is_kept_unless_that_is_meant(place: str, tmp_path: Path) -> None:
    with ClusterBroker(1, tmp_path / "data", zookeeper=place) as broker:
        code, text = add_alice(broker)
        assert code == Error.POLICY_VIOLATION
        assert text is not None and "zookeeper.auth.digest" in text
    meant = {"zookeeper.unprotected.credentials.enable": "true"}
    with ClusterBroker(1, tmp_path / "data", zookeeper=place, settings=meant) as broker:
        assert add_alice(broker) == (0, None)
        assert b"stored_key" in read(place)


def set_key_password(broker: ClusterBroker) -> tuple[int, str | None]:
    change = k44.IncrementalAlterConfigsRequestConfig(name="ssl.key.password", config_operation=0, value="hunter2")
    one = k44.IncrementalAlterConfigsRequestResource(resource_type=4, resource_name="1", configs=[change])
    host, port = broker.bootstrap.split(":")
    with RawClient(host, int(port)) as client:
        (row,) = client.call(k44.IncrementalAlterConfigsRequest(resources=[one])).responses
    return row.error_code, row.error_message


def test_the_same_holds_for_secrets_among_settings(place: str, tmp_path: Path) -> None:
    with ClusterBroker(1, tmp_path / "data", zookeeper=place) as broker:
        code, text = set_key_password(broker)
        assert code == Error.POLICY_VIOLATION
        assert text is not None and "ssl.key.password" in text and "hunter2" not in text
    with ClusterBroker(1, tmp_path / "other", zookeeper=f"{place}2", settings=DIGEST) as broker:
        assert set_key_password(broker) == (0, None)
        settings = "/config/brokers/1"
        assert b"hunter2" in read(f"{place}2", DIGEST["zookeeper.auth.digest"], settings)
        with pytest.raises(NoAuthError):
            read(f"{place}2", None, settings)
