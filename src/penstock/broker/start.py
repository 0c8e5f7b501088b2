"""A broker from start to stop: the order in which its parts come up, and go down.

Up: the znodes, the log directories, the partitions (none of them leads yet), the listeners, the registration, the race
for the role of controller, and the admission by whoever has it. Connections that come before all of that is done wait.
Down, in the other order: leaderships are handed over first, and a clean mark is left in each log directory.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Mapping
from uuid import UUID

from penstock import __version__
from penstock.base.addresses import plain_address
from penstock.base.identifiers import uuid_to_text
from penstock.base.listeners import Listener, parse_listeners
from penstock.base.process_figures import ProcessFigures
from penstock.base.settings import Settings, SettingsError
from penstock.base.world import Address, SocketOptions, World
from penstock.broker.api_table import serve_all
from penstock.broker.audit_log import AuditLog
from penstock.broker.background import Background
from penstock.broker.broker import Broker
from penstock.broker.client_quotas import ClientQuotas
from penstock.broker.cluster_view import ClusterView, ViewChange
from penstock.broker.compactor import Compactor
from penstock.broker.connection import Intake
from penstock.broker.connection_rates import ConnectionRates
from penstock.broker.controller_duties import ControllerDuties
from penstock.broker.controller_role import ControllerRole, ProducerIdAllocator
from penstock.broker.delegation_tokens import DelegationTokens
from penstock.broker.deletions import finish_deletions
from penstock.broker.doubts import Doubts
from penstock.broker.failed_replicas import FailedReplicas
from penstock.broker.followers import Followers
from penstock.broker.forwarding import Forwarding
from penstock.broker.greetings import Greetings
from penstock.broker.group_shards import group_shards, tell_groups
from penstock.broker.inter_broker import InterBroker
from penstock.broker.isr_changes import IsrChanges
from penstock.broker.lease import Lease
from penstock.broker.leaving import leave
from penstock.broker.login_settings import own_login
from penstock.broker.loop_delay import LoopDelay
from penstock.broker.maintenance import Maintenance
from penstock.broker.markers import Markers
from penstock.broker.membership import IdTakenError, Membership
from penstock.broker.metrics import Metrics, MetricsError
from penstock.broker.metrics_scrape import Metered
from penstock.broker.partition_config import PartitionConfig, partition_config
from penstock.broker.partitions import Partitions
from penstock.broker.peer_log import PeerLog
from penstock.broker.peers import LinkLimits, Peers
from penstock.broker.replica_moves import ReplicaMoves
from penstock.broker.requests import Dispatcher
from penstock.broker.rights import Rights
from penstock.broker.server import ConnectionLimits, Server
from penstock.broker.session_counts import SessionCounts
from penstock.broker.spreading import Spreading
from penstock.broker.topics import Topics
from penstock.broker.transaction_shards import transaction_shards
from penstock.broker.users import Users
from penstock.log.meta_properties import LogDirectoryError
from penstock.zookeeper.coordination import Coordination, SessionState
from penstock.zookeeper.errors import NoAuthError, NodeExistsError
from penstock.zookeeper.patience import until_answered
from penstock.zookeeper.znodes import BrokerNode, Endpoint, LoginSecret, first_znodes, later_znodes

logger = logging.getLogger(__name__)

DRAIN_S_MAX = 5.0
LOGIN_SECRET_BYTES = 32


class StartError(Exception):
    """The broker cannot start; the text says why and what to do."""


class RunningBroker:
    """A broker that serves."""

    def __init__(
        self,
        broker: Broker,
        server: Server,
        dispatcher: Dispatcher,
        listeners: list[Listener],
        maintenance: Maintenance,
        background: Background,
        metrics: Metrics,
    ) -> None:
        self.broker = broker
        self.metrics = metrics
        self._background = background
        self.addresses = [listener.advertised for listener in listeners]
        self._server = server
        self._dispatcher = dispatcher
        self._failed = asyncio.Event()
        self._tasks = [asyncio.ensure_future(server.sweep_forever()), *maintenance.start()]
        self._tasks.append(asyncio.ensure_future(broker.greetings.look_again_forever()))

    def fail(self) -> None:
        self._failed.set()

    async def failed(self) -> None:
        """Returns when the broker cannot go on."""
        await self._failed.wait()

    async def make_users(self, passwords: Mapping[str, str]) -> None:
        """Users whom a new cluster begins with, made by the controller where they are missing."""
        if self.broker.role.is_controller:
            for user, password in passwords.items():
                await self.broker.users.make(user, password, self.broker.world.random)

    async def stop(self) -> None:
        """Hand over what is led here, let what is under way end, flush, and leave a clean mark."""
        self.metrics.is_healthy = False
        await leave(self.broker)
        self.broker.groups.stop()
        self.broker.transactions.stop()
        await self._server.stop(DRAIN_S_MAX)
        await self._dispatcher.stop()
        await self.broker.markers.stop()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await self.metrics.stop()
        await _stop_following(self.broker)
        await self._background.stop()
        await self.broker.audit.stop()
        await self.broker.partitions.close()


async def start_broker(
    world: World,
    settings: Settings,
    coordination: Coordination,
    process_figures: Callable[[], ProcessFigures] | None = None,
) -> RunningBroker:
    """Start a broker on its data; raises StartError. `process_figures` is for the metrics of a process of its own."""
    try:
        return await _start(world, settings, coordination, process_figures)
    except NoAuthError as error:
        raise StartError(
            "ZooKeeper keeps znodes of this cluster for brokers that show another identity: give zookeeper.auth.digest "
            "as the other brokers have it"
        ) from error


async def _start(
    world: World,
    settings: Settings,
    coordination: Coordination,
    process_figures: Callable[[], ProcessFigures] | None,
) -> RunningBroker:
    node_id = settings.integer("node.id")
    await until_answered(coordination, lambda: _make_first_znodes(world, coordination))
    view = ClusterView(coordination)
    await until_answered(coordination, view.load)
    lease = Lease(world.clock, coordination)
    audit = AuditLog(world, settings)
    role = ControllerRole(node_id, coordination, view, world.clock, lambda topic: broker.topics.rules_of(topic))
    try:
        partitions = await Partitions.open(world, node_id, view, lease, settings)
    except LogDirectoryError as error:
        raise StartError(str(error)) from error
    may_keep = coordination.keeps_secrets or settings.flag("zookeeper.unprotected.credentials.enable")
    login_secret = await until_answered(coordination, lambda: _login_secret(coordination))
    users = Users(view, role, login_secret, may_keep=may_keep)
    tokens = DelegationTokens(world, view, role, settings, login_secret)
    listener_name = parse_listeners(settings, "").inter_broker_name
    inter_broker = _inter_broker(world, settings, users, lambda: broker.settings)
    peers = Peers(world, view, node_id, listener_name, _link_limits(settings), inter_broker)
    rights = _rights(view, settings, audit)
    forwarding = Forwarding(
        node_id, world.clock, role, view, peers, rights, settings.integer("controller.socket.timeout.ms") / 1000
    )
    spreading = Spreading(node_id, view, peers)
    markers = Markers(world, node_id, view, partitions, lambda: broker.groups, peers)
    membership = Membership(node_id, world, coordination, view, lease)
    broker = Broker(
        node_id=node_id,
        world=world,
        settings=settings,
        audit=audit,
        rights=rights,
        quotas=ClientQuotas(world.clock, settings),
        view=view,
        membership=membership,
        peers=peers,
        role=role,
        forwarding=forwarding,
        spreading=spreading,
        topics=Topics(
            role,
            view,
            lambda: broker.settings,
            world.random,
            lambda: finish_deletions(broker, coordination),
            forwarding,
            spreading,
        ),
        partitions=partitions,
        producer_ids=ProducerIdAllocator(node_id, coordination),
        groups=group_shards(world, view, partitions, lease, settings, lambda: broker.settings),
        transactions=transaction_shards(world, view, partitions, lease, lambda: broker.settings, markers),
        markers=markers,
        isr_changes=IsrChanges(world, view, partitions, membership, peers, role, settings),
        failed_replicas=FailedReplicas(world.clock, view, partitions, membership, peers, role, settings),
        replica_moves=ReplicaMoves(world, view, partitions, lambda: broker.settings),
        compactor=Compactor(world, partitions, lambda: broker.settings),
        duties=ControllerDuties(view, role, lambda: broker.settings, tokens, audit.record),
        followers=Followers(
            world, view, partitions, membership, settings, lambda: broker.settings, listener_name, inter_broker
        ),
        doubts=Doubts(world.clock, view),
        users=users,
        tokens=tokens,
        greetings=Greetings(world, users, tokens, audit.record),
    )
    broker.followers.on_broken = broker.doubts.arise
    broker.quotas.may_act_as_broker = rights.may_act_as_broker
    role.record = partitions.record = audit.record
    audit.open()
    try:
        return await _serve(broker, coordination, process_figures)
    except (Exception, asyncio.CancelledError):
        await audit.stop()
        await partitions.close()
        raise


async def _serve(
    broker: Broker, coordination: Coordination, process_figures: Callable[[], ProcessFigures] | None
) -> RunningBroker:
    world = broker.world

    was_admitted = False
    background = Background()

    async def view_changed(change: ViewChange) -> None:
        nonlocal was_admitted
        if any(name.startswith("brokers/") for name in change.configs):
            broker.reload_dynamic_settings()
            broker.partitions.use_configs(broker.partitions.topic_names, config_of)
            broker.partitions.cordoned = frozenset(broker.settings.list("cordoned.log.dirs"))
            server.limits = connection_limits(broker.settings)
            broker.greetings.use(broker.settings)
        if any(name.startswith(("users/", "clients/", "ips/")) for name in change.configs):
            broker.quotas.use({name: stored.values for name, stored in broker.view.configs.items()})
            server.forget_shortcuts()
        is_admitted = broker.membership.is_admitted
        if is_admitted and not was_admitted:
            await broker.partitions.loss_is_known()
        topics = change.topics if is_admitted == was_admitted else broker.view.topics.keys() | change.topics
        was_admitted = is_admitted
        await broker.partitions.follow(sorted(topics), config_of, may_lead=is_admitted)
        broker.membership.lease.acts_on(broker.view.session_id)
        kind = "topics/"
        altered = [name.removeprefix(kind) for name in sorted(change.configs) if name.startswith(kind)]
        broker.partitions.use_configs(altered, config_of)
        broker.groups.follow()
        broker.transactions.follow()
        tell_groups(broker.groups, change, broker.settings)
        if not change.topics <= broker.view.topics.keys() and was_admitted:
            background.add(finish_deletions(broker, coordination))

    def config_of(topic: str) -> PartitionConfig:
        return partition_config(broker.topics.settings_of(topic), broker.settings)

    broker.reload_dynamic_settings()
    broker.quotas.use({name: stored.values for name, stored in broker.view.configs.items()})
    await broker.partitions.follow(sorted(broker.view.topics), config_of, may_lead=False)
    broker.view.on_change(view_changed)
    peer_log = PeerLog(world.clock)
    dispatcher = Dispatcher(peer_log, world.clock, broker.quotas)
    serve_all(dispatcher, broker)
    limits = connection_limits(broker.settings)
    server = Server(world.network, world.clock, _intake(broker.settings), limits, dispatcher, peer_log)
    server.rates = ConnectionRates(broker.quotas, lambda listener: _connection_rate(broker.settings, listener))
    broker.rights.on_change(server.forget_shortcuts)
    session = SessionCounts(coordination, world.clock)
    metrics = Metrics(Metered(broker, server, dispatcher, session, LoopDelay(world.clock), process_figures))
    try:
        listeners = await _listen(server, broker, dispatcher)
        await _serve_metrics(metrics)
        broker.view.start_following()
        await until_answered(coordination, lambda: _register(broker, listeners))
        broker.role.start()
        broker.isr_changes.start()
        broker.failed_replicas.start()
        broker.duties.start()
        await broker.membership.admitted()
        await finish_deletions(broker, coordination)
    except (Exception, asyncio.CancelledError):
        await metrics.stop()
        await server.stop(0)
        await _stop_following(broker)
        raise
    broker.replica_moves.start()
    broker.compactor.start()
    server.open()
    metrics.is_healthy = True
    running = RunningBroker(broker, server, dispatcher, listeners, Maintenance(broker), background, metrics)

    def session_changed(state: SessionState) -> None:
        if state is SessionState.FAILED:
            logger.error("the keeper in this process cannot go on")
            running.fail()

    coordination.add_listener(session_changed)
    broker.membership.on_id_taken = running.fail
    broker.failed_replicas.on_give_up = running.fail
    return running


async def _stop_following(broker: Broker) -> None:
    await broker.followers.stop()
    await broker.compactor.stop()
    await broker.replica_moves.stop()
    await broker.duties.stop()
    await broker.failed_replicas.stop()
    await broker.isr_changes.stop()
    await broker.role.stop()
    await broker.membership.stop()
    await broker.view.stop()
    await broker.peers.close()


def _rights(view: ClusterView, settings: Settings, audit: AuditLog) -> Rights:
    try:
        return Rights(view, settings, audit)
    except SettingsError as error:
        raise StartError("; ".join(error.problems)) from error


def _inter_broker(world: World, settings: Settings, users: Users, present: Callable[[], Settings]) -> InterBroker:
    listener = parse_listeners(settings, "localhost").inter_broker
    inter_broker = InterBroker(world, listener, present)
    try:
        inter_broker.check(settings)
        if listener.protocol.has_login:
            users.use_own_login(listener.name, own_login(settings, listener.name))
    except SettingsError as error:
        raise StartError("; ".join(error.problems)) from error
    return inter_broker


async def _make_first_znodes(world: World, coordination: Coordination) -> None:
    cluster_id = uuid_to_text(UUID(bytes=world.random.randbytes(16), version=4))
    try:
        await coordination.multi(first_znodes(cluster_id))
    except NodeExistsError:
        pass
    for each in later_znodes(world.random.randbytes(LOGIN_SECRET_BYTES)):
        try:
            await coordination.multi([each])
        except NodeExistsError:
            pass


async def _login_secret(coordination: Coordination) -> bytes:
    return LoginSecret.decode((await coordination.get(LoginSecret.PATH))[0]).secret


async def _listen(server: Server, broker: Broker, dispatcher: Dispatcher) -> list[Listener]:
    listeners, settings = [], broker.settings
    options = SocketOptions(
        backlog=settings.integer("socket.listen.backlog.size"),
        receive_buffer_bytes=settings.integer("socket.receive.buffer.bytes"),
        send_buffer_bytes=settings.integer("socket.send.buffer.bytes"),
    )
    for listener in parse_listeners(settings, settings.optional_text("broker.host") or "localhost").all:
        try:
            greeting = broker.greetings.of(listener, settings, dispatcher)
            address = await server.listen(listener.name, listener.bind.host, listener.bind.port, options, greeting)
        except SettingsError as error:
            raise StartError("; ".join(error.problems)) from error
        except OSError as error:
            where = Address(listener.bind.host or "0.0.0.0", listener.bind.port)
            raise StartError(f"cannot listen on {where}: {error.strerror}; choose another port with --port") from error
        listeners.append(listener.bound_to(address.port))
    return listeners


async def _serve_metrics(metrics: Metrics) -> None:
    try:
        await metrics.serve()
    except MetricsError as error:
        raise StartError(str(error)) from error


async def _register(broker: Broker, listeners: list[Listener]) -> None:
    node = BrokerNode(
        endpoints=tuple(
            Endpoint(
                listener=listener.name,
                host=listener.advertised.host,
                port=listener.advertised.port,
                security_protocol=listener.protocol.value,
            )
            for listener in listeners
        ),
        host=broker.settings.optional_text("broker.host") or "",
        rack=broker.settings.optional_text("broker.rack"),
        software_version=__version__,
    )
    try:
        await broker.membership.register(node, lambda: broker.partitions.has_lost)
    except IdTakenError as error:
        raise StartError(str(error)) from error


def _intake(settings: Settings) -> Intake:
    budget = settings.integer("queued.max.request.bytes")
    return Intake(
        budget_bytes=budget if budget > 0 else 1 << 62, frame_bytes_max=settings.integer("socket.request.max.bytes")
    )


def _link_limits(settings: Settings) -> LinkLimits:
    return LinkLimits(
        connect_s=settings.integer("socket.connection.setup.timeout.ms") / 1000,
        connect_s_max=settings.integer("socket.connection.setup.timeout.max.ms") / 1000,
    )


def connection_limits(settings: Settings) -> ConnectionLimits:
    overrides = {}
    for item in settings.text("max.connections.per.ip.overrides").split(","):
        host, colon, count = item.strip().rpartition(":")
        if colon:
            overrides[plain_address(host.strip("[]"))] = int(count)
    idle_ms = settings.integer("connections.max.idle.ms")
    listeners = parse_listeners(settings, "localhost")
    names = [listener.name for listener in listeners.all]
    return ConnectionLimits(
        connections_max=settings.integer("max.connections"),
        connections_per_ip_max=settings.integer("max.connections.per.ip"),
        per_ip_overrides=overrides,
        idle_s_max=idle_ms / 1000 if idle_ms >= 0 else math.inf,
        frame_s_max=settings.integer("connection.frame.timeout.ms") / 1000,
        per_listener_max={name: settings.for_listener(name).integer("max.connections") for name in names},
        brokers_listener=listeners.inter_broker_name if len(names) > 1 else None,
    )


def _connection_rate(settings: Settings, listener: str) -> int:
    """How many connections may come in a second: in all, or on one listener."""
    prefix = f"listener.name.{listener.lower()}." if listener else ""
    return settings.integer(f"{prefix}max.connection.creation.rate")
