"""Every API that is served: nobody without rights gets through, and exactly the rights of its row are enough."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, get_args, get_origin, get_type_hints
from unittest.mock import ANY

import pytest

from penstock.base.errors import Error
from penstock.broker.start import RunningBroker
from penstock.security.acls import (
    CLUSTER_NAME,
    SUPPORTED_OPERATIONS,
    Entry,
    Operation,
    Pattern,
    PatternType,
    Permission,
    ResourceType,
)
from penstock.security.api_rights import API_RIGHTS
from penstock.security.authorizer import Authorizer
from penstock.security.principal import Principal
from penstock.testing.sim_broker import PORT, SimBroker
from penstock.testing.sim_client import SimClient, batch_of
from penstock.testing.sim_world import Simulation
from penstock.wire.api import APIS, OWN_APIS
from penstock.wire.messages.k03_metadata import MetadataRequest
from penstock.wire.messages.k10_find_coordinator import FindCoordinatorRequest
from penstock.wire.messages.k18_api_versions import ApiVersionsRequest
from penstock.wire.messages.k30_create_acls import CreateAclsRequest, CreateAclsRequestAcl
from penstock.wire.messages.k31_delete_acls import DeleteAclsRequest, DeleteAclsRequestFilter
from penstock.wire.messages.k38_create_delegation_token import CreateDelegationTokenRequest
from penstock.wire.messages.k41_describe_delegation_token import DescribeDelegationTokenRequest
from penstock.wire.messages.k68_consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from penstock.wire.schema import int8, int16, int32, int64, schema_of

NUMBERS = (int, int8, int16, int32, int64)
ALICE, ROOT = Principal("User", "alice"), Principal("User", "root")
REFUSALS = {
    Error.TOPIC_AUTHORIZATION_FAILED,
    Error.GROUP_AUTHORIZATION_FAILED,
    Error.CLUSTER_AUTHORIZATION_FAILED,
    Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    Error.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}
NAMES = {
    ResourceType.TOPIC: "orders",
    ResourceType.GROUP: "g",
    ResourceType.CLUSTER: CLUSTER_NAME,
    ResourceType.TRANSACTIONAL_ID: "t",
    ResourceType.USER: "User:bob",
    ResourceType.DELEGATION_TOKEN: "token",
}
TEXTS = {"group_id": "g", "groups": "g", "group_ids": "g", "groups_names": "g", "host": "*", "principal": "User:x"}
TEXTS |= {"transactional_id": "t", "transactional_ids": "t", "v3_and_below_transactional_id": "t"}
TEXTS |= {
    "member_id": "",
    "path": "/data/logs",
    "key": "g",
    "coordinator_keys": "g",
    "names": "t",
    "protocol_type": "c",
}
VERSIONS = {0: 11, 1: 12, 8: 9, 9: 9, 24: 3, 3: 9}
OPEN = {17, 18, 36, 39, 40, 60}
"""Nothing is asked for, or it is only about what is shown."""
LEAVES_OUT = {3, 16, 41, 66, 75}
NOT_YET = {Error.COORDINATOR_NOT_AVAILABLE, Error.COORDINATOR_LOAD_IN_PROGRESS, Error.NOT_COORDINATOR}
FIELDS: dict[int, dict[str, Any]] = {
    0: {"records": batch_of([b"a"]), "acks": 1, "transactional_id": None, "timeout_ms": 1000},
    1: {"replica_id": -1, "max_bytes": 1000, "partition_max_bytes": 1000, "forgotten_topics_data": []},
    2: {"replica_id": -1, "timestamp": -1, "current_leader_epoch": -1},
    3: {"allow_auto_topic_creation": False},
    11: {"session_timeout_ms": 10_000, "protocol_type": "consumer", "rebalance_timeout_ms": 10_000},
    14: {"protocol_name": "range"},
    19: {"name": "new", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []},
    20: {"topic_names": []},
    22: {"transactional_id": None, "producer_id": -1, "producer_epoch": -1},
    23: {"replica_id": -1, "current_leader_epoch": -1},
    28: {"producer_id": 1, "generation_id": -1},
    29: {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1},
    30: {"resource_type": 2, "resource_pattern_type": 3, "operation": 3, "permission_type": 3},
    31: {"resource_type_filter": 6, "pattern_type_filter": 1, "operation": 1, "permission_type": 1},
    32: {"resource_type": 2, "configuration_keys": None},
    33: {"resource_type": 2, "configs": []},
    44: {"resource_type": 2, "configs": []},
    37: {"count": 5, "assignments": None},
    38: {"owner_principal_type": "User", "owner_principal_name": "bob", "renewers": []},
    51: {"deletions": [], "iterations": 4096, "mechanism": 1},
    68: {"member_id": "m", "rebalance_timeout_ms": 1000, "subscribed_topic_regex": None, "topic_partitions": []},
    75: {"cursor": None, "response_partition_limit": 10},
    20000: {"name": "t"},
    20001: {"name": "t"},
    20007: {"api_key": 19, "api_version": 7, "request": b"\xff"},
}
IMPLIED = {
    **dict.fromkeys((Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER), (Operation.DESCRIBE,)),
    Operation.ALTER_CONFIGS: (Operation.DESCRIBE_CONFIGS,),
}
ENOUGH = {
    2: [(Operation.DESCRIBE, ResourceType.TOPIC)],
    1: [(Operation.READ, ResourceType.TOPIC)],
    10: [(Operation.DESCRIBE, ResourceType.GROUP)],
    22: [(Operation.WRITE, ResourceType.TOPIC)],
    20: [(Operation.DELETE, ResourceType.TOPIC)],
    23: [(Operation.DESCRIBE, ResourceType.TOPIC)],
    24: [(Operation.WRITE, ResourceType.TRANSACTIONAL_ID), (Operation.WRITE, ResourceType.TOPIC)],
    0: [(Operation.WRITE, ResourceType.TOPIC)],
    27: [(Operation.ALTER, ResourceType.CLUSTER)],
}
"""Where a row has more rights than one request needs."""


def filled(cls: type, values: dict[str, Any], version: int) -> Any:
    """A message of a version, with one element in each of its lists."""
    given = {}
    kinds = get_type_hints(cls)
    for field in schema_of(cls).fields:
        name = field.name
        if version in field.versions:
            given[name] = values[name] if name in values else _value(name, kinds[name], values, version)
    return cls(**{name: value for name, value in given.items() if value is not ...})


def _value(name: str, kind: Any, values: dict[str, Any], version: int) -> Any:
    options = [each for each in get_args(kind) if each is not type(None)]
    if get_origin(kind) is list:
        return [_value(name, options[0], values, version)] if options[0] not in NUMBERS else [0]
    if options and get_origin(kind) is not None and not isinstance(kind, type):
        return _value(name, options[0], values, version)
    if isinstance(kind, type) and hasattr(kind, "__dataclass_fields__"):
        return filled(kind, values, version)
    return TEXTS.get(name, "orders") if kind is str else ...


def errors_in(answer: Any) -> set[int]:
    """Every error code in an answer."""
    if isinstance(answer, list):
        return set().union(*map(errors_in, answer)) if answer else set()
    fields = getattr(type(answer), "__dataclass_fields__", {})
    found = {getattr(answer, name) for name in fields if name.endswith("error_code")}
    return found.union(*(errors_in(getattr(answer, name)) for name in fields))


class Guarded:
    """A broker with an authorizer, and connections whose user a test chooses."""

    def __init__(self) -> None:
        self.simulation = Simulation(3, limit_s=10_000_000)
        self.broker = SimBroker(
            self.simulation.machine("broker"),
            {
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                "super.users": "User:root",
                "audit.log.enable": "true",
                "delegation.token.secret.key": "secret",
                "group.initial.rebalance.delay.ms": "0",
                "group.consumer.assignment.interval.ms": "0",
            },
        )
        self.world = self.simulation.machine("client").process("client").world

    def run(self, play: Callable[[Guarded], Awaitable[None]]) -> None:
        async def main() -> None:
            await self.broker.start()
            await (await self.connect(ROOT)).create_topic("orders", partitions=1)
            await play(self)

        self.simulation.run(main())

    @property
    def running(self) -> RunningBroker:
        assert self.broker.running is not None
        return self.broker.running

    async def connect(self, who: Principal) -> SimClient:
        client = await SimClient.connect(self.world, "broker", PORT)
        await client.call(ApiVersionsRequest(client_software_name="x", client_software_version="1"), 3)
        self.running._server.connections[-1].principal = who
        return client

    def grant(self, *rights: tuple[Operation, ResourceType]) -> None:
        authorizer = self.running.broker.rights.authorizer
        for pattern in list(authorizer.patterns):
            authorizer.set_entries(pattern, ())
        for operation, kind in rights:
            names = ["orders", "new"] if kind is ResourceType.TOPIC else [NAMES[kind]]
            for name in names:
                pattern = Pattern(kind, PatternType.LITERAL, name)
                entry = Entry("User:alice", "*", operation, Permission.ALLOW)
                authorizer.set_entries(pattern, authorizer.entries_of(pattern) | {entry})


@pytest.fixture
def guarded() -> Iterator[Guarded]:
    made = Guarded()
    yield made
    made.simulation.close()


def request_of(key: int) -> tuple[Any, int]:
    api = (APIS | OWN_APIS)[key]
    version = VERSIONS.get(key, api.max_version)
    return filled(api.request, FIELDS.get(key, {}), version), version


def test_every_api_that_is_served_has_a_row_and_a_name(guarded: Guarded) -> None:
    async def play(guarded: Guarded) -> None:
        for api in guarded.running._dispatcher.served:
            assert API_RIGHTS[api.key].name == api.name
            assert API_RIGHTS[api.key].rights or API_RIGHTS[api.key].note

    guarded.run(play)


def test_every_api_with_no_rights_with_its_rights_and_for_a_super_user(guarded: Guarded) -> None:
    async def play(guarded: Guarded) -> None:
        keys = [api.key for api in guarded.running._dispatcher.served]
        for key in [each for each in keys if each not in OPEN]:
            await check(guarded, key)

    async def check(guarded: Guarded, key: int) -> None:
        name = API_RIGHTS[key].name
        guarded.grant()
        client = await guarded.connect(ALICE)
        refused = errors_in(await client.call(*request_of(key)))
        assert refused & REFUSALS or key in LEAVES_OUT, f"{name} without any right: {refused}"
        guarded.grant(*ENOUGH.get(key, [right[:2] for right in API_RIGHTS[key].rights]))
        client = await guarded.connect(ALICE)
        allowed = errors_in(await client.call(*request_of(key)))
        assert not allowed & REFUSALS, f"{name} with its rights: {allowed}"
        guarded.grant()
        client = await guarded.connect(ROOT)
        allowed = errors_in(await client.call(*request_of(key)))
        assert not allowed & REFUSALS, f"{name} for a super user: {allowed}"

    guarded.run(play)


def test_every_right_but_those_of_its_row_is_not_enough(guarded: Guarded) -> None:
    async def play(guarded: Guarded) -> None:
        for api in guarded.running._dispatcher.served:
            if api.key in OPEN | LEAVES_OUT:
                continue
            asked = {right[:2] for right in API_RIGHTS[api.key].rights}
            guarded.grant(
                *(
                    (operation, kind)
                    for kind, operations in SUPPORTED_OPERATIONS.items()
                    for operation in operations
                    if not {(operation, kind), *((each, kind) for each in IMPLIED.get(operation, ()))} & asked
                )
            )
            refused = errors_in(await (await guarded.connect(ALICE)).call(*request_of(api.key)))
            assert refused & REFUSALS, f"{api.name} with all rights but its own: {refused}"

    guarded.run(play)


def test_where_several_rights_are_needed_each_of_them_is(guarded: Guarded) -> None:
    async def play(guarded: Guarded) -> None:
        root = await guarded.connect(ROOT)
        for key in (8, 9, 24, 25, 28, 68):
            needed = ENOUGH.get(key, [right[:2] for right in API_RIGHTS[key].rights])
            assert len(needed) > 1
            for lacking in needed:
                guarded.grant(*(each for each in needed if each != lacking))
                alice = await guarded.connect(ALICE)
                while NOT_YET & (refused := errors_in(await alice.call(*request_of(key)))):
                    await root.call(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
                assert refused & REFUSALS, f"{API_RIGHTS[key].name} without {lacking}: {refused}"

    guarded.run(play)


def test_what_may_not_be_described_is_left_out(guarded: Guarded) -> None:
    async def play(guarded: Guarded) -> None:
        client = await guarded.connect(ALICE)
        everything = MetadataRequest(topics=None)
        assert (await client.call(everything, 9)).topics == []
        named = filled(APIS[3].request, {"allow_auto_topic_creation": True, "name": "orders"}, 9)
        missing = filled(APIS[3].request, {"allow_auto_topic_creation": True, "name": "missing"}, 9)
        (there,), (absent,) = (await client.call(named, 9)).topics, (await client.call(missing, 9)).topics
        there.name = absent.name = ""
        assert there == absent and there.error_code == Error.TOPIC_AUTHORIZATION_FAILED
        guarded.grant((Operation.READ, ResourceType.TOPIC))
        (shown,) = (await client.call(everything, 9)).topics
        assert shown.name == "orders"

    guarded.run(play)


def test_the_tokens_of_others_are_seen_by_those_who_may(guarded: Guarded) -> None:
    async def play(guarded: Guarded) -> None:
        root, alice = await guarded.connect(ROOT), await guarded.connect(ALICE)
        of_bob = CreateDelegationTokenRequest(owner_principal_type="User", owner_principal_name="bob")
        tokens = [await root.call(of_bob, 3), await root.call(CreateDelegationTokenRequest(), 3)]
        assert [token.error_code for token in tokens] == [Error.NONE, Error.NONE]

        async def seen(client: SimClient) -> list[str]:
            answer = await client.call(DescribeDelegationTokenRequest(owners=None), 3)
            assert answer.error_code == Error.NONE
            return [token.token_id for token in answer.tokens]

        assert await seen(root) == [token.token_id for token in tokens]
        assert await seen(alice) == []
        guarded.grant((Operation.DESCRIBE_TOKENS, ResourceType.USER))
        assert await seen(alice) == [tokens[0].token_id]
        guarded.grant((Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN))
        assert await seen(alice) == []
        allowed = Entry("User:alice", "*", Operation.DESCRIBE, Permission.ALLOW)
        of_root = Pattern(ResourceType.DELEGATION_TOKEN, PatternType.LITERAL, tokens[1].token_id)
        guarded.running.broker.rights.authorizer.set_entries(of_root, {allowed})
        assert await seen(alice) == [tokens[1].token_id]

    guarded.run(play)


def test_a_forged_replica_and_a_transaction_without_the_right(guarded: Guarded) -> None:
    async def play(guarded: Guarded) -> None:
        guarded.grant((Operation.READ, ResourceType.TOPIC), (Operation.WRITE, ResourceType.TOPIC))
        client = await guarded.connect(ALICE)
        forged = filled(APIS[1].request, FIELDS[1] | {"replica_id": 1}, 12)
        assert errors_in(await client.call(forged, 12)) == {0, Error.TOPIC_AUTHORIZATION_FAILED}
        newer = filled(APIS[1].request, FIELDS[1], 17)
        newer.replica_state.replica_id = 1
        assert errors_in(await client.call(newer, 17)) == {0, Error.TOPIC_AUTHORIZATION_FAILED}
        for asking_as, expected in ((-1, 0), (-2, 0), (0, Error.TOPIC_AUTHORIZATION_FAILED)):
            end = filled(APIS[2].request, FIELDS[2] | {"replica_id": asking_as}, 7)
            assert errors_in(await client.call(end, 7)) == {expected}
        transactional = filled(APIS[0].request, FIELDS[0] | {"transactional_id": "t"}, 11)
        answer = await client.call(transactional, 11)
        assert errors_in(answer) == {Error.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}

    guarded.run(play)


def test_a_right_that_is_taken_away_ends_a_producer_that_is_connected(guarded: Guarded) -> None:
    async def play(guarded: Guarded) -> None:
        root, alice = await guarded.connect(ROOT), await guarded.connect(ALICE)
        rule = CreateAclsRequestAcl(
            resource_type=2, resource_name="orders", principal="User:alice", host="*", operation=4, permission_type=3
        )
        created = await root.call(CreateAclsRequest(creations=[rule]))
        assert [row.error_code for row in created.results] == [0]
        for _ in range(5):
            assert errors_in(await alice.call(*request_of(0))) == {0}
        before = guarded.running._dispatcher.again_count
        assert before > 0
        everything = DeleteAclsRequestFilter(
            resource_type_filter=1,
            resource_name_filter=None,
            pattern_type_filter=1,
            principal_filter=None,
            host_filter=None,
            operation=1,
            permission_type=1,
        )
        deleted = await root.call(DeleteAclsRequest(filters=[everything]))
        assert [acl.principal for acl in deleted.filter_results[0].matching_acls] == ["User:alice"]
        assert errors_in(await alice.call(*request_of(0))) == {Error.TOPIC_AUTHORIZATION_FAILED}
        assert errors_in(await alice.call(*request_of(0))) == {Error.TOPIC_AUTHORIZATION_FAILED}
        assert guarded.running._dispatcher.again_count == before

    guarded.run(play)


def test_a_right_that_is_taken_away_ends_a_fetch_that_waits(guarded: Guarded) -> None:
    async def play(guarded: Guarded) -> None:
        root, alice, writer = [await guarded.connect(who) for who in (ROOT, ALICE, ROOT)]
        guarded.grant((Operation.READ, ResourceType.TOPIC))
        waits = filled(APIS[1].request, FIELDS[1] | {"max_wait_ms": 1 << 30, "min_bytes": 1}, 12)
        waiting = asyncio.ensure_future(alice.call(waits, 12))
        await asyncio.sleep(5)
        guarded.grant()
        assert not waiting.done()
        assert errors_in(await writer.call(*request_of(0))) == {0}
        answer = await waiting
        assert errors_in(answer) == {0, Error.TOPIC_AUTHORIZATION_FAILED}
        assert not answer.responses[0].partitions[0].records
        told = filled(APIS[1].request, FIELDS[1] | {"max_wait_ms": 1 << 30, "min_bytes": 1}, 12)
        assert (await root.call(told, 12)).responses[0].partitions[0].records

    guarded.run(play)


def test_it_is_decided_once_for_a_connection_and_a_topic(guarded: Guarded, monkeypatch: pytest.MonkeyPatch) -> None:
    """Later produces and fetches do not ask at all."""
    asked: list[str] = []
    for name in ("allows", "_decide"):
        real = getattr(Authorizer, name)
        monkeypatch.setattr(Authorizer, name, lambda *given, name=name, real=real: asked.append(name) or real(*given))

    async def play(guarded: Guarded) -> None:
        guarded.grant((Operation.WRITE, ResourceType.TOPIC), (Operation.READ, ResourceType.TOPIC))
        client = await guarded.connect(ALICE)
        assert errors_in(await client.call(*request_of(0))) == {0}
        asked.clear()
        for _ in range(20):
            assert errors_in(await client.call(*request_of(0))) == {0}
        assert asked == []
        for _ in range(20):
            assert errors_in(await client.call(*request_of(1))) == {0}
        assert asked.count("_decide") == 1
        asked.clear()
        for _ in range(20):
            assert errors_in(await client.call(*request_of(1))) == {0}
        assert asked == []

    guarded.run(play)


def test_who_may_delete_on_the_cluster_may_delete_every_topic(guarded: Guarded) -> None:
    async def play(guarded: Guarded) -> None:
        guarded.grant((Operation.DELETE, ResourceType.CLUSTER))
        client = await guarded.connect(ALICE)
        assert errors_in(await client.call(*request_of(20))) == {Error.NONE}

    guarded.run(play)


def test_what_a_regular_expression_finds_follows_the_rules(guarded: Guarded) -> None:
    async def play(guarded: Guarded) -> None:
        root = await guarded.connect(ROOT)
        await root.create_topic("secret", partitions=1)
        for kind, name in ((2, "orders"), (3, "g")):
            assert errors_in(await root.call(CreateAclsRequest(creations=[_readable(kind, name)]))) == {Error.NONE}
        alice = await guarded.connect(ALICE)

        async def found() -> set[str]:
            beat = ConsumerGroupHeartbeatRequest(
                group_id="g",
                member_id="m",
                rebalance_timeout_ms=10_000,
                subscribed_topic_regex="orders|secret.*",
                topic_partitions=[],
            )
            while (answer := await alice.call(beat, 1)).error_code in NOT_YET:
                await root.call(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
            assert answer.error_code == Error.NONE, answer
            topics = {
                topic.topic_id: topic.name for topic in (await root.call(MetadataRequest(topics=None), 12)).topics
            }
            return {topics[row.topic_id] for row in answer.assignment.topic_partitions}

        assert await found() == {"orders"}
        await root.create_topic("secret2", partitions=1)
        assert await found() == {"orders"}
        assert errors_in(await root.call(CreateAclsRequest(creations=[_readable(2, "secret2")]))) == {Error.NONE}
        assert await found() == {"orders", "secret2"}

    guarded.run(play)


def _readable(kind: int, name: str) -> CreateAclsRequestAcl:
    return CreateAclsRequestAcl(
        resource_type=kind, resource_name=name, principal="User:alice", host="*", operation=3, permission_type=3
    )


def test_who_asked_for_an_election_or_a_move_goes_on_record(guarded: Guarded, monkeypatch: pytest.MonkeyPatch) -> None:
    async def play(guarded: Guarded) -> None:
        events: list[tuple[str, dict[str, object]]] = []
        audit = guarded.running.broker.audit
        monkeypatch.setattr(audit, "record", lambda event, **fields: events.append((event, fields)))
        root = await guarded.connect(ROOT)
        broker_id = (await root.call(MetadataRequest(topics=[]), 9)).brokers[0].node_id
        moved = filled(APIS[45].request, {"replicas": [broker_id]}, 1)
        assert errors_in(await root.call(moved, 1)) == {Error.NONE}
        await root.call(filled(APIS[43].request, {"election_type": 1}, 2), 2)
        told = [(event, fields["principal"]) for event, fields in events]
        assert told == [("reassignment_asked", ROOT), ("election_asked", ROOT)]
        assert (events[0][1]["partition"], events[0][1]["replicas"]) == ("orders-0", [broker_id])
        assert (events[1][1]["kind"], events[1][1]["partitions"]) == ("unclean", [])

    guarded.run(play)


def test_who_deleted_offsets_or_moved_a_replica_goes_on_record(
    guarded: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def play(guarded: Guarded) -> None:
        events: list[tuple[str, dict[str, object]]] = []
        audit = guarded.running.broker.audit
        monkeypatch.setattr(audit, "record", lambda event, **fields: events.append((event, fields)))
        root = await guarded.connect(ROOT)
        committed = filled(APIS[8].request, {"generation_id_or_member_epoch": -1, "committed_offset": 0}, 9)
        committed.member_id, committed.group_instance_id = "", None
        while NOT_YET & errors_in(answer := await root.call(committed, 9)):
            await root.call(FindCoordinatorRequest(coordinator_keys=["g"]), 4)
        assert errors_in(answer) == {Error.NONE}
        for _ in range(2):  # the second time there is nothing left, and Kafka says that this is no error
            assert errors_in(await root.call(*request_of(47))) == {Error.NONE}
        assert errors_in(await root.call(*request_of(34))) == {Error.NONE}
        told = {event: fields for event, fields in events}
        assert told["offsets_deleted"] == {"group": "g", "partitions": ["orders-0"], "principal": ROOT, "host": ANY}
        assert str(told["replica_move_asked"]["partition"]) == "orders-0"
        assert told["replica_move_asked"]["principal"] == ROOT

    guarded.run(play)
