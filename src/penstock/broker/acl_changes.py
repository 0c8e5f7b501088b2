"""The rules of access as administrators change them: at the controller, from what the znodes have now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from penstock.base.errors import ApiError, Error
from penstock.broker.broker import Broker
from penstock.broker.requests import RequestContext
from penstock.controller.configs import set_configs
from penstock.controller.plan import ClusterState, Plan
from penstock.security.acls import Acl, AclFilter, Entry, Pattern
from penstock.security.authorizer import Authorizer
from penstock.security.stored_acls import entries_of, pattern_of, stored_entries, znode_name
from penstock.zookeeper.znodes import ACL_CONFIGS

_PREFIX = f"{ACL_CONFIGS}/"
ENTRIES_MAX = 5_000
"""Rules of one pattern: they are in one znode."""


def stored_acls(broker: Broker) -> Authorizer:
    """All rules of the znodes, as this broker last read them."""
    found = Authorizer()
    for name, stored in broker.view.configs.items():
        pattern = pattern_of(name.removeprefix(_PREFIX)) if name.startswith(_PREFIX) else None
        if pattern is not None:
            found.set_entries(pattern, entries_of(stored.values))
    return found


async def add_acls(broker: Broker, acls: Sequence[Acl], context: RequestContext) -> None:
    """Keep these rules, too; ApiError if that cannot be written."""

    def decide(_state: ClusterState) -> list[Plan]:
        return _plans(broker, stored_acls(broker), added=acls)

    await broker.role.decide(decide)
    _record(broker, "acl_created", acls, context)
    await broker.spreading.to_all()


async def remove_acls(broker: Broker, wanted: Sequence[AclFilter], context: RequestContext) -> list[list[Acl]]:
    """Remove the rules that any of these filters matches; what each of them has matched."""
    matched: list[list[Acl]] = []

    def decide(_state: ClusterState) -> list[Plan]:
        stored = stored_acls(broker)
        matched[:] = [list(stored.acls(each)) for each in wanted]
        return _plans(broker, stored, removed=[acl for each in matched for acl in each])

    await broker.role.decide(decide)
    _record(broker, "acl_deleted", dict.fromkeys(acl for each in matched for acl in each), context)
    await broker.spreading.to_all()
    return matched


def _plans(broker: Broker, stored: Authorizer, added: Iterable[Acl] = (), removed: Iterable[Acl] = ()) -> list[Plan]:
    added, removed = list(added), list(removed)
    patterns: set[Pattern] = {acl.pattern for acl in (*added, *removed)}
    before = {pattern: stored.entries_of(pattern) for pattern in patterns}
    versions = {pattern: broker.view.config_version(ACL_CONFIGS, znode_name(pattern)) for pattern in patterns}
    return changed_acls(before, versions, added, removed)


def _record(broker: Broker, event: str, acls: Iterable[Acl], context: RequestContext) -> None:
    for acl in acls:
        broker.audit.record(event, principal=context.principal, host=context.host, acl=str(acl))


def changed_acls(
    before: Mapping[Pattern, frozenset[Entry]],
    versions: Mapping[Pattern, int | None],
    added: Iterable[Acl] = (),
    removed: Iterable[Acl] = (),
) -> list[Plan]:
    """Write the patterns that these rules change. `versions` are those of their znodes, None where there is none."""
    after: dict[Pattern, set[Entry]] = {}
    for acl in removed:
        after.setdefault(acl.pattern, set(before.get(acl.pattern, ()))).discard(acl.entry)
    for acl in added:
        after.setdefault(acl.pattern, set(before.get(acl.pattern, ()))).add(acl.entry)
    plans = []
    for pattern, entries in after.items():
        if entries == before.get(pattern, frozenset()):
            continue
        if len(entries) > ENTRIES_MAX:
            raise ApiError(Error.POLICY_VIOLATION, f"more than {ENTRIES_MAX} rules for one name: use fewer, wider ones")
        plans.append(set_configs(ACL_CONFIGS, znode_name(pattern), stored_entries(entries), versions.get(pattern)))
    return plans
