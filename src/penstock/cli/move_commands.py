"""The commands of `penstock cluster` that move copies: reassign, rebalance, decommission."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from penstock.cli.byte_sizes import parse_bytes
from penstock.cli.cluster import Cluster
from penstock.cli.cluster_health import progress_of, reassignments_document
from penstock.cli.cluster_status import progress_text
from penstock.cli.cluster_survey import Survey, take_survey
from penstock.cli.connection import Connection
from penstock.cli.failure import Failure, usage
from penstock.cli.move_plans import emptying_plan, places_of_topics, spread_plan
from penstock.cli.moves import MoveOptions, carry_out, wait_for
from penstock.cli.options import (
    Bootstrap,
    BrokerArgument,
    ClientConfig,
    ClientSettings,
    Json,
    PartitionOption,
    TopicOption,
    Yes,
)
from penstock.cli.output import confirm, note, print_json, print_line, print_table
from penstock.cli.places import Place, by_topic, place_text, places_text
from penstock.cli.reassignments import Assignment, alter_reassignments, list_reassignments, read_assignment
from penstock.cli.throttles import remove_throttle, set_throttle

SHOWN_MAX = 10

Throttle = Annotated[
    str | None,
    typer.Option(
        "--throttle", metavar="BYTES", help="Copy no more than so many bytes a second per broker (10M); waits."
    ),
]
Wait = Annotated[bool, typer.Option("--wait", help="Wait until it is done, and show how far it is.")]
DryRun = Annotated[bool, typer.Option("--dry-run", "-n", help="Only show what would move.")]


def reassign(
    topic: TopicOption = None,
    partition: PartitionOption = None,
    replicas: Annotated[
        str | None,
        typer.Option("--replicas", "-r", metavar="ID,…", help="Its new replicas, the preferred leader first."),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", "-f", metavar="FILE", help="A JSON file as kafka-reassign-partitions has it."),
    ] = None,
    listing: Annotated[bool, typer.Option("--list", "-l", help="Show what is under way.")] = False,
    cancel: Annotated[bool, typer.Option("--cancel", help="Take back what is under way.")] = False,
    wait: Wait = False,
    throttle: Throttle = None,
    dry_run: DryRun = False,
    as_json: Json = False,
    yes: Yes = False,
    bootstrap: Bootstrap = None,
    client_config: ClientConfig = None,
    client_settings: ClientSettings = None,
) -> None:
    """Give partitions other replicas, take that back, or show how far it is.

    With --wait alone it waits for everything that is under way, and removes limits that are left over.
    """
    given = _given_assignment(topic, partition, replicas, file)
    rate_bytes = None if throttle is None else parse_bytes(throttle, "--throttle")
    waits = wait or rate_bytes is not None
    is_clear = waits != (listing or cancel) if given is None else not (listing or cancel)
    if not is_clear or (listing and cancel) or (partition is not None and topic is None):
        raise usage("what? pass --topic, --partition and --replicas, or --file; or --list, --cancel or --wait")
    connection = Connection(bootstrap, client_config, client_settings)
    survey = take_survey(connection, must_be_whole=True)
    if given is not None:
        carry_out(connection, survey, given, MoveOptions(dry_run, wait, rate_bytes, as_json))
        return
    chosen = _under_way(survey, topic, partition)
    if listing:
        _print_reassignments(survey, chosen, as_json)
    elif cancel:
        _cancel(connection, chosen, dry_run, yes)
    else:
        _wait_for_all(connection, survey, chosen, rate_bytes)


def _given_assignment(
    topic: str | None, partition: int | None, replicas: str | None, file: Path | None
) -> Assignment | None:
    if file is not None:
        if topic is not None or replicas is not None:
            raise usage("--file says which partitions: leave --topic and --replicas out")
        return read_assignment(file)
    if replicas is None:
        return None
    if topic is None or partition is None:
        raise usage("--replicas needs --topic and --partition")
    words = [word.strip() for word in replicas.split(",")]
    if not all(word.isascii() and word.isdigit() for word in words):
        raise usage(f"--replicas wants ids of brokers, such as 1,2,3; not {replicas!r}")
    return {(topic, partition): [int(word) for word in words]}


def _under_way(survey: Survey, topic: str | None, partition: int | None) -> list[Place]:
    if topic is not None:
        places_of_topics(survey, [topic])
    return [
        place
        for place in survey.reassignments
        if (topic is None or place[0] == topic) and (partition is None or place[1] == partition)
    ]


def _print_reassignments(survey: Survey, chosen: list[Place], as_json: bool) -> None:
    if as_json:
        wanted = set(chosen)
        rows = reassignments_document(survey)
        print_json([row for row in rows if (row["topic"], row["partition"]) in wanted])
    elif chosen:
        table = []
        for place in chosen:
            move = survey.reassignments[place]
            table.append(
                [*place, move.target, move.adding, move.removing, progress_text(*progress_of(survey, place, move))]
            )
        print_table(["TOPIC", "PARTITION", "TARGET", "ADDING", "REMOVING", "COPIED"], table)
    else:
        note("nothing is under way")


def _cancel(connection: Connection, chosen: list[Place], dry_run: bool, yes: bool) -> None:
    if not chosen:
        note("nothing is under way")
        return
    shown = places_text(chosen) if len(chosen) <= SHOWN_MAX else f"{len(chosen)} partitions"
    if dry_run:
        note(f"nothing was changed: this was a dry run for {shown}")
        return
    confirm(f"Take back the moves of {shown}?", yes, "nothing was changed")
    with Cluster(connection) as cluster:
        refused = alter_reassignments(cluster, dict.fromkeys(chosen))
        left = list_reassignments(cluster, chosen)
        for place in left:
            if place in refused:
                raise Failure(f"{place_text(place)}: {refused[place][1]}")
    survey = take_survey(connection, must_be_whole=True)
    with Cluster(connection) as cluster:
        remove_throttle(cluster, survey, by_topic(chosen))
    print_line(f"took back the moves of {shown}")


def _wait_for_all(connection: Connection, survey: Survey, chosen: list[Place], rate_bytes: int | None) -> None:
    moves = {place: survey.reassignments[place].target for place in chosen}
    if rate_bytes is not None and moves:
        with Cluster(connection) as cluster:
            set_throttle(cluster, survey, moves, rate_bytes)
    if moves:
        wait_for(connection, moves, removes_throttle=False)
    survey = take_survey(connection, must_be_whole=True)
    with Cluster(connection) as cluster:
        were_limited = remove_throttle(cluster, survey, {place[0] for place in survey.partitions})
    if were_limited:
        note("removed the limits on moves")
    elif not moves:
        note("nothing is under way")


def rebalance(
    topics: Annotated[
        list[str] | None,
        typer.Option("--topic", "-t", metavar="TOPIC", help="Only this topic; may be repeated."),
    ] = None,
    wait: Wait = False,
    throttle: Throttle = None,
    dry_run: DryRun = False,
    as_json: Json = False,
    yes: Yes = False,
    bootstrap: Bootstrap = None,
    client_config: ClientConfig = None,
    client_settings: ClientSettings = None,
) -> None:
    """Spread copies evenly over all brokers, after one was added; as few as possible move."""
    rate_bytes = None if throttle is None else parse_bytes(throttle, "--throttle")
    connection = Connection(bootstrap, client_config, client_settings)
    survey = take_survey(connection, must_be_whole=True)
    plan = spread_plan(survey, topics)
    carry_out(connection, survey, plan, MoveOptions(dry_run, wait, rate_bytes, as_json, yes, "Spread the copies:"))


def decommission(
    broker: BrokerArgument,
    wait: Wait = False,
    throttle: Throttle = None,
    dry_run: DryRun = False,
    as_json: Json = False,
    yes: Yes = False,
    bootstrap: Bootstrap = None,
    client_config: ClientConfig = None,
    client_settings: ClientSettings = None,
) -> None:
    """Move everything away from a broker, running or gone, so that it can be removed."""
    rate_bytes = None if throttle is None else parse_bytes(throttle, "--throttle")
    connection = Connection(bootstrap, client_config, client_settings)
    survey = take_survey(connection, must_be_whole=True)
    plan = emptying_plan(survey, broker)
    holds = any(broker in partition.replicas for partition in survey.partitions.values())
    if holds:
        options = MoveOptions(dry_run, wait, rate_bytes, as_json, yes, f"Empty broker {broker}:")
        carry_out(connection, survey, plan, options)
    if dry_run:
        return
    waited = not holds or wait or rate_bytes is not None
    when = f"broker {broker} holds nothing" if waited else "when nothing is under way any more"
    steps = "" if survey.brokers[broker].address is None else "stop it, then "
    note(f"{when}: {steps}forget it with 'penstock cluster unregister {broker}'")
