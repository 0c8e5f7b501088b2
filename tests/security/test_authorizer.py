"""Decisions, each rule of them by an example, and all together against a model that only knows the rules' texts."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.security.acls import (
    CLUSTER_NAME,
    SUPPORTED_OPERATIONS,
    Acl,
    AclFilter,
    Entry,
    Operation,
    Pattern,
    PatternType,
    Permission,
    ResourceType,
    acl_problem,
)
from penstock.security.authorizer import REMEMBERED_MAX, Authorizer, all_operations, parse_super_users
from penstock.security.principal import Principal

ALICE, BOB = Principal("User", "alice"), Principal("User", "bob")
HOST = "10.0.0.1"


def acl(
    name: str,
    operation: Operation,
    *,
    principal: str = "User:alice",
    host: str = "*",
    deny: bool = False,
    prefixed: bool = False,
    kind: ResourceType = ResourceType.TOPIC,
) -> Acl:
    how = PatternType.PREFIXED if prefixed else PatternType.LITERAL
    permission = Permission.DENY if deny else Permission.ALLOW
    return Acl(Pattern(kind, how, name), Entry(principal, host, operation, permission))


def authorizer_of(*acls: Acl, super_users: str = "", open_without: bool = False) -> Authorizer:
    made = Authorizer(parse_super_users(super_users), allows_without_rules=open_without)
    for each in acls:
        made.set_entries(each.pattern, made.entries_of(each.pattern) | {each.entry})
    return made


def may(authorizer: Authorizer, operation: Operation, name: str, who: Principal = ALICE, host: str = HOST) -> bool:
    return authorizer.allows(who, host, operation, ResourceType.TOPIC, name)


def test_without_rules_everything_is_denied_unless_told_otherwise() -> None:
    assert not may(authorizer_of(), Operation.READ, "orders")
    is_open = authorizer_of(acl("other", Operation.READ), open_without=True)
    assert may(is_open, Operation.READ, "orders")
    assert not may(is_open, Operation.READ, "other", BOB)
    assert may(is_open, Operation.READ, "other", ALICE)


def test_super_users_may_do_everything_even_what_is_denied() -> None:
    made = authorizer_of(
        acl("*", Operation.ALL, principal="User:*", deny=True), super_users=" User:root; User:CN=a,O=b"
    )
    assert may(made, Operation.READ, "orders", Principal("User", "root"))
    assert may(made, Operation.READ, "orders", Principal("User", "CN=a,O=b"))
    assert not may(made, Operation.READ, "orders", Principal("Group", "root"))
    with pytest.raises(ValueError, match="User:alice"):
        parse_super_users("root")


def test_literal_prefixed_and_any_name() -> None:
    assert may(authorizer_of(acl("orders", Operation.READ)), Operation.READ, "orders")
    assert not may(authorizer_of(acl("orders", Operation.READ)), Operation.READ, "orders-2")
    assert may(authorizer_of(acl("ord", Operation.READ, prefixed=True)), Operation.READ, "orders-2")
    assert may(authorizer_of(acl("orders", Operation.READ, prefixed=True)), Operation.READ, "orders")
    assert not may(authorizer_of(acl("*", Operation.READ, prefixed=True)), Operation.READ, "orders")
    assert may(authorizer_of(acl("*", Operation.READ)), Operation.READ, "orders")


def test_deny_wins_wherever_it_stands() -> None:
    allowed = acl("orders", Operation.ALL)
    for denied in (
        acl("orders", Operation.READ, deny=True),
        acl("*", Operation.READ, deny=True),
        acl("o", Operation.READ, deny=True, prefixed=True),
        acl("orders", Operation.ALL, deny=True, principal="User:*", host=HOST),
    ):
        made = authorizer_of(allowed, denied)
        assert not may(made, Operation.READ, "orders")
    assert may(authorizer_of(allowed, acl("orders", Operation.READ, deny=True)), Operation.DESCRIBE, "orders")
    assert may(
        authorizer_of(allowed, acl("orders", Operation.READ, deny=True, host="10.0.0.2")), Operation.READ, "orders"
    )


@pytest.mark.parametrize(
    ("written", "host"),
    [
        ("10.0.0.1", "::ffff:10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("0:0:0:0:0:0:0:1", "::1"),
        ("2001:DB8::A", "2001:db8:0:0:0:0:0:a"),
    ],
)
def test_an_address_is_the_same_however_it_is_written(written: str, host: str) -> None:
    made = authorizer_of(acl("orders", Operation.READ), acl("orders", Operation.READ, deny=True, host=written))
    assert not may(made, Operation.READ, "orders", host=host)
    assert may(made, Operation.READ, "orders", host="10.0.0.2")


@pytest.mark.parametrize("operation", [Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER])
def test_what_implies_to_describe(operation: Operation) -> None:
    made = authorizer_of(acl("orders", operation))
    assert may(made, Operation.DESCRIBE, "orders")
    assert not may(made, Operation.DESCRIBE_CONFIGS, "orders")


def test_altering_settings_implies_to_describe_them() -> None:
    made = authorizer_of(acl("orders", Operation.ALTER_CONFIGS))
    assert may(made, Operation.DESCRIBE_CONFIGS, "orders")
    assert not may(made, Operation.DESCRIBE, "orders")


def test_a_change_of_rules_counts_at_once_and_raises_the_version() -> None:
    made = authorizer_of(acl("orders", Operation.READ))
    version = made.version
    assert may(made, Operation.READ, "orders")
    made.set_entries(Pattern(ResourceType.TOPIC, PatternType.LITERAL, "orders"), ())
    assert not may(made, Operation.READ, "orders")
    assert made.version > version and not list(made.acls(AclFilter()))


def test_what_is_remembered_is_bounded_by_bytes_as_well() -> None:
    made = authorizer_of(acl("x", Operation.READ, prefixed=True))
    for number in range(2 * REMEMBERED_MAX):
        assert may(made, Operation.READ, f"x{number}")
    assert len(made._decided) <= REMEMBERED_MAX
    made = authorizer_of(acl("x", Operation.READ, prefixed=True))
    for number in range(1000):
        assert may(made, Operation.READ, f"x{number}" + 30_000 * "x")
    assert sum(len(name) for *_, name in made._decided) < 30_000


def test_bit_fields() -> None:
    made = authorizer_of(acl("orders", Operation.READ))
    bits = made.allowed_operations(ALICE, HOST, ResourceType.TOPIC, "orders")
    assert bits == 1 << Operation.READ | 1 << Operation.DESCRIBE
    assert all_operations(ResourceType.TOPIC) == 3576
    assert all_operations(ResourceType.CLUSTER) == 8096
    assert all_operations(ResourceType.GROUP) == 3400


def test_some_resource_of_a_type() -> None:
    def some(*acls: Acl) -> bool:
        return authorizer_of(*acls).allows_some(ALICE, HOST, Operation.WRITE, ResourceType.TOPIC)

    assert some(acl("orders", Operation.WRITE))
    assert some(acl("o", Operation.ALL, prefixed=True))
    assert not some(acl("orders", Operation.READ))
    assert not some(acl("orders", Operation.WRITE, principal="User:bob"))
    assert not some(acl("orders", Operation.WRITE), acl("orders", Operation.WRITE, deny=True))
    assert not some(acl("orders", Operation.WRITE), acl("or", Operation.ALL, deny=True, prefixed=True))
    assert not some(acl("or", Operation.WRITE, prefixed=True), acl("o", Operation.ALL, deny=True, prefixed=True))
    assert some(acl("or", Operation.WRITE, prefixed=True), acl("ord", Operation.ALL, deny=True, prefixed=True))
    assert not some(acl("orders", Operation.WRITE), acl("*", Operation.WRITE, deny=True))


def test_filters() -> None:
    literal, prefixed, everything = (
        acl("orders", Operation.READ),
        acl("ord", Operation.WRITE, prefixed=True),
        acl("*", Operation.READ, principal="User:bob"),
    )
    made = authorizer_of(literal, prefixed, everything)

    def found(**wanted: object) -> set[Acl]:
        return set(made.acls(AclFilter(**wanted)))  # type: ignore[arg-type]

    assert found() == {literal, prefixed, everything}
    assert found(name="orders") == {literal}
    assert found(name="orders", pattern_type=PatternType.MATCH) == {literal, prefixed, everything}
    assert found(name="other", pattern_type=PatternType.MATCH) == {everything}
    assert found(pattern_type=PatternType.PREFIXED) == {prefixed}
    assert found(principal="User:bob") == {everything}
    assert found(operation=Operation.WRITE) == {prefixed}
    assert found(resource_type=ResourceType.GROUP) == set()
    assert found(host="10.0.0.1") == set() and found(permission=Permission.DENY) == set()


@pytest.mark.parametrize(
    "wrong",
    [
        acl("", Operation.READ),
        acl("x", Operation.READ, kind=ResourceType.CLUSTER),
        acl("x", Operation.READ, kind=ResourceType.ANY),
        acl("x", Operation.ANY),
        acl("x", Operation.READ, principal="alice"),
        acl("x", Operation.READ, host=""),
        acl("x", Operation.READ, host="client.example.com"),
        acl("x", Operation.READ, host="10.0.0.1 User:bob"),
        Acl(Pattern(ResourceType.TOPIC, PatternType.MATCH, "x"), acl("x", Operation.READ).entry),
        Acl(acl("x", Operation.READ).pattern, Entry("User:a", "*", Operation.READ, Permission.ANY)),
    ],
)
def test_rules_that_make_no_sense_are_refused(wrong: Acl) -> None:
    assert acl_problem(wrong) is not None


def test_rules_that_make_sense() -> None:
    assert acl_problem(acl("orders", Operation.READ)) is None
    assert acl_problem(acl(CLUSTER_NAME, Operation.ALTER, kind=ResourceType.CLUSTER)) is None


# ── against a dumb model ─────────────────────────────────────────────────────────────────────────────────────────

NAMES = st.sampled_from(["a", "ab", "abc", "b", "*", "a*", "ba"])
PRINCIPALS = st.sampled_from(["User:alice", "User:bob", "User:*", "Group:alice", "User:root"])
HOSTS = st.sampled_from(["*", "10.0.0.1", "10.0.0.2"])
KINDS = st.sampled_from([ResourceType.TOPIC, ResourceType.GROUP])
OPERATIONS = st.sampled_from(
    [
        Operation.ALL,
        Operation.READ,
        Operation.WRITE,
        Operation.ALTER,
        Operation.DELETE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ]
)
ACLS = st.builds(
    lambda kind, how, name, principal, host, operation, permission: Acl(
        Pattern(kind, how, name), Entry(principal, host, operation, permission)
    ),
    KINDS,
    st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    NAMES,
    PRINCIPALS,
    HOSTS,
    OPERATIONS,
    st.sampled_from([Permission.ALLOW, Permission.ALLOW, Permission.DENY]),
)


def model(
    acls: set[Acl], open_without: bool, who: str, host: str, operation: Operation, kind: ResourceType, name: str
) -> bool:
    """Every rule, one after the other, as the texts say."""
    if who == "User:root":
        return True
    about = []
    for pattern, entry in acls:
        is_prefix = pattern.pattern_type == PatternType.PREFIXED
        meets = name.startswith(pattern.name) if is_prefix else pattern.name == "*" or pattern.name == name
        if pattern.resource_type == kind and meets:
            about.append(entry)
    if not about:
        return open_without
    mine = [e for e in about if (e.principal == who or e.principal == "User:*") and (e.host == "*" or e.host == host)]
    if any(
        e.permission == Permission.DENY and (e.operation == Operation.ALL or e.operation == operation) for e in mine
    ):
        return False
    enough = {Operation.ALL, operation}
    if operation == Operation.DESCRIBE:
        enough |= {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
    if operation == Operation.DESCRIBE_CONFIGS:
        enough |= {Operation.ALTER_CONFIGS}
    return any(e.permission == Permission.ALLOW and e.operation in enough for e in mine)


CHANGES = st.lists(st.tuples(st.booleans(), ACLS), max_size=25)
QUESTIONS = st.lists(
    st.tuples(
        st.sampled_from(["User:alice", "User:bob", "Group:alice", "User:root", "User:carol"]),
        st.sampled_from(["10.0.0.1", "10.0.0.2"]),
        st.sampled_from([op for op in Operation if op > Operation.ALL]),
        KINDS,
        st.sampled_from(["a", "ab", "abc", "abcd", "b", "c", "*", "a*b", "ba"]),
    ),
    min_size=1,
    max_size=20,
)


@settings(max_examples=400, deadline=None)
@given(CHANGES, QUESTIONS, st.booleans())
def test_decisions_are_those_of_the_model(
    changes: list[tuple[bool, Acl]],
    questions: list[tuple[str, str, Operation, ResourceType, str]],
    open_without: bool,
) -> None:
    made = Authorizer([Principal("User", "root")], allows_without_rules=open_without)
    held: set[Acl] = set()
    for is_added, each in [*changes, (True, changes[0][1])] if changes else []:
        entries = made.entries_of(each.pattern)
        made.set_entries(each.pattern, entries | {each.entry} if is_added else entries - {each.entry})
        (held.add if is_added else held.discard)(each)
        for who, host, operation, kind, name in questions:
            expected = model(held, open_without, who, host, operation, kind, name)
            assert made.allows(Principal.parse(who), host, operation, kind, name) is expected
    assert set(made.acls(AclFilter())) == held


@settings(max_examples=300, deadline=None)
@given(st.sets(ACLS, max_size=12))
def test_some_resource_is_allowed_if_one_of_all_names_is(acls: set[Acl]) -> None:
    """Only in this direction: who may write to `ab` may write to some topic."""
    made = authorizer_of(*acls)
    for name in ("a", "ab", "abc", "b", "c", "ba", "zzz"):
        if made.allows(ALICE, HOST, Operation.WRITE, ResourceType.TOPIC, name):
            assert made.allows_some(ALICE, HOST, Operation.WRITE, ResourceType.TOPIC)


def test_supported_operations_are_those_of_the_types() -> None:
    assert set(SUPPORTED_OPERATIONS) == {kind for kind in ResourceType if kind > ResourceType.ANY}
