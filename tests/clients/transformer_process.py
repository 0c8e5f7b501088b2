"""Consume, transform, produce, with the offsets in the transaction: a program that can be killed at any point.

    python -m tests.clients.transformer_process OPTIONS     (a JSON object, see `Options`)

Before and after each step it writes a line, so that whoever runs it knows where it is. An error that asks for it is
answered with an abort and a return to the committed offsets, as the documentation of the client has it; what cannot
be answered ends the program, and it is started again.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

CALL_S = 20
CLIENT_SETTINGS = {
    "reconnect.backoff.max.ms": 300,
    # A client that begins with its bootstrap servers again, because all brokers are away, lets go of the coordinators
    # it knew but goes on waiting for them (librdkafka 2.16): so an only broker must not look like a new cluster.
    "metadata.recovery.strategy": "none",
    "log_level": 0,
    "error_cb": lambda error: die(error) if error.fatal() else None,
}
POLL_S = 0.2
ENDED_BY_AN_ERROR = 3


@dataclass(frozen=True)
class Options:
    """Who it is, and what it reads and writes."""

    bootstrap: str
    transactional_id: str
    group_id: str
    source: str
    target: str
    batch_max: int
    consumer_settings: dict[str, Any]


def say(*words: object) -> None:
    print(*words, flush=True)


class Transformer:
    """One life of the program."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._producer = Producer(
            {
                "bootstrap.servers": options.bootstrap,
                "transactional.id": options.transactional_id,
                "linger.ms": 0,
                **CLIENT_SETTINGS,
            }
        )
        self._consumer = Consumer(
            {
                "bootstrap.servers": options.bootstrap,
                "group.id": options.group_id,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
                **CLIENT_SETTINGS,
                **options.consumer_settings,
            }
        )

    def run(self) -> None:
        say("initialising")
        persistently(lambda: self._producer.init_transactions(CALL_S))
        say("initialised")
        self._consumer.subscribe([self._options.source])
        while True:
            messages = [
                message for message in self._consumer.consume(self._options.batch_max, POLL_S) if sound(message)
            ]
            if messages:
                self._transform(messages)
            else:
                say("idle")

    def _transform(self, messages: list[Message]) -> None:
        try:
            self._producer.begin_transaction()
            say("begun")
            for message in messages:
                self._producer.produce(
                    self._options.target, transformed(message.value()), partition=message.partition()
                )
            self._producer.poll(0)
            say("produced")
            offsets = self._consumer.position(self._consumer.assignment())
            metadata = self._consumer.consumer_group_metadata()
            persistently(lambda: self._producer.send_offsets_to_transaction(offsets, metadata, CALL_S))
            say("offsets")
            persistently(lambda: self._producer.commit_transaction(CALL_S))
            say("committed", len(messages))
        except KafkaException as failed:
            error: KafkaError = failed.args[0]
            if not error.txn_requires_abort():
                raise
            say("aborting", error.name())
            persistently(lambda: self._producer.abort_transaction(CALL_S))
            self._rewind()
            say("aborted")

    def _rewind(self) -> None:
        """Go back to what is committed: what was read since is to be read again."""
        for partition in persistently(lambda: self._consumer.committed(self._consumer.assignment(), CALL_S)):
            offset = partition.offset if partition.offset >= 0 else OFFSET_BEGINNING
            self._consumer.seek(TopicPartition(partition.topic, partition.partition, offset))


def sound(message: Message) -> bool:
    """Whether it is a message; what is said instead passes."""
    return message.error() is None


def die(error: KafkaError) -> None:
    """The client has to be made anew, and so has everything."""
    say("failed", error)
    os._exit(ENDED_BY_AN_ERROR)


def transformed(value: bytes | None) -> bytes:
    return b"<" + (value or b"") + b">"


def persistently(call: Callable[[], Any]) -> Any:
    """Call until the client says that calling again does not help."""
    while True:
        try:
            return call()
        except KafkaException as failed:
            error: KafkaError = failed.args[0]
            if not error.retriable() and error.code() not in (KafkaError._TIMED_OUT, KafkaError._TRANSPORT):
                raise
            say("again", error.name())


if __name__ == "__main__":
    try:
        Transformer(Options(**json.loads(sys.argv[1]))).run()
    except KafkaException as failed:
        die(failed.args[0])
