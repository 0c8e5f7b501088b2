"""The settings that all brokers share unless one has its own: a resource with an empty name in Kafka's protocol."""

from __future__ import annotations

from penstock.cli.connection import Connection
from penstock.cli.direct import check_error, connect_directly
from penstock.cli.kafka_admin import ConfigEntry, ConfigSource
from penstock.wire.messages.k32_describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsRequestResource,
    DescribeConfigsResponse,
)
from penstock.wire.messages.k44_incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsRequestConfig,
    IncrementalAlterConfigsRequestResource,
    IncrementalAlterConfigsResponse,
)

DESCRIBE_CONFIGS_KEY = 32
INCREMENTAL_ALTER_CONFIGS_KEY = 44
BROKER_RESOURCE = 4
SUBJECT = "the defaults of all brokers"


def read_broker_defaults(connection: Connection) -> list[ConfigEntry]:
    """The settings that somebody gave to all brokers, sorted by name."""
    resource = DescribeConfigsRequestResource(resource_type=BROKER_RESOURCE, resource_name="", configuration_keys=None)
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True, include_documentation=False)
    with connect_directly(connection) as client:
        answer = client.ask(DESCRIBE_CONFIGS_KEY, request, DescribeConfigsResponse)
    entries = []
    for result in answer.results:
        check_error(result.error_code, result.error_message, SUBJECT)
        for config in result.configs:
            entry = ConfigEntry(
                config.name,
                config.value,
                source=ConfigSource(config.config_source),
                is_read_only=config.read_only,
                is_sensitive=config.is_sensitive,
            )
            entry.synonyms = {
                synonym.name: ConfigEntry(synonym.name, synonym.value, source=ConfigSource(synonym.source))
                for synonym in config.synonyms
            }
            entries.append(entry)
    return sorted(entries, key=lambda entry: entry.name)


def alter_broker_defaults(connection: Connection, changes: list[ConfigEntry]) -> None:
    """Applies incremental changes, one by one, all or none."""
    configs = [
        IncrementalAlterConfigsRequestConfig(
            name=change.name, config_operation=int(change.incremental_operation.value), value=change.value
        )
        for change in changes
        if change.incremental_operation is not None
    ]
    resource = IncrementalAlterConfigsRequestResource(resource_type=BROKER_RESOURCE, resource_name="", configs=configs)
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
    with connect_directly(connection) as client:
        answer = client.ask(INCREMENTAL_ALTER_CONFIGS_KEY, request, IncrementalAlterConfigsResponse)
    for response in answer.responses:
        check_error(response.error_code, response.error_message, SUBJECT)
