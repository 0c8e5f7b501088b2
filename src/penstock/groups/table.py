"""What the kinds of groups share: the table of groups of one shard, and what everybody may ask of any group.

A shard has one table, group id to group. A group is classic or a consumer group of KIP-848; its kind decides who
answers for it. Committed offsets belong to neither: they stay when a group changes its kind.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from enum import StrEnum
from typing import NamedTuple, Protocol, TypeAlias, TypeVar
from uuid import UUID

from penstock.base.errors import Error
from penstock.base.steps import StateRecord
from penstock.groups.pattern_sights import Sight
from penstock.groups.settings import GroupSettings


class GroupKind(StrEnum):
    """The types of groups, as ListGroups names them."""

    CLASSIC = "classic"
    CONSUMER = "consumer"


class Caller(NamedTuple):
    """Who sent a request, and in which version."""

    version: int
    client_id: str
    client_host: str
    sight: Sight | None = None
    """which topics they may see; None: all"""


class TopicView(NamedTuple):
    """A topic as groups see it."""

    name: str
    topic_id: UUID
    partition_count: int


class Topics(Protocol):
    """The topics of the cluster, always as the broker knows them now."""

    def named(self, name: str) -> TopicView | None: ...

    def with_id(self, topic_id: UUID) -> TopicView | None: ...

    def names(self) -> Iterable[str]: ...


PartitionCheck: TypeAlias = Callable[[str, UUID, int], Error]
"""(topic, its id, partition) of one offset in a commit: whether this member may commit just that"""


class Group(ABC):
    """What offsets, listing and deletion ask of a group of any kind. Checks raise ApiError."""

    kind: GroupKind

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id

    @property
    @abstractmethod
    def state_name(self) -> str:
        """As ListGroups and DescribeGroups write it: Stable, Empty, …"""

    @property
    @abstractmethod
    def listed_protocol_type(self) -> str:
        """As ListGroups writes it: mostly "consumer"; empty for one that only stores offsets."""

    @property
    @abstractmethod
    def is_empty(self) -> bool:
        """No members."""

    @property
    @abstractmethod
    def member_count(self) -> int: ...

    @abstractmethod
    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member reads the topic, or may."""

    @abstractmethod
    def check_commit(
        self, member_id: str, instance_id: str | None, epoch: int, *, is_transactional: bool, version: int
    ) -> PartitionCheck | None:
        """Whether a member may commit offsets; `epoch` is a generation or a member epoch. None: all partitions."""

    @abstractmethod
    def check_fetch(self, member_id: str | None, epoch: int) -> None:
        """Whether a member may read its group's offsets."""

    @abstractmethod
    def check_delete_offsets(self) -> None:
        """Whether offsets of topics nobody reads may be deleted."""

    @abstractmethod
    def check_delete(self) -> None:
        """Whether the group may be deleted."""

    @abstractmethod
    def tombstones(self) -> list[StateRecord]:
        """The records that delete the group, without its offsets."""

    @abstractmethod
    def expiry_base_ms(self, commit_ms: int) -> int | None:
        """From when on the retention of an offset of a topic nobody reads counts, by the wall clock; None: never."""


G = TypeVar("G", bound=Group)


class GroupTable:
    """The groups of one shard, and the world as they see it. `settings` is replaced when one of them changes."""

    def __init__(self, settings: GroupSettings, new_uuid: Callable[[], UUID], topics: Topics) -> None:
        self.settings = settings
        self.new_uuid = new_uuid
        self.topics = topics
        self._groups: dict[str, Group] = {}

    def get(self, group_id: str) -> Group | None:
        return self._groups.get(group_id)

    def of_kind(self, group_id: str, kind: type[G]) -> G | None:
        """The group, if there is one and it is of that class."""
        group = self._groups.get(group_id)
        return group if isinstance(group, kind) else None

    def put(self, group: Group) -> None:
        """In place of the one that has its id, of whatever kind."""
        self._groups[group.group_id] = group

    def remove(self, group: Group) -> None:
        """Unless another has its place by now: a group that changes its kind is put before the old one goes."""
        if self._groups.get(group.group_id) is group:
            del self._groups[group.group_id]

    def __iter__(self) -> Iterator[Group]:
        return iter(list(self._groups.values()))

    def __len__(self) -> int:
        return len(self._groups)
