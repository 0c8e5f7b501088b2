"""The parts of a running broker that handlers work with, in one place; what starts and stops them is `start.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from penstock.base.broker_settings import altered_dynamic, altered_elsewhere, with_dynamic
from penstock.base.errors import ApiError, Error
from penstock.base.setting_changes import Change
from penstock.base.settings import Settings, SettingsError, Source
from penstock.base.topic_settings import TopicSettings
from penstock.base.world import World
from penstock.broker.audit_log import AuditLog
from penstock.broker.client_quotas import ClientQuotas
from penstock.broker.cluster_view import ClusterView
from penstock.broker.compactor import Compactor
from penstock.broker.controller_duties import ControllerDuties
from penstock.broker.controller_role import ControllerRole, ProducerIdAllocator
from penstock.broker.delegation_tokens import DelegationTokens
from penstock.broker.doubts import Doubts
from penstock.broker.failed_replicas import FailedReplicas
from penstock.broker.followers import Followers
from penstock.broker.forwarding import Forwarding
from penstock.broker.greetings import Greetings
from penstock.broker.isr_changes import IsrChanges
from penstock.broker.markers import Markers
from penstock.broker.membership import Membership
from penstock.broker.partitions import Partitions
from penstock.broker.peers import Peers
from penstock.broker.replica_moves import ReplicaMoves
from penstock.broker.rights import Rights
from penstock.broker.spreading import Spreading
from penstock.broker.state_logs import StateLogs
from penstock.broker.topics import Topics, topic_rules
from penstock.broker.users import Users
from penstock.controller.configs import set_configs
from penstock.controller.elections import min_isr_changed
from penstock.controller.plan import ClusterState, Plan
from penstock.controller.transitions import TopicRules
from penstock.groups.shard import GroupShard
from penstock.transactions.shard import TransactionShard
from penstock.zookeeper.znodes import DEFAULT_ENTITY


class Node(NamedTuple):
    """A broker as the clients of one listener reach it."""

    node_id: int
    host: str
    port: int
    rack: str | None


@dataclass(slots=True)
class Broker:
    """This broker. `settings` is replaced whenever a dynamic value changes."""

    node_id: int
    world: World
    settings: Settings
    audit: AuditLog
    rights: Rights
    quotas: ClientQuotas
    view: ClusterView
    membership: Membership
    peers: Peers
    role: ControllerRole
    forwarding: Forwarding
    spreading: Spreading
    topics: Topics
    partitions: Partitions
    producer_ids: ProducerIdAllocator
    groups: StateLogs[GroupShard]
    transactions: StateLogs[TransactionShard]
    markers: Markers
    isr_changes: IsrChanges
    failed_replicas: FailedReplicas
    replica_moves: ReplicaMoves
    compactor: Compactor
    duties: ControllerDuties
    followers: Followers
    doubts: Doubts
    users: Users
    tokens: DelegationTokens
    greetings: Greetings

    def nodes(self, listener_name: str, *, with_just_died: bool = False) -> list[Node]:
        """The living brokers, by their addresses on one listener; those without it are left out."""
        brokers = self.view.brokers
        if with_just_died and (just_died := self.doubts.just_died()):
            brokers = brokers | just_died
        return [
            Node(node_id, endpoint.host, endpoint.port, broker.rack)
            for node_id, broker in brokers.items()
            for endpoint in broker.endpoints
            if endpoint.listener == listener_name
        ]

    def node(self, listener_name: str) -> Node:
        """This broker itself."""
        for node in self.nodes(listener_name):
            if node.node_id == self.node_id:
                return node
        raise ApiError(Error.LISTENER_NOT_FOUND, f"this broker has no listener {listener_name!r}")

    def reload_dynamic_settings(self) -> None:
        """Lay the stored dynamic values over the static ones."""
        self.settings = with_dynamic(
            self.settings,
            self.view.config_values("brokers", str(self.node_id)),
            self.view.config_values("brokers", DEFAULT_ENTITY),
        )

    def dynamic_values(self, entity: str) -> Mapping[str, str]:
        """The dynamic values of a broker, or (entity "<default>") of all brokers."""
        if entity == DEFAULT_ENTITY:
            return self.settings.given(Source.DYNAMIC_DEFAULT_BROKER)
        if entity == str(self.node_id):
            return self.settings.given(Source.DYNAMIC_BROKER)
        return self.view.config_values("brokers", entity)

    def altered_values(self, entity: str, changes: Sequence[Change]) -> dict[str, str]:
        """Those values after changes; ApiError with everything that is wrong with them."""
        try:
            if entity == DEFAULT_ENTITY:
                return altered_dynamic(self.settings, Source.DYNAMIC_DEFAULT_BROKER, changes)
            if entity == str(self.node_id):
                return altered_dynamic(self.settings, Source.DYNAMIC_BROKER, changes)
            return altered_elsewhere(self.settings, self.dynamic_values(entity), changes)
        except SettingsError as error:
            raise ApiError(Error.INVALID_REQUEST, str(error)) from error

    async def alter_settings(self, entity: str, changes: Sequence[Change], *, is_trial: bool = False) -> None:
        """Change dynamic values of a broker, or (entity "<default>") of all brokers."""

        def decide(state: ClusterState) -> list[Plan]:
            values = self.altered_values(entity, changes)
            self._check_may_keep(values, self.view.config_values("brokers", entity))
            written = set_configs("brokers", entity, values, self.view.config_version("brokers", entity))
            return [*self._min_isr_plans(state, entity, values), written]

        await (self.role.preview(decide) if is_trial else self.role.decide(decide))

    def _check_may_keep(self, values: Mapping[str, str], before: Mapping[str, str]) -> None:
        """ApiError for a new password or key where everybody could read it."""
        new = (name for name, value in values.items() if before.get(name) != value)
        secrets = [name for name in new if self.settings.table[name].sensitive]
        if secrets and not self.users.may_keep:
            raise ApiError(
                Error.POLICY_VIOLATION,
                f"whoever reaches ZooKeeper could read {', '.join(secrets)}: put it into the file of each broker, give "
                "all of them zookeeper.auth.digest, or allow it with zookeeper.unprotected.credentials.enable=true",
            )

    def _min_isr_plans(self, state: ClusterState, entity: str, values: Mapping[str, str]) -> list[Plan]:
        """What goes before a change of the cluster's own `min.insync.replicas`; see `min_isr_changed`."""
        if entity != DEFAULT_ENTITY:
            return []
        to_come = with_dynamic(self.settings, self.view.config_values("brokers", str(self.node_id)), values)

        def rules_to_come(topic: str) -> TopicRules:
            return topic_rules(TopicSettings(to_come, self.view.config_values("topics", topic)))

        return min_isr_changed(state, rules_to_come, list(state.topics))
