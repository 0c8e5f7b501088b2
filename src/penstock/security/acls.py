"""Rules of access: who may, or may not, do what with which resource, coming from where. The model is Kafka's.

A rule names a *pattern* of resources (`LITERAL`: this name, or with the name `*` all; `PREFIXED`: all that begin so), a
principal (`User:*` is everybody), a host (`*` is any), an operation (`ALL` is any) and whether it allows or denies.
What follows from the rules is in `authorizer.py`; here are the rules themselves, and the filters that find them.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from penstock.base.addresses import is_address
from penstock.security.principal import USER, Principal

ANY_NAME = "*"
ANY_HOST = "*"
EVERYBODY = Principal(USER, "*")
CLUSTER_NAME = "kafka-cluster"
NAME_LENGTH_MAX = 32_767


class ResourceType(IntEnum):
    """What rules are about, by Kafka's codes."""

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """How the name of a rule is compared; ANY and MATCH are of filters only."""

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(IntEnum):
    """What is done; ANY is of filters only."""

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class Permission(IntEnum):
    """ANY is of filters only."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


SUPPORTED_OPERATIONS = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        Operation.READ,
        Operation.DELETE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
    ResourceType.TRANSACTIONAL_ID: (Operation.WRITE, Operation.DESCRIBE, Operation.TWO_PHASE_COMMIT),
    ResourceType.DELEGATION_TOKEN: (Operation.DESCRIBE,),
    ResourceType.USER: (Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS),
}
"""The operations that make sense for a resource, as authorized operations are told."""


class Pattern(NamedTuple):
    """Which resources a rule is about."""

    resource_type: ResourceType
    pattern_type: PatternType
    name: str

    def covers(self, name: str) -> bool:
        """Whether a resource of this type and this name is meant."""
        if self.pattern_type is PatternType.PREFIXED:
            return name.startswith(self.name)
        return self.name in (name, ANY_NAME)


class Entry(NamedTuple):
    """What a rule says about its resources."""

    principal: str
    host: str
    operation: Operation
    permission: Permission


class Acl(NamedTuple):
    """One rule."""

    pattern: Pattern
    entry: Entry

    def __str__(self) -> str:
        (kind, how, name), (principal, host, operation, permission) = self
        return f"{permission.name} {principal} from {host}: {operation.name} on {how.name} {kind.name} {name}"


class AclFilter(NamedTuple):
    """Which rules are looked for; None matches everything."""

    resource_type: ResourceType = ResourceType.ANY
    name: str | None = None
    pattern_type: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY

    def matches_pattern(self, pattern: Pattern) -> bool:
        if self.resource_type not in (ResourceType.ANY, pattern.resource_type):
            return False
        if self.pattern_type not in (PatternType.ANY, PatternType.MATCH, pattern.pattern_type):
            return False
        if self.name is None:
            return True
        return pattern.covers(self.name) if self.pattern_type is PatternType.MATCH else pattern.name == self.name

    def matches_entry(self, entry: Entry) -> bool:
        return (
            self.principal in (None, entry.principal)
            and self.host in (None, entry.host)
            and self.operation in (Operation.ANY, entry.operation)
            and self.permission in (Permission.ANY, entry.permission)
        )

    def matches(self, acl: Acl) -> bool:
        return self.matches_pattern(acl.pattern) and self.matches_entry(acl.entry)


def acl_problem(acl: Acl) -> str | None:
    """Why a rule cannot be kept, or None."""
    (kind, how, name), (principal, host, operation, permission) = acl
    if how not in (PatternType.LITERAL, PatternType.PREFIXED):
        return f"the pattern type of a rule is LITERAL or PREFIXED, not {how.name}"
    if kind in (ResourceType.UNKNOWN, ResourceType.ANY):
        return f"a rule is about one type of resource, not {kind.name}"
    if operation in (Operation.UNKNOWN, Operation.ANY):
        return f"a rule names an operation, or ALL, not {operation.name}"
    if permission not in (Permission.ALLOW, Permission.DENY):
        return f"a rule allows or denies, and does not {permission.name}"
    if not name:
        return "the name of the resource is empty"
    if kind is ResourceType.CLUSTER and name != CLUSTER_NAME:
        return f"the only resource of the type CLUSTER is {CLUSTER_NAME}, not {name!r}"
    if max(len(name), len(principal), len(host)) > NAME_LENGTH_MAX:
        return "a name of the rule is too long"
    if not host:
        return "the host is empty: it is an address, or * for any"
    if host != ANY_HOST and not is_address(host):
        return f"{host[:100]!r} is no address, so the rule would be about nobody: names are not looked up; * is any"
    try:
        Principal.parse(principal)
    except ValueError as error:
        return str(error)
    return None
