"""The table of APIs, and the headers in front of every request and response.

A request on the wire is a 32-bit size, a header and a message. The header says which API in which version, and so how
to read the rest: itself too, because flexible versions have a flexible header. A response has only the number of the
request it answers; which API and version it is, the client remembers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from penstock.base.world import Buffer
from penstock.wire.messages.k00_produce import ProduceRequest, ProduceResponse
from penstock.wire.messages.k01_fetch import FetchRequest, FetchResponse
from penstock.wire.messages.k02_list_offsets import ListOffsetsRequest, ListOffsetsResponse
from penstock.wire.messages.k03_metadata import MetadataRequest, MetadataResponse
from penstock.wire.messages.k08_offset_commit import OffsetCommitRequest, OffsetCommitResponse
from penstock.wire.messages.k09_offset_fetch import OffsetFetchRequest, OffsetFetchResponse
from penstock.wire.messages.k10_find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from penstock.wire.messages.k11_join_group import JoinGroupRequest, JoinGroupResponse
from penstock.wire.messages.k12_heartbeat import HeartbeatRequest, HeartbeatResponse
from penstock.wire.messages.k13_leave_group import LeaveGroupRequest, LeaveGroupResponse
from penstock.wire.messages.k14_sync_group import SyncGroupRequest, SyncGroupResponse
from penstock.wire.messages.k15_describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from penstock.wire.messages.k16_list_groups import ListGroupsRequest, ListGroupsResponse
from penstock.wire.messages.k17_sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from penstock.wire.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse
from penstock.wire.messages.k19_create_topics import CreateTopicsRequest, CreateTopicsResponse
from penstock.wire.messages.k20_delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from penstock.wire.messages.k21_delete_records import DeleteRecordsRequest, DeleteRecordsResponse
from penstock.wire.messages.k22_init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from penstock.wire.messages.k23_offset_for_leader_epoch import OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse
from penstock.wire.messages.k24_add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from penstock.wire.messages.k25_add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from penstock.wire.messages.k26_end_txn import EndTxnRequest, EndTxnResponse
from penstock.wire.messages.k27_write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from penstock.wire.messages.k28_txn_offset_commit import TxnOffsetCommitRequest, TxnOffsetCommitResponse
from penstock.wire.messages.k29_describe_acls import DescribeAclsRequest, DescribeAclsResponse
from penstock.wire.messages.k30_create_acls import CreateAclsRequest, CreateAclsResponse
from penstock.wire.messages.k31_delete_acls import DeleteAclsRequest, DeleteAclsResponse
from penstock.wire.messages.k32_describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from penstock.wire.messages.k33_alter_configs import AlterConfigsRequest, AlterConfigsResponse
from penstock.wire.messages.k34_alter_replica_log_dirs import AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse
from penstock.wire.messages.k35_describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse
from penstock.wire.messages.k36_sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from penstock.wire.messages.k37_create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from penstock.wire.messages.k38_create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from penstock.wire.messages.k39_renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse
from penstock.wire.messages.k40_expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)
from penstock.wire.messages.k41_describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from penstock.wire.messages.k42_delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from penstock.wire.messages.k43_elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from penstock.wire.messages.k44_incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from penstock.wire.messages.k45_alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from penstock.wire.messages.k46_list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from penstock.wire.messages.k47_offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from penstock.wire.messages.k48_describe_client_quotas import DescribeClientQuotasRequest, DescribeClientQuotasResponse
from penstock.wire.messages.k49_alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
from penstock.wire.messages.k50_describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from penstock.wire.messages.k51_alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from penstock.wire.messages.k56_alter_partition import AlterPartitionRequest, AlterPartitionResponse
from penstock.wire.messages.k57_update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from penstock.wire.messages.k60_describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from penstock.wire.messages.k61_describe_producers import DescribeProducersRequest, DescribeProducersResponse
from penstock.wire.messages.k64_unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from penstock.wire.messages.k65_describe_transactions import DescribeTransactionsRequest, DescribeTransactionsResponse
from penstock.wire.messages.k66_list_transactions import ListTransactionsRequest, ListTransactionsResponse
from penstock.wire.messages.k67_allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from penstock.wire.messages.k68_consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from penstock.wire.messages.k69_consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
)
from penstock.wire.messages.k71_get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from penstock.wire.messages.k72_push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from penstock.wire.messages.k74_list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse
from penstock.wire.messages.k75_describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
)
from penstock.wire.messages.k76_share_group_heartbeat import ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse
from penstock.wire.messages.k77_share_group_describe import ShareGroupDescribeRequest, ShareGroupDescribeResponse
from penstock.wire.messages.k78_share_fetch import ShareFetchRequest, ShareFetchResponse
from penstock.wire.messages.k79_share_acknowledge import ShareAcknowledgeRequest, ShareAcknowledgeResponse
from penstock.wire.messages.k88_streams_group_heartbeat import (
    StreamsGroupHeartbeatRequest,
    StreamsGroupHeartbeatResponse,
)
from penstock.wire.messages.k89_streams_group_describe import StreamsGroupDescribeRequest, StreamsGroupDescribeResponse
from penstock.wire.messages.k90_describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsResponse,
)
from penstock.wire.messages.k91_alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsResponse,
)
from penstock.wire.messages.k92_delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
)
from penstock.wire.schema import Message, ProtocolError, declared_flexible, declared_versions
from penstock.wire.varint import Malformed, read_varint, skip_tagged_fields

API_VERSIONS = 18


@dataclass(frozen=True, slots=True)
class Api:
    """One kind of request. Its versions are those of its messages."""

    key: int
    name: str
    request: type[Message]
    response: type[Message]
    min_version: int = field(init=False)
    max_version: int = field(init=False)
    flexible_since: int = field(init=False)  # larger than every version if none is flexible

    def __post_init__(self) -> None:
        versions, flexible = declared_versions(self.request), declared_flexible(self.request)
        object.__setattr__(self, "min_version", versions.first)
        object.__setattr__(self, "max_version", versions.last)
        object.__setattr__(self, "flexible_since", flexible.first)


_TABLE = (
    Api(0, "Produce", ProduceRequest, ProduceResponse),
    Api(1, "Fetch", FetchRequest, FetchResponse),
    Api(2, "ListOffsets", ListOffsetsRequest, ListOffsetsResponse),
    Api(3, "Metadata", MetadataRequest, MetadataResponse),
    Api(8, "OffsetCommit", OffsetCommitRequest, OffsetCommitResponse),
    Api(9, "OffsetFetch", OffsetFetchRequest, OffsetFetchResponse),
    Api(10, "FindCoordinator", FindCoordinatorRequest, FindCoordinatorResponse),
    Api(11, "JoinGroup", JoinGroupRequest, JoinGroupResponse),
    Api(12, "Heartbeat", HeartbeatRequest, HeartbeatResponse),
    Api(13, "LeaveGroup", LeaveGroupRequest, LeaveGroupResponse),
    Api(14, "SyncGroup", SyncGroupRequest, SyncGroupResponse),
    Api(15, "DescribeGroups", DescribeGroupsRequest, DescribeGroupsResponse),
    Api(16, "ListGroups", ListGroupsRequest, ListGroupsResponse),
    Api(17, "SaslHandshake", SaslHandshakeRequest, SaslHandshakeResponse),
    Api(18, "ApiVersions", ApiVersionsRequest, ApiVersionsResponse),
    Api(19, "CreateTopics", CreateTopicsRequest, CreateTopicsResponse),
    Api(20, "DeleteTopics", DeleteTopicsRequest, DeleteTopicsResponse),
    Api(21, "DeleteRecords", DeleteRecordsRequest, DeleteRecordsResponse),
    Api(22, "InitProducerId", InitProducerIdRequest, InitProducerIdResponse),
    Api(23, "OffsetForLeaderEpoch", OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse),
    Api(24, "AddPartitionsToTxn", AddPartitionsToTxnRequest, AddPartitionsToTxnResponse),
    Api(25, "AddOffsetsToTxn", AddOffsetsToTxnRequest, AddOffsetsToTxnResponse),
    Api(26, "EndTxn", EndTxnRequest, EndTxnResponse),
    Api(27, "WriteTxnMarkers", WriteTxnMarkersRequest, WriteTxnMarkersResponse),
    Api(28, "TxnOffsetCommit", TxnOffsetCommitRequest, TxnOffsetCommitResponse),
    Api(29, "DescribeAcls", DescribeAclsRequest, DescribeAclsResponse),
    Api(30, "CreateAcls", CreateAclsRequest, CreateAclsResponse),
    Api(31, "DeleteAcls", DeleteAclsRequest, DeleteAclsResponse),
    Api(32, "DescribeConfigs", DescribeConfigsRequest, DescribeConfigsResponse),
    Api(33, "AlterConfigs", AlterConfigsRequest, AlterConfigsResponse),
    Api(34, "AlterReplicaLogDirs", AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse),
    Api(35, "DescribeLogDirs", DescribeLogDirsRequest, DescribeLogDirsResponse),
    Api(36, "SaslAuthenticate", SaslAuthenticateRequest, SaslAuthenticateResponse),
    Api(37, "CreatePartitions", CreatePartitionsRequest, CreatePartitionsResponse),
    Api(38, "CreateDelegationToken", CreateDelegationTokenRequest, CreateDelegationTokenResponse),
    Api(39, "RenewDelegationToken", RenewDelegationTokenRequest, RenewDelegationTokenResponse),
    Api(40, "ExpireDelegationToken", ExpireDelegationTokenRequest, ExpireDelegationTokenResponse),
    Api(41, "DescribeDelegationToken", DescribeDelegationTokenRequest, DescribeDelegationTokenResponse),
    Api(42, "DeleteGroups", DeleteGroupsRequest, DeleteGroupsResponse),
    Api(43, "ElectLeaders", ElectLeadersRequest, ElectLeadersResponse),
    Api(44, "IncrementalAlterConfigs", IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse),
    Api(45, "AlterPartitionReassignments", AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse),
    Api(46, "ListPartitionReassignments", ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse),
    Api(47, "OffsetDelete", OffsetDeleteRequest, OffsetDeleteResponse),
    Api(48, "DescribeClientQuotas", DescribeClientQuotasRequest, DescribeClientQuotasResponse),
    Api(49, "AlterClientQuotas", AlterClientQuotasRequest, AlterClientQuotasResponse),
    Api(50, "DescribeUserScramCredentials", DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse),
    Api(51, "AlterUserScramCredentials", AlterUserScramCredentialsRequest, AlterUserScramCredentialsResponse),
    Api(56, "AlterPartition", AlterPartitionRequest, AlterPartitionResponse),
    Api(57, "UpdateFeatures", UpdateFeaturesRequest, UpdateFeaturesResponse),
    Api(60, "DescribeCluster", DescribeClusterRequest, DescribeClusterResponse),
    Api(61, "DescribeProducers", DescribeProducersRequest, DescribeProducersResponse),
    Api(64, "UnregisterBroker", UnregisterBrokerRequest, UnregisterBrokerResponse),
    Api(65, "DescribeTransactions", DescribeTransactionsRequest, DescribeTransactionsResponse),
    Api(66, "ListTransactions", ListTransactionsRequest, ListTransactionsResponse),
    Api(67, "AllocateProducerIds", AllocateProducerIdsRequest, AllocateProducerIdsResponse),
    Api(68, "ConsumerGroupHeartbeat", ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse),
    Api(69, "ConsumerGroupDescribe", ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse),
    Api(71, "GetTelemetrySubscriptions", GetTelemetrySubscriptionsRequest, GetTelemetrySubscriptionsResponse),
    Api(72, "PushTelemetry", PushTelemetryRequest, PushTelemetryResponse),
    Api(74, "ListConfigResources", ListConfigResourcesRequest, ListConfigResourcesResponse),
    Api(75, "DescribeTopicPartitions", DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse),
    Api(76, "ShareGroupHeartbeat", ShareGroupHeartbeatRequest, ShareGroupHeartbeatResponse),
    Api(77, "ShareGroupDescribe", ShareGroupDescribeRequest, ShareGroupDescribeResponse),
    Api(78, "ShareFetch", ShareFetchRequest, ShareFetchResponse),
    Api(79, "ShareAcknowledge", ShareAcknowledgeRequest, ShareAcknowledgeResponse),
    Api(88, "StreamsGroupHeartbeat", StreamsGroupHeartbeatRequest, StreamsGroupHeartbeatResponse),
    Api(89, "StreamsGroupDescribe", StreamsGroupDescribeRequest, StreamsGroupDescribeResponse),
    Api(90, "DescribeShareGroupOffsets", DescribeShareGroupOffsetsRequest, DescribeShareGroupOffsetsResponse),
    Api(91, "AlterShareGroupOffsets", AlterShareGroupOffsetsRequest, AlterShareGroupOffsetsResponse),
    Api(92, "DeleteShareGroupOffsets", DeleteShareGroupOffsetsRequest, DeleteShareGroupOffsetsResponse),
)

APIS: dict[int, Api] = {api.key: api for api in _TABLE}

_FLEXIBLE_SINCE = {api.key: api.flexible_since for api in _TABLE}
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
    if api_key == API_VERSIONS:
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
