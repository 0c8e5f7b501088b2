"""Topics as admin requests see them: create, delete, let grow, set their settings, where the controller is.

What clients ask for by using it is created from any broker: the others ask the controller for it.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress

from penstock.base.errors import ApiError, Error
from penstock.base.identifiers import random_uuid
from penstock.base.setting_changes import Change
from penstock.base.settings import Settings, SettingsError
from penstock.base.topic_settings import TopicSettings, altered_overrides, topic_problems
from penstock.base.world import Random
from penstock.broker.cluster_view import ClusterView
from penstock.broker.controller_role import ControllerRole
from penstock.broker.forwarding import Forwarding
from penstock.broker.requests import RequestContext
from penstock.broker.spreading import Spreading
from penstock.controller.configs import set_configs
from penstock.controller.elections import min_isr_changed
from penstock.controller.plan import ClusterState, Plan
from penstock.controller.topics import NewTopic, TopicDefaults, create_partitions, create_topics, delete_topic
from penstock.controller.transitions import TopicRules
from penstock.wire.messages.k19_create_topics import API as CREATE_TOPICS
from penstock.wire.messages.k19_create_topics import (
    CreateTopicsRequest,
    CreateTopicsRequestConfig,
    CreateTopicsRequestTopic,
    CreateTopicsResponse,
    CreateTopicsResponseTopic,
)
from penstock.zookeeper.topic_znodes import Topic

logger = logging.getLogger(__name__)

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
ON_DEMAND_S_MAX = 10.0
INTERNAL_TOPICS = (OFFSETS_TOPIC, TRANSACTIONS_TOPIC)


def topic_rules(settings: TopicSettings) -> TopicRules:
    """What the controller goes by for a topic."""
    return TopicRules(settings.integer("min.insync.replicas"), settings.flag("unclean.leader.election.enable"))


class Topics:
    """What can be done to topics. Results come in the order of what was asked: the topic, or what was wrong."""

    def __init__(
        self,
        role: ControllerRole,
        view: ClusterView,
        settings: Callable[[], Settings],
        random: Random,
        after_deletion: Callable[[], Awaitable[None]],
        forwarding: Forwarding,
        spreading: Spreading,
    ) -> None:
        self._forwarding = forwarding
        self._spreading = spreading
        self._after_deletion = after_deletion
        self._role = role
        self._view = view
        self._settings = settings
        self._random = random
        self._lack_brokers: set[str] = set()  # topics of our own that could not be made

    async def finish_deletions(self) -> None:
        """Remove what is left here of deleted topics."""
        await self._after_deletion()

    def settings_of(self, name: str) -> TopicSettings:
        """The settings of a topic, from its own and the broker's."""
        return TopicSettings(self._settings(), self._view.config_values("topics", name))

    def rules_of(self, name: str) -> TopicRules:
        return topic_rules(self.settings_of(name))

    async def create(self, asked: Sequence[NewTopic], *, is_trial: bool = False) -> list[Topic | ApiError]:
        """Create topics; `is_trial` only says what would happen."""
        settings = self._settings()
        defaults = TopicDefaults(settings.integer("num.partitions"), settings.integer("default.replication.factor"))
        topic_ids = [random_uuid(self._random) for _ in asked]
        start = self._random.randrange(1 << 16)

        def decide(state: ClusterState) -> list[Plan | ApiError]:
            return create_topics(state, asked, topic_ids, defaults, self._check_configs, start)

        try:
            decided = await (self._role.preview(decide) if is_trial else self._role.decide(decide))
        except ApiError as error:
            return [error for _ in asked]
        return [_topic_or_error(outcome) for outcome in decided]

    async def create_on_demand(self, names: Sequence[str], asker: RequestContext) -> None:
        """Create what a client asked for by using it, as if it had asked for that; what cannot be created, or is more
        than its quota, stays unknown."""
        wanted = [name for name in dict.fromkeys(names) if name not in self._view.topics]
        if wanted:
            request = _creation([self._new_topic(name) for name in wanted])
            with suppress(ApiError):
                await self._forwarding.on_behalf(CREATE_TOPICS, request, asker, timeout_s=ON_DEMAND_S_MAX)

    async def create_internal(self, name: str) -> None:
        """See to it that one of the cluster's own topics is there."""
        if name in self._view.topics:
            return
        (answer,) = (await self._create_somewhere([self._new_topic(name)])).topics
        if answer.error_code == Error.INVALID_REPLICATION_FACTOR:  # the other brokers may come
            if name not in self._lack_brokers:  # clients ask again and again, and hear only that they should
                self._lack_brokers.add(name)
                logger.warning("%s cannot be made yet: %s", name, answer.error_message)
            raise ApiError(Error.COORDINATOR_NOT_AVAILABLE, answer.error_message)
        if answer.error_code not in (Error.NONE, Error.TOPIC_ALREADY_EXISTS):
            raise ApiError(Error(answer.error_code), answer.error_message)
        if name not in self._view.topics:
            raise ApiError(Error.COORDINATOR_NOT_AVAILABLE, f"{name} is not known here yet")

    async def _create_somewhere(self, new: Sequence[NewTopic]) -> CreateTopicsResponse:
        """Create topics here, if this broker is the controller, or by asking the controller."""

        async def here() -> CreateTopicsResponse:
            outcomes = await self.create(new)
            await self._spreading.to_replicas([each for each in outcomes if not isinstance(each, ApiError)])
            return CreateTopicsResponse(topics=[_answer(*pair) for pair in zip(new, outcomes, strict=True)])

        answer: CreateTopicsResponse = await self._forwarding.decided(
            CREATE_TOPICS, _creation(new), here, timeout_s=ON_DEMAND_S_MAX
        )
        return answer

    def _new_topic(self, name: str) -> NewTopic:
        settings = self._settings()
        if name not in INTERNAL_TOPICS:
            return NewTopic(name)
        kind = "offsets.topic" if name == OFFSETS_TOPIC else "transaction.state.log"
        configs = {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(settings.integer(f"{kind}.segment.bytes")),
        }
        if name == TRANSACTIONS_TOPIC:
            configs["min.insync.replicas"] = str(settings.integer("transaction.state.log.min.isr"))
        factor = settings.integer(f"{kind}.replication.factor")
        return NewTopic(name, settings.integer(f"{kind}.num.partitions"), factor, configs=configs, internal=True)

    async def delete(self, names: Sequence[str]) -> list[Topic | ApiError]:
        """Delete topics."""

        def decide(state: ClusterState) -> list[Plan | ApiError]:
            return [_attempt(lambda name=name: self._deletion(state, name)) for name in names]  # type: ignore[misc]

        try:
            decided = await self._role.decide(decide)
        except ApiError as error:
            return [error for _ in names]
        await self._after_deletion()
        return [_topic_or_error(outcome) for outcome in decided]

    def _deletion(self, state: ClusterState, name: str) -> Plan:
        has_config = self._view.config_version("topics", name) is not None
        return delete_topic(state, name, has_config=has_config)

    async def grow(
        self, name: str, count: int, assignments: Sequence[Sequence[int]] | None, *, is_trial: bool = False
    ) -> Topic:
        """Let a topic grow to `count` partitions; ApiError if it cannot."""
        start = self._random.randrange(1 << 16)

        def decide(state: ClusterState) -> list[Plan | ApiError]:
            return [_attempt(lambda: create_partitions(state, name, count, assignments, start))]

        decided = await (self._role.preview(decide) if is_trial else self._role.decide(decide))
        outcome = _topic_or_error(decided[0])
        if isinstance(outcome, ApiError):
            raise outcome
        return outcome

    async def alter_settings(self, name: str, changes: Sequence[Change], *, is_trial: bool = False) -> None:
        """Change some of a topic's settings; ApiError if any of them is wrong, and then none is changed."""
        self._require(name)

        def values() -> dict[str, str]:
            return altered_overrides(self._settings(), self._view.config_values("topics", name), changes)

        await self._set_settings(name, values, is_trial)

    async def replace_settings(self, name: str, values: Mapping[str, str], *, is_trial: bool = False) -> None:
        """Put these in place of all of a topic's settings."""
        self._require(name)
        self._check_configs(values)
        await self._set_settings(name, lambda: values, is_trial)

    async def _set_settings(self, name: str, values: Callable[[], Mapping[str, str]], is_trial: bool) -> None:
        def decide(state: ClusterState) -> list[Plan]:
            try:
                decided = values()
            except SettingsError as error:
                raise ApiError(Error.INVALID_CONFIG, str(error)) from error
            written = set_configs("topics", name, decided, self._view.config_version("topics", name))
            to_come = topic_rules(TopicSettings(self._settings(), decided))
            return [*min_isr_changed(state, lambda _topic: to_come, [name]), written]

        await (self._role.preview(decide) if is_trial else self._role.decide(decide))

    def _require(self, name: str) -> None:
        if name not in self._view.topics:
            raise ApiError(Error.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")

    def _check_configs(self, configs: Mapping[str, str]) -> None:
        problems = topic_problems(self._settings(), configs)
        if problems:
            raise ApiError(Error.INVALID_CONFIG, "; ".join(problems))


def _creation(new: Sequence[NewTopic]) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=[_request(topic) for topic in new], timeout_ms=int(ON_DEMAND_S_MAX * 1000))


def _request(new: NewTopic) -> CreateTopicsRequestTopic:
    return CreateTopicsRequestTopic(
        name=new.name,
        num_partitions=new.partition_count,
        replication_factor=new.replication_factor,
        configs=[CreateTopicsRequestConfig(name=name, value=value) for name, value in new.configs.items()],
    )


def _answer(new: NewTopic, outcome: Topic | ApiError) -> CreateTopicsResponseTopic:
    if isinstance(outcome, ApiError):
        return CreateTopicsResponseTopic(name=new.name, error_code=outcome.error, error_message=outcome.message)
    return CreateTopicsResponseTopic(name=new.name, topic_id=outcome.topic_id, error_message=None)


def _attempt(planning: Callable[[], Plan]) -> Plan | ApiError:
    try:
        return planning()
    except ApiError as error:
        return error


def _topic_or_error(outcome: Plan | ApiError) -> Topic | ApiError:
    if isinstance(outcome, ApiError):
        return outcome
    assert outcome.topic is not None
    return outcome.topic
