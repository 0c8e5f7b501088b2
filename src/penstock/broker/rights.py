"""May whoever asks do this? What handlers ask before they do something, and the rules as this broker knows them.

Without an authorizer (`authorizer.class.name`) everybody may do everything. With one, the rules are read from the
znodes and decided upon by `security/authorizer.py`. What may be asked for by an API is in `security/api_rights.py`; to
ask for something else is a bug of ours, and fails.

What is refused goes to the audit log, unless it was only a question of what to show.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, Protocol, TypeVar

from penstock.base.errors import ApiError, Error
from penstock.base.settings import Settings, SettingsError
from penstock.broker.audit_log import AuditLog
from penstock.broker.cluster_view import ClusterView, ViewChange
from penstock.broker.connection import Connection
from penstock.security.acls import CLUSTER_NAME, Operation, ResourceType
from penstock.security.api_rights import API_RIGHTS, ROUTE_RIGHTS
from penstock.security.authorizer import Authorizer, all_operations, parse_super_users
from penstock.security.principal import Principal
from penstock.security.stored_acls import entries_of, pattern_of
from penstock.zookeeper.znodes import ACL_CONFIGS

T = TypeVar("T")

REFUSALS = {
    ResourceType.TOPIC: Error.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: Error.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: Error.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    ResourceType.DELEGATION_TOKEN: Error.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}
_PREFIX = f"{ACL_CONFIGS}/"


class Asker(Protocol):
    """Who asks, from where, for what; a broker of this cluster that asks for itself may do everything."""

    @property
    def principal(self) -> Principal: ...

    @property
    def host(self) -> str: ...

    @property
    def api_key(self) -> int: ...

    @property
    def is_broker_itself(self) -> bool: ...


class HotAsker(NamedTuple):
    """The same, where there is no context of a request."""

    principal: Principal
    host: str
    api_key: int
    is_broker_itself: bool = False


class Rights:
    """See the head of this file."""

    def __init__(self, view: ClusterView, settings: Settings, audit: AuditLog) -> None:
        self.is_on = bool(settings.text("authorizer.class.name"))
        self.authorizer = _new_authorizer(settings)
        self.version = 0
        """grows with every change of the rules"""
        self._view = view
        self._audit = audit
        self._on_change: list[Callable[[], None]] = []
        self._take(name for name in view.configs if name.startswith(_PREFIX))
        view.on_change(self._view_changed)

    def on_change(self, listener: Callable[[], None]) -> None:
        """Be told when what was decided before may not hold any more."""
        self._on_change.append(listener)

    async def _view_changed(self, change: ViewChange) -> None:
        changed = [name for name in sorted(change.configs) if name.startswith(_PREFIX)]
        if changed:
            self._take(changed)
            for listener in self._on_change:
                listener()

    def _take(self, names: Iterable[str]) -> None:
        self.version += 1
        for name in names:
            znode = name.removeprefix(_PREFIX)
            pattern = pattern_of(znode)
            if pattern is not None:
                self.authorizer.set_entries(pattern, entries_of(self._view.config_values(ACL_CONFIGS, znode)))

    # ── asking ───────────────────────────────────────────────────────────────────────────────────────────────────

    def allows(
        self,
        who: Asker,
        operation: Operation,
        resource_type: ResourceType,
        name: str = CLUSTER_NAME,
        *,
        is_told: bool = True,
    ) -> bool:
        """Whether it is allowed; `is_told` is False where a refusal only leaves something out."""
        assert API_RIGHTS[who.api_key].has(operation, resource_type), "this is not in the table of rights"
        if not self.is_on or who.is_broker_itself:
            return True
        if self.authorizer.allows(who.principal, who.host, operation, resource_type, name):
            return True
        if is_told:
            self._record_refusal(who.principal, who.host, API_RIGHTS[who.api_key].name, operation, resource_type, name)
        return False

    def allows_route(self, principal: Principal, host: str, path: str) -> bool:
        """Whether somebody may ask for a path over HTTP."""
        needed = ROUTE_RIGHTS[path]
        if not self.is_on:
            return True
        for operation, resource_type, _ in needed.rights:
            if not self.authorizer.allows(principal, host, operation, resource_type, CLUSTER_NAME):
                self._record_refusal(principal, host, needed.name, operation, resource_type, CLUSTER_NAME)
                return False
        return True

    def _record_refusal(
        self, principal: Principal, host: str, api: str, operation: Operation, resource_type: ResourceType, name: str
    ) -> None:
        self._audit.record(
            "operation_denied",
            principal=principal,
            host=host,
            api=api,
            operation=operation.name,
            resource_type=resource_type.name,
            resource=name,
        )

    def may_act_as_broker(self, connection: Connection) -> bool:
        """Whether whoever is at the other end may do what only brokers do."""
        host = connection.peer.host
        return not self.is_on or self.authorizer.allows(
            connection.principal, host, Operation.CLUSTER_ACTION, ResourceType.CLUSTER, CLUSTER_NAME
        )

    def check(self, who: Asker, operation: Operation, resource_type: ResourceType, name: str = CLUSTER_NAME) -> None:
        """ApiError unless it is allowed."""
        if not self.allows(who, operation, resource_type, name):
            raise ApiError(REFUSALS[resource_type])

    def allows_some(self, who: Asker, operation: Operation, resource_type: ResourceType) -> bool:
        """Whether it is allowed for any resource of a type."""
        assert API_RIGHTS[who.api_key].has(operation, resource_type), "this is not in the table of rights"
        if not self.is_on or who.is_broker_itself:
            return True
        return self.authorizer.allows_some(who.principal, who.host, operation, resource_type)

    def sorted_out(
        self,
        who: Asker,
        operation: Operation,
        resource_type: ResourceType,
        things: Iterable[T],
        name_of: Callable[[T], str],
        *,
        is_told: bool = True,
    ) -> tuple[list[T], list[T]]:
        """Those for which it is allowed, and the others."""
        allowed: list[T] = []
        refused: list[T] = []
        for thing in things:
            is_allowed = self.allows(who, operation, resource_type, name_of(thing), is_told=is_told)
            (allowed if is_allowed else refused).append(thing)
        return allowed, refused

    def operations(self, who: Asker, resource_type: ResourceType, name: str = CLUSTER_NAME) -> int:
        """What is allowed with a resource, as the bit field that answers carry."""
        if not self.is_on or who.is_broker_itself:
            return all_operations(resource_type)
        return self.authorizer.allowed_operations(who.principal, who.host, resource_type, name)

    def describe_cluster_operations(self, who: Asker) -> int:
        """The same of the cluster, for those who may describe it; nothing for the others."""
        may = self.allows(who, Operation.DESCRIBE, ResourceType.CLUSTER, is_told=False)
        return self.operations(who, ResourceType.CLUSTER) if may else 0


def _new_authorizer(settings: Settings) -> Authorizer:
    try:
        super_users = parse_super_users(settings.text("super.users"))
    except ValueError as error:
        raise SettingsError([f"super.users: {error}"]) from None
    return Authorizer(super_users, allows_without_rules=settings.flag("allow.everyone.if.no.acl.found"))
