"""Carrying out a move of replicas: show the plan, limit it, start it, and wait until it is done.

The commands that move something (reassign, rebalance, decommission, a new replication factor) differ only in how they
come to an `Assignment`. The move itself is the cluster's work and goes on without the command that began it; waiting
is looking at the cluster again and again. Limits (`throttles`) have to be removed by somebody: whoever sets one waits.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn

from penstock.cli.byte_sizes import format_bytes
from penstock.cli.cluster import Cluster
from penstock.cli.cluster_health import progress_of
from penstock.cli.cluster_status import progress_text
from penstock.cli.cluster_survey import Survey, take_survey
from penstock.cli.connection import Connection
from penstock.cli.failure import ExitCode, Failure
from penstock.cli.output import confirm, note, print_json, print_line, print_table
from penstock.cli.places import Place, by_topic, place_text, places_text
from penstock.cli.reassignments import Assignment, assignment_document, start
from penstock.cli.throttles import remove_throttle, set_throttle

POLL_S = 0.5
LINE_EVERY_S = 5.0
SILENCE_MAX_S = 60.0
NEWS_MAX_S = 3.0


@dataclass(frozen=True, slots=True)
class MoveOptions:
    """How a move is carried out. A question is asked on a terminal unless `question` is empty or `yes` was given."""

    dry_run: bool = False
    wait: bool = False
    throttle_bytes: int | None = None
    as_json: bool = False
    yes: bool = False
    question: str = ""
    shows_plan: bool = True


def changes_in(survey: Survey, assignment: Assignment) -> dict[Place, tuple[int, ...]]:
    """Without the partitions that have these replicas already, or are on their way to them."""
    return {
        place: tuple(replicas) for place, replicas in assignment.items() if tuple(replicas) != target_now(survey, place)
    }


def target_now(survey: Survey, place: Place) -> tuple[int, ...]:
    """The replicas that a partition has, or will have when what is under way is done."""
    move = survey.reassignments.get(place)
    return survey.partitions[place].replicas if move is None else move.target


def check_assignment(survey: Survey, assignment: Assignment) -> None:
    """Fails if a partition or a broker is not there."""
    present = {broker.id for broker in survey.brokers.values() if broker.address is not None}
    for place, replicas in assignment.items():
        if place not in survey.partitions:
            raise Failure(f"there is no {place_text(place)}", ExitCode.NOT_FOUND)
        if len(set(replicas)) != len(replicas):
            raise Failure(f"{place_text(place)}: broker ids are there twice in {list(replicas)}", ExitCode.USAGE)
        for broker_id in replicas:
            if broker_id not in present and broker_id not in survey.partitions[place].replicas:
                there = ", ".join(map(str, sorted(present)))
                raise Failure(f"there is no broker {broker_id}: the cluster has {there}", ExitCode.NOT_FOUND)


def carry_out(connection: Connection, survey: Survey, assignment: Assignment, options: MoveOptions) -> bool:
    """Does it, or only shows it; returns whether anything is (or would be) moved."""
    check_assignment(survey, assignment)
    moves = changes_in(survey, assignment)
    if options.shows_plan:
        _show_plan(survey, moves, options)
    if not moves:
        note("nothing to move: every partition has these replicas already")
        return False
    if options.dry_run:
        note("nothing was changed: this was a dry run")
        return True
    if options.question:
        confirm(f"{options.question} {_summary(survey, moves)}. Go on?", options.yes, "nothing was moved")
    with Cluster(connection) as cluster:
        if options.throttle_bytes is not None:
            set_throttle(cluster, survey, moves, options.throttle_bytes)
        start(cluster, moves)
    if options.wait or options.throttle_bytes is not None:
        wait_for(connection, moves, removes_throttle=options.throttle_bytes is not None)
    else:
        note("started; 'penstock cluster reassign --list' shows how far it is")
    return True


def _show_plan(survey: Survey, moves: Assignment, options: MoveOptions) -> None:
    if options.as_json:
        print_json(assignment_document(moves))
    elif moves:
        rows = [[*place, target_now(survey, place), replicas] for place, replicas in sorted(moves.items())]
        print_table(["TOPIC", "PARTITION", "FROM", "TO"], rows)


def _summary(survey: Survey, moves: Assignment) -> str:
    copies, size_bytes = 0, 0
    for place, replicas in moves.items():
        partition = survey.partitions[place]
        new = [broker_id for broker_id in replicas if broker_id not in partition.replicas]
        leader = survey.brokers.get(partition.leader) if partition.leader is not None else None
        copies += len(new)
        size_bytes += len(new) * (leader.sizes.get(place, 0) if leader else 0)
    return f"{len(moves)} partitions change, {copies} copies of {format_bytes(size_bytes)} in all are made"


# Waiting


def wait_for(connection: Connection, moves: Assignment, *, removes_throttle: bool) -> None:
    """Waits until these moves are done, shows how far they are, and removes limits at the end if told so."""
    try:
        survey = _watch_moves(connection, moves)
    except KeyboardInterrupt:
        limits = " and removes the limits" if removes_throttle else ""
        note(f"it goes on without this command: 'penstock cluster reassign --wait' waits for the rest{limits}")
        raise
    if removes_throttle:
        with Cluster(connection) as cluster:
            remove_throttle(cluster, survey, by_topic(moves))
    if changed := _elsewhere(survey, moves):
        raise Failure(f"somebody has taken back or changed the move of {places_text(changed)}")
    print_line(f"moved {places_text(moves) if len(moves) <= 10 else f'{len(moves)} partitions'}")


def _elsewhere(survey: Survey, moves: Assignment) -> list[Place]:
    """Those that do not have, and will not have, these replicas. A topic that was deleted meanwhile is no failure."""
    return [
        place
        for place, replicas in moves.items()
        if place in survey.partitions and target_now(survey, place) != tuple(replicas)
    ]


def _watch_moves(connection: Connection, moves: Assignment) -> Survey:
    """Looks until none of them is under way; the last look.

    Whoever is asked may not know of the move yet, or not of its end. So partitions that are neither on their way nor
    there are looked at for some seconds more.
    """
    shown = _Shown(moves)
    silent, astray = _Patience(SILENCE_MAX_S), _Patience(NEWS_MAX_S)
    with shown.progress:
        while True:
            try:
                survey = take_survey(connection, must_be_whole=True)
            except Failure:
                if silent.is_over():
                    raise
            else:
                silent.renew()
                shown.update(survey)
                if any(place in survey.reassignments for place in moves):
                    astray.renew()
                elif not _elsewhere(survey, moves) or astray.is_over():
                    return survey
            time.sleep(POLL_S)


class _Patience:
    """How long something may last."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._until_s: float | None = None

    def renew(self) -> None:
        self._until_s = None

    def is_over(self) -> bool:
        """Has it lasted for too long since the first time this was asked?"""
        now_s = time.monotonic()
        self._until_s = self._until_s or now_s + self._seconds
        return now_s > self._until_s


class _Shown:
    """A bar on a terminal; in a pipe a line on stderr now and then."""

    def __init__(self, moves: Mapping[Place, object]) -> None:
        self._moves = moves
        self._copied_bytes: dict[Place, int] = {}
        self._wanted_bytes: dict[Place, int] = {}
        self._next_line_s = time.monotonic() + LINE_EVERY_S
        console = Console(stderr=True, highlight=False)
        columns = (TextColumn("moving"), BarColumn(), TextColumn("{task.fields[text]}"))
        self.progress = Progress(*columns, console=console, transient=True, disable=not sys.stderr.isatty())
        self._task = self.progress.add_task("", total=1.0, text="")

    def update(self, survey: Survey) -> None:
        left = [place for place in self._moves if place in survey.reassignments]
        for place in left:
            copied, wanted = progress_of(survey, place, survey.reassignments[place])
            if wanted:  # otherwise its leader has just changed, and nobody could say
                self._copied_bytes[place], self._wanted_bytes[place] = copied, wanted
        there = sum(
            (self._copied_bytes if place in left else self._wanted_bytes)[place] for place in self._wanted_bytes
        )
        wanted = sum(self._wanted_bytes.values())
        done = len(self._moves) - len(left)
        text = f"{done} of {len(self._moves)} partitions, {progress_text(there, wanted)}{_trouble(survey, left)}"
        self.progress.update(self._task, completed=there / wanted if wanted else 0.0, text=text)
        if self.progress.disable and left and time.monotonic() > self._next_line_s:
            self._next_line_s = time.monotonic() + LINE_EVERY_S
            note(text)


def _trouble(survey: Survey, left: list[Place]) -> str:
    """Who a move waits for in vain."""
    needed = {broker_id for place in left for broker_id in survey.reassignments[place].adding}
    missing = sorted(
        broker_id
        for broker_id in needed
        if survey.brokers[broker_id].address is None or survey.brokers[broker_id].silence
    )
    offline = any(survey.partitions[place].leader is None for place in left if place in survey.partitions)
    parts = [f"broker {', '.join(map(str, missing))} does not answer"] if missing else []
    parts += ["a partition has no leader to copy from"] if offline else []
    return "".join(f"; {part}" for part in parts)
