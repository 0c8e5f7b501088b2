"""Every error of Kafka's protocol, one row each: code, retriable, definite, text.

*Retriable*: the same request may succeed later. *Definite*: this attempt surely did not take effect; where it is False
it may have, or it did, and the client must find out or be idempotent. Success is definite: nothing is left open.
The rows are kept as a table, so that they can be compared at a glance.
"""

from __future__ import annotations

from enum import IntEnum


class Error(IntEnum):
    """An error code; `Error.NONE` is success."""

    retriable: bool
    definite: bool
    text: str

    def __new__(cls, code: int, retriable: bool = False, definite: bool = False, text: str = "") -> Error:
        self = int.__new__(cls, code)
        self._value_ = code
        self.retriable = retriable
        self.definite = definite
        self.text = text
        return self

    # fmt: off
    UNKNOWN_SERVER_ERROR = -1, False, False, "The broker failed in a way it did not expect; its log says how."
    NONE = 0, False, True, "Success."
    OFFSET_OUT_OF_RANGE = 1, False, True, (
        "The partition has no record at this offset: it was deleted, or is not written yet.")
    CORRUPT_MESSAGE = 2, True, True, "The records do not match their checksum or are malformed."
    UNKNOWN_TOPIC_OR_PARTITION = 3, True, True, "This broker does not have the topic or partition."
    INVALID_FETCH_SIZE = 4, False, True, "The fetch asks for an impossible number of bytes."
    LEADER_NOT_AVAILABLE = 5, True, True, "The partition has no leader at the moment: one is being elected."
    NOT_LEADER_OR_FOLLOWER = 6, True, False, (
        "This broker does not lead the partition, or has no replica of it: fetch new metadata.")
    REQUEST_TIMED_OUT = 7, True, False, "The request was not finished in the time it gave; it may still take effect."
    BROKER_NOT_AVAILABLE = 8, False, True, "The broker is not available."
    REPLICA_NOT_AVAILABLE = 9, True, True, "The replica is not available on this broker."
    MESSAGE_TOO_LARGE = 10, False, True, "The record batch is larger than the topic's max.message.bytes."
    STALE_CONTROLLER_EPOCH = 11, False, True, "The request comes from a controller that has been replaced."
    OFFSET_METADATA_TOO_LARGE = 12, False, True, (
        "The text stored with the offset is longer than offset.metadata.max.bytes.")
    NETWORK_EXCEPTION = 13, True, False, "The connection was lost before the answer came."
    COORDINATOR_LOAD_IN_PROGRESS = 14, True, True, "The coordinator is still reading its state: try again soon."
    COORDINATOR_NOT_AVAILABLE = 15, True, False, "The coordinator cannot answer now: look it up again and retry."
    NOT_COORDINATOR = 16, True, False, (
        "This broker is not the coordinator for the group or transactional id: look it up again.")
    INVALID_TOPIC_EXCEPTION = 17, False, True, (
        "The topic has a name that is not allowed, or the operation is not for this topic.")
    RECORD_LIST_TOO_LARGE = 18, False, True, "The records are larger together than a segment of the log."
    NOT_ENOUGH_REPLICAS = 19, True, True, (
        "Fewer replicas are in sync than min.insync.replicas asks for; nothing was written.")
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20, True, False, (
        "The records were written, but fewer replicas are in sync than min.insync.replicas.")
    INVALID_REQUIRED_ACKS = 21, False, True, "The acks of a produce request must be 0, 1 or -1 (all)."
    ILLEGAL_GENERATION = 22, False, True, "The group has moved on to another generation: join again."
    INCONSISTENT_GROUP_PROTOCOL = 23, False, True, (
        "The member has no protocol in common with the other members of its group.")
    INVALID_GROUP_ID = 24, False, True, "The group id is empty or not valid."
    UNKNOWN_MEMBER_ID = 25, False, True, "The group has no such member: join again."
    INVALID_SESSION_TIMEOUT = 26, False, True, (
        "The session timeout is outside group.min.session.timeout.ms and group.max.session.timeout.ms.")
    REBALANCE_IN_PROGRESS = 27, False, True, "The group is rebalancing: join again."
    INVALID_COMMIT_OFFSET_SIZE = 28, False, True, "The offsets of the commit are too large to be stored."
    TOPIC_AUTHORIZATION_FAILED = 29, False, True, "The user may not do this with the topic."
    GROUP_AUTHORIZATION_FAILED = 30, False, True, "The user may not do this with the group."
    CLUSTER_AUTHORIZATION_FAILED = 31, False, True, "The user may not do this with the cluster."
    INVALID_TIMESTAMP = 32, False, True, "The timestamp of a record is too far from the broker's time."
    UNSUPPORTED_SASL_MECHANISM = 33, False, True, "The listener does not offer this way to log in."
    ILLEGAL_SASL_STATE = 34, False, True, "The request is out of turn in the login, or the connection has no login."
    UNSUPPORTED_VERSION = 35, False, True, "The broker does not serve this request in this version."
    TOPIC_ALREADY_EXISTS = 36, False, True, "There is a topic of this name already."
    INVALID_PARTITIONS = 37, False, True, "The number of partitions is not possible."
    INVALID_REPLICATION_FACTOR = 38, False, True, "The replication factor is below 1 or above the number of brokers."
    INVALID_REPLICA_ASSIGNMENT = 39, False, True, "The assignment of replicas to brokers is not possible."
    INVALID_CONFIG = 40, False, True, "A setting is not known or its value is not allowed."
    NOT_CONTROLLER = 41, True, False, "This broker is not the controller of the cluster: find out which one is."
    INVALID_REQUEST = 42, False, True, "The request contradicts itself or the protocol."
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, False, True, "The stored format of the records does not support the request."
    POLICY_VIOLATION = 44, False, True, "A rule of the cluster does not allow the request."
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, False, True, "A batch of this producer is missing before this one."
    DUPLICATE_SEQUENCE_NUMBER = 46, False, False, "The batch was written before, too long ago to know its offset."
    INVALID_PRODUCER_EPOCH = 47, False, True, "A newer producer with the same transactional id has taken over."
    INVALID_TXN_STATE = 48, False, True, "The transaction is not in a state in which this is possible."
    INVALID_PRODUCER_ID_MAPPING = 49, False, True, "The producer id does not belong to the transactional id."
    INVALID_TRANSACTION_TIMEOUT = 50, False, True, "The transaction timeout is longer than transaction.max.timeout.ms."
    CONCURRENT_TRANSACTIONS = 51, True, True, "The last transaction of this id is still being finished: try again soon."
    TRANSACTION_COORDINATOR_FENCED = 52, False, True, (
        "The markers come from a transaction coordinator that has been replaced.")
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, False, True, "The user may not use the transactional id."
    SECURITY_DISABLED = 54, False, True, "The broker has no authorizer, so there are no access control lists."
    OPERATION_NOT_ATTEMPTED = 55, False, True, "Nothing was tried, because another part of the request failed."
    KAFKA_STORAGE_ERROR = 56, True, False, "The disk of the log failed or is nearly full."
    LOG_DIR_NOT_FOUND = 57, False, True, "The broker has no such log directory, or it is offline."
    SASL_AUTHENTICATION_FAILED = 58, False, True, "The login failed."
    UNKNOWN_PRODUCER_ID = 59, False, True, "The partition remembers nothing of this producer: its records are gone."
    REASSIGNMENT_IN_PROGRESS = 60, False, True, "The partition is being moved to other brokers."
    DELEGATION_TOKEN_AUTH_DISABLED = 61, False, True, (
        "The brokers have no delegation.token.secret.key, so there are no delegation tokens.")
    DELEGATION_TOKEN_NOT_FOUND = 62, False, True, "There is no such delegation token."
    DELEGATION_TOKEN_OWNER_MISMATCH = 63, False, True, "The delegation token belongs to somebody else."
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64, False, True, (
        "Delegation tokens can only be asked for after a login or with TLS client certificates, and not with a token.")
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65, False, True, "The user may not do this with the delegation token."
    DELEGATION_TOKEN_EXPIRED = 66, False, True, "The delegation token has expired."
    INVALID_PRINCIPAL_TYPE = 67, False, True, "Only principals of the type User are supported."
    NON_EMPTY_GROUP = 68, False, True, "The group still has members."
    GROUP_ID_NOT_FOUND = 69, False, True, "There is no such group."
    FETCH_SESSION_ID_NOT_FOUND = 70, True, True, "The broker does not have the fetch session any more: begin a new one."
    INVALID_FETCH_SESSION_EPOCH = 71, True, True, "A fetch of the session was lost or repeated: begin a new session."
    LISTENER_NOT_FOUND = 72, True, True, "The leader has no listener of the name that this request came in by."
    TOPIC_DELETION_DISABLED = 73, False, True, "Topics cannot be deleted here: delete.topic.enable is false."
    FENCED_LEADER_EPOCH = 74, True, True, "The client knows an older leader epoch than the broker: fetch new metadata."
    UNKNOWN_LEADER_EPOCH = 75, True, True, (
        "The client knows a newer leader epoch than the broker, which will catch up: try again.")
    UNSUPPORTED_COMPRESSION_TYPE = 76, False, True, (
        "The client's version of the request cannot carry records compressed in this way.")
    STALE_BROKER_EPOCH = 77, False, True, "The broker has registered again since it sent this."
    OFFSET_NOT_AVAILABLE = 78, True, True, "The new leader does not know yet how far its replicas are: try again soon."
    MEMBER_ID_REQUIRED = 79, False, True, "Join again with the member id of this answer."
    PREFERRED_LEADER_NOT_AVAILABLE = 80, True, True, "The preferred leader is not alive or not in sync."
    GROUP_MAX_SIZE_REACHED = 81, False, True, "The group has as many members as it may have."
    FENCED_INSTANCE_ID = 82, False, True, "Another member with the same group.instance.id has taken over."
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83, True, True, "No replica that may become leader is alive."
    ELECTION_NOT_NEEDED = 84, True, True, "The partition has the right leader already."
    NO_REASSIGNMENT_IN_PROGRESS = 85, False, True, "The partition is not being moved."
    GROUP_SUBSCRIBED_TO_TOPIC = 86, False, True, "The group still reads the topic, so its offsets cannot be deleted."
    INVALID_RECORD = 87, False, True, "A record is not allowed in this topic, or its batch contradicts itself."
    UNSTABLE_OFFSET_COMMIT = 88, True, True, "A transaction that commits offsets is still open: try again soon."
    THROTTLING_QUOTA_EXCEEDED = 89, True, True, (
        "The quota is used up: try again after the throttle time of this answer.")
    PRODUCER_FENCED = 90, False, True, "A newer producer with the same transactional id has taken over."
    RESOURCE_NOT_FOUND = 91, False, True, "There is no such resource."
    DUPLICATE_RESOURCE = 92, False, True, "The request names a resource twice, or it exists already."
    UNACCEPTABLE_CREDENTIAL = 93, False, True, "The credential is not acceptable, for instance with too few iterations."
    INCONSISTENT_VOTER_SET = 94, False, True, "The candidates and the voters of the election are not the same."
    INVALID_UPDATE_VERSION = 95, False, True, "The state has changed since it was read: read it again."
    FEATURE_UPDATE_FAILED = 96, False, False, "The features of the cluster could not be updated."
    PRINCIPAL_DESERIALIZATION_FAILURE = 97, False, True, "The user of a forwarded request could not be read."
    SNAPSHOT_NOT_FOUND = 98, False, True, "There is no such snapshot."
    POSITION_OUT_OF_RANGE = 99, False, True, "The snapshot ends before this position."
    UNKNOWN_TOPIC_ID = 100, True, True, "This broker does not have a topic of this id: fetch new metadata."
    DUPLICATE_BROKER_REGISTRATION = 101, False, True, "A broker with this id is registered and alive."
    BROKER_ID_NOT_REGISTERED = 102, False, True, "No broker with this id is registered."
    INCONSISTENT_TOPIC_ID = 103, True, True, "The log on disk belongs to another topic of the same name."
    INCONSISTENT_CLUSTER_ID = 104, False, True, "The request is meant for another cluster."
    TRANSACTIONAL_ID_NOT_FOUND = 105, False, True, "There is no such transactional id."
    FETCH_SESSION_TOPIC_ID_ERROR = 106, True, True, (
        "The fetch session began without topic ids, or with them: begin a new one.")
    INELIGIBLE_REPLICA = 107, False, True, "The replica may not join the in-sync replicas."
    NEW_LEADER_ELECTED = 108, False, False, (
        "The change of the in-sync replicas was made and gave the partition another leader.")
    OFFSET_MOVED_TO_TIERED_STORAGE = 109, False, True, "The offset is in remote storage only."
    FENCED_MEMBER_EPOCH = 110, False, True, "The group has fenced the member: give up its partitions and join again."
    UNRELEASED_INSTANCE_ID = 111, False, True, "Another member still uses this group.instance.id."
    UNSUPPORTED_ASSIGNOR = 112, False, True, "The group has no such assignor."
    STALE_MEMBER_EPOCH = 113, False, True, "The member's epoch is old: try again after its next heartbeat."
    MISMATCHED_ENDPOINT_TYPE = 114, False, True, (
        "The request came to the wrong kind of listener: a broker's for a controller's, or the other way.")
    UNSUPPORTED_ENDPOINT_TYPE = 115, False, True, "This kind of endpoint is not supported."
    UNKNOWN_CONTROLLER_ID = 116, False, True, "There is no controller of this id."
    UNKNOWN_SUBSCRIPTION_ID = 117, False, True, "The telemetry subscription has changed: ask for it again."
    TELEMETRY_TOO_LARGE = 118, False, True, "The pushed metrics are larger than telemetry.max.bytes."
    INVALID_REGISTRATION = 119, False, True, "The controller does not accept the registration of the broker."
    TRANSACTION_ABORTABLE = 120, False, True, (
        "The transaction cannot go on; abort it, and the producer can begin another.")
    INVALID_RECORD_STATE = 121, False, True, "The record is not in a state in which it can be acknowledged."
    SHARE_SESSION_NOT_FOUND = 122, True, True, "The broker does not have the share session any more: begin a new one."
    INVALID_SHARE_SESSION_EPOCH = 123, True, True, (
        "A fetch of the share session was lost or repeated: begin a new session.")
    FENCED_STATE_EPOCH = 124, False, True, "The state of the share partition belongs to a newer epoch."
    INVALID_VOTER_KEY = 125, False, True, "The voter key is not the one of the receiver."
    DUPLICATE_VOTER = 126, False, True, "The voter is among the voters already."
    VOTER_NOT_FOUND = 127, False, True, "The voter is not among the voters."
    INVALID_REGULAR_EXPRESSION = 128, False, True, "The regular expression is not valid in the syntax of RE2."
    REBOOTSTRAP_REQUIRED = 129, False, True, (
        "The client's picture of the cluster is too old: begin again with its first addresses.")
    STREAMS_INVALID_TOPOLOGY = 130, False, True, "The topology of the streams application is not valid."
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131, False, True, "The epoch of the streams topology is not valid."
    STREAMS_TOPOLOGY_FENCED = 132, False, True, "The group runs a newer topology of the streams application."
    SHARE_SESSION_LIMIT_REACHED = 133, True, True, "The broker has as many share sessions as it may have."
    # fmt: on


class ApiError(Exception):
    """A request, or one part of it, that is answered with an error code."""

    def __init__(self, error: Error, message: str | None = None) -> None:
        super().__init__(message or error.text)
        self.error = error
        self.message = message or error.text
