"""Where replicas should go: plans for spreading them over all brokers, for emptying one, for more or fewer copies.

The choices are those of the controller for new topics: other racks and hosts first, then evenly. The host is the one
that clients connect to; brokers that share it share a machine.
"""

from __future__ import annotations

from collections.abc import Collection

from penstock.cli.cluster_survey import Survey
from penstock.cli.failure import ExitCode, Failure, did_you_mean
from penstock.cli.moves import target_now
from penstock.cli.places import Place, by_topic, place_text
from penstock.cli.reassignments import Assignment
from penstock.controller.placement import Candidate, place_instead, place_more
from penstock.controller.replica_balance import spread_replicas


def candidates(survey: Survey, without: Collection[int] = ()) -> list[Candidate]:
    """The brokers that may be given replicas: those that are there."""
    return [
        Candidate(broker.id, broker.rack, broker.address.host)
        for broker in survey.brokers.values()
        if broker.address is not None and broker.id not in without
    ]


def spread_plan(survey: Survey, topics: Collection[str] | None) -> Assignment:
    """The replicas of some topics, or of all, spread evenly over all brokers with as few moves as possible."""
    chosen = by_topic(places_of_topics(survey, topics) if topics else survey.partitions)
    before = [[target_now(survey, (topic, number)) for number in numbers] for topic, numbers in chosen.items()]
    after = spread_replicas(candidates(survey), before)
    return {
        (topic, number): replicas
        for (topic, numbers), partitions in zip(chosen.items(), after, strict=True)
        for number, replicas in zip(numbers, partitions, strict=True)
    }


def emptying_plan(survey: Survey, broker_id: int) -> Assignment:
    """Other brokers in each place of the one that is to go."""
    if broker_id not in survey.brokers:
        there = ", ".join(map(str, survey.brokers))
        raise Failure(f"there is no broker {broker_id}: the cluster has {there}", ExitCode.NOT_FOUND)
    others = candidates(survey, without=[broker_id])
    if not others:
        raise Failure(f"broker {broker_id} is the only one: add another before it goes")
    places = list(survey.partitions)
    placed = place_instead(others, [target_now(survey, place) for place in places], broker_id)
    for place, replicas in zip(places, placed, strict=True):
        if replicas is None:
            fewer = f"penstock topic alter {place[0]} --replication-factor {len(target_now(survey, place)) - 1}"
            has = f"{place_text(place)} has a copy on every other broker"
            raise Failure(f"{has}: add a broker first, or be content with fewer copies ('{fewer}')")
    return {place: replicas for place, replicas in zip(places, placed, strict=True) if replicas is not None}


def factor_plan(survey: Survey, topic: str, factor: int) -> Assignment:
    """The replicas of a topic when it has so many: the new ones on other racks and hosts, the last ones go first.

    What is not in sync goes before what is.
    """
    brokers = candidates(survey)
    if factor > len(brokers):
        raise Failure(f"topic '{topic}' cannot have {factor} replicas: the cluster has {len(brokers)} brokers")
    places = places_of_topics(survey, [topic])
    kept = [_kept(survey, place, factor) for place in places]
    return dict(zip(places, place_more(brokers, kept, factor), strict=True))


def _kept(survey: Survey, place: Place, factor: int) -> tuple[int, ...]:
    replicas, isr = target_now(survey, place), survey.partitions[place].isr
    if len(replicas) <= factor:
        return replicas
    best = sorted(replicas, key=lambda broker_id: broker_id not in isr)[:factor]
    return tuple(broker_id for broker_id in replicas if broker_id in best)


def places_of_topics(survey: Survey, topics: Collection[str]) -> list[Place]:
    """All partitions of topics; fails, with close names, where one does not exist."""
    known = {topic for topic, _ in survey.partitions}
    for topic in topics:
        if topic not in known:
            hint = did_you_mean(topic, known) or " ('penstock topic list' shows what there is)"
            raise Failure(f"there is no topic '{topic}'{hint}", ExitCode.NOT_FOUND)
    return [place for place in survey.partitions if place[0] in topics]
