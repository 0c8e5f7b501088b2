"""`penstock consume`: prints the messages of topics.

Like `cat`, it begins at the beginning and stops at the end that each partition had when it started; like `tail -f`, it
goes on with `--follow`. Without `--group` it reads partitions directly and leaves no trace in the cluster; with one it
joins the group, begins at the group's offsets and commits what it has printed, after it was flushed: a message is
printed again rather than not at all.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from types import FrameType
from typing import Annotated, NoReturn

import typer
from confluent_kafka import OFFSET_STORED, Consumer, IsolationLevel, KafkaError, KafkaException, TopicPartition

from penstock.cli.connection import Connection
from penstock.cli.direct import can_ask, connect_directly
from penstock.cli.failure import ExitCode, Failure, usage
from penstock.cli.kafka_admin import OffsetSpec
from penstock.cli.message_format import Formatter, MessageFormat, json_line, raw_value
from penstock.cli.options import Bootstrap, ClientConfig, ClientSettings
from penstock.cli.output import note
from penstock.cli.places import Place
from penstock.cli.starting_point import Kind, StartingPoint, parse_start, resolve_start
from penstock.cli.topics import EARLIEST, LATEST, describe_topics, list_offsets

BATCH_MESSAGES = 1000
POLL_S = 0.1
GROUP_TIMEOUT_S = 30.0
NOTHING_LEFT_S = 5.0
TERMINATED = 128 + signal.SIGTERM
JOIN_GROUP_KEY = 11
NO_GROUP = "penstock-consume"


class Isolation(StrEnum):
    """Which messages of transactions are shown."""

    uncommitted = "uncommitted"
    committed = "committed"


def consume(
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC…", help="Topics to read.", show_default=False)],
    start: Annotated[
        str | None,
        typer.Option(
            "--from",
            "-o",
            metavar="WHERE",
            show_default="beginning, or where the group is",
            help="beginning, end, an OFFSET, -N (the last N of each partition), an ISO 8601 time, or 15m (ago).",
        ),
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for new messages, until Ctrl-C.")] = False,
    max_messages: Annotated[
        int | None, typer.Option("--max", "-n", min=1, metavar="N", help="Stop after N messages.")
    ] = None,
    partitions: Annotated[
        list[int] | None,
        typer.Option("--partition", "-p", metavar="N", min=0, help="Only this partition; may be repeated."),
    ] = None,
    group: Annotated[
        str | None, typer.Option("--group", "-g", help="Join this consumer group and commit what was printed.")
    ] = None,
    template: Annotated[
        str | None,
        typer.Option(
            "--format",
            metavar="TEXT",
            show_default="%v",
            help=r"%t topic, %p partition, %o offset, %k key, %v value, %T time in ms, %D time, %h headers, "
            r"%s and %K length of value and key, %% percent; \n and \t work.",
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print each message as a line of JSON.")] = False,
    raw: Annotated[bool, typer.Option("--raw", help="Print the bytes of the values and nothing else.")] = False,
    null_marker: Annotated[str, typer.Option("--null-marker", metavar="TEXT", help="How null is shown.")] = "",
    isolation: Annotated[
        Isolation, typer.Option("--isolation", help="Show messages of open and aborted transactions or not.")
    ] = Isolation.uncommitted,
    bootstrap: Bootstrap = None,
    client_config: ClientConfig = None,
    client_settings: ClientSettings = None,
) -> None:
    """Print the messages of topics: all there are, then stop; with --follow also those to come."""
    if sum((template is not None, as_json, raw)) > 1:
        raise usage("--format, --json and --raw exclude each other")
    if group is not None and partitions:
        raise usage("--group and --partition exclude each other: the group spreads the partitions")
    point = parse_start(start) if start is not None else None
    formatter = _formatter(template, as_json, raw, null_marker)
    reading = Reading(Connection(bootstrap, client_config, client_settings), formatter, follow, max_messages, isolation)
    if group is None:
        reading.read_partitions(list(dict.fromkeys(topics)), partitions, point or StartingPoint(Kind.BEGINNING))
    else:
        reading.read_as_group(list(dict.fromkeys(topics)), group, point)


def _formatter(template: str | None, as_json: bool, raw: bool, null_marker: str) -> Formatter:
    if as_json:
        return json_line
    if raw:
        return raw_value
    return MessageFormat((template if template is not None else "%v") + "\n", null_marker, sys.stdout.isatty())


class Reading:
    """One run of the command.

    `_ends` holds the partitions that are not finished and the offset where each ends, `_done` how far each was printed
    since the last commit, `_had` the partitions that this member of a group has been given so far.
    """

    def __init__(
        self,
        connection: Connection,
        formatter: Formatter,
        follow: bool,
        max_messages: int | None,
        isolation: Isolation,
    ) -> None:
        self._connection = connection
        self._formatter = formatter
        self._follow = follow
        self._left = max_messages
        self._committed = isolation == Isolation.committed
        self._ends: dict[Place, int] = {}
        self._done: dict[Place, int] = {}
        self._had: set[Place] = set()
        self._group: str | None = None
        self._joined_s: float | None = None

    def read_partitions(self, topics: list[str], partitions: list[int] | None, point: StartingPoint) -> None:
        """Reads partitions directly, without a group."""
        places = self._places(topics, partitions)
        firsts, ends = self._bounds(places)
        starts = self._starts(places, point, firsts, ends)
        wanted = [place for place in places if self._follow or starts[place] < ends[place]]
        if not wanted:
            return
        self._ends = {place: ends[place] for place in wanted}
        consumer = self._consumer(NO_GROUP)
        try:
            consumer.assign([TopicPartition(topic, part, starts[topic, part]) for topic, part in wanted])
            while not self._finished():
                self._print_batch(consumer)
        finally:
            consumer.close()

    def read_as_group(self, topics: list[str], group: str, point: StartingPoint | None) -> None:
        """Reads as a member of a group; commits after the output has been flushed, so nothing is skipped."""
        describe_topics(self._connection, self._connection.admin(), topics)
        self._check_groups_are_served()
        self._group = group
        consumer = self._consumer(group)
        started_s = time.monotonic()

        def on_assign(member: Consumer, assigned: list[TopicPartition]) -> None:
            self._take_over(member, assigned, point)

        def on_revoke(member: Consumer, revoked: list[TopicPartition]) -> None:
            self._commit(member)
            for place in revoked:
                self._ends.pop((place.topic, place.partition), None)

        try:
            with _leaving_on_termination():
                consumer.subscribe(topics, on_assign=on_assign, on_revoke=on_revoke)
                while not self._finished_in_group(group, started_s):
                    self._print_batch(consumer)
                    self._commit(consumer)
        finally:
            consumer.close()

    def _check_groups_are_served(self) -> None:
        """A client would look for the group's coordinator for ever."""
        if not can_ask(self._connection):
            return
        with connect_directly(self._connection) as client:
            if JOIN_GROUP_KEY not in client.versions:
                raise Failure("this broker serves no consumer groups: leave --group out")

    def _take_over(self, consumer: Consumer, assigned: list[TopicPartition], point: StartingPoint | None) -> None:
        """New partitions begin at the point, if there is one; the others, and without one all, where the group is."""
        places = [(place.topic, place.partition) for place in assigned]
        firsts, ends = self._bounds(places)
        if point is not None:
            starts = self._starts(places, point, firsts, ends)
            starts.update(dict.fromkeys(self._had.intersection(places), OFFSET_STORED))
            assign = consumer.incremental_assign if self._assigns_by_steps() else consumer.assign
            assign([TopicPartition(topic, part, starts[topic, part]) for topic, part in places])
        self._ends.update({place: ends[place] for place in places})
        self._had.update(places)
        self._joined_s = time.monotonic()

    def _assigns_by_steps(self) -> bool:
        """Do the settings ask for a way of assigning that takes partitions away one by one?"""
        settings = self._connection.settings
        strategies = settings.get("partition.assignment.strategy", "")
        return settings.get("group.protocol", "").lower() == "consumer" or "cooperative" in strategies

    def _finished_in_group(self, group: str, started_s: float) -> bool:
        """A member that is given nothing at first may get what others let go of; without --follow not for long."""
        if self._follow or self._had:
            return self._finished()
        now_s = time.monotonic()
        if self._joined_s is None and now_s > started_s + GROUP_TIMEOUT_S:
            raise Failure(f"group '{group}': no partitions were assigned in {GROUP_TIMEOUT_S:.0f} s")
        if self._joined_s is None or now_s < self._joined_s + NOTHING_LEFT_S:
            return False
        note(f"nothing to read: other members of group '{group}' have all partitions")
        return True

    def _commit(self, consumer: Consumer) -> None:
        done, self._done = self._done, {}
        if not done:
            return
        offsets = [TopicPartition(topic, part, offset) for (topic, part), offset in done.items()]
        try:
            consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as error:
            note(f"cannot commit, so some messages will be read again: {error.args[0].str()}")

    def _places(self, topics: list[str], partitions: list[int] | None) -> list[Place]:
        places: list[Place] = []
        for topic in describe_topics(self._connection, self._connection.admin(), topics):
            there = sorted(part.id for part in topic.partitions)
            for partition in partitions or []:
                if partition not in there:
                    has = f"it has {len(there)}, from 0 to {len(there) - 1}"
                    raise Failure(f"topic '{topic.name}' has no partition {partition}: {has}", ExitCode.NOT_FOUND)
            places += [(topic.name, partition) for partition in partitions or there]
        return places

    def _bounds(self, places: list[Place]) -> tuple[dict[Place, int], dict[Place, int]]:
        """The first offset of each partition, and the one after its last."""
        admin = self._connection.admin()
        isolation = IsolationLevel.READ_COMMITTED if self._committed else IsolationLevel.READ_UNCOMMITTED
        firsts = list_offsets(self._connection, admin, places, EARLIEST)
        return firsts, list_offsets(self._connection, admin, places, LATEST, isolation)

    def _starts(
        self, places: list[Place], point: StartingPoint, firsts: dict[Place, int], ends: dict[Place, int]
    ) -> dict[Place, int]:
        at_time: dict[Place, int] = {}
        if point.kind == Kind.TIME:
            spec = OffsetSpec.for_timestamp(point.number)
            at_time = list_offsets(self._connection, self._connection.admin(), places, spec)
        return {place: resolve_start(point, firsts[place], ends[place], at_time.get(place)) for place in places}

    def _consumer(self, group: str) -> Consumer:
        return self._connection.consumer(
            {
                "group.id": group,
                "enable.auto.commit": "false",
                "enable.auto.offset.store": "false",
                "auto.offset.reset": "earliest",
                "enable.partition.eof": "true",
                "isolation.level": "read_committed" if self._committed else "read_uncommitted",
                "fetch.wait.max.ms": "500" if self._follow else "100",
            }
        )

    def _finished(self) -> bool:
        return self._left == 0 or (not self._follow and not self._ends)

    def _print_batch(self, consumer: Consumer) -> None:
        """Prints what has arrived, and then knows how far each partition is done.

        At the end of a partition that is behind its last message: what follows that are the ends of transactions.
        """
        self._check_connection()
        count = BATCH_MESSAGES if self._left is None else min(BATCH_MESSAGES, self._left)
        shown: list[bytes] = []
        done: dict[Place, int] = {}
        for message in consumer.consume(count, POLL_S):
            place = (str(message.topic()), message.partition() or 0)
            offset = message.offset() or 0
            error = message.error()
            if error is not None and error.code() != KafkaError._PARTITION_EOF:
                self._check_error(error, message.topic(), place[1])
            elif error is not None:
                if place in self._ends:
                    done[place] = offset if self._follow else min(offset, self._ends[place])
                self._mark(place, offset)
            elif self._follow or offset < self._ends.get(place, 0):
                shown.append(self._formatter(message))
                done[place] = offset + 1
                self._mark(place, offset + 1)
        if shown:
            sys.stdout.buffer.write(b"".join(shown))
            sys.stdout.buffer.flush()
        self._done |= done
        if self._left is not None:
            self._left -= len(shown)

    def _check_connection(self) -> None:
        """A follower waits for brokers to come back; whoever only wants what is there should not."""
        if not self._connection.brokers_down:
            return
        if not self._follow:
            raise Failure(f"lost the broker at {self._connection.bootstrap}", ExitCode.UNREACHABLE)
        self._connection.brokers_down = False
        note(f"lost the broker at {self._connection.bootstrap}; waiting for it")

    def _check_error(self, error: KafkaError, topic: str | None, partition: int) -> None:
        """Errors without a topic are the group's, which the client looks for even if it is not to use one."""
        if topic is None and self._group is None and error.code() == KafkaError.GROUP_AUTHORIZATION_FAILED:
            return
        if error.fatal() or not error.retriable():
            group = "the consumer" if self._group is None else f"group '{self._group}'"
            raise self._connection.failure(
                error, group if topic is None else f"partition {partition} of topic '{topic}'"
            )

    def _mark(self, place: Place, next_offset: int) -> None:
        """A partition is finished when its end, as it was at the start, has been reached."""
        if not self._follow and next_offset >= self._ends.get(place, next_offset + 1):
            del self._ends[place]


@contextmanager
def _leaving_on_termination() -> Iterator[None]:
    """A member that is told to end leaves its group first; otherwise the group would wait for it for a while."""

    def end(_number: int, _frame: FrameType | None) -> NoReturn:
        raise SystemExit(TERMINATED)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
