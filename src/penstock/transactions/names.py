"""Names: transactional ids that belong together, so that their transactions can be committed as one.

Such an id is `penstock-many:NAME/MEMBER`. All ids of a name are placed by the name alone, so that one shard knows all
of them. Every other id stands for itself.
"""

from __future__ import annotations

from typing import NamedTuple

MARK = "penstock-many:"
NAME_LENGTH_MAX = 200
MEMBER_LENGTH_MAX = 100


class MemberId(NamedTuple):
    """An id of a name, in its two parts."""

    name: str
    member: str


def id_of_member(name: str, member: str) -> str:
    """The transactional id of a member."""
    return f"{MARK}{name}/{member}"


def member_of(transactional_id: str) -> MemberId | None:
    """The parts of an id that has the mark; None for all others."""
    if not transactional_id.startswith(MARK):
        return None
    name, _, member = transactional_id[len(MARK) :].partition("/")
    return MemberId(name, member)


def placed_by(transactional_id: str) -> str:
    """The part of an id that decides which shard looks after it."""
    member = member_of(transactional_id)
    return transactional_id if member is None else member.name


def name_problem(name: str) -> str | None:
    """What is wrong with a name, or None."""
    if not name or len(name) > NAME_LENGTH_MAX:
        return f"a name has 1 to {NAME_LENGTH_MAX} characters, this one has {len(name)}"
    if "/" in name:
        return f"the name {name!r} has a '/', which ends names"
    return None


def id_problem(transactional_id: str) -> str | None:
    """What is wrong with a transactional id, or None."""
    parts = member_of(transactional_id)
    if parts is None:
        return None if transactional_id else "a transactional id must not be empty"
    if not parts.member or len(parts.member) > MEMBER_LENGTH_MAX:
        return f"{transactional_id!r} has the mark of a name, but is not {MARK}NAME/MEMBER"
    return name_problem(parts.name)
