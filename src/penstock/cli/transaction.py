"""`penstock transaction`: list and describe transactions, find those that hang, and abort them."""

from __future__ import annotations

import time
from enum import StrEnum
from typing import Annotated, Any

import typer

from penstock.cli.cluster import Cluster
from penstock.cli.connection import Connection
from penstock.cli.failure import ExitCode, Failure, usage
from penstock.cli.options import (
    Bootstrap,
    ClientConfig,
    ClientSettings,
    Json,
    PartitionOption,
    TopicOption,
    Yes,
    family,
)
from penstock.cli.output import confirm, note, print_heading, print_json, print_line, print_table
from penstock.cli.places import Place, by_topic, chosen_places, place_text, places_text
from penstock.cli.timestamps import format_duration, format_timestamp, parse_duration_ms
from penstock.cli.transaction_names import app as names
from penstock.cli.transactions import (
    ONGOING,
    Filter,
    PartitionProducer,
    Transaction,
    describe_producers,
    describe_transactions,
    fence,
    find_transactions,
    hanging,
    list_transactions,
    transactional_ids,
    write_abort,
)

app = family("List, describe and abort transactions.")
app.add_typer(names, name="name")


class State(StrEnum):
    """The states of transactional ids."""

    Empty = "Empty"
    Ongoing = "Ongoing"
    PrepareCommit = "PrepareCommit"
    PrepareAbort = "PrepareAbort"
    CompleteCommit = "CompleteCommit"
    CompleteAbort = "CompleteAbort"
    PrepareEpochFence = "PrepareEpochFence"
    Dead = "Dead"


OPEN_STATES = [State.Ongoing, State.PrepareCommit, State.PrepareAbort]


@app.command("list")
def list_command(
    states: Annotated[
        list[State] | None,
        typer.Option("--state", case_sensitive=False, help="Only those in this state; may be repeated."),
    ] = None,
    producer_ids: Annotated[
        list[int] | None,
        typer.Option("--producer-id", metavar="N", min=0, help="Only those of this producer; may be repeated."),
    ] = None,
    longer_than: Annotated[
        str | None, typer.Option("--longer-than", metavar="TIME", help="Only those that are open for longer: 90s, 15m.")
    ] = None,
    matching: Annotated[
        str | None, typer.Option("--matching", metavar="REGEX", help="Only ids that this regular expression matches.")
    ] = None,
    as_json: Json = False,
    bootstrap: Bootstrap = None,
    client_config: ClientConfig = None,
    client_settings: ClientSettings = None,
) -> None:
    """List the transactional ids and the state of their transactions."""
    longer_than_ms = _duration_ms(longer_than, "--longer-than")
    if longer_than_ms is not None and not states:
        states = OPEN_STATES  # brokers count an id that has never had a transaction as open for ever
    wanted = Filter(states or (), producer_ids or (), longer_than_ms, matching)
    with Cluster(Connection(bootstrap, client_config, client_settings)) as cluster:
        listed = list_transactions(cluster, wanted)
    if as_json:
        print_json(
            [
                {
                    "transactional_id": each.id,
                    "state": each.state,
                    "producer_id": each.producer_id,
                    "coordinator": each.coordinator._asdict(),
                }
                for each in listed
            ]
        )
    elif listed:
        print_table(
            ["TRANSACTIONAL ID", "STATE", "PRODUCER", "COORDINATOR"],
            [[each.id, each.state, each.producer_id, each.coordinator.id] for each in listed],
        )
    else:
        note("no such transactions" if wanted != Filter() else "no transactions yet")


def _duration_ms(text: str | None, option: str) -> int | None:
    if text is None:
        return None
    duration_ms = parse_duration_ms(text)
    if duration_ms is None:
        raise usage(f"{option} wants a number and a unit, such as 500ms, 90s, 15m, 2h or 1d; not {text!r}")
    return duration_ms


# describe


@app.command()
def describe(
    ids: Annotated[
        list[str] | None, typer.Argument(metavar="[ID…]", help="Transactional ids.", show_default=False)
    ] = None,
    topic: TopicOption = None,
    partition: PartitionOption = None,
    as_json: Json = False,
    bootstrap: Bootstrap = None,
    client_config: ClientConfig = None,
    client_settings: ClientSettings = None,
) -> None:
    """Show what the coordinator knows of transactions, or with --topic what partitions know of their producers."""
    if bool(ids) == (topic is not None):
        raise usage("what of? pass transactional ids, or --topic (and --partition) for the producers of partitions")
    if partition is not None and topic is None:
        raise usage("--partition needs --topic")
    with Cluster(Connection(bootstrap, client_config, client_settings)) as cluster:
        if topic is None:
            documents = [_transaction_document(each) for each in describe_transactions(cluster, ids or [])]
        else:
            producers = describe_producers(cluster, _places(cluster, topic, partition))
            documents = _producer_documents(producers, transactional_ids(cluster, producers))
    if as_json:
        print_json(documents)
    elif topic is not None:
        _print_producers(documents)
    else:
        for document in documents:
            _print_transaction(document)


def _places(cluster: Cluster, topic: str | None, partition: int | None) -> list[Place]:
    """The partitions that were asked for: one, those of a topic, or all."""
    if topic is None:
        return [(name, part) for name, parts in cluster.partitions_of(None).items() for part in parts]
    return chosen_places({topic: None if partition is None else [partition]}, cluster.existing_partitions_of([topic]))


def _transaction_document(transaction: Transaction) -> dict[str, Any]:
    return {
        "transactional_id": transaction.id,
        "state": transaction.state,
        "producer_id": transaction.producer_id,
        "producer_epoch": transaction.producer_epoch,
        "timeout_ms": transaction.timeout_ms,
        "started_ms": transaction.started_ms,
        "open_for_ms": _age_ms(transaction.started_ms),
        "coordinator": transaction.coordinator._asdict(),
        "partitions": by_topic(transaction.places),
    }


def _age_ms(since_ms: int | None) -> int | None:
    return None if since_ms is None else max(0, round(time.time() * 1000) - since_ms)


def _print_transaction(document: dict[str, Any]) -> None:
    parts = [
        document["state"],
        f"producer {document['producer_id']} epoch {document['producer_epoch']}",
        f"timeout {format_duration(document['timeout_ms'])}",
        f"coordinator {document['coordinator']['id']}",
    ]
    if document["started_ms"] is not None:
        since = format_timestamp(document["started_ms"])
        parts.insert(1, f"open for {format_duration(document['open_for_ms'])} (since {since})")
    print_heading(f"{document['transactional_id']}: {', '.join(parts)}")
    if document["partitions"]:
        print_table(["TOPIC", "PARTITIONS"], [[topic, parts] for topic, parts in document["partitions"].items()])
    print_line("")


def _producer_documents(producers: list[PartitionProducer], ids: dict[int, str]) -> list[dict[str, Any]]:
    return [
        {
            "topic": each.place[0],
            "partition": each.place[1],
            "producer_id": each.producer_id,
            "producer_epoch": each.producer_epoch,
            "transactional_id": ids.get(each.producer_id),
            "last_sequence": each.last_sequence,
            "last_timestamp": each.last_timestamp_ms,
            "coordinator_epoch": each.coordinator_epoch,
            "transaction_start_offset": each.start_offset,
        }
        for each in producers
    ]


def _print_producers(documents: list[dict[str, Any]]) -> None:
    if not documents:
        note("no producers: none has written here with an id, or not for a long time")
        return
    columns = [
        "TOPIC",
        "PARTITION",
        "PRODUCER",
        "EPOCH",
        "TRANSACTIONAL ID",
        "LAST SEQUENCE",
        "LAST TIME",
        "OPEN SINCE",
    ]
    print_table(
        columns,
        [
            [
                *(row[name] for name in ("topic", "partition", "producer_id", "producer_epoch", "transactional_id")),
                row["last_sequence"],
                format_timestamp(row["last_timestamp"]),
                row["transaction_start_offset"],
            ]
            for row in documents
        ],
    )


# hanging ones


@app.command("find-hanging")
def find_hanging(
    topic: TopicOption = None,
    partition: PartitionOption = None,
    older_than: Annotated[
        str,
        typer.Option(
            "--older-than",
            metavar="TIME",
            help="Leave alone what was written to since; not less than the longest timeout of transactions.",
        ),
    ] = "15m",
    as_json: Json = False,
    bootstrap: Bootstrap = None,
    client_config: ClientConfig = None,
    client_settings: ClientSettings = None,
) -> None:
    """Find open transactions that nobody will end: they stop readers of committed messages."""
    older_than_ms = _duration_ms(older_than, "--older-than") or 0
    if partition is not None and topic is None:
        raise usage("--partition needs --topic")
    with Cluster(Connection(bootstrap, client_config, client_settings)) as cluster:
        producers = describe_producers(cluster, _places(cluster, topic, partition))
        old = [each for each in producers if (_age_ms(each.last_timestamp_ms) or 0) >= older_than_ms]
        found = hanging(cluster, old)
        documents = _producer_documents(found, transactional_ids(cluster, found))
    if as_json:
        print_json(documents)
    elif not documents:
        note("no transaction hangs")
    else:
        _print_producers(documents)
        note("abort one with 'penstock transaction abort --topic TOPIC --partition N --start-offset OPEN-SINCE'")


@app.command()
def abort(
    transactional_id: Annotated[
        str | None, typer.Argument(metavar="[ID]", help="Transactional id.", show_default=False)
    ] = None,
    topic: TopicOption = None,
    partition: PartitionOption = None,
    start_offset: Annotated[
        int | None, typer.Option("--start-offset", metavar="N", min=0, help="Where it begins in the partition.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Abort in the partition though the coordinator will end it by itself.")
    ] = False,
    yes: Yes = False,
    bootstrap: Bootstrap = None,
    client_config: ClientConfig = None,
    client_settings: ClientSettings = None,
) -> None:
    """Abort an open transaction: by its id everywhere, or one that hangs in a single partition.

    By its id: the producer is fenced, which aborts the transaction in all partitions; the producer can write no more
    until it starts anew. In a partition: the end is written there and nowhere else.
    """
    by_place = topic is not None and partition is not None and start_offset is not None
    if by_place == (transactional_id is not None) or (not by_place and (topic, partition, start_offset) != (None,) * 3):
        raise usage("which one? pass a transactional id, or --topic, --partition and --start-offset together")
    with Cluster(Connection(bootstrap, client_config, client_settings)) as cluster:
        if transactional_id is not None:
            _abort_by_id(cluster, transactional_id, yes)
        else:
            [place] = _places(cluster, topic, partition)
            _abort_in_partition(cluster, place, start_offset or 0, force, yes)


def _abort_by_id(cluster: Cluster, transactional_id: str, yes: bool) -> None:
    [transaction] = describe_transactions(cluster, [transactional_id])
    if transaction.state != ONGOING:
        raise Failure(f"'{transactional_id}' has no open transaction: its state is {transaction.state}")
    confirm(f"Abort the transaction of {transactional_id} and fence its producer?", yes, "nothing aborted")
    answer = fence(cluster, transaction)
    print_line(
        f"aborted the transaction of {transactional_id}; producer {transaction.producer_id} epoch "
        f"{transaction.producer_epoch} is fenced, the next epoch is {answer.producer_epoch}"
    )


def _abort_in_partition(cluster: Cluster, place: Place, start_offset: int, force: bool, yes: bool) -> None:
    producers = describe_producers(cluster, [place])
    producer = next((each for each in producers if each.start_offset == start_offset), None)
    where = place_text(place)
    if producer is None:
        hint = f"'penstock transaction describe --topic {place[0]} --partition {place[1]}' shows what there is"
        raise Failure(f"{where}: no open transaction begins at offset {start_offset} ({hint})", ExitCode.NOT_FOUND)
    if not force and not hanging(cluster, [producer]):
        known = transactional_ids(cluster, [producer])[producer.producer_id]
        timeout_ms = find_transactions(cluster, [known])[known].timeout_ms
        raise Failure(
            f"{where}: the transaction does not hang: its coordinator ends it after {format_duration(timeout_ms)} at "
            f"the latest; 'penstock transaction abort {known}' aborts it in all its partitions, --force only here"
        )
    confirm(
        f"Abort the transaction of producer {producer.producer_id} in {places_text([place])}?", yes, "nothing aborted"
    )
    write_abort(cluster, producer)
    print_line(
        f"aborted the transaction of producer {producer.producer_id} epoch {producer.producer_epoch} that began at "
        f"offset {start_offset} in {where}"
    )
