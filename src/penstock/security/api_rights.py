"""What every API asks for: the operations, and on which resources. The one table of it.

Handlers say what they check with `broker/rights.py`, which takes nothing that is not here; the reference page is
written from this table; and a test walks every API that is served. An API that is not in the table cannot be served.

Where a row has several rights, all are needed for the part that they are about, unless the text says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import NamedTuple

from penstock.security.acls import Operation, ResourceType

READ, WRITE, CREATE, DELETE = Operation.READ, Operation.WRITE, Operation.CREATE, Operation.DELETE
ALTER, DESCRIBE, CLUSTER_ACTION = Operation.ALTER, Operation.DESCRIBE, Operation.CLUSTER_ACTION
DESCRIBE_CONFIGS, ALTER_CONFIGS = Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS
IDEMPOTENT_WRITE, TWO_PHASE_COMMIT = Operation.IDEMPOTENT_WRITE, Operation.TWO_PHASE_COMMIT
CREATE_TOKENS, DESCRIBE_TOKENS = Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS

TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
TRANSACTIONAL_ID, DELEGATION_TOKEN, USER = (
    ResourceType.TRANSACTIONAL_ID,
    ResourceType.DELEGATION_TOKEN,
    ResourceType.USER,
)


class Right(NamedTuple):
    """One operation on one type of resource, and what it is needed for; no text: for everything."""

    operation: Operation
    resource_type: ResourceType
    needed_for: str = ""


class ApiRights(NamedTuple):
    """What one API asks for. Nothing at all: it is open to everybody who may talk to the broker, and says why."""

    name: str
    rights: tuple[Right, ...]
    note: str = ""

    def has(self, operation: Operation, resource_type: ResourceType) -> bool:
        return any(right[:2] == (operation, resource_type) for right in self.rights)


def _needs(name: str, *rights: Right, note: str = "") -> ApiRights:
    return ApiRights(name, rights, note)


def _group_member(name: str) -> ApiRights:
    return _needs(name, Right(READ, GROUP))


_LOGIN = "part of the login"
_BROKERS = Right(CLUSTER_ACTION, CLUSTER)

API_RIGHTS: Mapping[int, ApiRights] = MappingProxyType(
    {
        0: _needs("Produce", Right(WRITE, TOPIC), Right(WRITE, TRANSACTIONAL_ID, "records of a transaction")),
        1: _needs("Fetch", Right(READ, TOPIC, "consumers"), Right(CLUSTER_ACTION, CLUSTER, "followers")),
        2: _needs("ListOffsets", Right(DESCRIBE, TOPIC), Right(CLUSTER_ACTION, CLUSTER, "followers, as well")),
        3: _needs(
            "Metadata",
            Right(DESCRIBE, TOPIC),
            Right(CREATE, CLUSTER, "topics made on demand"),
            Right(CREATE, TOPIC, "topics made on demand, without CREATE on the cluster"),
            Right(DESCRIBE, CLUSTER, "the operations allowed on the cluster"),
            note="all topics: those that may not be described are left out",
        ),
        8: _needs("OffsetCommit", Right(READ, GROUP), Right(READ, TOPIC)),
        9: _needs("OffsetFetch", Right(DESCRIBE, GROUP), Right(DESCRIBE, TOPIC)),
        10: _needs(
            "FindCoordinator", Right(DESCRIBE, GROUP, "groups"), Right(DESCRIBE, TRANSACTIONAL_ID, "transactional ids")
        ),
        11: _group_member("JoinGroup"),
        12: _group_member("Heartbeat"),
        13: _group_member("LeaveGroup"),
        14: _group_member("SyncGroup"),
        15: _needs("DescribeGroups", Right(DESCRIBE, GROUP)),
        16: _needs(
            "ListGroups",
            Right(DESCRIBE, CLUSTER, "all groups"),
            Right(DESCRIBE, GROUP, "without it, the groups that are told"),
        ),
        17: _needs("SaslHandshake", note=_LOGIN),
        18: _needs("ApiVersions", note="clients ask it before they log in"),
        19: _needs(
            "CreateTopics",
            Right(CREATE, CLUSTER, "all topics"),
            Right(CREATE, TOPIC, "without it, each topic"),
            Right(DESCRIBE_CONFIGS, TOPIC, "the settings in the answer"),
        ),
        20: _needs(
            "DeleteTopics",
            Right(DELETE, CLUSTER, "all topics"),
            Right(DELETE, TOPIC, "without it, each topic"),
            Right(DESCRIBE, TOPIC, "the name of a topic given by its id"),
        ),
        21: _needs("DeleteRecords", Right(DELETE, TOPIC)),
        22: _needs(
            "InitProducerId",
            Right(WRITE, TRANSACTIONAL_ID, "transactional producers"),
            Right(IDEMPOTENT_WRITE, CLUSTER, "idempotent producers"),
            Right(WRITE, TOPIC, "without it, any topic"),
        ),
        23: _needs(
            "OffsetForLeaderEpoch", Right(CLUSTER_ACTION, CLUSTER, "brokers"), Right(DESCRIBE, TOPIC, "consumers")
        ),
        24: _needs(
            "AddPartitionsToTxn",
            Right(WRITE, TRANSACTIONAL_ID, "clients"),
            Right(WRITE, TOPIC, "clients"),
            Right(CLUSTER_ACTION, CLUSTER, "brokers (version 4 and newer)"),
        ),
        25: _needs("AddOffsetsToTxn", Right(WRITE, TRANSACTIONAL_ID), Right(READ, GROUP)),
        26: _needs("EndTxn", Right(WRITE, TRANSACTIONAL_ID)),
        27: _needs(
            "WriteTxnMarkers", Right(ALTER, CLUSTER, "tools"), Right(CLUSTER_ACTION, CLUSTER, "brokers; either will do")
        ),
        28: _needs("TxnOffsetCommit", Right(WRITE, TRANSACTIONAL_ID), Right(READ, GROUP), Right(READ, TOPIC)),
        29: _needs("DescribeAcls", Right(DESCRIBE, CLUSTER)),
        30: _needs("CreateAcls", Right(ALTER, CLUSTER)),
        31: _needs("DeleteAcls", Right(ALTER, CLUSTER)),
        32: _needs(
            "DescribeConfigs",
            Right(DESCRIBE_CONFIGS, TOPIC, "topics"),
            Right(DESCRIBE_CONFIGS, CLUSTER, "brokers"),
            Right(DESCRIBE_CONFIGS, GROUP, "groups"),
        ),
        33: _needs(
            "AlterConfigs",
            Right(ALTER_CONFIGS, TOPIC, "topics"),
            Right(ALTER_CONFIGS, CLUSTER, "brokers"),
            Right(ALTER_CONFIGS, GROUP, "groups"),
        ),
        34: _needs("AlterReplicaLogDirs", Right(ALTER, CLUSTER)),
        35: _needs("DescribeLogDirs", Right(DESCRIBE, CLUSTER)),
        36: _needs("SaslAuthenticate", note=_LOGIN),
        37: _needs("CreatePartitions", Right(ALTER, TOPIC)),
        38: _needs("CreateDelegationToken", Right(CREATE_TOKENS, USER, "tokens for others")),
        39: _needs("RenewDelegationToken", note="owners and renewers of the token"),
        40: _needs("ExpireDelegationToken", note="owners and renewers of the token"),
        41: _needs(
            "DescribeDelegationToken",
            Right(DESCRIBE, DELEGATION_TOKEN, "tokens of others"),
            Right(DESCRIBE_TOKENS, USER, "without it, all tokens of this user"),
            note="owners, requesters and renewers see their tokens without it",
        ),
        42: _needs("DeleteGroups", Right(DELETE, GROUP)),
        43: _needs("ElectLeaders", Right(ALTER, CLUSTER)),
        44: _needs(
            "IncrementalAlterConfigs",
            Right(ALTER_CONFIGS, TOPIC, "topics"),
            Right(ALTER_CONFIGS, CLUSTER, "brokers"),
            Right(ALTER_CONFIGS, GROUP, "groups"),
        ),
        45: _needs("AlterPartitionReassignments", Right(ALTER, CLUSTER)),
        46: _needs("ListPartitionReassignments", Right(DESCRIBE, CLUSTER)),
        47: _needs("OffsetDelete", Right(DELETE, GROUP), Right(READ, TOPIC)),
        48: _needs("DescribeClientQuotas", Right(DESCRIBE_CONFIGS, CLUSTER)),
        49: _needs("AlterClientQuotas", Right(ALTER_CONFIGS, CLUSTER)),
        50: _needs("DescribeUserScramCredentials", Right(DESCRIBE, CLUSTER)),
        51: _needs("AlterUserScramCredentials", Right(ALTER, CLUSTER)),
        56: _needs("AlterPartition", _BROKERS),
        57: _needs("UpdateFeatures", Right(ALTER, CLUSTER)),
        60: _needs(
            "DescribeCluster",
            Right(DESCRIBE, CLUSTER, "the operations allowed on the cluster"),
            note="where the brokers are is told to everybody, as with Metadata",
        ),
        61: _needs("DescribeProducers", Right(READ, TOPIC)),
        64: _needs("UnregisterBroker", Right(ALTER, CLUSTER)),
        65: _needs(
            "DescribeTransactions", Right(DESCRIBE, TRANSACTIONAL_ID), Right(DESCRIBE, TOPIC, "topics in the answer")
        ),
        66: _needs("ListTransactions", Right(DESCRIBE, TRANSACTIONAL_ID, "those that are told")),
        68: _needs("ConsumerGroupHeartbeat", Right(READ, GROUP), Right(DESCRIBE, TOPIC, "subscriptions")),
        69: _needs("ConsumerGroupDescribe", Right(DESCRIBE, GROUP), Right(DESCRIBE, TOPIC, "topics in the answer")),
        74: _needs("ListConfigResources", Right(DESCRIBE_CONFIGS, CLUSTER)),
        75: _needs(
            "DescribeTopicPartitions",
            Right(DESCRIBE, TOPIC),
            note="all topics: those that may not be described are left out",
        ),
        20000: _needs("PrepareTransactions", Right(WRITE, TRANSACTIONAL_ID)),
        20001: _needs("CommitTransactions", Right(WRITE, TRANSACTIONAL_ID)),
        20002: _needs("DescribeCommits", Right(DESCRIBE, TRANSACTIONAL_ID)),
        20003: _needs("DeleteCommits", Right(WRITE, TRANSACTIONAL_ID)),
        20004: _needs("AwaitChanges", _BROKERS),
        20005: _needs("LeaveCluster", _BROKERS),
        20006: _needs("ReplicasFailed", _BROKERS),
        20007: _needs("Envelope", _BROKERS, note="what is inside is judged by the rights of whoever sent it"),
    }
)

#: The same for what is served over HTTP, by path, to those who logged in there.
ROUTE_RIGHTS: Mapping[str, ApiRights] = MappingProxyType(
    {
        "/metrics": _needs("GET /metrics", Right(DESCRIBE, CLUSTER), note="`metrics.login` needs no rights"),
        "/healthz": _needs("GET /healthz", note="whether the broker serves is told to everybody who may log in"),
    }
)

#: The APIs that only brokers use among themselves, and since which version that is so.
BROKERS_SINCE: Mapping[int, int] = MappingProxyType(
    {key: 0 for key, needed in API_RIGHTS.items() if needed.rights == (_BROKERS,)} | {24: 4, 27: 0}
)
