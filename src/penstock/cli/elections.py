"""Electing leaders on request, as the wire has it (ElectLeaders)."""

from __future__ import annotations

import time
from collections.abc import Collection
from enum import IntEnum

from penstock.base.errors import Error
from penstock.cli.cluster import PAUSE_S, Cluster
from penstock.cli.cluster_survey import partitions_in
from penstock.cli.direct import check_error, error_text
from penstock.cli.places import Place, by_topic
from penstock.wire.messages import k43_elect_leaders as k43

ELECTION_TIMEOUT_MS = 8_000
NEWS_TIMEOUT_S = 1.0


class Election(IntEnum):
    """The kinds of elections, by their numbers in the protocol."""

    PREFERRED = 0
    UNCLEAN = 1


def elect_leaders(cluster: Cluster, kind: Election, places: Collection[Place] | None) -> dict[Place, str | None]:
    """Elects leaders of some partitions, or of all that need one: None where it was done, or why not.

    A partition that needs no election is left out.
    """
    topics = None
    if places is not None:
        topics = [
            k43.ElectLeadersRequestTopic(topic=topic, partitions=partitions)
            for topic, partitions in by_topic(places).items()
        ]
    request = k43.ElectLeadersRequest(election_type=int(kind), topic_partitions=topics, timeout_ms=ELECTION_TIMEOUT_MS)
    answer = cluster.ask_controller(
        lambda client: client.ask(k43.API.key, request, k43.ElectLeadersResponse, lowest=1),
        lambda answer: answer.error_code,
    )
    check_error(answer.error_code, None, "the election")
    return {
        (topic.topic, result.partition_id): (
            error_text(result.error_code, result.error_message) if result.error_code else None
        )
        for topic in sorted(answer.replica_election_results, key=lambda topic: topic.topic)
        for result in sorted(topic.partition_result, key=lambda result: result.partition_id)
        if result.error_code != Error.ELECTION_NOT_NEEDED
    }


def leaders_after(cluster: Cluster, places: Collection[Place]) -> dict[Place, int]:
    """Who leads these partitions after an election.

    The news needs a moment to reach the broker that is asked, so it is asked again, for a second at most, where it
    names another than the preferred leader (after an unclean election that may well be so).
    """
    deadline = time.monotonic() + NEWS_TIMEOUT_S
    while True:
        partitions = partitions_in(cluster.metadata(list(by_topic(places)))) if places else {}
        found = {place: partition for place, partition in partitions.items() if place in places}
        is_told = all(partition.leader == partition.replicas[0] for partition in found.values())
        if is_told or time.monotonic() > deadline:
            return {place: partition.leader for place, partition in found.items() if partition.leader is not None}
        time.sleep(PAUSE_S)
