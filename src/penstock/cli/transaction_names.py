"""`penstock transaction name`: the names whose producers commit as one, with the last number of each.

This is Penstock's own; other brokers say that they do not serve it. A name's last number is what makes a commit that
comes twice harmless, so it is kept until somebody deletes it here.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from penstock.base.errors import Error
from penstock.cli.cluster import Answers, Cluster, CoordinatorKind
from penstock.cli.connection import Connection
from penstock.cli.direct import DirectClient, check_error
from penstock.cli.failure import ExitCode, Failure, did_you_mean
from penstock.cli.options import Bootstrap, ClientConfig, ClientSettings, Json, Yes, family
from penstock.cli.output import confirm, note, print_heading, print_json, print_line, print_table
from penstock.transactions.names import MARK
from penstock.wire.messages import k20002_describe_commits as k20002
from penstock.wire.messages import k20003_delete_commits as k20003

app = family("List, describe and delete names whose producers commit as one.")

Names = Annotated[list[str], typer.Argument(metavar="NAME…", help="Names.", show_default=False)]


@app.command("list")
def list_command(
    as_json: Json = False,
    bootstrap: Bootstrap = None,
    client_config: ClientConfig = None,
    client_settings: ClientSettings = None,
) -> None:
    """List the names with the last number that was committed."""
    with Cluster(Connection(bootstrap, client_config, client_settings)) as cluster:
        documents = _all_names(cluster)
    if as_json:
        print_json(documents)
    elif documents:
        print_table(
            ["NAME", "LAST NUMBER", "COMPLETE", "TRANSACTIONS"],
            [[row["name"], row["last_number"], row["complete"], len(row["transactions"])] for row in documents],
        )
    else:
        note("no names yet")


@app.command()
def describe(
    names: Names,
    as_json: Json = False,
    bootstrap: Bootstrap = None,
    client_config: ClientConfig = None,
    client_settings: ClientSettings = None,
) -> None:
    """Show the last number of names, and their transactions."""
    with Cluster(Connection(bootstrap, client_config, client_settings)) as cluster:
        known = {row["name"]: row for row in _all_names(cluster)}
    for name in names:
        if name not in known:
            raise _unknown_name(name, known)
    if as_json:
        print_json([known[name] for name in names])
        return
    for name in names:
        _print_name(known[name])


def _print_name(document: dict[str, Any]) -> None:
    last = "nothing committed" if document["last_number"] is None else f"last number {document['last_number']}"
    state = "" if document["last_number"] is None else ", complete" if document["complete"] else ", being completed"
    print_heading(f"{document['name']}: {last}{state}")
    fields = ("transactional_id", "state", "producer_id", "producer_epoch", "prepared_number", "prepared_run")
    rows = [[row[field] for field in fields] for row in document["transactions"]]
    if rows:
        print_table(["TRANSACTIONAL ID", "STATE", "PRODUCER", "EPOCH", "PREPARED FOR", "IN RUN"], rows)
    print_line("")


@app.command()
def delete(
    names: Names,
    yes: Yes = False,
    bootstrap: Bootstrap = None,
    client_config: ClientConfig = None,
    client_settings: ClientSettings = None,
) -> None:
    """Forget names that nobody uses any more: a commit that comes late would then count as a new one."""
    with Cluster(Connection(bootstrap, client_config, client_settings)) as cluster:
        confirm(f"Forget the last numbers of {', '.join(names)}?", yes, "nothing deleted")

        def ask(client: DirectClient, its: list[str]) -> Answers[str]:
            request = k20003.DeleteCommitsRequest(names=[key.removeprefix(MARK) for key in its])
            answer = client.ask(k20003.API.key, request, k20003.DeleteCommitsResponse)
            return {MARK + each.name: (each.error_code, each.error_message) for each in answer.names}

        keys = [MARK + name for name in dict.fromkeys(names)]
        for key, (code, message) in cluster.ask_coordinators(CoordinatorKind.TRANSACTION, keys, ask).items():
            name = key.removeprefix(MARK)
            if code == Error.RESOURCE_NOT_FOUND:
                raise _unknown_name(name, {row["name"]: row for row in _all_names(cluster)})
            check_error(code, message, f"name '{name}'")
            print_line(f"deleted name {name}")


def _unknown_name(name: str, known: dict[str, Any]) -> Failure:
    hint = did_you_mean(name, known) or " ('penstock transaction name list' shows what there is)"
    return Failure(f"there is no name '{name}'{hint}", ExitCode.NOT_FOUND)


def _all_names(cluster: Cluster) -> list[dict[str, Any]]:
    def ask(client: DirectClient) -> k20002.DescribeCommitsResponse:
        answer = client.ask(k20002.API.key, k20002.DescribeCommitsRequest(names=None), k20002.DescribeCommitsResponse)
        check_error(answer.error_code, None, "the list of names")
        return answer

    documents = [
        _document(each) for _, answer in cluster.ask_all(ask) for each in answer.names if each.error_code == Error.NONE
    ]
    return sorted(documents, key=lambda document: str(document["name"]))


def _document(each: k20002.DescribeCommitsResponseName) -> dict[str, Any]:
    return {
        "name": each.name,
        "last_number": each.last_number if each.last_number >= 0 else None,
        "complete": each.is_complete,
        "transactions": [
            {
                "transactional_id": row.transactional_id,
                "state": row.transaction_state,
                "producer_id": row.producer_id,
                "producer_epoch": row.producer_epoch,
                "prepared_number": row.prepared_number if row.prepared_number >= 0 else None,
                "prepared_run": row.prepared_run if row.prepared_run >= 0 else None,
            }
            for row in each.transactions
        ],
    }
