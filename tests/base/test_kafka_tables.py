"""Our tables of errors and settings beside those in Apache Kafka's own jars: names, codes, types, defaults."""

from __future__ import annotations

import subprocess
from collections import defaultdict
from pathlib import Path

import pytest

from penstock.base.broker_settings import BROKER_SETTINGS
from penstock.base.errors import Error
from penstock.base.ignored_settings import IGNORED_SETTINGS, REFUSED_SETTINGS
from penstock.base.setting_values import format_value
from penstock.base.settings import Dynamic, known_reason
from penstock.base.topic_settings import TOPIC_SETTINGS

pytestmark = pytest.mark.kafka

OTHER_DEFAULTS = {
    "broker.id": "a single broker needs no number",
    "node.id": "a single broker needs no number",
    "log.dir": "our own folder",
    "socket.listen.backlog.size": "a hundred clients that start together must not wait a second for each other",
    "socket.receive.buffer.bytes": "the operating system knows better",
    "max.connections": "finite",
    "max.connections.per.ip": "finite",
    "queued.max.request.bytes": "finite",
    "group.max.size": "finite",
    "group.consumer.max.size": "finite",
    "group.coordinator.rebalance.protocols": "streams groups are not served",
    "sasl.enabled.mechanisms": "Kerberos is not offered",
    "sasl.mechanism.inter.broker.protocol": "Kerberos is not offered",
    "ssl.keystore.type": "only PEM",
    "ssl.truststore.type": "only PEM",
}
OWN_BROKER_SETTINGS = {
    "audit.log.dir",
    "audit.log.enable",
    "audit.log.file.bytes",
    "audit.log.files",
    "broker.host",
    "metrics.listener",
    "metrics.login",
    "metrics.security.protocol",
    "metrics.series.max",
    "connection.frame.timeout.ms",
    "log.dirs.reserve.bytes",
    "log.flush.mode",
    "sasl.plain.without.tls.enable",
    "socket.unauthenticated.request.max.bytes",
    "transaction.prepared.timeout.ms",
    "connection.login.timeout.ms",
    "zookeeper.auth.digest",
    "zookeeper.unprotected.credentials.enable",
}
# Kafka has these, but not in the table of its server: older releases, its authorizer, its dynamic throttles.
ELSEWHERE_IN_KAFKA = {
    "allow.everyone.if.no.acl.found",
    "follower.replication.throttled.rate",
    "leader.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
    "super.users",
    "zookeeper.connect",
    "zookeeper.connection.timeout.ms",
    "zookeeper.session.timeout.ms",
    "zookeeper.set.acl",
}
# Fixed while a broker runs, though Kafka can change them.
FIXED_HERE = {"listeners", "listener.security.protocol.map"}


@pytest.fixture(scope="module")
def tables(kafka_libs: Path) -> dict[str, dict[str, list[str]]]:
    """Rows by table and name, as KafkaTables.java prints them."""
    source = Path(__file__).with_name("KafkaTables.java")
    done = subprocess.run(["java", "-cp", f"{kafka_libs}/*", source], capture_output=True, text=True, check=True)
    found: dict[str, dict[str, list[str]]] = defaultdict(dict)
    for line in done.stdout.splitlines():
        table, name, *cells = line.split("\t")
        found[table][name] = cells
    return found


def test_errors(tables: dict[str, dict[str, list[str]]]) -> None:
    ours = {error.name: [str(error.value), str(error.retriable).lower()] for error in Error}
    assert ours == tables["error"]


def test_every_broker_setting_of_kafka_is_known(tables: dict[str, dict[str, list[str]]]) -> None:
    known = {**IGNORED_SETTINGS, **REFUSED_SETTINGS}
    missing = [name for name in tables["broker"] if name not in BROKER_SETTINGS and known_reason(name, known) is None]
    assert missing == []
    assert set(BROKER_SETTINGS) - tables["broker"].keys() == OWN_BROKER_SETTINGS | ELSEWHERE_IN_KAFKA


def test_broker_settings_have_kafka_s_type_and_default(tables: dict[str, dict[str, list[str]]]) -> None:
    others = set()
    for name, (kind, default) in tables["broker"].items():
        if name in BROKER_SETTINGS:
            row = BROKER_SETTINGS[name]
            assert row.kind.name == kind, name
            if (format_value(row.default) if row.default is not None else "(null)") != default:
                others.add(name)
    assert others == OTHER_DEFAULTS.keys()


def test_the_same_broker_settings_are_dynamic(tables: dict[str, dict[str, list[str]]]) -> None:
    for name, row in BROKER_SETTINGS.items():
        if name in tables["broker"] and name not in FIXED_HERE:
            (mode,) = tables["dynamic"].get(name, [Dynamic.READ_ONLY.value])
            assert row.dynamic.value == mode, name


def test_topic_settings(tables: dict[str, dict[str, list[str]]]) -> None:
    ours = {name: [row.kind.name, format_value(row.default)] for name, row in TOPIC_SETTINGS.items()}
    del ours["flush.mode"]
    theirs = {name: cells for name, cells in tables["topic"].items() if not name.startswith("internal.")}
    assert ours == theirs


def test_topic_settings_come_from_the_same_broker_settings(tables: dict[str, dict[str, list[str]]]) -> None:
    for name, (joined,) in tables["synonyms"].items():
        head, *others = joined.split(",")
        if head in BROKER_SETTINGS:
            assert TOPIC_SETTINGS[name].broker_name == head
            assert BROKER_SETTINGS[head].falls_back_to == tuple(others)
        else:
            assert known_reason(head, IGNORED_SETTINGS), name
