"""Which handler serves which API: the table of everything this broker answers."""

from __future__ import annotations

from functools import partial

from penstock.broker.broker import Broker
from penstock.broker.fetch_sessions import FetchSessions
from penstock.broker.handlers import (
    k00_produce,
    k01_fetch,
    k02_list_offsets,
    k03_metadata,
    k10_find_coordinator,
    k18_api_versions,
    k19_create_topics,
    k20_delete_topics,
    k21_delete_records,
    k22_init_producer_id,
    k23_offset_for_leader_epoch,
    k32_describe_configs,
    k33_alter_configs,
    k35_describe_log_dirs,
    k37_create_partitions,
    k44_incremental_alter_configs,
    k60_describe_cluster,
    k74_list_config_resources,
    k75_describe_topic_partitions,
)
from penstock.broker.requests import Dispatcher

_PLAIN = (
    k23_offset_for_leader_epoch,
    k32_describe_configs,
    k60_describe_cluster,
    k74_list_config_resources,
    k75_describe_topic_partitions,
)
_ASYNC = (
    k02_list_offsets,
    k03_metadata,
    k10_find_coordinator,
    k19_create_topics,
    k20_delete_topics,
    k21_delete_records,
    k22_init_producer_id,
    k33_alter_configs,
    k35_describe_log_dirs,
    k37_create_partitions,
    k44_incremental_alter_configs,
)


def serve_all(dispatcher: Dispatcher, broker: Broker) -> None:
    """Fill the table."""
    world, settings = broker.world, broker.settings
    sessions = FetchSessions(settings.integer("max.incremental.fetch.session.cache.slots"), world.random)
    fetch = k01_fetch.Fetch(broker.partitions, sessions, world.clock, world.disk, settings.integer("fetch.max.bytes"))
    dispatcher.serve_hot(k00_produce.KEY, k00_produce.Produce(broker.partitions, world.clock, world.disk))
    dispatcher.serve_hot(k01_fetch.KEY, fetch)
    dispatcher.serve(k18_api_versions.KEY, k18_api_versions.ApiVersions(dispatcher))
    for module in _PLAIN:
        dispatcher.serve(module.KEY, partial(module.handle, broker))
    for waiting in _ASYNC:
        dispatcher.serve_async(waiting.KEY, partial(waiting.handle, broker))
