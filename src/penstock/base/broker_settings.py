"""The settings of a broker: the whole table, loading with every check, and changes while it runs.

`load_broker_settings` takes what a file, the environment and the command line gave, together, and either returns
`Settings` or raises with every problem there is. Dynamic values come later, from the znodes: `with_dynamic` lays them
over.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.base import broker_rows_clients, broker_rows_log, broker_rows_security, broker_rows_server
from penstock.base.addresses import is_address
from penstock.base.ignored_settings import IGNORED_SETTINGS, REFUSED_SETTINGS
from penstock.base.listeners import parse_listeners
from penstock.base.pending_settings import PENDING_SETTINGS
from penstock.base.setting_changes import Change, apply_changes
from penstock.base.settings import Dynamic, Settings, SettingsError, Source, Table, judge, known_reason
from penstock.base.zookeeper_connect import parse_zookeeper_connect

BROKER_SETTINGS = Table(
    [
        *broker_rows_server.SECTIONS,
        *broker_rows_log.SECTIONS,
        *broker_rows_clients.SECTIONS,
        *broker_rows_security.SECTIONS,
    ]
)

# (smaller, larger): the first must not exceed the second.
_ORDERED = (
    ("replica.fetch.wait.max.ms", "replica.socket.timeout.ms"),
    ("replica.fetch.wait.max.ms", "replica.lag.time.max.ms"),
    ("log.cleaner.min.compaction.lag.ms", "log.cleaner.max.compaction.lag.ms"),
    ("group.min.session.timeout.ms", "group.max.session.timeout.ms"),
    ("group.consumer.min.session.timeout.ms", "group.consumer.session.timeout.ms"),
    ("group.consumer.session.timeout.ms", "group.consumer.max.session.timeout.ms"),
    ("group.consumer.min.heartbeat.interval.ms", "group.consumer.heartbeat.interval.ms"),
    ("group.consumer.heartbeat.interval.ms", "group.consumer.max.heartbeat.interval.ms"),
    ("group.consumer.heartbeat.interval.ms", "group.consumer.session.timeout.ms"),
    ("group.consumer.min.assignment.interval.ms", "group.consumer.assignment.interval.ms"),
    ("group.consumer.assignment.interval.ms", "group.consumer.max.assignment.interval.ms"),
    ("socket.connection.setup.timeout.ms", "socket.connection.setup.timeout.max.ms"),
    ("transaction.state.log.min.isr", "transaction.state.log.replication.factor"),
    ("socket.unauthenticated.request.max.bytes", "socket.request.max.bytes"),
)


def load_broker_settings(
    static: Mapping[str, str],
    dynamic_broker: Mapping[str, str] | None = None,
    dynamic_default: Mapping[str, str] | None = None,
) -> Settings:
    """The settings of a broker; SettingsError with all problems. `warnings` of the result name what has no effect."""
    judgement = judge(BROKER_SETTINGS, static, IGNORED_SETTINGS, REFUSED_SETTINGS)
    settings = Settings(BROKER_SETTINGS, [(Source.STATIC_BROKER, judgement.kept)], judgement.warnings)
    problems = [*judgement.problems, *cross_problems(settings)]
    if problems:
        raise SettingsError(problems)
    complete = with_dynamic(settings, dynamic_broker or {}, dynamic_default or {})
    return complete.with_warnings([*judgement.warnings, *_without_effect_yet(static), *complete.warnings])


def _without_effect_yet(given: Mapping[str, str]) -> list[str]:
    return [
        f"{name} has no effect yet: {reason}"
        for name in given
        if name in BROKER_SETTINGS and (reason := known_reason(name, PENDING_SETTINGS)) is not None
    ]


def with_dynamic(settings: Settings, dynamic_broker: Mapping[str, str], dynamic_default: Mapping[str, str]) -> Settings:
    """The same settings with these dynamic values in place of the old ones.

    A stored value that this release does not understand (a newer one wrote it) or cannot use together with the others
    is left out: a broker must not fail because of it. The result's `warnings` name each.
    """
    layers: list[tuple[Source, Mapping[str, str]]] = []
    warnings: list[str] = []
    for source, values in ((Source.DYNAMIC_BROKER, dynamic_broker), (Source.DYNAMIC_DEFAULT_BROKER, dynamic_default)):
        judgement = judge(BROKER_SETTINGS, values, IGNORED_SETTINGS, {})
        warnings += [
            *(f"a dynamic value is left out: {problem}" for problem in judgement.problems),
            *judgement.warnings,
        ]
        layers.append((source, judgement.kept))
    changed = settings.with_layers(*layers)
    problems = cross_problems(changed)
    if problems:
        warnings += [f"dynamic values are left out: {problem}" for problem in problems]
        changed = settings.with_layers((Source.DYNAMIC_BROKER, {}), (Source.DYNAMIC_DEFAULT_BROKER, {}))
    return changed.with_warnings(warnings)


def dynamic_problems(settings: Settings, source: Source, values: Mapping[str, str]) -> list[str]:
    """Everything wrong with `values` as the new dynamic values of one broker or of all (`source` says which)."""
    assert source in (Source.DYNAMIC_BROKER, Source.DYNAMIC_DEFAULT_BROKER)
    judgement = judge(BROKER_SETTINGS, values, IGNORED_SETTINGS, REFUSED_SETTINGS)
    problems = [*judgement.problems, *_not_dynamic(source, judgement.kept)]
    return problems or cross_problems(settings.with_layers((source, judgement.kept)))


def _not_dynamic(source: Source, names: Iterable[str]) -> list[str]:
    problems = []
    for name in names:
        dynamic = BROKER_SETTINGS[name].dynamic
        prefixed = name.startswith("listener.name.")
        if dynamic is Dynamic.READ_ONLY:
            problems.append(f"{name} cannot be changed while the broker runs; set it in the file and restart")
        elif source is Source.DYNAMIC_DEFAULT_BROKER and (dynamic is Dynamic.PER_BROKER or prefixed):
            problems.append(f"{name} can only be changed for one broker at a time")
    return problems


def altered_dynamic(settings: Settings, source: Source, changes: Iterable[Change]) -> dict[str, str]:
    """The dynamic values of one layer after the changes; SettingsError with all problems."""
    changed = apply_changes(BROKER_SETTINGS, settings.given(source), changes, settings, IGNORED_SETTINGS)
    problems = dynamic_problems(settings, source, changed)
    if problems:
        raise SettingsError(problems)
    return changed


def altered_elsewhere(settings: Settings, stored: Mapping[str, str], changes: Iterable[Change]) -> dict[str, str]:
    """The same for the stored values of another broker, whose static ones are not known here: each value is judged
    alone, and what does not go together with the static ones it leaves out itself."""
    changed = apply_changes(BROKER_SETTINGS, stored, changes, settings, IGNORED_SETTINGS)
    judgement = judge(BROKER_SETTINGS, changed, IGNORED_SETTINGS, REFUSED_SETTINGS)
    problems = [*judgement.problems, *_not_dynamic(Source.DYNAMIC_BROKER, judgement.kept)]
    if problems:
        raise SettingsError(problems)
    return changed


def cross_problems(settings: Settings) -> list[str]:
    """What is wrong with settings that are each fine alone."""
    problems = [
        f"{smaller} ({settings.integer(smaller)}) must not be greater than {larger} ({settings.integer(larger)})"
        for smaller, larger in _ORDERED
        if settings.integer(smaller) > settings.integer(larger)
    ]
    static = settings.given(Source.STATIC_BROKER)
    if {"node.id", "broker.id"} <= static.keys() and settings.integer("node.id") != settings.integer("broker.id"):
        problems.append("node.id and broker.id are both given and differ; give only node.id")
    budget, request = settings.integer("queued.max.request.bytes"), settings.integer("socket.request.max.bytes")
    if 0 <= budget < request:
        problems.append(f"queued.max.request.bytes ({budget}) must not be below socket.request.max.bytes ({request})")
    problems += _limit_problems(settings)
    problems += _zookeeper_problems(settings)
    try:
        parse_listeners(settings, host_name="localhost")
    except SettingsError as error:
        problems += error.problems
    return problems


def _zookeeper_problems(settings: Settings) -> list[str]:
    connect = settings.optional_text("zookeeper.connect")
    digest = settings.optional_text("zookeeper.auth.digest")
    if settings.flag("zookeeper.set.acl") and digest is None:
        return ["zookeeper.set.acl needs zookeeper.auth.digest: without it nobody knows the brokers from others"]
    if digest is not None and not all(digest.partition(":")[::2]):
        return ["zookeeper.auth.digest is written as user:password"]
    try:
        if connect is not None:
            parse_zookeeper_connect(connect)
    except ValueError as error:
        return [f"zookeeper.connect: {error}"]
    return []


def _limit_problems(settings: Settings) -> list[str]:
    problems = []
    if settings.integer("max.connections.per.ip") == 0 and not settings.text("max.connections.per.ip.overrides"):
        problems.append("max.connections.per.ip can be 0 only if max.connections.per.ip.overrides allows some hosts")
    hosts = [each.strip().rpartition(":")[0] for each in settings.text("max.connections.per.ip.overrides").split(",")]
    names = [host for host in hosts if host and not is_address(host.strip("[]"))]
    if names:
        problems.append(f"max.connections.per.ip.overrides: {', '.join(names)} is no address: names are not looked up")
    folders = set(settings.list("log.dirs"))
    unknown = [folder for folder in settings.list("cordoned.log.dirs") if folder != "*" and folder not in folders]
    if unknown:
        problems.append(f"cordoned.log.dirs: {', '.join(unknown)} is not in log.dirs")
    return problems
