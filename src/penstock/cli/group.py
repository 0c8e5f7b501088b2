"""`penstock group`: list, describe, reset and delete consumer groups."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from penstock.cli.cluster import Cluster
from penstock.cli.connection import Connection
from penstock.cli.failure import ExitCode, Failure, usage
from penstock.cli.group_changes import commit_offsets, delete_groups, delete_offsets, in_use
from penstock.cli.group_lag import assignment_text, group_documents, remarks
from penstock.cli.group_reset import (
    Kind,
    Move,
    Position,
    Target,
    make_plan,
    parse_time_target,
    read_offsets,
)
from penstock.cli.groups import (
    CLASSIC,
    CONSUMER,
    EMPTY,
    committed_offsets,
    describe_groups,
    find_groups,
    list_groups,
    pending_places,
    unknown_group,
)
from penstock.cli.offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from penstock.cli.options import Bootstrap, ClientConfig, ClientSettings, Json, Yes, family
from penstock.cli.output import confirm, note, print_heading, print_json, print_line, print_table
from penstock.cli.places import chosen_places, parse_topics, place_text, places_text

app = family("List, describe, reset and delete consumer groups.")

Name = Annotated[str, typer.Argument(metavar="GROUP", help="Name of the group.", show_default=False)]
Names = Annotated[list[str], typer.Argument(metavar="GROUP…", help="Names of groups.", show_default=False)]
TopicOption = Annotated[
    list[str] | None,
    typer.Option("--topic", "-t", metavar="TOPIC[:0,1]", help="A topic, or some of its partitions; may be repeated."),
]


class State(StrEnum):
    """The states of groups of both protocols."""

    Stable = "Stable"
    Empty = "Empty"
    PreparingRebalance = "PreparingRebalance"
    CompletingRebalance = "CompletingRebalance"
    Assigning = "Assigning"
    Reconciling = "Reconciling"
    Dead = "Dead"


class Type(StrEnum):
    """The kinds of groups."""

    classic = CLASSIC
    consumer = CONSUMER
    share = "share"
    streams = "streams"


@app.command("list")
def list_command(
    states: Annotated[
        list[State] | None,
        typer.Option("--state", case_sensitive=False, help="Only groups in this state; may be repeated."),
    ] = None,
    types: Annotated[
        list[Type] | None,
        typer.Option("--type", case_sensitive=False, help="Only groups of this type; may be repeated."),
    ] = None,
    as_json: Json = False,
    bootstrap: Bootstrap = None,
    client_config: ClientConfig = None,
    client_settings: ClientSettings = None,
) -> None:
    """List the groups with their type and state."""
    with Cluster(Connection(bootstrap, client_config, client_settings)) as cluster:
        groups = [
            group
            for group in list_groups(cluster)
            if (not states or group.state in states) and (not types or group.type in types)
        ]
    if as_json:
        print_json(
            [
                {"name": group.name, "type": group.type, "state": group.state, "protocol_type": group.protocol_type}
                for group in groups
            ]
        )
    elif groups:
        print_table(["GROUP", "TYPE", "STATE"], [[group.name, group.type, group.state] for group in groups])
    else:
        note("no such groups" if states or types else "no groups yet: they come into being when consumers join")


@app.command()
def describe(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[GROUP…]", help="Names of groups.", show_default=False)
    ] = None,
    every: Annotated[bool, typer.Option("--all", "-a", help="All groups.")] = False,
    as_json: Json = False,
    bootstrap: Bootstrap = None,
    client_config: ClientConfig = None,
    client_settings: ClientSettings = None,
) -> None:
    """Show members, assignment, committed offsets and lag of groups."""
    if bool(names) == every:
        raise usage("which groups? pass their names, or --all for all of them")
    with Cluster(Connection(bootstrap, client_config, client_settings)) as cluster:
        if every:
            known = [group.name for group in list_groups(cluster) if group.type in (CLASSIC, CONSUMER)]
            groups = list(find_groups(cluster, known).values())
        else:
            groups = describe_groups(cluster, list(dict.fromkeys(names or [])))
        documents = group_documents(cluster, sorted(groups, key=lambda group: group.name))
    if as_json:
        print_json(documents)
        return
    for document in documents:
        _print_group(document)


def _print_group(document: dict[str, Any]) -> None:
    print_heading(f"{document['name']}: {', '.join(_summary(document))}")
    fields = ("topic", "partition", "committed_offset", "end_offset", "lag", "member_id")
    rows = [[row[field] for field in fields] for row in document["partitions"]]
    if rows:
        print_table(["TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "MEMBER"], rows)
    if document["members"]:
        print_line("")
        print_table(
            ["MEMBER", "INSTANCE", "CLIENT", "HOST", "PARTITIONS"],
            [
                [
                    row["member_id"],
                    row["instance_id"],
                    row["client_id"],
                    row["host"],
                    assignment_text(row["assignment"]),
                ]
                for row in document["members"]
            ],
        )
    print_line("")
    for remark in remarks(document):
        note(remark)


def _summary(document: dict[str, Any]) -> list[str]:
    members, coordinator = document["members"], document["coordinator"]
    without = sum(row["committed_offset"] is None for row in document["partitions"])
    parts = [
        document["state"],
        f"{document['type']} protocol",
        f"assignor {document['assignor']}" if document["assignor"] else "",
        "1 member" if len(members) == 1 else f"{len(members) or 'no'} members",
        f"coordinator {coordinator['id']} at {coordinator['host']}:{coordinator['port']}",
        f"lag {document['lag']}",
        f"partitions without a commit: {without}" if without else "",
    ]
    return [part for part in parts if part]


# reset


@app.command()
def reset(
    name: Name,
    topics: TopicOption = None,
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="Every topic of which the group has committed something.")
    ] = False,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="To the oldest message.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="Behind the newest message.")] = False,
    to_offset: Annotated[int | None, typer.Option("--to-offset", metavar="N", min=0, help="To this offset.")] = None,
    to_time: Annotated[
        str | None,
        typer.Option(
            "--to-time",
            metavar="TIME",
            help="To the first message of an ISO 8601 time, of milliseconds, or of 15m ago.",
        ),
    ] = None,
    shift: Annotated[
        int | None, typer.Option("--shift", metavar="±N", help="Forward by N messages; back if N is negative.")
    ] = None,
    to_current: Annotated[
        bool, typer.Option("--to-current", help="Where it is: commits it anew, and no more outside the log.")
    ] = False,
    from_file: Annotated[
        Path | None,
        typer.Option(
            "--from-file", metavar="FILE", help="To offsets that describe --json printed, or topic,partition,offset."
        ),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", "-n", help="Only show what would change.")] = False,
    as_json: Json = False,
    bootstrap: Bootstrap = None,
    client_config: ClientConfig = None,
    client_settings: ClientSettings = None,
) -> None:
    """Move a group that nobody uses to other offsets."""
    targets = [
        *([Target(Kind.EARLIEST)] if to_earliest else []),
        *([Target(Kind.LATEST)] if to_latest else []),
        *([Target(Kind.CURRENT)] if to_current else []),
        *([Target(Kind.OFFSET, to_offset)] if to_offset is not None else []),
        *([Target(Kind.SHIFT, shift)] if shift is not None else []),
        *([parse_time_target(to_time)] if to_time is not None else []),
        *([Target(Kind.FILE, offsets=read_offsets(from_file, name))] if from_file is not None else []),
    ]
    wanted = parse_topics(topics or [], "--topic")
    if len(targets) != 1:
        ways = "--to-earliest, --to-latest, --to-offset, --to-time, --shift, --to-current or --from-file"
        raise usage(f"where to? pass one of {ways}")
    [target] = targets
    if (bool(wanted) + all_topics) != (target.kind != Kind.FILE):
        raise usage("which topics? pass --topic (or --all-topics); with --from-file the file says it")
    with Cluster(Connection(bootstrap, client_config, client_settings)) as cluster:
        _refuse_if_in_use(cluster, name, is_new_allowed=not all_topics)
        moves = _plan(cluster, name, target, wanted)
        if not dry_run:
            commit_offsets(cluster, name, {move.place: move.new for move in moves if move.new is not None})
    _print_plan(name, moves, dry_run, as_json)


def _refuse_if_in_use(cluster: Cluster, name: str, *, is_new_allowed: bool) -> None:
    group = find_groups(cluster, [name]).get(name)
    if group is None:
        failure = unknown_group(cluster, name)
        if not is_new_allowed or failure.code != ExitCode.NOT_FOUND:
            raise failure
        note(f"{failure.message}; it comes into being with these offsets")
    elif group.state != EMPTY:
        raise in_use(group, "reset it")


def _plan(cluster: Cluster, name: str, target: Target, wanted: dict[str, list[int] | None]) -> list[Move]:
    committed = committed_offsets(cluster, [name])[name]
    if target.offsets is not None:
        places = list(target.offsets)
    elif wanted:
        places = chosen_places(wanted, cluster.existing_partitions_of(list(wanted)))
    else:
        places = list(committed)
    for place in sorted(pending_places(cluster, {name: places}).get(name, ())):
        advice = "wait until it has ended, or see 'penstock transaction list --state ongoing'"
        raise Failure(f"{place_text(place)}: a commit of an open transaction is pending: {advice}")
    starts = cluster.list_offsets(places, EARLIEST_TIMESTAMP)
    ends = cluster.list_offsets(places, LATEST_TIMESTAMP)
    at_time = cluster.list_offsets(places, target.number) if target.kind == Kind.TIME else {}
    positions = {
        place: Position(committed[place].offset if place in committed else None, start, ends[place], at_time.get(place))
        for place, start in starts.items()
        if place in ends
    }
    return make_plan(target, places, positions)


def _print_plan(name: str, moves: Sequence[Move], dry_run: bool, as_json: bool) -> None:
    rows = [
        {
            "topic": move.place[0],
            "partition": move.place[1],
            "old_offset": move.old,
            "new_offset": move.new,
            "lag": move.lag,
            "note": move.note,
        }
        for move in moves
    ]
    if as_json:
        print_json({"name": name, "dry_run": dry_run, "partitions": rows})
        return
    if rows:
        print_table(["TOPIC", "PARTITION", "OLD", "NEW", "LAG", "NOTE"], [list(row.values()) for row in rows])
    changed = sum(move.new is not None for move in moves)
    if dry_run:
        note("nothing was changed: this was a dry run")
    else:
        note(f"reset {changed} {'partition' if changed == 1 else 'partitions'} of group {name}")


# delete


@app.command("delete")
def delete_command(
    names: Names,
    yes: Yes = False,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="Be content if it is not there.")] = False,
    bootstrap: Bootstrap = None,
    client_config: ClientConfig = None,
    client_settings: ClientSettings = None,
) -> None:
    """Delete groups that nobody uses, with all their offsets."""
    with Cluster(Connection(bootstrap, client_config, client_settings)) as cluster:
        confirm(f"Delete {', '.join(names)} and all offsets?", yes, "nothing deleted")
        for name, was_there in delete_groups(cluster, list(dict.fromkeys(names))):
            if not was_there and not if_exists:
                raise unknown_group(cluster, name)
            print_line(f"deleted group {name}" if was_there else f"group {name} is not there")


@app.command("delete-offsets")
def delete_offsets_command(
    name: Name,
    topics: TopicOption = None,
    yes: Yes = False,
    bootstrap: Bootstrap = None,
    client_config: ClientConfig = None,
    client_settings: ClientSettings = None,
) -> None:
    """Forget the offsets of topics that a group reads no more."""
    wanted = parse_topics(topics or [], "--topic")
    if not wanted:
        raise usage("which topics? pass --topic")
    with Cluster(Connection(bootstrap, client_config, client_settings)) as cluster:
        describe_groups(cluster, [name])
        places = [
            (topic, partition)
            for topic, partition in committed_offsets(cluster, [name])[name]
            if topic in wanted and (wanted[topic] is None or partition in (wanted[topic] or []))
        ]
        if not places:
            raise Failure(f"group '{name}' has no such offsets: 'penstock group describe {name}' shows what it has")
        confirm(f"Delete the offsets of {name} for {places_text(places)}?", yes, "nothing deleted")
        delete_offsets(cluster, name, places)
    print_line(f"deleted offsets of group {name}: {places_text(places)}")
