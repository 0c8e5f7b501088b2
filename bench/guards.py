"""What access control costs: the same loads with an authorizer and some hundred rules, and without, in the same run.

The client has no login and is no super user: it may because a rule says so. Rules for many others are on the same
topics, on topics with names that begin alike, and elsewhere.
"""

from __future__ import annotations

import contextlib
from functools import partial

from bench import machine, work
from bench.brokers import Broker
from bench.load import Figures, MeasurementFailed
from bench.stages import Run, one_load, running
from bench.work import Item
from penstock.security.acls import CLUSTER_NAME, Operation, PatternType, Permission, ResourceType
from penstock.testing.raw_client import RawClient
from penstock.wire.messages.k30_create_acls import CreateAclsRequest, CreateAclsRequestAcl

SETTINGS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",  # so that the first rules can be made, and brokers can start
}
ITEMS = {"one-message-100": "one_message", "produce-16kb": "batches"}
OTHERS = 100


def authorizers(run: Run) -> None:
    if work.AUTHORIZER not in run.only:
        return
    machine.warm_page_memory(run.memory_folder, run.sizes.warm_bytes)
    items = {ITEMS[item.name]: item for item in work.LOADS if item.name in ITEMS}
    with contextlib.ExitStack() as stack:
        free = stack.enter_context(running(run, run.memory_folder / "free"))
        guarded = stack.enter_context(running(run, run.memory_folder / "guarded", SETTINGS))
        for broker in guarded:
            make_rules(broker.port)
        for number in range(run.rounds):
            for each in zip(free, guarded, strict=True):
                run.measure(work.AUTHORIZER, each[0].name, number, partial(_both, run, items, each, number))


def _both(run: Run, items: dict[str, Item], brokers: tuple[Broker, Broker], number: int) -> Figures:
    """Each load on both, and again in the other order: what changes by the minute is the same for both."""
    figures: Figures = {}
    for name, item in items.items():
        rates, cpu_us = dict.fromkeys(brokers, 0.0), dict.fromkeys(brokers, 0.0)
        for turn, order in enumerate((brokers, brokers[::-1])):
            for broker in order:
                found = one_load(run, item, broker, f"guarded-{item.name}-{number}-{turn}")
                rates[broker] += found["requests_s"] / 2
                cpu_us[broker] += found["cpu_us_per_request"] / 2
        free, guarded = brokers
        figures[f"{name}_guarded_s"] = rates[guarded]
        figures[f"{name}_share"] = rates[guarded] / rates[free]
        figures[f"{name}_cpu_share"] = cpu_us[guarded] / cpu_us[free]
    return figures


def make_rules(port: int) -> None:
    """First what lets the client (and with Kafka the broker itself) go on, then hundreds for others."""
    everything = [_rule("ANONYMOUS", Operation.ALL, ResourceType.CLUSTER, CLUSTER_NAME)]
    client = [
        _rule("ANONYMOUS", operation, ResourceType.TOPIC, "guarded-", is_prefix=True)
        for operation in (Operation.WRITE, Operation.DESCRIBE, Operation.DELETE, Operation.READ)
    ]
    others = []
    for number in range(OTHERS):
        user = f"user-{number}"
        others += [
            _rule(user, Operation.WRITE, ResourceType.TOPIC, "guarded-", is_prefix=True),
            _rule(user, Operation.WRITE, ResourceType.TOPIC, f"guarded-{number}-", is_prefix=True),
            _rule(user, Operation.READ, ResourceType.TOPIC, f"topic-{number}"),
            _rule(user, Operation.READ, ResourceType.GROUP, f"group-{number}"),
        ]
    with RawClient("127.0.0.1", port) as raw:
        for creations in (everything, client, others):
            answer = raw.call(CreateAclsRequest(creations=creations))
            if any(row.error_code for row in answer.results):
                raise MeasurementFailed("the rules cannot be made")


def _rule(
    user: str, operation: Operation, kind: ResourceType, name: str, *, is_prefix: bool = False
) -> CreateAclsRequestAcl:
    return CreateAclsRequestAcl(
        resource_type=kind,
        resource_name=name,
        resource_pattern_type=PatternType.PREFIXED if is_prefix else PatternType.LITERAL,
        principal=f"User:{user}",
        host="*",
        operation=operation,
        permission_type=Permission.ALLOW,
    )
