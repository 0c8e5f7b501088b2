"""`penstock produce`: sends lines of stdin or of a file to a topic.

The producer is idempotent unless `--acks` says otherwise, spreads keys as Kafka's own client does (murmur2), and hears
only of failed deliveries; each failure names the line it came from.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import IO, Annotated, Any, cast

import typer
from confluent_kafka import KafkaError, KafkaException, Producer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

from penstock.cli.connection import Connection
from penstock.cli.failure import ExitCode, Failure, usage
from penstock.cli.message_input import InputMessage, JsonLines, LineError, PlainLines, parse_headers, unescape
from penstock.cli.options import Bootstrap, ClientConfig, ClientSettings
from penstock.cli.output import note
from penstock.cli.timestamps import parse_timestamp_ms
from penstock.cli.topics import topic_exists

FAILURES_SHOWN = 10
QUEUE_FULL_WAIT_S = 0.5
FLUSH_STEP_S = 0.5


class Compression(StrEnum):
    """The codecs of Kafka."""

    none = "none"
    gzip = "gzip"
    snappy = "snappy"
    lz4 = "lz4"
    zstd = "zstd"


class Acks(StrEnum):
    """Who must have a message before it counts as sent."""

    all = "all"
    one = "1"
    zero = "0"


def produce(
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="Where to send to.", show_default=False)],
    file: Annotated[
        Path | None,
        typer.Option("--file", "-f", metavar="FILE", help="Read this file instead of stdin.", show_default=False),
    ] = None,
    key: Annotated[str | None, typer.Option("--key", "-k", metavar="TEXT", help="The key of every message.")] = None,
    key_separator: Annotated[
        str | None,
        typer.Option("--key-separator", "-K", metavar="TEXT", help=r"What ends the key in a line; \t works."),
    ] = None,
    headers: Annotated[
        str | None, typer.Option("--headers", "-H", metavar="A=1,B=2", help="Headers for every message.")
    ] = None,
    json_lines: Annotated[
        bool,
        typer.Option("--json", help="Each line is an object with key, value, headers, partition and timestamp."),
    ] = False,
    binary: Annotated[bool, typer.Option("--binary", help="The whole input is one message.")] = False,
    null_marker: Annotated[
        str | None, typer.Option("--null-marker", metavar="TEXT", help="A key or value of this text means null.")
    ] = None,
    partition: Annotated[
        int | None,
        typer.Option("--partition", "-p", metavar="N", min=0, help="Send to this partition; by the key if not given."),
    ] = None,
    compression: Annotated[
        Compression, typer.Option("--compression", "-z", help="Codec for the batches.")
    ] = Compression.none,
    acks: Annotated[Acks, typer.Option("--acks", help="Who must have a message before it counts.")] = Acks.all,
    timestamp: Annotated[
        str | None, typer.Option("--timestamp", metavar="TIME", help="ISO 8601 or milliseconds; now if not given.")
    ] = None,
    bootstrap: Bootstrap = None,
    client_config: ClientConfig = None,
    client_settings: ClientSettings = None,
) -> None:
    """Send messages, one per line, from stdin or a file."""
    if key is not None and key_separator is not None:
        raise usage("--key and --key-separator exclude each other")
    if binary and key_separator is not None:
        raise usage("--binary takes no --key-separator: give the key with --key")
    if json_lines and (key_separator is not None or binary):
        raise usage("--json goes with neither --key-separator nor --binary")
    parser = JsonLines() if json_lines else PlainLines(_escaped(key_separator, "--key-separator"), _bytes(null_marker))
    template = InputMessage(None, _bytes(key), _parse_headers(headers), partition)
    template.timestamp_ms = parse_timestamp_ms(timestamp) if timestamp else None
    connection = Connection(bootstrap, client_config, client_settings)
    with _opened(file) as source:
        if not topic_exists(connection, topic):
            note(f"there is no topic '{topic}' yet: the broker creates it, if it may")
        Sending(connection, topic, template, acks, compression).run(source, parser, binary)


def _escaped(text: str | None, option: str) -> bytes | None:
    if text == "":
        raise usage(f"{option} must not be empty")
    return None if text is None else unescape(text).encode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def _parse_headers(text: str | None) -> list[tuple[str, bytes | None]]:
    try:
        return parse_headers(text)
    except LineError as error:
        raise usage(f"--headers {error}") from error


class Sending:
    """One run of the command: what was sent, what failed, and why."""

    def __init__(
        self, connection: Connection, topic: str, template: InputMessage, acks: Acks, compression: Compression
    ) -> None:
        self._connection = connection
        self._topic = topic
        self._template = template
        self._interactive = False
        self._sent = 0
        self._failed = 0
        self._unknown_topic = False
        self._producer: Producer = connection.producer(
            {
                "acks": acks.value,
                "enable.idempotence": "true" if acks == Acks.all else "false",
                "compression.type": compression.value,
                "partitioner": "murmur2_random",
                "delivery.report.only.error": True,
                "message.timeout.ms": "30000",
                "topic.metadata.propagation.max.ms": "5000",
            }
        )

    def run(self, source: IO[bytes], parser: PlainLines | JsonLines, binary: bool) -> None:
        """Sends everything in the source, then says how much it was; fails if anything did."""
        self._interactive = source is sys.stdin.buffer and sys.stdin.isatty()
        if self._interactive:
            note("type one message per line; Ctrl-D ends")
        started = time.monotonic()
        try:
            for number, line in _lines(source, binary):
                self._send_line(number, line, parser)
        finally:
            self._flush()
            elapsed_s = time.monotonic() - started
            delivered = self._sent - self._failed
            note(f"produced {delivered:,} message{'s' * (delivered != 1)} to {self._topic} in {elapsed_s:.1f} s")
        if self._unknown_topic:
            advice = f"create it with 'penstock topic create {self._topic}'"
            raise Failure(f"there is no topic '{self._topic}': {advice}", ExitCode.NOT_FOUND)
        if self._failed:
            raise Failure(f"{self._failed:,} of {self._sent:,} messages were not delivered")

    def _send_line(self, number: int, line: bytes, parser: PlainLines | JsonLines) -> None:
        try:
            message = parser.parse(line)
        except LineError as error:
            raise Failure(f"line {number}: {error}") from error
        self._sent += 1
        try:
            self._send(message, partial(self._on_delivery, number))
        except KafkaException as error:
            if error.args[0].fatal():
                raise self._given_up(error) from error
            self._on_delivery(number, error.args[0], None)
        except SystemError as error:
            raise self._given_up(error) from error
        except (ValueError, TypeError, OverflowError) as error:
            raise Failure(f"line {number}: {error}") from error
        if self._interactive:
            self._flush()

    def _send(self, message: InputMessage, on_delivery: Any) -> None:
        key = message.key if message.key is not None else self._template.key
        options: dict[str, Any] = {}
        partition = message.partition if message.partition is not None else self._template.partition
        if partition is not None:
            options["partition"] = partition
        timestamp_ms = message.timestamp_ms if message.timestamp_ms is not None else self._template.timestamp_ms
        if timestamp_ms is not None:
            options["timestamp"] = timestamp_ms
        if headers := [*self._template.headers, *message.headers]:
            options["headers"] = headers
        while True:
            try:
                self._producer.produce(self._topic, message.value, key, on_delivery=on_delivery, **options)
            except BufferError:
                self._producer.poll(QUEUE_FULL_WAIT_S)
            else:
                self._producer.poll(0)
                return

    def _on_delivery(self, number: int, error: KafkaError | None, _message: Any) -> None:
        if error is None:
            return
        self._failed += 1
        if error.code() in (KafkaError._UNKNOWN_TOPIC, KafkaError.UNKNOWN_TOPIC_OR_PART):
            self._unknown_topic = True
        elif self._failed <= FAILURES_SHOWN:
            subject = "the partition" if error.code() == KafkaError._UNKNOWN_PARTITION else "not delivered"
            note(f"line {number}: {self._connection.failure(error, subject).message}")

    def _flush(self) -> None:
        """Waits in small steps, so that Ctrl-C is heard; the client gives up on a message by itself."""
        try:
            while self._producer.flush(FLUSH_STEP_S):
                pass
        except (KafkaException, SystemError) as error:
            raise self._given_up(error) from error

    def _given_up(self, error: BaseException) -> Failure:
        """The client can write no more, as when it gets no producer id. It may say so in the middle of a report of a
        delivery, and then Python finds a second error around it."""
        while not isinstance(error, KafkaException):
            if error.__cause__ is None:
                raise error
            error = error.__cause__
        return self._connection.failure(error.args[0], f"topic '{self._topic}'")


def _lines(source: IO[bytes], binary: bool) -> Iterator[tuple[int, bytes]]:
    if binary:
        yield 1, source.read()
        return
    for number, line in enumerate(source, 1):
        yield number, line.removesuffix(b"\n")


@contextmanager
def _opened(file: Path | None) -> Iterator[IO[bytes]]:
    """The input; a file has a progress bar on a terminal."""
    if file is None:
        yield sys.stdin.buffer
        return
    with file.open("rb") as source:
        if not sys.stderr.isatty():
            yield source
            return
        columns = TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn()
        with Progress(*columns, console=Console(stderr=True), transient=True) as progress:
            yield cast(IO[bytes], progress.wrap_file(source, total=file.stat().st_size, description=file.name))
