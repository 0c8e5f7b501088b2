"""The table of APIs, and the headers in front of every request and response.

A request on the wire is a 32-bit size, a header and a message. The header says which API in which version, and so how
to read the rest: itself too, because flexible versions have a flexible header. A response has only the number of the
request it answers; which API and version it is, the client remembers.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from penstock.base.world import Buffer
from penstock.wire.api_declaration import API_VERSIONS_KEY, Api
from penstock.wire.messages import (
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
    k57_update_features,
    k60_describe_cluster,
    k61_describe_producers,
    k64_unregister_broker,
    k65_describe_transactions,
    k66_list_transactions,
    k67_allocate_producer_ids,
    k68_consumer_group_heartbeat,
    k69_consumer_group_describe,
    k71_get_telemetry_subscriptions,
    k72_push_telemetry,
    k74_list_config_resources,
    k75_describe_topic_partitions,
    k76_share_group_heartbeat,
    k77_share_group_describe,
    k78_share_fetch,
    k79_share_acknowledge,
    k88_streams_group_heartbeat,
    k89_streams_group_describe,
    k90_describe_share_group_offsets,
    k91_alter_share_group_offsets,
    k92_delete_share_group_offsets,
    k20000_prepare_transactions,
    k20001_commit_transactions,
    k20002_describe_commits,
    k20003_delete_commits,
    k20004_await_changes,
    k20005_leave_cluster,
    k20006_replicas_failed,
    k20007_envelope,
)
from penstock.wire.schema import ProtocolError
from penstock.wire.varint import Malformed, read_varint, skip_tagged_fields

_MODULES = (
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
    k57_update_features,
    k60_describe_cluster,
    k61_describe_producers,
    k64_unregister_broker,
    k65_describe_transactions,
    k66_list_transactions,
    k67_allocate_producer_ids,
    k68_consumer_group_heartbeat,
    k69_consumer_group_describe,
    k71_get_telemetry_subscriptions,
    k72_push_telemetry,
    k74_list_config_resources,
    k75_describe_topic_partitions,
    k76_share_group_heartbeat,
    k77_share_group_describe,
    k78_share_fetch,
    k79_share_acknowledge,
    k88_streams_group_heartbeat,
    k89_streams_group_describe,
    k90_describe_share_group_offsets,
    k91_alter_share_group_offsets,
    k92_delete_share_group_offsets,
)

_OWN_MODULES = (
    k20000_prepare_transactions,
    k20001_commit_transactions,
    k20002_describe_commits,
    k20003_delete_commits,
    k20004_await_changes,
    k20005_leave_cluster,
    k20006_replicas_failed,
    k20007_envelope,
)

APIS: dict[int, Api] = {module.API.key: module.API for module in _MODULES}
"""Kafka's."""
OWN_APIS: dict[int, Api] = {module.API.key: module.API for module in _OWN_MODULES}
"""Penstock's, with keys that Kafka does not use."""

_FLEXIBLE_SINCE = {key: api.flexible_since for key, api in (APIS | OWN_APIS).items()}
_NEVER = 0x7FFF
_FIXED_PART = Struct(">hhih")  # with the length of the client id, which is never compact
_CORRELATION_ID = Struct(">i")
_new_tuple = tuple.__new__  # half the time of calling the class, and every request has a header


class RequestHeader(NamedTuple):
    """What comes before the message of a request."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None


def request_header_version(api_key: int, api_version: int) -> int:
    """2 for flexible versions, 1 for the others (and for keys we do not know)."""
    return 2 if api_version >= _FLEXIBLE_SINCE.get(api_key, _NEVER) else 1


def response_header_version(api_key: int, api_version: int) -> int:
    """1 for flexible versions, 0 for the others, and always 0 for ApiVersions: its client cannot know yet."""
    if api_key == API_VERSIONS_KEY:
        return 0
    return 1 if api_version >= _FLEXIBLE_SINCE.get(api_key, _NEVER) else 0


def decode_request_header(buffer: Buffer, position: int = 0) -> tuple[RequestHeader, int]:
    """The header and the position of the message. A key that is not in `APIS` is for the caller to notice."""
    try:
        key, version, correlation_id, length = _FIXED_PART.unpack_from(buffer, position)
        position += 10
        client_id = None
        if length >= 0:
            stop = position + length
            if stop > len(buffer):
                raise Malformed(
                    f"a client id of {length} bytes needs more than the {len(buffer) - position} that remain"
                )
            client_id = str(buffer[position:stop], "utf-8")
            position = stop
        if version >= _FLEXIBLE_SINCE.get(key, _NEVER):
            if buffer[position]:
                count, position = read_varint(buffer, position)
                position = skip_tagged_fields(buffer, position, count, len(buffer))
            else:
                position += 1
    except (StructError, IndexError, UnicodeError, Malformed) as fault:
        text = fault if isinstance(fault, Malformed | UnicodeError) else "the bytes end too soon"
        raise ProtocolError(f"request header: {text}") from None
    return _new_tuple(RequestHeader, (key, version, correlation_id, client_id)), position


def encode_request_header(header: RequestHeader, out: bytearray) -> None:
    client_id = None if header.client_id is None else header.client_id.encode()
    length = -1 if client_id is None else len(client_id)
    try:
        out += _FIXED_PART.pack(header.api_key, header.api_version, header.correlation_id, length)
    except StructError as fault:
        raise ProtocolError(f"request header: {fault}") from None
    out += client_id or b""
    if request_header_version(header.api_key, header.api_version) == 2:
        out.append(0)


def decode_response_header(api_key: int, api_version: int, buffer: Buffer, position: int = 0) -> tuple[int, int]:
    """The correlation id and the position of the message."""
    try:
        (correlation_id,) = _CORRELATION_ID.unpack_from(buffer, position)
        position += 4
        if response_header_version(api_key, api_version) == 1:
            count, position = read_varint(buffer, position)
            position = skip_tagged_fields(buffer, position, count, len(buffer))
    except (StructError, IndexError) as fault:
        raise ProtocolError("response header: the bytes end too soon") from fault
    except Malformed as fault:
        raise ProtocolError(f"response header: {fault}") from None
    return correlation_id, position


def encode_response_header(api_key: int, api_version: int, correlation_id: int, out: bytearray) -> None:
    out += _CORRELATION_ID.pack(correlation_id)
    if response_header_version(api_key, api_version) == 1:
        out.append(0)
