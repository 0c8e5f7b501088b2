"""ElectLeaders (0-2): let the preferred replicas lead again, or any living one where nobody leads.

Without a list, all partitions are meant, and those that need no election are not in the answer; their topics are.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.base.errors import ApiError, Error
from penstock.broker.broker import Broker
from penstock.broker.decisions import carried_out
from penstock.broker.requests import RequestContext
from penstock.controller.leader_balance import ElectionKind, elect
from penstock.wire.messages.k43_elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    ElectLeadersResponsePartition,
    ElectLeadersResponseTopic,
)

Results = dict[tuple[str, int], ApiError | None]


async def handle(broker: Broker, request: ElectLeadersRequest, context: RequestContext) -> ElectLeadersResponse:
    role = broker.role
    asked = _asked(request)
    try:
        kind = _kind(request.election_type)
        outcome = await carried_out(role, lambda state: elect(state, role.rules_of, kind, asked))
    except ApiError as error:
        return refused(request, error)
    broker.audit.record(
        "election_asked",
        kind=kind.name.lower(),
        partitions=[f"{name}-{index}" for (name, index), error in outcome.results.items() if error is None],
        principal=context.principal,
        host=context.host,
    )
    names = broker.view.topics if asked is None else asked
    return ElectLeadersResponse(replica_election_results=_topics(names, outcome.results))


def refused(request: ElectLeadersRequest, error: ApiError) -> ElectLeadersResponse:
    asked = _asked(request) or {}
    results: Results = {(name, index): error for name, indexes in asked.items() for index in indexes}
    return ElectLeadersResponse(error_code=error.error, replica_election_results=_topics(asked, results))


def _asked(request: ElectLeadersRequest) -> dict[str, list[int]] | None:
    if request.topic_partitions is None:
        return None
    asked: dict[str, list[int]] = {}
    for topic in request.topic_partitions:
        asked.setdefault(topic.topic, []).extend(topic.partitions)
    return asked


def _kind(number: int) -> ElectionKind:
    try:
        return ElectionKind(number)
    except ValueError:
        raise ApiError(Error.INVALID_REQUEST, f"there is no election of the kind {number}") from None


def _topics(names: Iterable[str], results: Results) -> list[ElectLeadersResponseTopic]:
    topics = {name: ElectLeadersResponseTopic(topic=name) for name in names}
    for (name, index), error in results.items():
        topic = topics.setdefault(name, ElectLeadersResponseTopic(topic=name))
        answer = ElectLeadersResponsePartition(partition_id=index)
        if error is not None:
            answer.error_code, answer.error_message = error.error, error.message
        topic.partition_result.append(answer)
    return list(topics.values())
