"""The znodes of ours: one class each, with its path, and its encoding and decoding side by side.

The content is JSON with a format number, `version`. A release may add fields: an older one ignores them, and a missing
one has its default. What an older release would misunderstand gets a new number, which it refuses to read. So a
field that must survive being rewritten by an older controller is only written once all brokers are new enough.

    /cluster                       ClusterNode         the cluster's id
    /controller                    ControllerNode      ephemeral: who is the controller
    /controller_epoch              ControllerEpoch     its version is checked by every write of a controller
    /changes                       Changes             the last notices; its version is the number of the newest
    /brokers/ids/<id>              BrokerNode          ephemeral: a living broker; its czxid is the broker's epoch
    /admitted_brokers              AdmittedBrokers     which registrations the controller has taken into account
    /brokers/topics/<name>         TopicNode           see `topic_znodes.py`
    /topic_deletions/<topic id>    TopicDeletion       replicas of a deleted topic that brokers still have to remove
    /config/<type>/<name>          ConfigNode          settings of a topic, a broker, …; rules of access; tokens
    /producer_ids                  ProducerIds         the next block of producer ids
    /login_secret                  LoginSecret         a secret of the cluster, from which salts of nobody are made
"""

from __future__ import annotations

from typing import ClassVar, TypeVar
from uuid import UUID

import msgspec

from penstock.base.identifiers import uuid_to_text
from penstock.zookeeper.operations import Create

Z = TypeVar("Z", bound="Znode")

DEFAULT_ENTITY = "<default>"
NOTICES_MAX = 1000
NOTICES_SIZE_BYTES_MAX = 64 * 1024
PRODUCER_ID_BLOCK_SIZE = 1000

BROKER_IDS_PATH = "/brokers/ids"
TOPICS_PATH = "/brokers/topics"
TOPIC_DELETIONS_PATH = "/topic_deletions"
CONFIG_PATH = "/config"
SCRAM_CONFIGS = "scram"
ACL_CONFIGS = "acls"
TOKEN_CONFIGS = "tokens"
BROKER_CONFIGS = "brokers"
CONFIG_TYPES = (
    "topics",
    BROKER_CONFIGS,
    "clients",
    "users",
    "ips",
    "groups",
    SCRAM_CONFIGS,
    ACL_CONFIGS,
    TOKEN_CONFIGS,
)
#: For the brokers alone: whoever could write a token of his own could make it one of somebody else.
SECRET_CONFIG_TYPES = (SCRAM_CONFIGS, TOKEN_CONFIGS)


class ZnodeFormatError(Exception):
    """A znode's content is not what this release can read."""


class Znode(msgspec.Struct, kw_only=True, frozen=True, omit_defaults=True, tag_field="version", tag=1):
    """The JSON content of a znode."""

    def encode(self) -> bytes:
        return msgspec.json.encode(self)

    @classmethod
    def decode(cls: type[Z], data: bytes) -> Z:
        try:
            return msgspec.json.decode(data, type=cls)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise ZnodeFormatError(f"{cls.__name__} cannot be read by this release: {error}") from error


class ClusterNode(Znode, frozen=True, kw_only=True):
    """The cluster's id, made once."""

    PATH: ClassVar[str] = "/cluster"

    cluster_id: str


class ControllerNode(Znode, frozen=True, kw_only=True):
    """Who is the controller, in which epoch; ephemeral."""

    PATH: ClassVar[str] = "/controller"

    broker_id: int
    epoch: int
    timestamp_ms: int = 0


class ControllerEpoch(Znode, frozen=True, kw_only=True):
    """How often a controller has been chosen. A new one sets it together with creating `/controller`."""

    PATH: ClassVar[str] = "/controller_epoch"

    epoch: int


class Endpoint(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Where clients and brokers reach a broker."""

    listener: str
    host: str
    port: int
    security_protocol: str = "PLAINTEXT"


class BrokerNode(Znode, frozen=True, kw_only=True):
    """A living broker. Its epoch is the czxid of this znode: every registration has a newer one."""

    endpoints: tuple[Endpoint, ...]
    host: str = ""
    rack: str | None = None
    log_dirs: tuple[UUID, ...] = ()
    clean_start: bool = True
    """False: unsynced data may have been lost since it last ran. It goes on saying so until it was admitted as such,
    even if it is restarted cleanly before: otherwise nobody would ever know."""
    software_version: str = ""
    timestamp_ms: int = 0

    @staticmethod
    def path(broker_id: int) -> str:
        return f"{BROKER_IDS_PATH}/{broker_id}"


class AdmittedBrokers(Znode, frozen=True, kw_only=True):
    """Which registration of each broker the controller has taken into account, by broker epoch.

    A new controller finds here what its predecessor had done already. A broker leads nothing before its own epoch is
    here: until then its leaderships are those of its former life. There is no such znode before the first admission.
    """

    PATH: ClassVar[str] = "/admitted_brokers"

    epochs: dict[int, int] = {}
    leaving: tuple[int, ...] = ()  # admitted, but about to stop: given no more leaderships and no more replicas
    away: tuple[int, ...] = ()  # were here, and are not now


class TopicDeletion(Znode, frozen=True, kw_only=True):
    """A topic that is no more, kept until each broker has removed its replicas and been taken off the list."""

    name: str
    topic_id: UUID
    partition_count: int
    brokers: tuple[int, ...]

    @staticmethod
    def path(topic_id: UUID) -> str:
        return f"{TOPIC_DELETIONS_PATH}/{uuid_to_text(topic_id)}"


class ConfigNode(Znode, frozen=True, kw_only=True):
    """The settings of one topic, broker, …, that were set while running; `<default>` stands for all brokers."""

    values: dict[str, str]

    @staticmethod
    def path(config_type: str, name: str) -> str:
        assert config_type in CONFIG_TYPES
        return f"{CONFIG_PATH}/{config_type}/{name}"


class ProducerIds(Znode, frozen=True, kw_only=True):
    """Blocks of producer ids are handed out in order; the one before `next_id` went to `broker_id`."""

    PATH: ClassVar[str] = "/producer_ids"

    next_id: int = 0
    broker_id: int = -1


class LoginSecret(Znode, frozen=True, kw_only=True):
    """Made once: users who do not exist get the same salt from every broker, and nobody can work it out."""

    PATH: ClassVar[str] = "/login_secret"

    secret: bytes


class Notice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One write of the controller: which topics it changed and which settings ("topics/orders"). None: re-read all."""

    topics: tuple[str, ...] | None = ()
    configs: tuple[str, ...] = ()


class Changes(Znode, frozen=True, kw_only=True):
    """The last notices, the newest last. The version of the znode is the number of the newest."""

    PATH: ClassVar[str] = "/changes"

    notices: tuple[Notice, ...] = ()

    def with_notice(self, notice: Notice) -> Changes:
        """One more notice; the oldest go when there are too many or they are too long."""
        if _notice_size_bytes(notice) > NOTICES_SIZE_BYTES_MAX // 2:
            notice = Notice(topics=None)
        kept: list[Notice] = []
        room_bytes = NOTICES_SIZE_BYTES_MAX
        for candidate in (notice, *reversed(self.notices[-(NOTICES_MAX - 1) :])):
            room_bytes -= _notice_size_bytes(candidate)
            if room_bytes < 0:
                break
            kept.append(candidate)
        return Changes(notices=tuple(reversed(kept)))

    def since(self, known_version: int, version: int) -> tuple[Notice, ...] | None:
        """The notices after `known_version`, when this is `version`; None if some are lost: re-read all."""
        count = version - known_version
        if not 0 <= count <= len(self.notices):
            return None
        newer = self.notices[len(self.notices) - count :]
        return None if any(notice.topics is None for notice in newer) else newer


def _notice_size_bytes(notice: Notice) -> int:
    return 32 + sum(len(name) + 3 for name in (*(notice.topics or ()), *notice.configs))


def first_znodes(cluster_id: str) -> tuple[Create, ...]:
    """What an empty tree is filled with, in one multi; NodeExistsError means that another broker was first."""
    return (
        Create("/cluster", ClusterNode(cluster_id=cluster_id).encode()),
        Create("/controller_epoch", ControllerEpoch(epoch=0).encode()),
        Create("/changes", Changes().encode()),
        Create("/brokers"),
        Create(BROKER_IDS_PATH),
        Create(TOPICS_PATH),
        Create(TOPIC_DELETIONS_PATH),
        Create(CONFIG_PATH),
        *(
            Create(f"{CONFIG_PATH}/{config_type}")
            for config_type in CONFIG_TYPES
            if config_type not in (*SECRET_CONFIG_TYPES, ACL_CONFIGS)
        ),
        Create("/producer_ids", ProducerIds().encode()),
    )


def later_znodes(secret: bytes) -> tuple[Create, ...]:
    """What an older release did not make; each is made alone, unless it is there."""
    return (
        *(Create(f"{CONFIG_PATH}/{config_type}") for config_type in (*SECRET_CONFIG_TYPES, ACL_CONFIGS)),
        Create(LoginSecret.PATH, LoginSecret(secret=secret).encode()),
    )
