"""How far groups are behind: committed offset, end and lag of every partition that a group has to do with.

A group has to do with the partitions it has committed and with those its members own or will own. The lag of a
partition is its end minus the committed offset. A reader with isolation level read_committed gets no further than the
stable end, which lies before the end while a transaction is open; its lag is the stable lag.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from penstock.cli.cluster import Cluster
from penstock.cli.groups import Committed, Group, Member, committed_offsets, pending_places
from penstock.cli.offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from penstock.cli.places import Place, by_topic, places_text


class Offsets(NamedTuple):
    """Where the logs begin and end."""

    starts: Mapping[Place, int]
    ends: Mapping[Place, int]
    stable_ends: Mapping[Place, int]


def group_documents(cluster: Cluster, groups: Sequence[Group]) -> list[dict[str, Any]]:
    """A document for each group, as `group describe --json` prints them."""
    committed = committed_offsets(cluster, [group.name for group in groups])
    places_of = {group.name: _places_of(group, committed[group.name]) for group in groups}
    pending = pending_places(cluster, places_of)
    places = {place for its in places_of.values() for place in its}
    ends = cluster.list_offsets(places, LATEST_TIMESTAMP)
    stable_ends = cluster.list_offsets(places, LATEST_TIMESTAMP, committed=True)
    starts = cluster.list_offsets(places, EARLIEST_TIMESTAMP)
    offsets = Offsets(starts, ends, stable_ends)
    return [
        _document(
            group,
            [
                _row(place, committed[group.name].get(place), offsets, _owner(group, place))
                | {"pending_in_transaction": place in pending.get(group.name, ())}
                for place in places_of[group.name]
            ],
        )
        for group in groups
    ]


def _places_of(group: Group, committed: dict[Place, Committed]) -> list[Place]:
    held = {place for member in group.members for place in (*member.places, *(member.target or ()))}
    return sorted(held.union(committed))


def _owner(group: Group, place: Place) -> Member | None:
    return next((member for member in group.members if place in member.places), None)


def _row(place: Place, committed: Committed | None, offsets: Offsets, owner: Member | None) -> dict[str, Any]:
    offset = committed.offset if committed is not None else None
    return {
        "topic": place[0],
        "partition": place[1],
        "committed_offset": offset,
        "start_offset": offsets.starts.get(place),
        "end_offset": offsets.ends.get(place),
        "stable_end_offset": offsets.stable_ends.get(place),
        "lag": lag(offset, offsets.ends.get(place)),
        "stable_lag": lag(offset, offsets.stable_ends.get(place)),
        "metadata": committed.metadata if committed is not None else None,
        "leader_epoch": committed.leader_epoch if committed is not None else None,
        "member_id": owner.id if owner is not None else None,
    }


def lag(offset: int | None, end: int | None) -> int | None:
    """How many offsets lie before the end; None if nothing is committed or the partition is gone."""
    return None if offset is None or end is None else max(0, end - offset)


def _document(group: Group, rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "name": group.name,
        "type": group.type,
        "state": group.state,
        "protocol_type": group.protocol_type,
        "assignor": group.assignor,
        "epoch": group.epoch,
        "coordinator": group.coordinator._asdict(),
        "lag": sum(row["lag"] or 0 for row in rows),
        "members": [_member_document(member) for member in sorted(group.members, key=lambda member: member.id)],
        "partitions": rows,
    }


def _member_document(member: Member) -> dict[str, Any]:
    return {
        "member_id": member.id,
        "instance_id": member.instance_id,
        "client_id": member.client_id,
        "host": member.host.removeprefix("/"),
        "epoch": member.epoch,
        "assignment": by_topic(member.places),
        "target_assignment": by_topic(member.target) if member.target is not None else None,
    }


def remarks(document: dict[str, Any]) -> list[str]:
    """What the numbers of a document do not say by themselves."""
    said: list[str] = []
    for row in document["partitions"]:
        where = f"{row['topic']} {row['partition']}"
        offset, start, end, stable = (
            row[name] for name in ("committed_offset", "start_offset", "end_offset", "stable_end_offset")
        )
        if end is None:
            said.append(f"{where}: the partition does not exist any more")
            continue
        if stable is not None and stable < end:
            behind = "" if row["stable_lag"] is None else f", {row['stable_lag']} of the lag"
            said.append(f"{where}: a transaction is open; read_committed readers get up to offset {stable}{behind}")
        if row["pending_in_transaction"]:
            said.append(f"{where}: a commit of an open transaction is pending")
        if offset is not None and start is not None and offset < start:
            said.append(f"{where}: the log begins at {start}; {start - offset} offsets of the lag are deleted")
        if offset is not None and offset > end:
            said.append(f"{where}: the committed offset {offset} lies behind the end of the log")
    for member in document["members"]:
        if member["target_assignment"] not in (None, member["assignment"]):
            said.append(f"{member['member_id']}: on its way to {assignment_text(member['target_assignment'])}")
    return said


def assignment_text(assignment: dict[str, list[int]]) -> str:
    """What a member has, in short."""
    return places_text((topic, part) for topic, parts in assignment.items() for part in parts) or "nothing"
