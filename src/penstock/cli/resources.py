"""Settings of topics and brokers as the broker reports them: reading, changing, and where a value comes from."""

from __future__ import annotations

from typing import Any

from penstock.cli.broker_defaults import alter_broker_defaults, read_broker_defaults
from penstock.cli.connection import ANSWER_TIMEOUT_S, Connection
from penstock.cli.kafka_admin import AdminClient, ConfigEntry, ConfigResource, ConfigSource, ResourceType

SOURCE_NAMES = {
    ConfigSource.DYNAMIC_TOPIC_CONFIG: "topic",
    ConfigSource.DYNAMIC_BROKER_CONFIG: "broker",
    ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG: "broker defaults",
    ConfigSource.STATIC_BROKER_CONFIG: "start of the broker",
    ConfigSource.DEFAULT_CONFIG: "built in",
}

ResourceKey = tuple[ResourceType, str]


def resource_subject(resource: ConfigResource) -> str:
    """The resource as the subject of a sentence."""
    if resource.restype == ResourceType.TOPIC:
        return f"topic '{resource.name}'"
    return f"broker {resource.name}" if resource.name else "the defaults of all brokers"


def is_broker_defaults(resource: ConfigResource) -> bool:
    """Does the resource stand for all brokers?"""
    return bool(resource.restype == ResourceType.BROKER and not resource.name)


def read_settings(
    connection: Connection, admin: AdminClient, resources: list[ConfigResource]
) -> dict[ResourceKey, list[ConfigEntry]]:
    """Every setting of each resource, sorted by name."""
    settings: dict[ResourceKey, list[ConfigEntry]] = {}
    if any(is_broker_defaults(resource) for resource in resources):
        settings[ResourceType.BROKER, ""] = read_broker_defaults(connection)
    topics = [resource for resource in resources if resource.restype != ResourceType.BROKER]
    brokers = [resource for resource in resources if resource.restype == ResourceType.BROKER and resource.name]
    # Each broker answers for itself, so librdkafka takes one of them at a time.
    for wanted in ([topics] if topics else []) + [[broker] for broker in brokers]:
        answers = admin.describe_configs(wanted, request_timeout=ANSWER_TIMEOUT_S)
        for resource, answer in answers.items():
            entries = connection.answer(answer, resource_subject(resource)).values()
            settings[resource.restype, resource.name] = sorted(entries, key=lambda entry: entry.name)
    return settings


def changed_settings(
    connection: Connection, admin: AdminClient, resources: list[ConfigResource]
) -> dict[ResourceKey, list[ConfigEntry]]:
    """The settings that somebody gave to exactly this resource while the cluster ran."""
    return {
        key: [entry for entry in entries if is_own(key, entry)]
        for key, entries in read_settings(connection, admin, resources).items()
    }


def is_own(key: ResourceKey, entry: ConfigEntry) -> bool:
    """Was this value set on the resource itself, not inherited?"""
    kind, name = key
    if kind == ResourceType.TOPIC:
        return source_of(entry) == ConfigSource.DYNAMIC_TOPIC_CONFIG
    wanted = ConfigSource.DYNAMIC_BROKER_CONFIG if name else ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    return source_of(entry) == wanted


def source_of(entry: ConfigEntry) -> ConfigSource:
    """Where the value comes from."""
    return ConfigSource(entry.source)


def source_name(entry: ConfigEntry) -> str:
    """Where the value comes from, in words."""
    return SOURCE_NAMES.get(source_of(entry), "unknown")


def entry_document(entry: ConfigEntry) -> dict[str, Any]:
    """A setting as JSON."""
    return {
        "name": entry.name,
        "value": entry.value,
        "source": source_of(entry).name,
        "read_only": entry.is_read_only,
        "sensitive": entry.is_sensitive,
        "synonyms": [
            {"name": synonym.name, "value": synonym.value, "source": source_of(synonym).name}
            for synonym in entry.synonyms.values()
        ],
    }


def alter(connection: Connection, admin: AdminClient, resource: ConfigResource) -> None:
    """Applies the incremental changes that the resource carries."""
    if is_broker_defaults(resource):
        alter_broker_defaults(connection, resource.incremental_configs)
        return
    answers = admin.incremental_alter_configs([resource], request_timeout=ANSWER_TIMEOUT_S)
    for answer in answers.values():
        connection.answer(answer, resource_subject(resource))
