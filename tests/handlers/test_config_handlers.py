"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs and ListConfigResources in every version."""

from __future__ import annotations

import pytest

from penstock.base.errors import Error
from penstock.base.setting_changes import Operation
from penstock.base.settings import Source

TOPIC, BROKER, LOGGER, METRICS, GROUP = 2, 4, 8, 16, 32
DESCRIBE = range(1, 5)
ALTER = range(3)
INCREMENTAL = range(2)


def describe(client, version, kind, name, keys=None, *, differs=None, until=None, **more):
    asked = {"resource_type": kind, "resource_name": name, "configuration_keys": keys}
    return client.ask("DescribeConfigs", version, differs=differs, until=until, resources=[asked], **more).results[0]


def values_are(**expected):
    """For `until`: the answer has these values."""

    def holds(answer):
        rows = {config.name: config.value for config in answer.results[0].configs}
        return all(rows.get(name.replace("_", ".")) == value for name, value in expected.items())

    return holds


def alter(client, version, kind, name, *configs, validate_only=False, differs=None):
    rows = [{"name": key, "value": value} for key, value in configs]
    resource = {"resource_type": kind, "resource_name": name, "configs": rows}
    answer = client.ask("AlterConfigs", version, differs=differs, resources=[resource], validate_only=validate_only)
    assert [(each.resource_type, each.resource_name) for each in answer.responses] == [(kind, name)]
    return answer.responses[0].error_code


def change(client, version, kind, name, *configs, **more):
    rows = [{"name": key, "config_operation": operation, "value": value} for key, operation, value in configs]
    resource = {"resource_type": kind, "resource_name": name, "configs": rows}
    answer = client.ask("IncrementalAlterConfigs", version, resources=[resource], **more)
    assert [(each.resource_type, each.resource_name) for each in answer.responses] == [(kind, name)]
    return answer.responses[0].error_code


# ── DescribeConfigs ──────────────────────────────────────────────────────────────────────────────────────────────

OWN = {
    "results[[]*].configs": "the number of settings",
    "results[[]*].configs[[]flush.mode]*": "Penstock's own",
    "*.configs[[]min.insync.replicas]*": "Kafka sets it for the whole cluster when it is formatted",
    "*.configs[[]local.retention.*].synonyms*": "there is no remote storage, and so no broker setting for it",
}
FALLS_BACK = {
    f"*.configs[[]{name}].synonyms*": "Kafka does not show the settings that it falls back to, such as hours for ms"
    for name in ("retention.ms", "flush.ms", "segment.ms", "segment.jitter.ms")
}


@pytest.mark.parametrize("version", DESCRIBE)
@pytest.mark.parametrize("synonyms", [False, True])
def test_all_settings_of_a_topic(client, version, synonyms):
    name = client.topic(retention_ms="5000", cleanup_policy="compact,delete", segment_bytes="2000000")
    answer = describe(
        client, version, TOPIC, name, include_synonyms=synonyms, include_documentation=True, differs=OWN | FALLS_BACK
    )
    rows = {config.name: config for config in answer.configs}
    assert rows["retention.ms"].value == "5000"
    assert rows["retention.ms"].config_source == Source.TOPIC
    assert rows["max.message.bytes"].value == "200000"
    assert rows["max.message.bytes"].config_source == Source.STATIC_BROKER
    assert rows["min.insync.replicas"].config_source == Source.DEFAULT
    assert not any(config.read_only or config.is_sensitive for config in answer.configs)
    assert all(bool(config.documentation) == (version >= 3) for config in answer.configs)
    assert synonyms or not any(config.synonyms for config in answer.configs)
    assert all(bool(config.config_type) == (version >= 3) for config in answer.configs)
    if synonyms:
        found = [(each.name, each.value, each.source) for each in rows["retention.ms"].synonyms]
        assert found[0] == ("retention.ms", "5000", Source.TOPIC)
        assert found[-1][2] == Source.DEFAULT


@pytest.mark.parametrize("version", DESCRIBE)
def test_some_settings_of_a_topic(client, version):
    name = client.topic()
    keys = ["retention.ms", "no.such.setting", "segment.bytes", "retention.ms"]
    answer = describe(client, version, TOPIC, name, keys, include_synonyms=True, differs=FALLS_BACK)
    assert sorted(config.name for config in answer.configs) == ["retention.ms", "segment.bytes"]


@pytest.mark.parametrize("version", DESCRIBE)
def test_an_empty_list_of_settings(client, version):
    name = client.topic()
    answer = describe(client, version, TOPIC, name, [], differs=OWN)
    assert {"retention.ms", "flush.ms"} <= {config.name for config in answer.configs}


@pytest.mark.parametrize("version", DESCRIBE)
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (TOPIC, "no-such-topic"),
        (TOPIC, "a/b"),
        (TOPIC, ""),
        (BROKER, "7"),
        (BROKER, "x"),
        (BROKER, "-1"),
        (0, "x"),
        (1, "x"),
        (3, "x"),
        (99, "x"),
    ],
)
def test_describe_what_is_not_there(client, version, kind, name):
    answer = describe(client, version, kind, name)
    assert answer.error_code != Error.NONE
    assert answer.configs == []
    assert (answer.resource_type, answer.resource_name) == (kind, name)


@pytest.mark.parametrize("version", DESCRIBE)
def test_good_and_bad_resources_together(client, version):
    name = client.topic()
    resources = [
        {"resource_type": kind, "resource_name": each, "configuration_keys": ["retention.ms", "node.id"]}
        for kind, each in ((TOPIC, name), (TOPIC, "no-such-topic"), (BROKER, "0"))
    ]
    answer = client.ask("DescribeConfigs", version, resources=resources)
    codes = {each.resource_name: each.error_code for each in answer.results}
    assert codes == {name: Error.NONE, "no-such-topic": Error.UNKNOWN_TOPIC_OR_PARTITION, "0": Error.NONE}


BROKER_DIFFERS = {"results[[]0,4].configs": "the number of settings", "*.configs[[]*]#": "the set of settings"} | {
    f"results[[]0,4].configs[[]{name}].*": reason
    for reason, names in {
        "different in the two set-ups": (
            "advertised.listeners broker.id controlled.shutdown.enable listeners listener.security.protocol.map "
            "log.dir log.dirs node.id group.initial.rebalance.delay.ms"
        ),
        "Penstock's default, see tests/base/test_kafka_tables.py": (
            "group.coordinator.rebalance.protocols group.max.size group.consumer.max.size max.connections "
            "max.connections.per.ip queued.max.request.bytes sasl.enabled.mechanisms "
            "sasl.mechanism.inter.broker.protocol socket.listen.backlog.size socket.receive.buffer.bytes "
            "socket.send.buffer.bytes ssl.keystore.type ssl.truststore.type"
        ),
        "Kafka sets it for the whole cluster when it is formatted": "min.insync.replicas",
        "the value in force, where Kafka shows null and a fall-back elsewhere": (
            "log.flush.interval.ms log.retention.ms log.retention.minutes log.roll.ms log.roll.jitter.ms"
        ),
    }.items()
    for name in names.split()
}


@pytest.mark.parametrize("version", DESCRIBE)
def test_all_settings_of_a_broker(client, version):
    answer = describe(
        client, version, BROKER, "0", include_synonyms=True, include_documentation=True, differs=BROKER_DIFFERS
    )
    rows = {config.name: config for config in answer.configs}
    assert rows["message.max.bytes"].config_source == Source.STATIC_BROKER
    assert not rows["message.max.bytes"].read_only
    assert rows["node.id"].read_only


# ── AlterConfigs ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("version", ALTER)
def test_alter_replaces_everything(client, version):
    name = client.topic(retention_ms="5000", segment_bytes="2000000")
    assert alter(client, version, TOPIC, name, ("retention.ms", "6000"), ("flush.ms", "7")) == Error.NONE
    keys = ["retention.ms", "segment.bytes", "flush.ms"]
    expected = values_are(retention_ms="6000", flush_ms="7", segment_bytes="1073741824")
    describe(client, 4, TOPIC, name, keys, include_synonyms=True, differs=FALLS_BACK, until=expected)
    assert alter(client, version, TOPIC, name) == Error.NONE
    describe(
        client,
        4,
        TOPIC,
        name,
        keys,
        include_synonyms=True,
        differs=FALLS_BACK,
        until=values_are(retention_ms="604800000"),
    )


@pytest.mark.parametrize("version", ALTER)
def test_alter_only_to_see(client, version):
    name = client.topic(retention_ms="5000")
    assert alter(client, version, TOPIC, name, ("flush.ms", "7"), validate_only=True) == Error.NONE
    assert alter(client, version, TOPIC, name, ("flush.ms", "x"), validate_only=True) == Error.INVALID_CONFIG
    answer = describe(client, 4, TOPIC, name, ["retention.ms", "flush.ms"])
    assert {config.name: config.value for config in answer.configs}["retention.ms"] == "5000"


BAD_CONFIGS = [
    ([("no.such.setting", "1")], Error.INVALID_CONFIG),
    ([("retention.ms", "soon")], Error.INVALID_CONFIG),
    ([("retention.ms", "")], Error.INVALID_CONFIG),
    ([("retention.ms", "-2")], Error.INVALID_CONFIG),
    ([("cleanup.policy", "burn")], Error.INVALID_CONFIG),
    ([("compression.type", "brotli")], Error.INVALID_CONFIG),
    ([("flush.ms", "1"), ("retention.ms", "soon")], Error.INVALID_CONFIG),
    ([("", "1")], Error.INVALID_CONFIG),
]


@pytest.mark.parametrize("version", ALTER)
@pytest.mark.parametrize(("configs", "error"), [*BAD_CONFIGS, ([("retention.ms", None)], Error.INVALID_REQUEST)])
def test_alter_refused(client, version, configs, error):
    name = client.topic(flush_ms="9")
    assert alter(client, version, TOPIC, name, *configs) == error
    describe(client, 4, TOPIC, name, ["flush.ms"], until=values_are(flush_ms="9"))


RESOURCES = [
    (TOPIC, "no-such-topic"),
    (TOPIC, "a/b"),
    (TOPIC, ""),
    (BROKER, "7"),
    (BROKER, "x"),
    (0, "x"),
    (1, "x"),
    (99, "x"),
]


@pytest.mark.parametrize("version", ALTER)
@pytest.mark.parametrize(("kind", "name"), RESOURCES)
def test_alter_what_is_not_there(client, version, kind, name):
    assert alter(client, version, kind, name, ("retention.ms", "6000")) != Error.NONE


@pytest.mark.parametrize("version", ALTER)
def test_alter_one_resource_twice(client, version):
    name = client.topic()
    row = {"resource_type": TOPIC, "resource_name": name, "configs": [{"name": "flush.ms", "value": "1"}]}
    answer = client.ask("AlterConfigs", version, resources=[row, row], not_kafka="Kafka never answers")
    assert {each.error_code for each in answer.responses} == {Error.INVALID_REQUEST}


@pytest.mark.parametrize("version", ALTER)
def test_alter_a_setting_twice(client, version):
    name = client.topic()
    assert alter(client, version, TOPIC, name, ("flush.ms", "5"), ("flush.ms", "6")) == Error.INVALID_REQUEST
    assert describe(client, 4, TOPIC, name, ["flush.ms"]).configs[0].config_source == Source.DEFAULT


# ── IncrementalAlterConfigs ──────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("version", INCREMENTAL)
def test_changes_one_by_one(client, version):
    name = client.topic(retention_ms="5000")
    keys = ["retention.ms", "cleanup.policy", "flush.ms"]
    steps = [
        ([("flush.ms", Operation.SET, "7")], values_are(flush_ms="7", retention_ms="5000")),
        ([("cleanup.policy", Operation.APPEND, "compact")], values_are(cleanup_policy="delete,compact")),
        ([("cleanup.policy", Operation.APPEND, "compact")], values_are(cleanup_policy="delete,compact")),
        ([("cleanup.policy", Operation.SUBTRACT, "delete")], values_are(cleanup_policy="compact")),
        ([("cleanup.policy", Operation.DELETE, None)], values_are(cleanup_policy="delete")),
        ([("flush.ms", Operation.DELETE, None), ("retention.ms", Operation.SET, "1")], values_are(retention_ms="1")),
        ([("flush.ms", Operation.DELETE, None)], values_are(retention_ms="1")),
        ([], values_are(retention_ms="1")),
    ]
    for changes, expected in steps:
        assert change(client, version, TOPIC, name, *changes) == Error.NONE
        describe(client, 4, TOPIC, name, keys, include_synonyms=True, differs=FALLS_BACK, until=expected)


@pytest.mark.parametrize("version", INCREMENTAL)
def test_change_only_to_see(client, version):
    name = client.topic(retention_ms="5000")
    changes = [("retention.ms", Operation.SET, "6000")]
    assert change(client, version, TOPIC, name, *changes, validate_only=True) == Error.NONE
    describe(client, 4, TOPIC, name, ["retention.ms"], until=values_are(retention_ms="5000"))


@pytest.mark.parametrize("version", INCREMENTAL)
@pytest.mark.parametrize(
    ("changes", "error"),
    [
        *(([(name, Operation.SET, value) for name, value in configs], error) for configs, error in BAD_CONFIGS),
        ([("retention.ms", Operation.SET, None)], Error.INVALID_REQUEST),
        ([("retention.ms", Operation.APPEND, "1")], Error.INVALID_CONFIG),
        ([("retention.ms", Operation.SUBTRACT, "1")], Error.INVALID_CONFIG),
        ([("cleanup.policy", Operation.APPEND, None)], Error.INVALID_REQUEST),
        ([("cleanup.policy", Operation.APPEND, "burn")], Error.INVALID_CONFIG),
        ([("retention.ms", 9, "1")], Error.INVALID_REQUEST),
        ([("retention.ms", -1, "1")], Error.INVALID_REQUEST),
        ([("no.such.setting", Operation.DELETE, None)], Error.INVALID_CONFIG),
        ([("flush.ms", Operation.SET, "1"), ("flush.ms", Operation.SET, "2")], Error.INVALID_REQUEST),
        ([("flush.ms", Operation.SET, "1"), ("flush.ms", Operation.DELETE, None)], Error.INVALID_REQUEST),
    ],
)
def test_changes_refused(client, version, changes, error):
    name = client.topic(flush_ms="9")
    reason = {"*.error_code": "Kafka takes any name to delete; a mistyped one should be told"}
    differs = reason if changes[0][1] is Operation.DELETE else None
    not_kafka = "its controller fails, and is out of work for a while" if changes[0][1] in (9, -1) else ""
    assert change(client, version, TOPIC, name, *changes, differs=differs, not_kafka=not_kafka) == error
    describe(client, 4, TOPIC, name, ["flush.ms"], until=values_are(flush_ms="9"))


@pytest.mark.parametrize("version", INCREMENTAL)
@pytest.mark.parametrize(("kind", "name"), RESOURCES)
def test_change_what_is_not_there(client, version, kind, name):
    assert change(client, version, kind, name, ("retention.ms", Operation.SET, "6000")) != Error.NONE


@pytest.mark.parametrize("version", INCREMENTAL)
def test_change_one_resource_twice(client, version):
    name = client.topic()
    configs = [{"name": "flush.ms", "config_operation": Operation.SET, "value": "1"}]
    row = {"resource_type": TOPIC, "resource_name": name, "configs": configs}
    answer = client.ask("IncrementalAlterConfigs", version, resources=[row, row])
    assert {each.error_code for each in answer.responses} == {Error.INVALID_REQUEST}


def test_a_broker_s_dynamic_settings(client):
    keys = ["log.retention.bytes", "message.max.bytes", "log.cleaner.backoff.ms"]
    topic = client.topic()
    try:
        assert change(client, 1, BROKER, "", ("message.max.bytes", Operation.SET, "150000")) == Error.NONE
        until = values_are(message_max_bytes="150000")
        describe(client, 4, BROKER, "0", keys, include_synonyms=True, until=until)
        assert change(client, 1, BROKER, "0", ("message.max.bytes", Operation.SET, "160000")) == Error.NONE
        until = values_are(message_max_bytes="160000")
        describe(client, 4, BROKER, "0", keys, include_synonyms=True, until=until)
        cluster_wide = {
            "*.configs": "the number of settings",
            "*.configs[[]min.insync.replicas]*": "Kafka sets it for the whole cluster when it is formatted",
        }
        answer = describe(client, 4, BROKER, "", None, include_synonyms=True, differs=cluster_wide)
        (config,) = answer.configs
        assert (config.name, config.value) == ("message.max.bytes", "150000")
        assert config.config_source == Source.DYNAMIC_DEFAULT_BROKER
        until = values_are(max_message_bytes="160000")
        describe(client, 4, TOPIC, topic, ["max.message.bytes"], include_synonyms=True, until=until)
        assert alter(client, 2, BROKER, "0", ("log.cleaner.backoff.ms", "14000")) == Error.NONE
        until = values_are(message_max_bytes="150000", log_cleaner_backoff_ms="14000")
        describe(client, 4, BROKER, "0", keys, include_synonyms=True, until=until)
    finally:
        alter(client, 2, BROKER, "0")
        change(client, 1, BROKER, "", ("message.max.bytes", Operation.DELETE, None))
    describe(client, 4, BROKER, "0", keys, include_synonyms=True, until=values_are(message_max_bytes="200000"))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("node.id", "5"),
        ("log.dirs", "/tmp/x"),
        ("auto.create.topics.enable", "false"),
        ("message.max.bytes", "many"),
        ("message.max.bytes", "-1"),
        ("no.such.setting", "1"),
        ("log.retention.ms", "0"),
    ],
)
def test_broker_settings_refused(client, name, value):
    for entity in ("", "0"):
        reason = {"*.error_code": "Kafka stores names that it does not know"} if name == "no.such.setting" else None
        trial = {"validate_only": True, "differs": reason}
        assert change(client, 1, BROKER, entity, (name, Operation.SET, value), **trial) == Error.INVALID_REQUEST
        assert alter(client, 2, BROKER, entity, (name, value), **trial) == Error.INVALID_REQUEST


# ── ListConfigResources ──────────────────────────────────────────────────────────────────────────────────────────


def listed(client, version, types, differs=None):
    answer = client.ask("ListConfigResources", version, resource_types=types, differs=differs)
    return answer.error_code, {(each.resource_type, each.resource_name) for each in answer.config_resources}


def test_list_resources_version_0(client):
    assert listed(client, 0, []) == (Error.NONE, set())


def test_list_resources(client):
    name = client.topic()
    others = {"config_resources*": "each broker has what other tests left behind"}
    code, found = listed(client, 1, [TOPIC], others)
    assert code == Error.NONE and (TOPIC, name) in found and {kind for kind, _ in found} == {TOPIC}
    assert listed(client, 1, [BROKER]) == (Error.NONE, {(BROKER, "0")})
    no_loggers = {"config_resources*": "log levels cannot be changed here over the wire, so no loggers are listed"}
    assert listed(client, 1, [LOGGER], no_loggers) == (Error.NONE, set())
    assert listed(client, 1, [METRICS]) == (Error.NONE, set())
    assert listed(client, 1, [GROUP]) == (Error.NONE, set())
    assert {kind for kind, _ in listed(client, 1, [], others)[1]} == {TOPIC, BROKER}
    assert listed(client, 1, [77])[0] == Error.UNSUPPORTED_VERSION
