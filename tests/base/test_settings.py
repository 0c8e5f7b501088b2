"""Settings: values and their sentences, layers, fall-backs, changes, and everything wrong reported at once."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.base.broker_settings import (
    BROKER_SETTINGS,
    altered_dynamic,
    dynamic_problems,
    load_broker_settings,
    with_dynamic,
)
from penstock.base.ignored_settings import IGNORED_SETTINGS, REFUSED_SETTINGS
from penstock.base.setting_changes import Change, Operation
from penstock.base.setting_values import Kind, format_value, parse_value, plain_number
from penstock.base.settings import Dynamic, SettingsError, Source, Synonym, Table, known_reason
from penstock.base.topic_settings import TOPIC_SETTINGS, TopicSettings, altered_overrides, topic_problems

REPOSITORY = Path(__file__).resolve().parents[2]


def problems_of(static: dict[str, str]) -> tuple[str, ...]:
    with pytest.raises(SettingsError) as caught:
        load_broker_settings(static)
    return caught.value.problems


@pytest.mark.parametrize(
    ("kind", "text", "value"),
    [
        (Kind.BOOLEAN, " True ", True),
        (Kind.BOOLEAN, "false", False),
        (Kind.INT, " +5 ", 5),
        (Kind.LONG, "-9223372036854775808", -(2**63)),
        (Kind.SHORT, "32767", 32767),
        (Kind.DOUBLE, "1e-1", 0.1),
        (Kind.DOUBLE, "1.7976931348623157E308", 1.7976931348623157e308),
        (Kind.LIST, "", ()),
        (Kind.LIST, "compact, delete", ("compact", "delete")),
        (Kind.STRING, " x ", "x"),
        (Kind.PASSWORD, " x ", " x "),
    ],
)
def test_parses_as_kafka_does(kind: Kind, text: str, value: object) -> None:
    assert parse_value(kind, text) == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        (Kind.BOOLEAN, "1"),
        (Kind.INT, "2147483648"),
        (Kind.INT, "1_000"),
        (Kind.INT, "٣"),
        (Kind.INT, ""),
        (Kind.SHORT, "32768"),
        (Kind.LONG, "9" * 5000),
        (Kind.DOUBLE, "nan"),
        (Kind.DOUBLE, "1e999"),
        (Kind.DOUBLE, "1_0"),
    ],
)
def test_refuses_what_is_no_value(kind: Kind, text: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_value(kind, text)
    assert len(str(caught.value)) < 300


@pytest.mark.parametrize(
    ("text", "unit", "number"),
    [
        ("1GB", "bytes", 2**30),
        ("1.5 MiB", "bytes", 1572864),
        ("64k", "bytes", 65536),
        ("10b", "bytes", 10),
        ("7d", "ms", 604800000),
        ("7 days", "ms", 604800000),
        ("90s", "ms", 90000),
        ("90m", "minutes", 90),
        ("2h", "seconds", 7200),
        ("7 apples", "ms", None),
        ("7d", None, None),
        ("9" * 400 + "GB", "bytes", None),
    ],
)
def test_knows_what_was_meant(text: str, unit: str | None, number: int | None) -> None:
    assert plain_number(text, unit) == number


def test_the_sentence_helps_with_human_sizes() -> None:
    assert problems_of({"log.segment.bytes": "1GB", "log.roll.ms": "7d"}) == (
        "log.segment.bytes is a plain number of bytes: write 1073741824 rather than '1GB'",
        "log.roll.ms is a plain number of ms: write 604800000 rather than '7d'",
    )


@pytest.mark.parametrize("table", [BROKER_SETTINGS, TOPIC_SETTINGS], ids=["broker", "topic"])
def test_every_row_is_complete_and_its_default_passes_its_own_check(table: Table) -> None:
    for row in table.values():
        assert row.doc.endswith("."), row.name
        text = format_value(row.default)
        assert text is None or row.parse(text) == row.default, row.name
        for member in row.falls_back_to:
            assert BROKER_SETTINGS[member].kind in (row.kind, Kind.INT), row.name
        if row.name.endswith((".ms", ".bytes", ".seconds", ".minutes", ".hours")):
            assert row.unit == row.name.rpartition(".")[2], row.name


def test_a_topic_row_agrees_with_its_broker_row() -> None:
    broker = load_broker_settings({})
    for row in TOPIC_SETTINGS.values():
        if row.broker_name is not None:
            assert BROKER_SETTINGS[row.broker_name].kind is row.kind, row.name
            assert broker.value(row.broker_name) == row.default, row.name


def test_a_known_name_is_in_one_place_only() -> None:
    for name in BROKER_SETTINGS:
        assert known_reason(name, IGNORED_SETTINGS) is None and known_reason(name, REFUSED_SETTINGS) is None, name


def test_typed_reading() -> None:
    settings = load_broker_settings(
        {"log.dirs": "/a, /b", "broker.rack": "r1", "log.cleaner.min.cleanable.ratio": "0.2"}
    )
    assert settings.integer("num.partitions") == 1
    assert settings.number("log.cleaner.min.cleanable.ratio") == 0.2
    assert settings.flag("auto.create.topics.enable") is True
    assert settings.text("compression.type") == "producer"
    assert settings.list("log.dirs") == ["/a", "/b"]
    assert settings.optional_text("broker.rack") == "r1"
    assert settings.optional_text("broker.host") is None
    assert settings.optional_integer("log.retention.minutes") is None
    with pytest.raises(KeyError):
        settings.integer("num.io.threads")
    with pytest.raises(AssertionError):
        settings.integer("compression.type")


@pytest.mark.parametrize(
    ("static", "retention_ms"),
    [
        ({}, 604800000),
        ({"log.retention.hours": "24"}, 86400000),
        ({"log.retention.hours": "24", "log.retention.minutes": "5"}, 300000),
        ({"log.retention.hours": "24", "log.retention.minutes": "5", "log.retention.ms": "7"}, 7),
        ({"log.retention.hours": "-1"}, -1),
    ],
)
def test_retention_falls_back_from_ms_to_minutes_to_hours(static: dict[str, str], retention_ms: int) -> None:
    broker = load_broker_settings(static)
    assert broker.integer("log.retention.ms") == retention_ms
    assert TopicSettings(broker, {}).integer("retention.ms") == retention_ms


def test_the_strongest_layer_counts_and_all_are_explained() -> None:
    broker = load_broker_settings(
        {"log.retention.ms": "4", "log.retention.hours": "1"}, {"log.retention.ms": "2"}, {"log.retention.ms": "3"}
    )
    topic = TopicSettings(broker, {"retention.ms": "1"})
    assert topic.integer("retention.ms") == 1
    explained = topic.explain("retention.ms")
    assert (explained.value, explained.source, explained.read_only) == ("1", Source.TOPIC, False)
    assert explained.synonyms == (
        Synonym("retention.ms", "1", Source.TOPIC),
        Synonym("log.retention.ms", "2", Source.DYNAMIC_BROKER),
        Synonym("log.retention.ms", "3", Source.DYNAMIC_DEFAULT_BROKER),
        Synonym("log.retention.ms", "4", Source.STATIC_BROKER),
        Synonym("log.retention.hours", "1", Source.STATIC_BROKER),
        Synonym("log.retention.hours", "168", Source.DEFAULT),
    )
    assert with_dynamic(broker, {}, {}).integer("log.retention.ms") == 4


def test_a_setting_without_a_broker_s_has_its_own_default() -> None:
    explained = TopicSettings(load_broker_settings({}), {}).explain("local.retention.ms")
    assert (explained.value, explained.source) == ("-2", Source.DEFAULT)
    assert explained.synonyms == (Synonym("local.retention.ms", "-2", Source.DEFAULT),)


def test_everything_can_be_explained() -> None:
    broker = load_broker_settings({"listener.name.a.max.connections": "5"})
    explained = {resolved.setting.name: resolved for resolved in broker.explain_all()}
    assert explained.keys() == {*BROKER_SETTINGS, "listener.name.a.max.connections"}
    assert explained["log.cleaner.io.max.bytes.per.second"].value == "1.7976931348623157E308"
    assert explained["broker.id"].read_only and not explained["message.max.bytes"].read_only
    assert len(TopicSettings(broker, {}).explain_all()) == len(TOPIC_SETTINGS)


def test_node_id_and_broker_id_are_one_setting() -> None:
    assert load_broker_settings({"broker.id": "5"}).integer("node.id") == 5
    assert load_broker_settings({"node.id": "6"}).integer("broker.id") == 6
    assert "differ" in problems_of({"node.id": "1", "broker.id": "2"})[0]


def test_listeners_have_settings_of_their_own() -> None:
    settings = load_broker_settings(
        {
            "listener.name.ext.ssl.client.auth": "required",
            "listener.name.ext.plain.sasl.jaas.config": "secret",
            "max.connections": "7",
        }
    )
    external = settings.for_listener("EXT")
    assert external.text("ssl.client.auth") == "required"
    assert settings.for_listener("other").text("ssl.client.auth") == "none"
    assert external.integer("max.connections") == 7
    assert external.integer("num.partitions") == 1
    assert settings.for_listener("EXT", "PLAIN").text("sasl.jaas.config") == "secret"
    assert settings.for_listener("EXT", "SCRAM-SHA-256").optional_text("sasl.jaas.config") is None
    assert (
        "listener.name.ext.num.partitions is not a setting" in problems_of({"listener.name.ext.num.partitions": "1"})[0]
    )


def test_secrets_are_never_shown() -> None:
    settings = load_broker_settings({"ssl.key.password": "hunter2"}, {"ssl.keystore.key": "hunter2"})
    assert "hunter2" not in repr(settings) and "ssl.key.password=[hidden]" in repr(settings)
    assert settings.text("ssl.key.password") == "hunter2"
    explained = settings.explain("ssl.key.password")
    assert explained.value is None and "hunter2" not in repr(explained)
    assert explained.source is Source.STATIC_BROKER


def test_every_problem_is_reported_at_once() -> None:
    problems = problems_of(
        {
            "log.retenton.ms": "1",
            "num.partitions": "0",
            "compression.type": "zip",
            "log.cleanup.policy": "delete,delete",
            "log.dirs": "",
            "create.topic.policy.class.name": "com.example.Policy",
            "replica.fetch.wait.max.ms": "40000",
            "qwertz": "1",
        }
    )
    assert problems == (
        "log.retenton.ms is not a setting; did you mean log.retention.ms?",
        "num.partitions must be at least 1, not 0",
        "compression.type must be one of uncompressed, zstd, lz4, snappy, gzip, producer, not 'zip'",
        "log.cleanup.policy names delete more than once",
        "log.dirs must not be empty",
        "create.topic.policy.class.name cannot be used: policies written in Java cannot run here, and leaving one out "
        "would allow more",
        "qwertz is not a setting",
        "replica.fetch.wait.max.ms (40000) must not be greater than replica.socket.timeout.ms (30000)",
        "replica.fetch.wait.max.ms (40000) must not be greater than replica.lag.time.max.ms (30000)",
    )


@pytest.mark.parametrize(
    ("static", "part"),
    [
        ({"queued.max.request.bytes": "1000"}, "socket.request.max.bytes"),
        ({"max.connections.per.ip": "0"}, "max.connections.per.ip.overrides"),
        ({"max.connections.per.ip.overrides": "a:b"}, "host:count"),
        ({"max.connections.per.ip.overrides": "10.0.0.1:5,some.host:3"}, "some.host is no address"),
        ({"cordoned.log.dirs": "/nowhere"}, "/nowhere is not in log.dirs"),
        ({"log.retention.ms": "0"}, "must be -1 (no limit) or at least 1"),
        ({"compression.gzip.level": "0"}, "must be 1 to 9, or -1"),
        ({"ssl.keystore.type": "JKS"}, "must be one of PEM"),
        ({"authorizer.class.name": "com.example.Mine"}, "must be one of"),
        ({"x" * 30000: "1"}, "is not a setting"),
        ({"compression.type": "x" * 30000}, "must be one of"),
    ],
)
def test_says_what_is_wrong_in_a_short_sentence(static: dict[str, str], part: str) -> None:
    (problem,) = problems_of(static)
    assert part in problem and len(problem) < 400


def test_settings_without_meaning_are_accepted_with_one_warning_each() -> None:
    settings = load_broker_settings(
        {"num.io.threads": "8", "remote.log.reader.threads": "3", "listener.name.a.sasl.login.class": "x"},
        {"num.network.threads": "9"},
    )
    assert len(settings.warnings) == 4
    assert (
        settings.warnings[0] == "num.io.threads has no effect: a broker runs one event loop and sizes its pools itself"
    )


def test_stored_dynamic_values_that_cannot_be_used_are_left_out() -> None:
    settings = load_broker_settings(
        {}, {"from.the.future": "1", "message.max.bytes": "many"}, {"log.retention.ms": "5"}
    )
    assert settings.integer("log.retention.ms") == 5
    assert settings.integer("message.max.bytes") == 1048588
    assert len(settings.warnings) == 2
    lags = {"log.cleaner.min.compaction.lag.ms": "9", "log.cleaner.max.compaction.lag.ms": "8"}
    conflict = with_dynamic(settings, lags, {})
    assert conflict.integer("log.cleaner.min.compaction.lag.ms") == 0
    assert "must not be greater" in conflict.warnings[0]


def test_which_settings_can_change_while_running() -> None:
    settings = load_broker_settings({})
    broker, default = Source.DYNAMIC_BROKER, Source.DYNAMIC_DEFAULT_BROKER
    assert dynamic_problems(settings, default, {"message.max.bytes": "5", "num.io.threads": "5"}) == []
    assert dynamic_problems(settings, broker, {"ssl.client.auth": "none"}) == []
    assert "one broker at a time" in dynamic_problems(settings, default, {"ssl.client.auth": "none"})[0]
    assert "one broker at a time" in dynamic_problems(settings, default, {"listener.name.a.max.connections": "5"})[0]
    assert "while the broker runs" in dynamic_problems(settings, broker, {"num.partitions": "5"})[0]
    lags = {"log.cleaner.min.compaction.lag.ms": "9", "log.cleaner.max.compaction.lag.ms": "8"}
    assert "must not be greater" in dynamic_problems(settings, broker, lags)[0]


def test_dynamic_changes() -> None:
    settings = load_broker_settings({}, {"message.max.bytes": "5"})
    changed = altered_dynamic(
        settings,
        Source.DYNAMIC_BROKER,
        [
            Change("message.max.bytes", Operation.DELETE),
            Change("log.cleanup.policy", Operation.APPEND, "compact"),
            Change("log.retention.ms", Operation.SET, "9"),
        ],
    )
    assert changed == {"log.cleanup.policy": "delete,compact", "log.retention.ms": "9"}
    with pytest.raises(SettingsError, match="cannot be changed while the broker runs"):
        altered_dynamic(settings, Source.DYNAMIC_BROKER, [Change("num.partitions", Operation.SET, "2")])


def test_topic_changes() -> None:
    broker = load_broker_settings({})
    overrides = {"retention.ms": "5", "cleanup.policy": "compact,delete"}
    changes = [
        Change("retention.ms", Operation.DELETE),
        Change("cleanup.policy", Operation.SUBTRACT, "delete"),
        Change("segment.bytes", Operation.SET, "1048576"),
        Change("message.format.version", Operation.SET, "3.0"),
    ]
    assert altered_overrides(broker, overrides, changes) == {"cleanup.policy": "compact", "segment.bytes": "1048576"}
    assert overrides == {"retention.ms": "5", "cleanup.policy": "compact,delete"}
    appended = altered_overrides(broker, {}, [Change("cleanup.policy", Operation.APPEND, "compact,delete")])
    assert appended == {"cleanup.policy": "delete,compact"}
    assert altered_overrides(broker, {}, [Change("retention.ms", Operation.DELETE)]) == {}


@pytest.mark.parametrize(
    ("change", "part"),
    [
        (Change("retention.ms", Operation.APPEND, "5"), "is not a list and cannot be appended to"),
        (Change("retention.ms", Operation.SUBTRACT, "5"), "is not a list and cannot be subtracted from"),
        (Change("retention.ms", Operation.SET, None), "needs a value"),
        (Change("retention.ms", Operation.SET, "x"), "must be a whole number of ms, not 'x'"),
        (Change("retention.mss", Operation.SET, "5"), "did you mean retention.ms?"),
        (Change("retention.mss", Operation.DELETE), "did you mean retention.ms?"),
        (Change("cleanup.policy", Operation.APPEND, "shred"), "takes compact, delete, not 'shred'"),
        (Change("segment.bytes", Operation.SET, "14"), "at least 1048576"),
        (Change("remote.storage.enable", Operation.SET, "true"), "there is no remote storage"),
        (Change("leader.replication.throttled.replicas", Operation.SET, "*,0:1"), "`partition:broker`"),
    ],
)
def test_topic_changes_that_are_refused(change: Change, part: str) -> None:
    with pytest.raises(SettingsError) as caught:
        altered_overrides(load_broker_settings({}), {}, [change])
    assert part in str(caught.value)


def test_one_request_changes_a_setting_once() -> None:
    twice = [Change("retention.ms", Operation.SET, "1"), Change("retention.ms", Operation.DELETE)]
    with pytest.raises(SettingsError, match="changed twice"):
        altered_overrides(load_broker_settings({}), {}, twice)


def test_topic_settings_are_checked_together() -> None:
    broker = load_broker_settings({"log.cleaner.max.compaction.lag.ms": "100"})
    assert topic_problems(broker, {"min.compaction.lag.ms": "100"}) == []
    assert "must not be greater" in topic_problems(broker, {"min.compaction.lag.ms": "101"})[0]
    assert topic_problems(broker, {"leader.replication.throttled.replicas": "0:1,1:2", "cleanup.policy": ""}) == []


def test_an_unknown_stored_topic_setting_does_no_harm() -> None:
    topic = TopicSettings(load_broker_settings({}), {"from.the.future": "1", "retention.ms": "-9", "flush.ms": "5"})
    assert topic.overrides == {"flush.ms": "5"}
    assert topic.integer("retention.ms") == 604800000


@given(st.sampled_from(sorted(BROKER_SETTINGS)), st.text(max_size=40))
def test_no_text_breaks_the_checks(name: str, text: str) -> None:
    row = BROKER_SETTINGS[name]
    problem = row.problem(text)
    assert problem is None or problem.startswith(name)


def test_only_settings_of_brokers_say_when_they_change() -> None:
    assert all(row.dynamic is Dynamic.READ_ONLY for row in TOPIC_SETTINGS.values())


def test_the_reference_pages_are_up_to_date() -> None:
    script = REPOSITORY / "scripts" / "write_reference.py"
    done = subprocess.run([sys.executable, script, "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_setting_whose_effect_is_still_to_come_gives_a_warning() -> None:
    settings = load_broker_settings({"request.timeout.ms": "2000", "log.retention.ms": "1000"})
    assert [warning for warning in settings.warnings if "no effect yet" in warning] == [
        "request.timeout.ms has no effect yet: each kind of request between brokers has a time of its own"
    ]


def test_znodes_are_protected_only_by_brokers_who_can_prove_who_they_are() -> None:
    load_broker_settings({"zookeeper.set.acl": "false"})
    load_broker_settings({"zookeeper.set.acl": "true", "zookeeper.auth.digest": "broker:secret"})
    for wrong in ({"zookeeper.set.acl": "true"}, {"zookeeper.auth.digest": "secret"}):
        with pytest.raises(SettingsError, match=r"zookeeper\.auth\.digest") as refused:
            load_broker_settings(wrong)
        assert "secret" not in str(refused.value)
