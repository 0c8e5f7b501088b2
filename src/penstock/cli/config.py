"""`penstock config`: the settings of topics, of single brokers, and of all brokers by default.

A value comes from the nearest place that has one: the topic, the broker, the defaults of all brokers, what the broker
was started with, and last what is built in. `describe` shows that chain.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from penstock.cli.connection import Connection
from penstock.cli.direct import can_ask
from penstock.cli.failure import ExitCode, Failure, did_you_mean, usage
from penstock.cli.kafka_admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from penstock.cli.options import Bootstrap, ClientConfig, ClientSettings, Json, family, key_values
from penstock.cli.output import note, print_heading, print_json, print_line, print_table
from penstock.cli.reference import reference
from penstock.cli.resources import (
    ResourceKey,
    alter,
    entry_document,
    is_own,
    read_settings,
    resource_subject,
    source_name,
)
from penstock.cli.topics import describe_topics

app = family("Show and change the settings of topics and brokers.")

Topic = Annotated[str | None, typer.Option("--topic", "-t", metavar="NAME", help="The settings of this topic.")]
Broker = Annotated[int | None, typer.Option("--broker", metavar="ID", min=0, help="The settings of this broker.")]
Defaults = Annotated[bool, typer.Option("--broker-defaults", help="What all brokers have if not set on one.")]


@app.command("list")
def list_settings(
    topic: Topic = None,
    broker: Broker = None,
    broker_defaults: Defaults = False,
    everything: Annotated[bool, typer.Option("--all", "-a", help="Those with inherited values too.")] = False,
    as_json: Json = False,
    bootstrap: Bootstrap = None,
    client_config: ClientConfig = None,
    client_settings: ClientSettings = None,
) -> None:
    """List the settings that were set on a topic or broker; without either, on all of them."""
    connection = Connection(bootstrap, client_config, client_settings)
    resources = _targets(connection, topic, broker, broker_defaults) or _everything(connection)
    rows = [
        (key, entry)
        for key, entries in read_settings(connection, connection.admin(), resources).items()
        for entry in entries
        if everything or is_own(key, entry)
    ]
    if as_json:
        print_json([{**_target_document(key), **entry_document(entry)} for key, entry in rows])
    elif rows:
        print_table(
            ["ON", "SETTING", "VALUE", "FROM"],
            [[_target_name(key), entry.name, _shown(entry), source_name(entry)] for key, entry in rows],
        )
    else:
        note("nothing was set; --all shows inherited values too")


@app.command()
def describe(
    names: Annotated[list[str], typer.Argument(metavar="SETTING…", help="Names of settings.", show_default=False)],
    topic: Topic = None,
    broker: Broker = None,
    broker_defaults: Defaults = False,
    as_json: Json = False,
    bootstrap: Bootstrap = None,
    client_config: ClientConfig = None,
    client_settings: ClientSettings = None,
) -> None:
    """Show the value of settings and the places it could come from."""
    connection = Connection(bootstrap, client_config, client_settings)
    target = _one_target(connection, topic, broker, broker_defaults)
    [(key, entries)] = read_settings(connection, connection.admin(), [target]).items()
    known = {entry.name: entry for entry in entries}
    for name in names:
        if name not in known:
            raise _unknown_setting(name, target, known)
    if as_json:
        print_json([{**_target_document(key), **entry_document(known[name])} for name in names])
        return
    for name in names:
        _print_setting(known[name])


def _print_setting(entry: ConfigEntry) -> None:
    read_only = ", read-only" if entry.is_read_only else ""
    print_heading(f"{entry.name}={_shown(entry)} (from: {source_name(entry)}{read_only})")
    for synonym in entry.synonyms.values():
        print_line(f"  {synonym.name}={_shown(synonym)} ({source_name(synonym)})")


@app.command("set")
def set_values(
    pairs: Annotated[list[str], typer.Argument(metavar="SETTING=VALUE…", help="What to set.", show_default=False)],
    topic: Topic = None,
    broker: Broker = None,
    broker_defaults: Defaults = False,
    bootstrap: Bootstrap = None,
    client_config: ClientConfig = None,
    client_settings: ClientSettings = None,
) -> None:
    """Set settings; brokers apply them while they run."""
    changes = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in key_values(pairs, "config set").items()
    ]
    connection = Connection(bootstrap, client_config, client_settings)
    target = _one_target(connection, topic, broker, broker_defaults)
    target.incremental_configs = changes
    alter(connection, connection.admin(), target)
    print_line(f"set {', '.join(change.name for change in changes)} on {resource_subject(target)}")


@app.command()
def unset(
    names: Annotated[list[str], typer.Argument(metavar="SETTING…", help="Names of settings.", show_default=False)],
    topic: Topic = None,
    broker: Broker = None,
    broker_defaults: Defaults = False,
    bootstrap: Bootstrap = None,
    client_config: ClientConfig = None,
    client_settings: ClientSettings = None,
) -> None:
    """Take settings away again, so that inherited values apply."""
    connection = Connection(bootstrap, client_config, client_settings)
    target = _one_target(connection, topic, broker, broker_defaults)
    target.incremental_configs = [
        ConfigEntry(name, None, incremental_operation=AlterConfigOpType.DELETE) for name in names
    ]
    alter(connection, connection.admin(), target)
    print_line(f"unset {', '.join(names)} on {resource_subject(target)}")


app.command("reference")(reference)


def _targets(connection: Connection, topic: str | None, broker: int | None, defaults: bool) -> list[ConfigResource]:
    """What the options name; a topic that is not there fails here, with close names."""
    if (topic is not None) + (broker is not None) + defaults > 1:
        raise usage("--topic, --broker and --broker-defaults exclude each other")
    if topic is not None:
        describe_topics(connection, connection.admin(), [topic])
        return [ConfigResource(ResourceType.TOPIC, topic)]
    if broker is not None:
        there = sorted(connection.metadata(connection.admin()).brokers)
        if broker not in there:
            ids = ", ".join(str(each) for each in there)
            raise Failure(f"there is no broker {broker} (there are: {ids})", ExitCode.NOT_FOUND)
        return [ConfigResource(ResourceType.BROKER, str(broker))]
    return [ConfigResource(ResourceType.BROKER, "")] if defaults else []


def _one_target(connection: Connection, topic: str | None, broker: int | None, defaults: bool) -> ConfigResource:
    targets = _targets(connection, topic, broker, defaults)
    if not targets:
        raise usage("settings of what? Pass --topic NAME, --broker ID or --broker-defaults")
    return targets[0]


def _everything(connection: Connection) -> list[ConfigResource]:
    metadata = connection.metadata(connection.admin())
    defaults = [ConfigResource(ResourceType.BROKER, "")] if can_ask(connection) else []
    return [
        *defaults,
        *(ConfigResource(ResourceType.BROKER, str(broker)) for broker in sorted(metadata.brokers)),
        *(ConfigResource(ResourceType.TOPIC, topic) for topic in sorted(metadata.topics)),
    ]


def _unknown_setting(name: str, target: ConfigResource, known: dict[str, ConfigEntry]) -> Failure:
    return Failure(f"{resource_subject(target)} has no setting '{name}'{did_you_mean(name, known)}", ExitCode.NOT_FOUND)


def _target_name(key: ResourceKey) -> str:
    kind, name = key
    if kind == ResourceType.TOPIC:
        return f"topic {name}"
    return f"broker {name}" if name else "all brokers"


def _target_document(key: ResourceKey) -> dict[str, Any]:
    kind, name = key
    return {"type": kind.name.lower(), "resource": name}


def _shown(entry: ConfigEntry) -> str:
    if entry.is_sensitive:
        return "(hidden)"
    return "(none)" if entry.value is None else str(entry.value)
