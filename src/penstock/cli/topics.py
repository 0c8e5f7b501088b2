"""Questions about topics that several commands ask: do they exist, which partitions, which offsets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from confluent_kafka import IsolationLevel, KafkaError, KafkaException, TopicCollection, TopicPartition

from penstock.cli.connection import ANSWER_TIMEOUT_S, Connection
from penstock.cli.failure import ExitCode, Failure, did_you_mean
from penstock.cli.kafka_admin import AdminClient, OffsetSpec
from penstock.cli.places import Place

EARLIEST: OffsetSpec = OffsetSpec.earliest()  # type: ignore[no-untyped-call]
LATEST: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]


def describe_topics(connection: Connection, admin: AdminClient, names: Sequence[str]) -> list[Any]:
    """A description of each topic, in the order of the names; fails, with close names, on the first unknown one."""
    answers = admin.describe_topics(TopicCollection(list(names)), request_timeout=ANSWER_TIMEOUT_S)
    descriptions = []
    for name in names:
        try:
            descriptions.append(connection.outcome(answers[name], f"topic '{name}'"))
        except KafkaException as error:
            if error.args[0].code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise unknown_topic(connection, admin, name) from error
            raise connection.failure(error.args[0], f"topic '{name}'") from error
    return descriptions


def unknown_topic(connection: Connection, admin: AdminClient, name: str) -> Failure:
    """The failure for a topic that is not there."""
    known = connection.metadata(admin).topics
    hint = did_you_mean(name, known) or " ('penstock topic list' shows what there is)"
    return Failure(f"there is no topic '{name}'{hint}", ExitCode.NOT_FOUND)


def list_offsets(
    connection: Connection,
    admin: AdminClient,
    places: Iterable[Place],
    spec: OffsetSpec,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> dict[Place, int]:
    """The offset that `spec` means in each partition; -1 where there is none (no message after a timestamp)."""
    request = {TopicPartition(topic, partition): spec for topic, partition in places}
    if not request:
        return {}
    answers = admin.list_offsets(request, isolation_level=isolation, request_timeout=ANSWER_TIMEOUT_S)
    return {
        (place.topic, place.partition): connection.answer(
            answer, f"partition {place.partition} of topic '{place.topic}'"
        ).offset
        for place, answer in answers.items()
    }


def topic_exists(connection: Connection, name: str) -> bool:
    """Is there such a topic? Asking does not create it."""
    answers = connection.admin().describe_topics(TopicCollection([name]), request_timeout=ANSWER_TIMEOUT_S)
    try:
        connection.answer(answers[name], f"topic '{name}'")
    except Failure as failure:
        if failure.code == ExitCode.NOT_FOUND:
            return False
        raise
    return True
