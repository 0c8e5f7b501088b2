"""Every route over HTTP in every state: not logged in, without rights, with exactly the rights, as a super user."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from penstock.base.broker_settings import load_broker_settings
from penstock.base.settings import SettingsError
from penstock.base.world import Address
from penstock.broker.audit_log import AuditLog
from penstock.broker.http_guard import HttpGuard
from penstock.broker.http_metrics import CONNECTIONS_MAX
from penstock.broker.rights import Rights
from penstock.broker.start import RunningBroker
from penstock.security.acls import CLUSTER_NAME, Entry, Operation, Pattern, PatternType, Permission, ResourceType
from penstock.security.api_rights import ROUTE_RIGHTS
from penstock.testing.sim_broker import SimBroker
from penstock.testing.sim_world import Simulation

PORT = 9308
PASSWORDS = {"alice": "alice's: secret", "bob": "bob's", "root": "root's"}
PLAIN_USER = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_paul="paul\'s";'
SETTINGS = {
    "metrics.listener": f"0.0.0.0:{PORT}",
    "metrics.security.protocol": "SASL_PLAINTEXT",
    "listener.name.metrics.sasl.plain.without.tls.enable": "true",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:root",
}
STRANGERS = (None, "alice", "alice:", "alice:wrong", ":alice's: secret", "nobody:x", "Alice:alice's: secret", "\0:\0")
METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "TRACE")


class House:
    """A broker that serves its metrics to others, and somebody on another machine."""

    def __init__(self, simulation: Simulation, settings: dict[str, str]) -> None:
        self.broker = SimBroker(simulation.machine("broker"), settings)
        self.world = simulation.machine("client").process("client").world

    @property
    def running(self) -> RunningBroker:
        assert self.broker.running is not None
        return self.broker.running

    def allow(self, user: str, operation: Operation, kind: ResourceType = ResourceType.CLUSTER) -> None:
        pattern = Pattern(kind, PatternType.LITERAL, CLUSTER_NAME if kind is ResourceType.CLUSTER else "orders")
        entry = Entry(f"User:{user}", "*", operation, Permission.ALLOW)
        authorizer = self.running.broker.rights.authorizer
        authorizer.set_entries(pattern, authorizer.entries_of(pattern) | {entry})

    async def ask(self, path: str, login: str | None, method: str = "GET") -> int:
        """The status of the answer, which has no word of metrics in it unless it is 200."""
        field = "" if login is None else f"Authorization: Basic {base64.b64encode(login.encode()).decode()}\r\n"
        answer = await self.send(f"{method} {path} HTTP/1.1\r\nHost: broker\r\n{field}\r\n".encode())
        status = int(answer.split(b" ", 2)[1])
        assert status == 200 or b"penstock_" not in answer
        assert (b'WWW-Authenticate: Basic realm="penstock"' in answer) is (status == 401)
        return status

    async def send(self, request: bytes) -> bytes:
        stream = await self.world.network.connect("broker", PORT)
        while request:  # a send may take a part
            request = request[stream.send(request) :]
        received = bytearray()
        while True:
            buffer = bytearray(65536)
            try:
                count = stream.recv_into(buffer)
            except BlockingIOError:
                ready = asyncio.get_running_loop().create_future()
                stream.watch_read(lambda ready=ready: ready.done() or ready.set_result(None))
                await ready
                stream.watch_read(None)
                continue
            received += buffer[:count]
            if not count:
                stream.close()
                return bytes(received)


def run(play: Callable[[House], Awaitable[None]], **more: str) -> None:
    """`more` settings have underscores for dots."""
    settings = SETTINGS | {name.replace("_", "."): value for name, value in more.items()}
    with Simulation(5, limit_s=10_000) as simulation:

        async def main() -> None:
            house = House(simulation, settings)
            await house.broker.start()
            await house.running.make_users(PASSWORDS)
            await play(house)
            await house.broker.stop()

        simulation.run(main())


def test_every_route_and_method_in_every_state(monkeypatch: pytest.MonkeyPatch) -> None:
    recorded: list[tuple[str, dict[str, Any]]] = []
    monkeypatch.setattr(AuditLog, "record", lambda _self, event, **fields: recorded.append((event, fields)))

    def login_of(user: str) -> str:
        return f"{user}:{PASSWORDS[user]}"

    async def play(house: House) -> None:
        for right in Operation:
            if right not in (Operation.UNKNOWN, Operation.ANY, Operation.ALL, Operation.DESCRIBE):
                house.allow("bob", right, ResourceType.TOPIC)
        house.allow("alice", Operation.DESCRIBE)
        for path in (*ROUTE_RIGHTS, "/", "/metrics/", "/nothing"):
            is_route = path in ROUTE_RIGHTS
            for method in METHODS:
                served = (200 if method in ("GET", "HEAD") else 405) if is_route else 404
                for stranger in STRANGERS:
                    assert await house.ask(path, stranger, method) == 401, (path, stranger)
                for user in ("alice", "root"):
                    assert await house.ask(path, login_of(user), method) == served, (path, method, user)
                bobs = 403 if served == 200 and ROUTE_RIGHTS[path].rights else served
                assert await house.ask(path, login_of("bob"), method) == bobs, (path, method)

    run(play)
    denied = [fields for event, fields in recorded if event == "operation_denied"]
    assert {(str(each["principal"]), each["api"], each["operation"]) for each in denied} == {
        ("User:bob", "GET /metrics", "DESCRIBE")
    }
    failed = [fields for event, fields in recorded if event == "login_failed"]
    assert {each["principal"] for each in failed} >= {"User:alice", "User:nobody"}
    assert not any("secret" in str(fields) for _, fields in recorded)


def test_a_login_for_metrics_alone_needs_no_rights() -> None:
    async def play(house: House) -> None:
        for path in ROUTE_RIGHTS:
            assert await house.ask(path, "prometheus:its: own") == 200
            for stranger in (*STRANGERS, "prometheus:other", "prometheus", "its: own"):
                assert await house.ask(path, stranger) == 401

    for protocol in ("PLAINTEXT", "SASL_PLAINTEXT"):
        run(play, metrics_login="prometheus:its: own", metrics_security_protocol=protocol)


def test_users_of_plain_have_to_be_those_of_this_listener() -> None:
    async def play(house: House) -> None:
        assert await house.ask("/healthz", "paul:paul's") == 200
        assert await house.ask("/metrics", "paul:paul's") == 403
        assert await house.ask("/metrics", "paul:wrong") == 401
        assert await house.ask("/healthz", f"alice:{PASSWORDS['alice']}") == 200

    more = {"sasl_enabled_mechanisms": "PLAIN,SCRAM-SHA-512"}
    run(play, listener_name_metrics_plain_sasl_jaas_config=PLAIN_USER, **more)

    async def play_elsewhere(house: House) -> None:
        assert await house.ask("/healthz", "paul:paul's") == 401

    run(play_elsewhere, listener_name_plaintext_plain_sasl_jaas_config=PLAIN_USER, **more)


def test_whoever_was_not_recognised_is_no_hindrance() -> None:
    """Many who wait to hear that their password is wrong make room for somebody who comes."""

    async def play(house: House) -> None:
        wrong = [asyncio.ensure_future(house.ask("/metrics", "root:wrong")) for _ in range(3 * CONNECTIONS_MAX)]
        await asyncio.sleep(0.05)
        assert await house.ask("/metrics", f"root:{PASSWORDS['root']}") == 200
        for each in await asyncio.gather(*wrong, return_exceptions=True):
            assert each == 401 or isinstance(each, Exception)  # the others were shown the door

    run(play)


def test_the_same_work_for_users_who_do_not_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    worked: list[int] = []

    async def play(house: House) -> None:
        from_hash = "penstock.sasl.scram_server.salted_password"
        monkeypatch.setattr(from_hash, lambda _hash, _password, _salt, iterations: worked.append(iterations) or b"x")
        counts = []
        for login in ("alice:wrong", "nobody:wrong"):
            worked.clear()
            assert await house.ask("/metrics", login) == 401
            counts.append(list(worked))
        assert counts[0] == counts[1] and len(counts[0]) == 2

    run(play)


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({}, "give metrics.login or metrics.security.protocol"),
        ({"metrics.login": "secret"}, "user:password"),
        ({"metrics.security.protocol": "SASL_PLAINTEXT"}, "without TLS"),
        ({"metrics.security.protocol": "SASL_SSL"}, "needs a certificate"),
        ({"metrics.security.protocol": "SSL"}, "give metrics.login or metrics.security.protocol"),
        ({"metrics.security.protocol": "SSL", "ssl.client.auth": "required"}, "needs a certificate"),
    ],
)
def test_what_would_tell_too_much_is_refused(
    values: dict[str, str], problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = load_broker_settings({"metrics.listener": f"0.0.0.0:{PORT}", "log.dirs": "/data", **values})
    if problem != "needs a certificate":
        monkeypatch.setattr("penstock.broker.http_guard.ListenerTls", lambda *_: None)
    nobody: Any = None

    async def main() -> None:
        with pytest.raises(SettingsError, match=problem):
            HttpGuard(Address("0.0.0.0", PORT), nobody, settings, nobody, nobody, nobody)

    asyncio.run(main())


def test_no_route_is_served_without_a_row() -> None:
    with pytest.raises(KeyError):
        Rights.allows_route(object(), None, "", "/other")  # type: ignore[arg-type]
