"""Which handler serves which API: the table of everything this broker answers."""

from __future__ import annotations

from functools import partial
from typing import Any

from penstock.base.broker_rows_server import RACK_AWARE_SELECTOR
from penstock.base.errors import ApiError
from penstock.broker.broker import Broker
from penstock.broker.fetch_sessions import FetchSessions
from penstock.broker.forwarding import Refused
from penstock.broker.handlers import (
    k00_produce,
    k01_fetch,
    k02_list_offsets,
    k03_metadata,
    k08_offset_commit,
    k09_offset_fetch,
    k10_find_coordinator,
    k11_join_group,
    k12_heartbeat,
    k13_leave_group,
    k14_sync_group,
    k15_describe_groups,
    k16_list_groups,
    k17_sasl_handshake,
    k18_api_versions,
    k19_create_topics,
    k20_delete_topics,
    k21_delete_records,
    k22_init_producer_id,
    k23_offset_for_leader_epoch,
    k24_add_partitions_to_txn,
    k25_add_offsets_to_txn,
    k26_end_txn,
    k27_write_txn_markers,
    k28_txn_offset_commit,
    k29_describe_acls,
    k30_create_acls,
    k31_delete_acls,
    k32_describe_configs,
    k33_alter_configs,
    k34_alter_replica_log_dirs,
    k35_describe_log_dirs,
    k36_sasl_authenticate,
    k37_create_partitions,
    k38_create_delegation_token,
    k39_renew_delegation_token,
    k40_expire_delegation_token,
    k41_describe_delegation_token,
    k42_delete_groups,
    k43_elect_leaders,
    k44_incremental_alter_configs,
    k45_alter_partition_reassignments,
    k46_list_partition_reassignments,
    k47_offset_delete,
    k48_describe_client_quotas,
    k49_alter_client_quotas,
    k50_describe_user_scram_credentials,
    k51_alter_user_scram_credentials,
    k56_alter_partition,
    k60_describe_cluster,
    k61_describe_producers,
    k64_unregister_broker,
    k65_describe_transactions,
    k66_list_transactions,
    k68_consumer_group_heartbeat,
    k69_consumer_group_describe,
    k74_list_config_resources,
    k75_describe_topic_partitions,
    k20000_prepare_transactions,
    k20001_commit_transactions,
    k20002_describe_commits,
    k20003_delete_commits,
    k20004_await_changes,
    k20005_leave_cluster,
    k20006_replicas_failed,
    k20007_envelope,
)
from penstock.broker.handlers.config_resources import judged_first
from penstock.broker.handlers.fetch_by_follower import FollowerFetches
from penstock.broker.handlers.known_leaders import KnownLeaders
from penstock.broker.handlers.token_callers import from_known
from penstock.broker.mutation_quotas import (
    Mutations,
    added_partitions,
    created_partitions,
    deleted_partitions,
    held,
    limited,
)
from penstock.broker.replica_throttle import Limit, ReplicaThrottle
from penstock.broker.request_counts import ApiCounts
from penstock.broker.requests import AsyncHandler, Dispatcher, RequestContext
from penstock.security.acls import ResourceType
from penstock.security.api_rights import API_RIGHTS
from penstock.wire.api_declaration import Api
from penstock.wire.messages.k00_produce import API as PRODUCE
from penstock.wire.messages.k01_fetch import API as FETCH
from penstock.wire.messages.k02_list_offsets import API as LIST_OFFSETS
from penstock.wire.messages.k03_metadata import API as METADATA
from penstock.wire.messages.k08_offset_commit import API as OFFSET_COMMIT
from penstock.wire.messages.k09_offset_fetch import API as OFFSET_FETCH
from penstock.wire.messages.k10_find_coordinator import API as FIND_COORDINATOR
from penstock.wire.messages.k11_join_group import API as JOIN_GROUP
from penstock.wire.messages.k12_heartbeat import API as HEARTBEAT
from penstock.wire.messages.k13_leave_group import API as LEAVE_GROUP
from penstock.wire.messages.k14_sync_group import API as SYNC_GROUP
from penstock.wire.messages.k15_describe_groups import API as DESCRIBE_GROUPS
from penstock.wire.messages.k16_list_groups import API as LIST_GROUPS
from penstock.wire.messages.k17_sasl_handshake import API as SASL_HANDSHAKE
from penstock.wire.messages.k18_api_versions import API as API_VERSIONS
from penstock.wire.messages.k19_create_topics import API as CREATE_TOPICS
from penstock.wire.messages.k20_delete_topics import API as DELETE_TOPICS
from penstock.wire.messages.k21_delete_records import API as DELETE_RECORDS
from penstock.wire.messages.k22_init_producer_id import API as INIT_PRODUCER_ID
from penstock.wire.messages.k23_offset_for_leader_epoch import API as OFFSET_FOR_LEADER_EPOCH
from penstock.wire.messages.k24_add_partitions_to_txn import API as ADD_PARTITIONS_TO_TXN
from penstock.wire.messages.k25_add_offsets_to_txn import API as ADD_OFFSETS_TO_TXN
from penstock.wire.messages.k26_end_txn import API as END_TXN
from penstock.wire.messages.k27_write_txn_markers import API as WRITE_TXN_MARKERS
from penstock.wire.messages.k28_txn_offset_commit import API as TXN_OFFSET_COMMIT
from penstock.wire.messages.k29_describe_acls import API as DESCRIBE_ACLS
from penstock.wire.messages.k30_create_acls import API as CREATE_ACLS
from penstock.wire.messages.k31_delete_acls import API as DELETE_ACLS
from penstock.wire.messages.k32_describe_configs import API as DESCRIBE_CONFIGS
from penstock.wire.messages.k33_alter_configs import API as ALTER_CONFIGS
from penstock.wire.messages.k34_alter_replica_log_dirs import API as ALTER_REPLICA_LOG_DIRS
from penstock.wire.messages.k35_describe_log_dirs import API as DESCRIBE_LOG_DIRS
from penstock.wire.messages.k36_sasl_authenticate import API as SASL_AUTHENTICATE
from penstock.wire.messages.k37_create_partitions import API as CREATE_PARTITIONS
from penstock.wire.messages.k38_create_delegation_token import API as CREATE_DELEGATION_TOKEN
from penstock.wire.messages.k39_renew_delegation_token import API as RENEW_DELEGATION_TOKEN
from penstock.wire.messages.k40_expire_delegation_token import API as EXPIRE_DELEGATION_TOKEN
from penstock.wire.messages.k41_describe_delegation_token import API as DESCRIBE_DELEGATION_TOKEN
from penstock.wire.messages.k42_delete_groups import API as DELETE_GROUPS
from penstock.wire.messages.k43_elect_leaders import API as ELECT_LEADERS
from penstock.wire.messages.k44_incremental_alter_configs import API as INCREMENTAL_ALTER_CONFIGS
from penstock.wire.messages.k45_alter_partition_reassignments import API as ALTER_PARTITION_REASSIGNMENTS
from penstock.wire.messages.k46_list_partition_reassignments import API as LIST_PARTITION_REASSIGNMENTS
from penstock.wire.messages.k47_offset_delete import API as OFFSET_DELETE
from penstock.wire.messages.k48_describe_client_quotas import API as DESCRIBE_CLIENT_QUOTAS
from penstock.wire.messages.k49_alter_client_quotas import API as ALTER_CLIENT_QUOTAS
from penstock.wire.messages.k50_describe_user_scram_credentials import API as DESCRIBE_USER_SCRAM_CREDENTIALS
from penstock.wire.messages.k51_alter_user_scram_credentials import API as ALTER_USER_SCRAM_CREDENTIALS
from penstock.wire.messages.k56_alter_partition import API as ALTER_PARTITION
from penstock.wire.messages.k60_describe_cluster import API as DESCRIBE_CLUSTER
from penstock.wire.messages.k61_describe_producers import API as DESCRIBE_PRODUCERS
from penstock.wire.messages.k64_unregister_broker import API as UNREGISTER_BROKER
from penstock.wire.messages.k65_describe_transactions import API as DESCRIBE_TRANSACTIONS
from penstock.wire.messages.k66_list_transactions import API as LIST_TRANSACTIONS
from penstock.wire.messages.k68_consumer_group_heartbeat import API as CONSUMER_GROUP_HEARTBEAT
from penstock.wire.messages.k69_consumer_group_describe import API as CONSUMER_GROUP_DESCRIBE
from penstock.wire.messages.k74_list_config_resources import API as LIST_CONFIG_RESOURCES
from penstock.wire.messages.k75_describe_topic_partitions import API as DESCRIBE_TOPIC_PARTITIONS
from penstock.wire.messages.k20000_prepare_transactions import API as PREPARE_TRANSACTIONS
from penstock.wire.messages.k20001_commit_transactions import API as COMMIT_TRANSACTIONS
from penstock.wire.messages.k20002_describe_commits import API as DESCRIBE_COMMITS
from penstock.wire.messages.k20003_delete_commits import API as DELETE_COMMITS
from penstock.wire.messages.k20004_await_changes import API as AWAIT_CHANGES
from penstock.wire.messages.k20005_leave_cluster import API as LEAVE_CLUSTER
from penstock.wire.messages.k20006_replicas_failed import API as REPLICAS_FAILED
from penstock.wire.messages.k20007_envelope import API as ENVELOPE

_PLAIN = (
    (OFFSET_FOR_LEADER_EPOCH, k23_offset_for_leader_epoch.handle),
    (DESCRIBE_ACLS, k29_describe_acls.handle),
    (DESCRIBE_CONFIGS, k32_describe_configs.handle),
    (DESCRIBE_DELEGATION_TOKEN, k41_describe_delegation_token.handle),
    (DESCRIBE_USER_SCRAM_CREDENTIALS, k50_describe_user_scram_credentials.handle),
    (DESCRIBE_CLIENT_QUOTAS, k48_describe_client_quotas.handle),
    (DESCRIBE_CLUSTER, k60_describe_cluster.handle),
    (DESCRIBE_PRODUCERS, k61_describe_producers.handle),
    (LIST_CONFIG_RESOURCES, k74_list_config_resources.handle),
    (DESCRIBE_TOPIC_PARTITIONS, k75_describe_topic_partitions.handle),
)
_ASYNC = (
    (LIST_OFFSETS, k02_list_offsets.handle),
    (METADATA, k03_metadata.handle),
    (OFFSET_COMMIT, k08_offset_commit.handle),
    (OFFSET_FETCH, k09_offset_fetch.handle),
    (JOIN_GROUP, k11_join_group.handle),
    (HEARTBEAT, k12_heartbeat.handle),
    (LEAVE_GROUP, k13_leave_group.handle),
    (SYNC_GROUP, k14_sync_group.handle),
    (DESCRIBE_GROUPS, k15_describe_groups.handle),
    (LIST_GROUPS, k16_list_groups.handle),
    (DELETE_GROUPS, k42_delete_groups.handle),
    (OFFSET_DELETE, k47_offset_delete.handle),
    (FIND_COORDINATOR, k10_find_coordinator.handle),
    (DELETE_RECORDS, k21_delete_records.handle),
    (INIT_PRODUCER_ID, k22_init_producer_id.handle),
    (ADD_PARTITIONS_TO_TXN, k24_add_partitions_to_txn.handle),
    (ADD_OFFSETS_TO_TXN, k25_add_offsets_to_txn.handle),
    (END_TXN, k26_end_txn.handle),
    (WRITE_TXN_MARKERS, k27_write_txn_markers.handle),
    (TXN_OFFSET_COMMIT, k28_txn_offset_commit.handle),
    (ALTER_REPLICA_LOG_DIRS, k34_alter_replica_log_dirs.handle),
    (DESCRIBE_LOG_DIRS, k35_describe_log_dirs.handle),
    (ALTER_PARTITION, k56_alter_partition.handle),
    (DESCRIBE_TRANSACTIONS, k65_describe_transactions.handle),
    (LIST_TRANSACTIONS, k66_list_transactions.handle),
    (CONSUMER_GROUP_HEARTBEAT, k68_consumer_group_heartbeat.handle),
    (CONSUMER_GROUP_DESCRIBE, k69_consumer_group_describe.handle),
    (PREPARE_TRANSACTIONS, k20000_prepare_transactions.handle),
    (COMMIT_TRANSACTIONS, k20001_commit_transactions.handle),
    (DESCRIBE_COMMITS, k20002_describe_commits.handle),
    (DELETE_COMMITS, k20003_delete_commits.handle),
    (AWAIT_CHANGES, k20004_await_changes.handle),
    (LEAVE_CLUSTER, k20005_leave_cluster.handle),
    (REPLICAS_FAILED, k20006_replicas_failed.handle),
    (ENVELOPE, k20007_envelope.handle),
)
_BY_CONTROLLER = (
    (CREATE_ACLS, k30_create_acls.handle, k30_create_acls.refused),
    (DELETE_ACLS, k31_delete_acls.handle, k31_delete_acls.refused),
    (ALTER_CLIENT_QUOTAS, k49_alter_client_quotas.handle, k49_alter_client_quotas.refused),
    (ELECT_LEADERS, k43_elect_leaders.handle, k43_elect_leaders.refused),
    (
        ALTER_PARTITION_REASSIGNMENTS,
        k45_alter_partition_reassignments.handle,
        k45_alter_partition_reassignments.refused,
    ),
    (
        LIST_PARTITION_REASSIGNMENTS,
        k46_list_partition_reassignments.handle,
        k46_list_partition_reassignments.refused,
    ),
    (
        ALTER_USER_SCRAM_CREDENTIALS,
        k51_alter_user_scram_credentials.handle,
        k51_alter_user_scram_credentials.refused,
    ),
    (UNREGISTER_BROKER, k64_unregister_broker.handle, k64_unregister_broker.refused),
)
"""What the controller decides, and how the others refuse it if there is none."""
_MUTATIONS = (
    (CREATE_TOPICS, k19_create_topics, Mutations(6, ("topics",), "topics", created_partitions)),
    (DELETE_TOPICS, k20_delete_topics, Mutations(5, ("topics", "topic_names"), "responses", deleted_partitions)),
    (CREATE_PARTITIONS, k37_create_partitions, Mutations(3, ("topics",), "results", added_partitions)),
)
"""What creates and deletes partitions, of which a client may have a quota."""
_TOKENS = (
    (CREATE_DELEGATION_TOKEN, k38_create_delegation_token),
    (RENEW_DELEGATION_TOKEN, k39_renew_delegation_token),
    (EXPIRE_DELEGATION_TOKEN, k40_expire_delegation_token),
)
_SETTINGS = ((ALTER_CONFIGS, k33_alter_configs), (INCREMENTAL_ALTER_CONFIGS, k44_incremental_alter_configs))


def with_cluster_right(broker: Broker, api: Api, serve: AsyncHandler, refused: Refused) -> AsyncHandler:
    """Where all that an API asks for is one right on the cluster, it is asked for here."""
    rights = API_RIGHTS[api.key].rights
    if len(rights) != 1 or rights[0].resource_type is not ResourceType.CLUSTER:
        return serve
    operation = rights[0].operation

    async def serve_if_allowed(request: Any, context: RequestContext) -> Any:
        try:
            broker.rights.check(context, operation, ResourceType.CLUSTER)
        except ApiError as error:
            return refused(request, error)
        return await serve(request, context)

    return serve_if_allowed


def _follower_fetches(
    broker: Broker, counts: ApiCounts, bytes_max: int, *, tells_committed_at_once: bool
) -> FollowerFetches:
    world = broker.world
    return FollowerFetches(
        broker.partitions,
        world.clock,
        world.disk,
        world.random,
        Limit(
            ReplicaThrottle.of(broker.settings), lambda: broker.settings.integer("leader.replication.throttled.rate")
        ),
        broker.isr_changes.follower_fetched,
        counts,
        bytes_max=bytes_max,
        tells_committed_at_once=tells_committed_at_once,
    )


def serve_all(dispatcher: Dispatcher, broker: Broker) -> None:
    """Fill the table."""
    world, settings = broker.world, broker.settings
    sessions = FetchSessions(settings.integer("max.incremental.fetch.session.cache.slots"), world.random)
    is_rack_aware = settings.optional_text("replica.selector.class") == RACK_AWARE_SELECTOR
    bytes_max = settings.integer("fetch.max.bytes")
    counts = dispatcher.counts_of(FETCH)
    fetch = k01_fetch.Fetch(
        broker.partitions,
        sessions,
        _follower_fetches(broker, counts, bytes_max, tells_committed_at_once=is_rack_aware),
        world.clock,
        world.disk,
        bytes_max,
        broker.view if is_rack_aware else None,
        partial(KnownLeaders, broker),
        counts,
        broker.rights,
    )
    fetch.quotas = broker.quotas
    dispatcher.serve_hot(PRODUCE, k00_produce.Produce(broker, dispatcher.counts_of(PRODUCE)))
    dispatcher.serve_hot(FETCH, fetch)
    dispatcher.serve(API_VERSIONS, k18_api_versions.ApiVersions(dispatcher))
    dispatcher.serve(SASL_HANDSHAKE, k17_sasl_handshake.handle)
    authenticate = k36_sasl_authenticate.SaslAuthenticate(dispatcher.counts_of(SASL_AUTHENTICATE))
    dispatcher.serve_hot(SASL_AUTHENTICATE, authenticate)
    for api, handle in _PLAIN:
        dispatcher.serve(api, partial(handle, broker))
    for api, handle_later in _ASYNC:
        dispatcher.serve_async(api, partial(handle_later, broker))
    for api, handle_there, refused in _BY_CONTROLLER:
        here = with_cluster_right(broker, api, partial(handle_there, broker), refused)
        dispatcher.serve_async(api, broker.forwarding.handler(api, here, refused))
    for api, changing, mutations in _MUTATIONS:
        here = limited(broker, mutations, changing.refused, partial(changing.handle, broker))
        dispatcher.serve_async(api, held(broker, broker.forwarding.handler(api, here, changing.refused)))
    for api, module in _SETTINGS:
        forwarded = broker.forwarding.handler(api, partial(module.handle, broker), module.refused)
        dispatcher.serve_async(api, judged_first(broker, module.changes_of, module.refusal, forwarded))
    for api, tokens in _TOKENS:
        handed_on = broker.forwarding.handler(api, partial(tokens.handle, broker), tokens.refused)
        dispatcher.serve_async(api, from_known(tokens.refusal, handed_on))
