"""`penstock cluster`: how the cluster is, who leads, and where copies lie."""

from __future__ import annotations

from typing import Annotated

import typer

from penstock.base.errors import Error
from penstock.cli.cluster import Cluster
from penstock.cli.cluster_health import health_document, judge, places_document
from penstock.cli.cluster_status import EXIT_CODES, print_status, watch
from penstock.cli.cluster_survey import take_survey
from penstock.cli.connection import Connection
from penstock.cli.direct import check_error
from penstock.cli.elections import Election, elect_leaders, leaders_after
from penstock.cli.failure import ExitCode, Failure, usage
from penstock.cli.move_commands import decommission, reassign, rebalance
from penstock.cli.options import (
    Bootstrap,
    BrokerArgument,
    ClientConfig,
    ClientSettings,
    Json,
    PartitionOption,
    TopicOption,
    Yes,
    family,
)
from penstock.cli.output import confirm, note, print_json, print_line, print_table
from penstock.cli.places import Place, place_text, places_text
from penstock.wire.messages import k64_unregister_broker as k64

app = family("Watch brokers, elect leaders, move copies.")

WATCH_INTERVAL_S = 2.0


@app.command()
def status(
    seconds: Annotated[
        float | None,
        typer.Argument(
            metavar="[SECONDS]", min=0.1, help="With --watch: the time between two looks.", show_default="2"
        ),
    ] = None,
    watching: Annotated[bool, typer.Option("--watch", "-w", help="Look again and again, until Ctrl-C.")] = False,
    as_json: Json = False,
    bootstrap: Bootstrap = None,
    client_config: ClientConfig = None,
    client_settings: ClientSettings = None,
) -> None:
    """Show brokers, controller, and partitions that are offline, not in sync or not where they should be.

    Ends with 0 if all is well, with 7 if a partition has no leader, and with 8 if something else is missing.
    """
    if seconds is not None and not watching:
        raise usage("a number of seconds goes with --watch")
    connection = Connection(bootstrap, client_config, client_settings)
    if watching:
        watch(connection, seconds or WATCH_INTERVAL_S, as_json=as_json)
        return
    health = judge(take_survey(connection))
    if as_json:
        print_json(health_document(health))
    else:
        print_status(health)
    raise typer.Exit(EXIT_CODES[health.state])


# elect


@app.command()
def elect(
    topic: TopicOption = None,
    partition: PartitionOption = None,
    every: Annotated[bool, typer.Option("--all", "-a", help="All partitions of all topics.")] = False,
    unclean: Annotated[
        bool,
        typer.Option("--unclean", help="Where there is no leader: let a replica lead that may lack messages."),
    ] = False,
    as_json: Json = False,
    yes: Yes = False,
    bootstrap: Bootstrap = None,
    client_config: ClientConfig = None,
    client_settings: ClientSettings = None,
) -> None:
    """Give the lead back to the preferred leaders; or, with --unclean, to whoever is left."""
    if every == (topic is not None):
        raise usage("which partitions? pass --topic (and --partition), or --all")
    if partition is not None and topic is None:
        raise usage("--partition needs --topic")
    with Cluster(Connection(bootstrap, client_config, client_settings)) as cluster:
        places = None if topic is None else _places(cluster, topic, partition)
        if unclean:
            of_what = "all partitions without a leader" if places is None else places_text(places)
            confirm(f"Messages that only others have will be lost. Elect for {of_what}?", yes, "nothing was changed")
        results = elect_leaders(cluster, Election.UNCLEAN if unclean else Election.PREFERRED, places)
        _print_elections(cluster, results, as_json)
    if failed := {place: problem for place, problem in results.items() if problem is not None}:
        raise Failure("\n  ".join(f"{place_text(place)}: {problem}" for place, problem in failed.items()))


def _places(cluster: Cluster, topic: str, partition: int | None) -> list[Place]:
    there = cluster.existing_partitions_of([topic])[topic]
    if partition is None:
        return [(topic, number) for number in there]
    if partition not in there:
        raise Failure(f"topic '{topic}' has no partition {partition}: it has {len(there)}", ExitCode.NOT_FOUND)
    return [(topic, partition)]


def _print_elections(cluster: Cluster, results: dict[Place, str | None], as_json: bool) -> None:
    done = [place for place, problem in results.items() if problem is None]
    leaders = leaders_after(cluster, done)
    if as_json:
        rows = places_document(done)
        print_json([row | {"leader": leaders.get(place)} for place, row in zip(done, rows, strict=True)])
    elif done:
        print_table(["TOPIC", "PARTITION", "LEADER"], [[*place, leaders.get(place)] for place in done])
    elif not results:
        note("no election was needed")


# reassign, rebalance, decommission, unregister


app.command()(reassign)
app.command()(rebalance)
app.command()(decommission)


@app.command()
def unregister(
    broker: BrokerArgument,
    force: Annotated[bool, typer.Option("--force", help="Even if partitions still have copies there.")] = False,
    yes: Yes = False,
    bootstrap: Bootstrap = None,
    client_config: ClientConfig = None,
    client_settings: ClientSettings = None,
) -> None:
    """Forget a broker that was stopped and will not come back."""
    connection = Connection(bootstrap, client_config, client_settings)
    survey = take_survey(connection)
    known = survey.brokers.get(broker)
    if known is not None and known.address is not None:
        raise Failure(f"broker {broker} is running: stop it first")
    held = [place for place, partition in survey.partitions.items() if broker in partition.replicas]
    if held and not force:
        advice = f"move them with 'penstock cluster decommission {broker}'"
        raise Failure(f"{len(held)} partitions have a copy on broker {broker}: {advice}")
    confirm(f"Forget broker {broker}?", yes, "nothing was changed")
    with Cluster(connection) as cluster:
        answer = cluster.ask_controller(
            lambda client: client.ask(
                k64.API.key, k64.UnregisterBrokerRequest(broker_id=broker), k64.UnregisterBrokerResponse
            ),
            lambda answer: answer.error_code,
        )
    if answer.error_code == Error.BROKER_ID_NOT_REGISTERED:
        there = ", ".join(map(str, survey.brokers))
        raise Failure(f"nobody knows a broker {broker}: the cluster has {there}", ExitCode.NOT_FOUND)
    check_error(answer.error_code, answer.error_message, f"broker {broker}")
    print_line(f"forgot broker {broker}")
