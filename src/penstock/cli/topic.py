"""`penstock topic`: list, create, describe, alter and delete topics."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from confluent_kafka import KafkaError, KafkaException, TopicCollection

from penstock.cli.cluster_survey import take_survey
from penstock.cli.connection import ANSWER_TIMEOUT_S, Connection
from penstock.cli.eligible_leaders import eligible_leaders
from penstock.cli.failure import ExitCode, Failure, usage
from penstock.cli.kafka_admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    ResourceType,
)
from penstock.cli.leader_figures import leader_figures
from penstock.cli.move_plans import factor_plan
from penstock.cli.moves import MoveOptions, carry_out
from penstock.cli.options import Bootstrap, ClientConfig, ClientSettings, Json, Yes, family, key_values
from penstock.cli.output import confirm, note, print_heading, print_json, print_line, print_table
from penstock.cli.resources import alter, changed_settings
from penstock.cli.topics import describe_topics, unknown_topic

app = family("List, create, describe, alter and delete topics.")

URL_SAFE_BASE64 = str.maketrans("+/", "-_")

Names = Annotated[list[str], typer.Argument(metavar="TOPIC…", help="Names of topics.", show_default=False)]
Name = Annotated[str, typer.Argument(metavar="TOPIC", help="Name of the topic.", show_default=False)]
Settings = Annotated[
    list[str] | None,
    typer.Option("--config", "-c", metavar="KEY=VALUE", help="A setting of the topic; may be repeated."),
]


@app.command("list")
def list_topics(
    include_internal: Annotated[bool, typer.Option("--all", "-a", help="Internal topics too.")] = False,
    as_json: Json = False,
    bootstrap: Bootstrap = None,
    client_config: ClientConfig = None,
    client_settings: ClientSettings = None,
) -> None:
    """List the topics with their partitions and replicas."""
    connection = Connection(bootstrap, client_config, client_settings)
    admin = connection.admin()
    topics = connection.metadata(admin).topics
    internal = _internal_topics(connection, admin, [name for name in topics if name.startswith("__")])
    rows: list[dict[str, Any]] = [
        {
            "name": name,
            "partitions": len(topic.partitions),
            "replication_factor": max((len(part.replicas) for part in topic.partitions.values()), default=0),
            "internal": name in internal,
        }
        for name, topic in sorted(topics.items())
        if include_internal or name not in internal
    ]
    if as_json:
        print_json(rows)
    elif rows:
        print_table(
            ["TOPIC", "PARTITIONS", "REPLICAS"],
            [[row["name"], row["partitions"], row["replication_factor"]] for row in rows],
        )
    else:
        has_login = "sasl.mechanism" in connection.settings or "ssl.certificate.location" in connection.settings
        unseen = ", or none that this user may see" if has_login else ""
        note(f"no topics yet{unseen}: create one with 'penstock topic create NAME'")


def _internal_topics(connection: Connection, admin: AdminClient, candidates: list[str]) -> set[str]:
    """Those of the candidates that the broker marks as internal (the plain list of topics does not say)."""
    if not candidates:
        return set()
    answers = admin.describe_topics(TopicCollection(candidates), request_timeout=ANSWER_TIMEOUT_S)
    return {name for name in candidates if connection.answer(answers[name], f"topic '{name}'").is_internal}


@app.command()
def create(
    names: Names,
    partitions: Annotated[
        int | None,
        typer.Option("--partitions", "-p", metavar="N", min=1, help="Partitions; the broker's default if not given."),
    ] = None,
    replication_factor: Annotated[
        int | None, typer.Option("--replication-factor", "-r", metavar="N", min=1, help="Copies of each partition.")
    ] = None,
    config: Settings = None,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="Be content if it is there.")] = False,
    bootstrap: Bootstrap = None,
    client_config: ClientConfig = None,
    client_settings: ClientSettings = None,
) -> None:
    """Create topics."""
    settings = key_values(config, "--config")
    connection = Connection(bootstrap, client_config, client_settings)
    new = [NewTopic(name, partitions or -1, replication_factor or -1, config=settings) for name in names]
    answers = connection.admin().create_topics(new, request_timeout=ANSWER_TIMEOUT_S)
    for name in names:
        try:
            connection.answer(answers[name], f"topic '{name}'")
        except Failure as failure:
            if failure.code != ExitCode.EXISTS or not if_not_exists:
                raise
            print_line(f"topic {name} is already there")
        else:
            print_line(f"created topic {name}")


@app.command()
def describe(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[TOPIC…]", help="Names of topics; all if none.", show_default=False)
    ] = None,
    as_json: Json = False,
    bootstrap: Bootstrap = None,
    client_config: ClientConfig = None,
    client_settings: ClientSettings = None,
) -> None:
    """Show the partitions, replicas, offsets and own settings of topics."""
    connection = Connection(bootstrap, client_config, client_settings)
    admin = connection.admin()
    wanted = names or sorted(name for name in connection.metadata(admin).topics if not name.startswith("__"))
    documents = _describe(connection, admin, wanted) if wanted else []
    if as_json:
        print_json(documents)
        return
    for document in documents:
        _print_topic(document)


def _describe(connection: Connection, admin: AdminClient, names: list[str]) -> list[dict[str, Any]]:
    topics = describe_topics(connection, admin, names)
    leaders = {
        (topic.name, part.id): part.leader for topic in topics for part in topic.partitions if part.leader is not None
    }
    figures = leader_figures(connection, admin, leaders)
    eligible = eligible_leaders(connection, names)
    settings = changed_settings(connection, admin, [ConfigResource(ResourceType.TOPIC, name) for name in names])
    return [
        {
            "name": topic.name,
            "id": str(topic.topic_id).translate(URL_SAFE_BASE64),
            "internal": topic.is_internal,
            "partitions": [
                {
                    "partition": part.id,
                    "leader": part.leader.id if part.leader is not None else None,
                    "replicas": [node.id for node in part.replicas],
                    "isr": [node.id for node in part.isr],
                    "eligible": eligible.get((topic.name, part.id), []),
                    "start_offset": figures.starts.get((topic.name, part.id)),
                    "end_offset": figures.ends.get((topic.name, part.id)),
                    "size_bytes": figures.sizes.get((topic.name, part.id)),
                }
                for part in sorted(topic.partitions, key=lambda part: part.id)
            ],
            "config": {entry.name: entry.value for entry in settings[ResourceType.TOPIC, topic.name]},
        }
        for topic in topics
    ]


def _print_topic(document: dict[str, Any]) -> None:
    partitions = document["partitions"]
    copies = len(partitions[0]["replicas"]) if partitions else 0
    print_heading(f"{document['name']}: {len(partitions)} partitions, replication factor {copies}, id {document['id']}")
    fields = ("partition", "leader", "replicas", "isr", "eligible", "start_offset", "end_offset", "size_bytes")
    rows = [[part[field] for field in fields] for part in partitions]
    print_table(["PARTITION", "LEADER", "REPLICAS", "ISR", "ELIGIBLE", "START", "END", "BYTES"], rows)
    for name, value in sorted(document["config"].items()):
        print_line(f"{name}={value}")
    print_line("")


@app.command("alter")
def alter_topic(
    name: Name,
    partitions: Annotated[
        int | None, typer.Option("--partitions", "-p", metavar="N", min=1, help="New number of partitions.")
    ] = None,
    replication_factor: Annotated[
        int | None,
        typer.Option("--replication-factor", "-r", metavar="N", min=1, help="New number of copies of each partition."),
    ] = None,
    config: Settings = None,
    delete_config: Annotated[
        list[str] | None, typer.Option("--delete-config", metavar="KEY", help="Back to the default; may be repeated.")
    ] = None,
    bootstrap: Bootstrap = None,
    client_config: ClientConfig = None,
    client_settings: ClientSettings = None,
) -> None:
    """Give a topic more partitions, more or fewer copies, or other settings."""
    changes = [
        ConfigEntry(key, value, incremental_operation=AlterConfigOpType.SET)
        for key, value in key_values(config, "--config").items()
    ] + [ConfigEntry(key, None, incremental_operation=AlterConfigOpType.DELETE) for key in delete_config or []]
    if partitions is None and replication_factor is None and not changes:
        raise usage("nothing to alter: pass --partitions, --replication-factor, --config or --delete-config")
    connection = Connection(bootstrap, client_config, client_settings)
    admin = connection.admin()
    describe_topics(connection, admin, [name])
    if partitions is not None:
        answers = admin.create_partitions([NewPartitions(name, partitions)], request_timeout=ANSWER_TIMEOUT_S)
        connection.answer(answers[name], f"topic '{name}'")
    if changes:
        alter(connection, admin, ConfigResource(ResourceType.TOPIC, name, incremental_configs=changes))
    if replication_factor is not None:
        survey = take_survey(connection, must_be_whole=True)
        carry_out(connection, survey, factor_plan(survey, name, replication_factor), MoveOptions(shows_plan=False))
    print_line(f"altered topic {name}")


@app.command()
def delete(
    names: Names,
    yes: Yes = False,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="Be content if it is not there.")] = False,
    bootstrap: Bootstrap = None,
    client_config: ClientConfig = None,
    client_settings: ClientSettings = None,
) -> None:
    """Delete topics and all their messages."""
    connection = Connection(bootstrap, client_config, client_settings)
    admin = connection.admin()
    confirm(f"Delete {', '.join(names)} and all messages?", yes, "nothing deleted")
    answers = admin.delete_topics(names, request_timeout=ANSWER_TIMEOUT_S)
    for name in names:
        try:
            connection.outcome(answers[name], f"topic '{name}'")
        except KafkaException as error:
            if error.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise connection.failure(error.args[0], f"topic '{name}'") from error
            if not if_exists:
                raise unknown_topic(connection, admin, name) from error
            print_line(f"topic {name} is not there")
        else:
            print_line(f"deleted topic {name}")
