"""Partitions as people write them, `orders:0,2`, and as pairs of topic and number."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping

from penstock.cli.failure import ExitCode, Failure, usage

TOPIC_WITH_PARTITIONS = re.compile(r"([^:]+)(?::(\d+(?:,\d+)*))?", re.ASCII)

Place = tuple[str, int]


def parse_topics(texts: Iterable[str], option: str) -> dict[str, list[int] | None]:
    """`["orders", "bills:0,2"]` as topics with the wanted partitions; None is all of them."""
    topics: dict[str, list[int] | None] = {}
    for text in texts:
        found = TOPIC_WITH_PARTITIONS.fullmatch(text)
        if found is None:
            raise usage(f"{option} wants TOPIC or TOPIC:0,1; not {text!r}")
        wanted = None if found[2] is None else sorted({int(number) for number in found[2].split(",")})
        earlier = topics.get(found[1], [])
        topics[found[1]] = None if wanted is None or earlier is None else sorted({*earlier, *wanted})
    return topics


def chosen_places(topics: Mapping[str, list[int] | None], there: Mapping[str, list[int]]) -> list[Place]:
    """The partitions that were asked for, of those that are there."""
    places: list[Place] = []
    for topic, wanted in topics.items():
        for partition in there[topic] if wanted is None else wanted:
            if partition not in there[topic]:
                has = f"it has {len(there[topic])}, from 0 to {len(there[topic]) - 1}"
                raise Failure(f"topic '{topic}' has no partition {partition}: {has}", ExitCode.NOT_FOUND)
            places.append((topic, partition))
    return places


def by_topic(places: Iterable[Place]) -> dict[str, list[int]]:
    """The partitions of each topic, in order."""
    topics: dict[str, list[int]] = defaultdict(list)
    for topic, partition in sorted(places):
        topics[topic].append(partition)
    return dict(topics)


def places_text(places: Iterable[Place]) -> str:
    """Partitions in short: `bills:0 orders:0,1`."""
    return " ".join(f"{topic}:{','.join(map(str, partitions))}" for topic, partitions in by_topic(places).items())


def place_text(place: Place) -> str:
    """A partition in a sentence."""
    return f"partition {place[1]} of topic '{place[0]}'"
