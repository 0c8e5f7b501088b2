"""Every API in every version, live, by somebody who has logged in: cut short and mutated, beside a bystander's traffic.

Who has no right changes nothing, whatever the bytes are: everything that an administrator can see is the same before
and after. Who may do everything (and with it all that a broker may ask of another) brings nothing down either.
"""

from __future__ import annotations

import random
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.cli.certificates import Authority
from penstock.testing.broker_process import BrokerProcess, free_port
from penstock.testing.raw_client import RawClient
from penstock.testing.sim_client import batches_of
from penstock.wire.messages import k01_fetch as k01
from penstock.wire.messages import k02_list_offsets as k02
from penstock.wire.messages import k32_describe_configs as k32
from penstock.wire.messages.k03_metadata import MetadataRequest
from penstock.wire.messages.k16_list_groups import ListGroupsRequest
from penstock.wire.messages.k17_sasl_handshake import SaslHandshakeRequest
from penstock.wire.messages.k18_api_versions import ApiVersionsRequest
from penstock.wire.messages.k29_describe_acls import DescribeAclsRequest
from penstock.wire.messages.k30_create_acls import CreateAclsRequest, CreateAclsRequestAcl
from penstock.wire.messages.k36_sasl_authenticate import SaslAuthenticateRequest
from penstock.wire.messages.k46_list_partition_reassignments import ListPartitionReassignmentsRequest
from penstock.wire.messages.k48_describe_client_quotas import DescribeClientQuotasRequest
from penstock.wire.messages.k50_describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from penstock.wire.messages.k66_list_transactions import ListTransactionsRequest

from .conftest import Bystander, Hostile
from .mutants import Attacker

pytestmark = pytest.mark.fuzz

MUTATIONS = 8
LONG_MUTATIONS = 150
MEMORY_BYTES_MAX = 100 << 20
TOPICS = ("fuzzed", "fuzzed-2")
ANY, ALLOW, TOPIC, LITERAL, ALL = 1, 3, 2, 3, 2


class Guarded(Hostile):
    """A broker that wants a login, as somebody meets it."""

    def __init__(self, process: BrokerProcess, port: int, user: str, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(process)
        self.port, self._user, self._tls = port, user, tls

    def connect(self, receive_buffer_bytes: int = 0) -> RawClient:
        client = super().connect(receive_buffer_bytes)
        if self._tls is not None:
            client.socket = self._tls.wrap_socket(client.socket, server_hostname="localhost")
        client.call(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        answer = client.call(SaslAuthenticateRequest(auth_bytes=f"\0{self._user}\0secret".encode()), 2)
        assert answer.error_code == 0, answer
        return client


class Site:
    """One broker, and everybody who comes to it."""

    def __init__(self, folder: Path) -> None:
        authority = Authority(folder / "authority")
        self._tls = ssl.create_default_context(cafile=str(authority.certificate_path))
        self._ports = {"SASL_PLAINTEXT": free_port(), "SASL_SSL": free_port(), "PLAINTEXT": free_port()}
        users = " ".join(f'user_{name}="secret"' for name in ("root", "nobody", "bystander"))
        jaas = f"org.apache.kafka.common.security.plain.PlainLoginModule required {users};"
        self.process = BrokerProcess(
            folder / "data",
            settings={
                "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in self._ports.items()),
                "inter.broker.listener.name": "PLAINTEXT",
                "sasl.enabled.mechanisms": "PLAIN",
                "sasl.plain.without.tls.enable": "true",
                "ssl.keystore.location": str(authority.sign("server", ["localhost"])),
                "listener.name.sasl_plaintext.plain.sasl.jaas.config": jaas,
                "listener.name.sasl_ssl.plain.sasl.jaas.config": jaas,
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "super.users": "User:root",
                "log.dirs.reserve.bytes": "0",
                "log.retention.ms": "-1",  # the bystander's records have old timestamps
            },
        )

    def meet(self, user: str, protocol: str = "SASL_PLAINTEXT") -> Guarded:
        tls = self._tls if protocol == "SASL_SSL" else None
        return Guarded(self.process, self._ports[protocol], user, tls)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    made = Site(tmp_path_factory.mktemp("guarded"))
    with made.process:
        root = made.meet("root")
        for name in (*TOPICS, "bystander"):
            root.create_topic(name)
        with root.connect() as client:
            rule = CreateAclsRequestAcl(
                resource_type=TOPIC,
                resource_name="bystander",
                resource_pattern_type=LITERAL,
                principal="User:bystander",
                host="*",
                operation=ALL,
                permission_type=ALLOW,
            )
            assert client.call(CreateAclsRequest(creations=[rule])).results[0].error_code == 0
        yield made
        text = made.process.log_text()
        assert "Traceback" not in text, text[-5000:]


@pytest.fixture
def beside(site: Site) -> Iterator[Site]:
    """The site, with a bystander at work, who afterwards finds everything that was ever written."""
    eyewitness = _Eyewitness(site.meet("bystander"))
    first = eyewitness.end()
    with Bystander(site.meet("bystander")) as bystander:
        yield site
    assert site.process.is_running
    assert eyewitness.count(first) == bystander.rounds


class _Eyewitness:
    """Reads the bystander's topic from one end to the other."""

    def __init__(self, target: Guarded) -> None:
        self._target = target

    def end(self) -> int:
        with self._target.connect() as client:
            return _end(client, "bystander")

    def count(self, first: int) -> int:
        """How many records there are from an offset on; each has the number of its round in it."""
        found = 0
        with self._target.connect() as client:
            end = _end(client, "bystander")
            while first + found < end:
                part = k01.FetchRequestPartition(partition=0, fetch_offset=first + found, partition_max_bytes=1 << 20)
                topic = k01.FetchRequestTopic(topic="bystander", partitions=[part])
                answer = client.call(k01.FetchRequest(max_wait_ms=0, min_bytes=1, topics=[topic]), 12)
                for batch in batches_of(answer.responses[0].partitions[0]):
                    assert b"bystander %d" % found in batch.content
                    found += 1
        return found


def _end(client: RawClient, topic: str) -> int:
    part = k02.ListOffsetsRequestPartition(partition_index=0, timestamp=-1)
    row = k02.ListOffsetsRequestTopic(name=topic, partitions=[part])
    answer = client.call(k02.ListOffsetsRequest(replica_id=-1, topics=[row]), 7).topics[0].partitions[0]
    assert answer.error_code == 0, answer
    return int(answer.offset)


def everything(target: Guarded) -> dict[str, Any]:
    """What an administrator can see of the cluster, without what the bystander does."""
    everyone = [
        k32.DescribeConfigsRequestResource(resource_type=kind, resource_name=name)
        for kind, name in ((2, TOPICS[0]), (2, TOPICS[1]), (2, "bystander"), (4, "0"), (4, ""))
    ]
    anything = {"resource_type_filter": ANY, "pattern_type_filter": ANY, "operation": ANY, "permission_type": ANY}
    questions = {
        "topics": MetadataRequest(topics=None, allow_auto_topic_creation=False),
        "groups": ListGroupsRequest(),
        "acls": DescribeAclsRequest(**anything),
        "settings": k32.DescribeConfigsRequest(resources=everyone),
        "moves": ListPartitionReassignmentsRequest(topics=None),
        "quotas": DescribeClientQuotasRequest(),
        "users": DescribeUserScramCredentialsRequest(users=None),
        "transactions": ListTransactionsRequest(),
    }
    with target.connect() as client:
        seen = {name: client.call(question) for name, question in questions.items()}
        return seen | {topic: _end(client, topic) for topic in TOPICS}


@pytest.mark.parametrize(
    ("user", "protocol"), [("nobody", "SASL_PLAINTEXT"), ("nobody", "SASL_SSL"), ("root", "SASL_PLAINTEXT")]
)
def test_every_api_and_version(beside: Site, user: str, protocol: str, request: pytest.FixtureRequest) -> None:
    count = LONG_MUTATIONS if request.config.getoption("--long") else MUTATIONS
    target, root = beside.meet(user, protocol), beside.meet("root")
    with target.connect() as client:
        served = client.call(ApiVersionsRequest(client_software_name="x", client_software_version="1")).api_keys
    before, had_bytes = everything(root), root.resident_bytes()
    root.forget_peak()
    attacker = Attacker(target.connect)
    attacker.send_all(served, count, random.Random(f"{user} {protocol}"))
    assert attacker.answered > 100 and attacker.closed > 100
    assert root.peak_bytes() - had_bytes < MEMORY_BYTES_MAX
    if user == "nobody":
        assert everything(root) == before
