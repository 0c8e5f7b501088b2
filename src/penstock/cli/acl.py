"""`penstock acl`: who may do what. Rules are given as people say them: allow this user to read that topic.

    penstock acl add --allow User:alice --read --topic orders --group readers
    penstock acl add --deny User:bob --operation all --topic 'private-*'
    penstock acl list --topic orders
    penstock acl remove --allow User:alice --read --topic orders

A name that ends with `*` is a prefix; `*` alone is everything. `--read` and `--write` stand for what a consumer and a
producer need on each kind of resource.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Any

import typer

from penstock.cli.connection import Connection
from penstock.cli.direct import check_error, connect_directly
from penstock.cli.failure import usage
from penstock.cli.options import Bootstrap, ClientConfig, ClientSettings, Json, Yes, family
from penstock.cli.output import confirm, print_json, print_table
from penstock.security.acls import (
    CLUSTER_NAME,
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
from penstock.wire.messages import k29_describe_acls as k29
from penstock.wire.messages import k30_create_acls as k30
from penstock.wire.messages import k31_delete_acls as k31

app = family("Allow, deny and list what users may do.")

READING = {ResourceType.TOPIC: Operation.READ, ResourceType.GROUP: Operation.READ}
WRITING = {ResourceType.TOPIC: Operation.WRITE, ResourceType.TRANSACTIONAL_ID: Operation.WRITE}
NAMED_KINDS = (
    *(ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID),
    *(ResourceType.USER, ResourceType.DELEGATION_TOKEN),
)


def _names(option: str, what: str) -> Any:
    return typer.Option(option, metavar="NAME", help=f"{what}; a prefix if it ends with *. May be repeated.")


Topics = Annotated[list[str] | None, _names("--topic", "A topic")]
Groups = Annotated[list[str] | None, _names("--group", "A group")]
TransactionalIds = Annotated[list[str] | None, _names("--transactional-id", "A transactional id")]
Users = Annotated[list[str] | None, _names("--user", "A user, as User:alice, whose delegation tokens are meant")]
Tokens = Annotated[list[str] | None, _names("--token", "A delegation token, by its id")]
Cluster = Annotated[bool, typer.Option("--cluster", help="The cluster itself.")]
Allow = Annotated[list[str] | None, typer.Option("--allow", metavar="PRINCIPAL", help="Who may, as User:alice.")]
Deny = Annotated[list[str] | None, typer.Option("--deny", metavar="PRINCIPAL", help="Who may not; wins over --allow.")]
Host = Annotated[str, typer.Option("--host", metavar="ADDRESS", help="Only from this address.")]
Read = Annotated[bool, typer.Option("--read", help="To read topics, and as a member of groups.")]
Write = Annotated[bool, typer.Option("--write", help="To write to topics, also in transactions.")]
Operations = Annotated[
    list[str] | None, typer.Option("--operation", metavar="NAME", help="One of Kafka's operations, or all.")
]


@app.command()
def add(
    allow: Allow = None,
    deny: Deny = None,
    read: Read = False,
    write: Write = False,
    operation: Operations = None,
    topic: Topics = None,
    group: Groups = None,
    transactional_id: TransactionalIds = None,
    user: Users = None,
    token: Tokens = None,
    cluster: Cluster = False,
    host: Host = "*",
    bootstrap: Bootstrap = None,
    client_config: ClientConfig = None,
    settings: ClientSettings = None,
) -> None:
    """Add rules."""
    patterns = _patterns(topic, group, transactional_id, user, token, cluster=cluster)
    acls = _rules(allow, deny, _asked(read, write, operation), patterns, host)
    creations = [
        k30.CreateAclsRequestAcl(
            resource_type=kind,
            resource_name=name,
            resource_pattern_type=how,
            principal=principal,
            host=each_host,
            operation=op,
            permission_type=permission,
        )
        for (kind, how, name), (principal, each_host, op, permission) in acls
    ]
    with connect_directly(Connection(bootstrap, client_config, settings)) as client:
        answer = client.ask(k30.API.key, k30.CreateAclsRequest(creations=creations), k30.CreateAclsResponse)
    for acl, row in zip(acls, answer.results, strict=True):
        check_error(row.error_code, row.error_message, str(acl))
        typer.echo(f"added: {acl}")


@app.command(name="list")
def list_acls(
    principal: Annotated[str | None, typer.Option("--principal", metavar="PRINCIPAL", help="Of this one.")] = None,
    topic: Topics = None,
    group: Groups = None,
    transactional_id: TransactionalIds = None,
    user: Users = None,
    token: Tokens = None,
    cluster: Cluster = False,
    as_json: Json = False,
    bootstrap: Bootstrap = None,
    client_config: ClientConfig = None,
    settings: ClientSettings = None,
) -> None:
    """List the rules, or those that count for some resources."""
    wanted = [
        AclFilter(kind, name, PatternType.MATCH if how is PatternType.LITERAL else how, principal)
        for kind, how, name in _patterns(topic, group, transactional_id, user, token, cluster=cluster)
    ] or [AclFilter(principal=principal)]
    found: dict[Acl, None] = {}
    with connect_directly(Connection(bootstrap, client_config, settings)) as client:
        for each in wanted:
            answer = client.ask(k29.API.key, _request(each), k29.DescribeAclsResponse)
            check_error(answer.error_code, answer.error_message, "the rules")
            found.update(dict.fromkeys(_found(answer)))
    if as_json:
        print_json([_document(acl) for acl in found])
        return
    rows = [tuple(_document(acl).values()) for acl in found]
    print_table(("RULE", "PRINCIPAL", "HOST", "OPERATION", "RESOURCE", "PATTERN", "NAME"), rows)


@app.command()
def remove(
    allow: Allow = None,
    deny: Deny = None,
    read: Read = False,
    write: Write = False,
    operation: Operations = None,
    topic: Topics = None,
    group: Groups = None,
    transactional_id: TransactionalIds = None,
    user: Users = None,
    token: Tokens = None,
    cluster: Cluster = False,
    host: Host = "*",
    yes: Yes = False,
    bootstrap: Bootstrap = None,
    client_config: ClientConfig = None,
    settings: ClientSettings = None,
) -> None:
    """Remove exactly these rules."""
    patterns = _patterns(topic, group, transactional_id, user, token, cluster=cluster)
    acls = _rules(allow, deny, _asked(read, write, operation), patterns, host)
    confirm(f"Remove {len(acls)} rule{'s' if len(acls) > 1 else ''}?", yes, "nothing was removed")
    filters = [
        k31.DeleteAclsRequestFilter(
            resource_type_filter=kind,
            resource_name_filter=name,
            pattern_type_filter=how,
            principal_filter=principal,
            host_filter=each_host,
            operation=op,
            permission_type=permission,
        )
        for (kind, how, name), (principal, each_host, op, permission) in acls
    ]
    with connect_directly(Connection(bootstrap, client_config, settings)) as client:
        answer = client.ask(k31.API.key, k31.DeleteAclsRequest(filters=filters), k31.DeleteAclsResponse)
    for acl, row in zip(acls, answer.filter_results, strict=True):
        check_error(row.error_code, row.error_message, str(acl))
        typer.echo(f"{'removed' if row.matching_acls else 'was not there'}: {acl}")


def _asked(read: bool, write: bool, operations: list[str] | None) -> list[dict[ResourceType, Operation] | Operation]:
    asked: list[dict[ResourceType, Operation] | Operation] = []
    asked += [READING] if read else []
    asked += [WRITING] if write else []
    for name in operations or ():
        try:
            asked.append(Operation[name.upper().replace("-", "_")])
        except KeyError:
            known = ", ".join(each.name.lower() for each in Operation if each >= Operation.ALL)
            raise usage(f"--operation {name[:50]!r} is not known; it is one of {known}") from None
    if not asked:
        raise usage("say what is allowed or denied: --read, --write or --operation NAME")
    return asked


def _patterns(*named: list[str] | None, cluster: bool) -> list[Pattern]:
    """Names of topics, groups, transactional ids, users and tokens, in this order."""
    of_kind = (*zip(NAMED_KINDS, named, strict=True), (ResourceType.CLUSTER, [CLUSTER_NAME] if cluster else None))
    return [_pattern(kind, name) for kind, names in of_kind for name in names or ()]


def _pattern(kind: ResourceType, name: str) -> Pattern:
    if len(name) > 1 and name.endswith("*"):
        return Pattern(kind, PatternType.PREFIXED, name[:-1])
    return Pattern(kind, PatternType.LITERAL, name)


def _rules(
    allow: list[str] | None,
    deny: list[str] | None,
    asked: Iterable[dict[ResourceType, Operation] | Operation],
    patterns: list[Pattern],
    host: str,
) -> list[Acl]:
    """The rules that the options mean together; usage errors say what is missing."""
    who = [(name, Permission.ALLOW) for name in allow or ()] + [(name, Permission.DENY) for name in deny or ()]
    if not who:
        raise usage("say who: --allow User:alice or --deny User:alice")
    if not patterns:
        raise usage("say for what: --topic, --group, --transactional-id, --user, --token or --cluster")
    acls = [
        Acl(pattern, Entry(principal, host, operation, permission))
        for each in asked
        for pattern in patterns
        for operation in [each if isinstance(each, Operation) else each.get(pattern.resource_type)]
        if operation is not None
        for principal, permission in who
    ]
    for acl in acls:
        problem = acl_problem(acl)
        if problem is not None:
            raise usage(problem)
    if not acls:
        raise usage("--read is about topics and groups, --write about topics and transactional ids")
    return acls


def _request(wanted: AclFilter) -> k29.DescribeAclsRequest:
    return k29.DescribeAclsRequest(
        resource_type_filter=wanted.resource_type,
        resource_name_filter=wanted.name,
        pattern_type_filter=wanted.pattern_type,
        principal_filter=wanted.principal,
        host_filter=wanted.host,
        operation=wanted.operation,
        permission_type=wanted.permission,
    )


def _found(answer: k29.DescribeAclsResponse) -> Iterable[Acl]:
    for resource in answer.resources:
        pattern = Pattern(
            ResourceType(resource.resource_type), PatternType(resource.pattern_type), resource.resource_name
        )
        for row in resource.acls:
            yield Acl(
                pattern, Entry(row.principal, row.host, Operation(row.operation), Permission(row.permission_type))
            )


def _document(acl: Acl) -> dict[str, str]:
    (kind, how, name), (principal, host, operation, permission) = acl
    return {
        "rule": permission.name.lower(),
        "principal": principal,
        "host": host,
        "operation": operation.name.lower(),
        "resource": kind.name.lower(),
        "pattern": how.name.lower(),
        "name": name,
    }
