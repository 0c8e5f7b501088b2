"""Names and ids that every room uses: topic names, partitions, and Kafka's way of writing a UUID."""

from __future__ import annotations

import base64
import re
from typing import NamedTuple
from uuid import UUID

from penstock.base.world import Random

TOPIC_NAME_LENGTH_MAX = 249
NO_ID = UUID(int=0)

_TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")


class TopicPartition(NamedTuple):
    """One partition of one topic; its folder in a log directory has the same name."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def topic_name_problem(name: str) -> str | None:
    """What is wrong with a topic name, or None. A name that passes is safe to use in a path."""
    if not name:
        return "the name of a topic must not be empty"
    if len(name) > TOPIC_NAME_LENGTH_MAX:
        return f"the name of a topic has at most {TOPIC_NAME_LENGTH_MAX} characters, this one has {len(name)}"
    if name in (".", ".."):
        return f"a topic cannot be called {name!r}"
    if not _TOPIC_NAME.fullmatch(name):
        return f"topic name {name!r} has characters other than letters, digits, '.', '_' and '-'"
    return None


def collision_key(name: str) -> str:
    """Two topics whose names differ only in '.' and '_' collide (their metric names would be the same)."""
    return name.replace(".", "_")


def uuid_to_text(value: UUID) -> str:
    """22 characters of url-safe base64, as Kafka writes topic and cluster ids."""
    return base64.urlsafe_b64encode(value.bytes).rstrip(b"=").decode()


def uuid_from_text(text: str) -> UUID:
    """The inverse of `uuid_to_text`; ValueError if it is not one."""
    raw = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    return UUID(bytes=raw)


def random_uuid(random: Random) -> UUID:
    """One that is none of Kafka's reserved ones and does not begin with '-' where it is written."""
    while True:
        raw = random.randbytes(16)
        if raw[0] >> 2 != 62 and int.from_bytes(raw, "big") > 1:
            return UUID(bytes=raw, version=4)
