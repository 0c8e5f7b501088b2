"""One kind of request, with its response: the last line of each file of `messages`.

A program that serves or uses a few APIs imports just their files; `api.py` is the table of all of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from penstock.wire.schema import Message, declared_flexible, declared_versions

API_VERSIONS_KEY = 18
FIRST_OWN_KEY = 20000  # from here on, keys are Penstock's own
BETWEEN_BROKERS = frozenset({56})  # of Kafka's keys: clients are not told of them
FLEXIBLE_SINCE: dict[int, int] = {}
"""From which version on an API is flexible, by its key; of those that the program has imported."""


@dataclass(frozen=True, slots=True)
class Api:
    """One kind of request. Its versions are those of its messages."""

    key: int
    name: str
    request: type[Message]
    response: type[Message]
    min_version: int = field(init=False)
    max_version: int = field(init=False)
    flexible_since: int = field(init=False)  # larger than every version if none is flexible

    def __post_init__(self) -> None:
        versions, flexible = declared_versions(self.request), declared_flexible(self.request)
        object.__setattr__(self, "min_version", versions.first)
        object.__setattr__(self, "max_version", versions.last)
        object.__setattr__(self, "flexible_since", flexible.first)
        FLEXIBLE_SINCE[self.key] = flexible.first

    def request_header_version(self, version: int) -> int:
        """2 for flexible versions, 1 for the others."""
        return 2 if version >= self.flexible_since else 1

    def response_header_version(self, version: int) -> int:
        """1 for flexible versions, 0 for the others, and always 0 for ApiVersions: its client cannot know yet."""
        return 1 if version >= self.flexible_since and self.key != API_VERSIONS_KEY else 0
