"""May you? What follows from the rules for one principal, host, operation and resource. Exactly as in Kafka.

1. Super users may do everything.
2. A rule that denies wins over every rule that allows.
3. An allowed READ, WRITE, DELETE or ALTER implies DESCRIBE, and ALTER_CONFIGS implies DESCRIBE_CONFIGS; denied ones
   imply nothing.
4. Where no rule at all is about a resource, `allow.everyone.if.no.acl.found` decides; otherwise what no rule allows is
   denied.

Rules are kept by their pattern: a decision looks at those of the very name, of `*`, and of each length of prefix that
there is. What was decided is remembered until a rule changes, which also raises `version`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from penstock.base.addresses import plain_address
from penstock.security.acls import (
    ANY_HOST,
    ANY_NAME,
    EVERYBODY,
    SUPPORTED_OPERATIONS,
    Acl,
    AclFilter,
    Entry,
    Operation,
    Pattern,
    PatternType,
    Permission,
    ResourceType,
)
from penstock.security.principal import Principal

REMEMBERED_MAX = 50_000
REMEMBERED_NAME_LENGTH_MAX = 255
"""Names of groups and transactional ids are what clients make up, a hundred times as long if they like."""

_IMPLIED_BY: Mapping[Operation, tuple[Operation, ...]] = {
    Operation.DESCRIBE: (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER),
    Operation.DESCRIBE_CONFIGS: (Operation.ALTER_CONFIGS,),
}
_NOBODY_ASKS_FOR_THIS_NAME = "hardcode"

Entries = frozenset[Entry]


class Authorizer:
    """See the head of this file."""

    def __init__(self, super_users: Iterable[Principal] = (), *, allows_without_rules: bool = False) -> None:
        self.super_users = frozenset(super_users)
        self.version = 0
        """Raised by every change: decisions of an older version count no more."""
        self._allows_without_rules = allows_without_rules
        self._patterns: dict[Pattern, Entries] = {}
        self._prefix_lengths: dict[ResourceType, dict[int, int]] = {}  # how many prefixes there are of each length
        self._decided: dict[tuple[Principal, str, Operation, ResourceType, str], bool] = {}

    # ── rules ────────────────────────────────────────────────────────────────────────────────────────────────────

    def set_entries(self, pattern: Pattern, entries: Iterable[Entry]) -> None:
        """The rules of a pattern are these from now on; none takes the pattern away."""
        new = frozenset(entries)
        before = self._patterns.pop(pattern, None)
        if new:
            self._patterns[pattern] = new
        if pattern.pattern_type is PatternType.PREFIXED:
            lengths = self._prefix_lengths.setdefault(pattern.resource_type, {})
            count = lengths.get(len(pattern.name), 0) + bool(new) - (before is not None)
            lengths[len(pattern.name)] = count
            if not count:
                del lengths[len(pattern.name)]
        self._decided.clear()
        self.version += 1

    @property
    def patterns(self) -> Iterable[Pattern]:
        return self._patterns.keys()

    def entries_of(self, pattern: Pattern) -> Entries:
        return self._patterns.get(pattern, frozenset())

    def acls(self, wanted: AclFilter) -> Iterator[Acl]:
        """The rules that a filter matches, those of one pattern together."""
        for pattern in sorted(self._patterns):
            if wanted.matches_pattern(pattern):
                for entry in sorted(self._patterns[pattern]):
                    if wanted.matches_entry(entry):
                        yield Acl(pattern, entry)

    # ── decisions ────────────────────────────────────────────────────────────────────────────────────────────────

    def allows(
        self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType, name: str
    ) -> bool:
        """Whether it is allowed."""
        if len(name) > REMEMBERED_NAME_LENGTH_MAX:
            return self._decide(principal, host, operation, resource_type, name)
        asked = (principal, host, operation, resource_type, name)
        decided = self._decided.get(asked)
        if decided is None:
            if len(self._decided) >= REMEMBERED_MAX:
                self._decided.clear()
            decided = self._decided[asked] = self._decide(*asked)
        return decided

    def _decide(
        self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType, name: str
    ) -> bool:
        if principal in self.super_users:
            return True
        has_rules = is_allowed = False
        for pattern in self._covering(resource_type, name):
            has_rules = True
            for entry in self._patterns[pattern]:
                if not _is_about(entry, principal, host):
                    continue
                if entry.permission is Permission.DENY:
                    if entry.operation in (Operation.ALL, operation):
                        return False
                elif _implies(entry.operation, operation):
                    is_allowed = True
        return is_allowed or (not has_rules and self._allows_without_rules)

    def _covering(self, resource_type: ResourceType, name: str) -> Iterator[Pattern]:
        """The patterns with rules that a resource falls under."""
        candidates = [Pattern(resource_type, PatternType.LITERAL, name)]
        if name != ANY_NAME:
            candidates.append(Pattern(resource_type, PatternType.LITERAL, ANY_NAME))
        for length in self._prefix_lengths.get(resource_type, ()):
            if length <= len(name):
                candidates.append(Pattern(resource_type, PatternType.PREFIXED, name[:length]))
        return (pattern for pattern in candidates if pattern in self._patterns)

    def allows_some(self, principal: Principal, host: str, operation: Operation, resource_type: ResourceType) -> bool:
        """Whether there can be a resource of this type for which it is allowed; nothing is implied here."""
        if self.allows(principal, host, operation, resource_type, _NOBODY_ASKS_FOR_THIS_NAME):
            return True
        allowed: list[Pattern] = []
        denied: list[Pattern] = []
        for pattern, entries in self._patterns.items():
            if pattern.resource_type is not resource_type:
                continue
            for entry in entries:
                if _is_about(entry, principal, host) and entry.operation in (Operation.ALL, operation):
                    (denied if entry.permission is Permission.DENY else allowed).append(pattern)
        if any(_is_of_all(pattern) for pattern in denied):
            return False
        return any(_is_of_all(each) or not _is_dominated(each, denied) for each in allowed)

    def allowed_operations(self, principal: Principal, host: str, resource_type: ResourceType, name: str) -> int:
        """Those that are allowed, as the bit field that answers carry."""
        return sum(
            1 << operation
            for operation in SUPPORTED_OPERATIONS[resource_type]
            if self.allows(principal, host, operation, resource_type, name)
        )


def all_operations(resource_type: ResourceType) -> int:
    """The bit field of somebody who may do everything."""
    return sum(1 << operation for operation in SUPPORTED_OPERATIONS[resource_type])


def parse_super_users(text: str) -> frozenset[Principal]:
    """`User:alice;User:CN=bob,O=x`, with semicolons; ValueError for one that is no principal."""
    return frozenset(Principal.parse(part.strip()) for part in text.split(";") if part.strip())


def _is_about(entry: Entry, principal: Principal, host: str) -> bool:
    if entry.principal not in (str(principal), str(EVERYBODY)):
        return False
    return entry.host in (ANY_HOST, host) or plain_address(entry.host) == plain_address(host)


def _implies(allowed: Operation, operation: Operation) -> bool:
    return allowed in (Operation.ALL, operation) or allowed in _IMPLIED_BY.get(operation, ())


def _is_of_all(pattern: Pattern) -> bool:
    return pattern.pattern_type is PatternType.LITERAL and pattern.name == ANY_NAME


def _is_dominated(pattern: Pattern, denied: list[Pattern]) -> bool:
    """Whether everything that a pattern covers is denied by another."""
    return any(
        pattern == other or (other.pattern_type is PatternType.PREFIXED and pattern.name.startswith(other.name))
        for other in denied
    )
