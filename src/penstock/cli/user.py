"""`penstock user`: who can log in with SCRAM. Passwords are asked for, or read from a pipe or a variable.

A password in a command line is seen by everybody on the machine and kept in the shell's history: so there is no option
for one. What is sent to the broker is not the password but what SCRAM makes of it, and the broker keeps less than that.
"""

from __future__ import annotations

import os
import secrets
import sys
from typing import Annotated, Any

import typer

from penstock.cli.connection import Connection
from penstock.cli.direct import check_error, connect_directly
from penstock.cli.failure import ExitCode, Failure, usage
from penstock.cli.options import Bootstrap, ClientConfig, ClientSettings, Json, Yes, family
from penstock.cli.output import confirm, print_json, print_table
from penstock.sasl.scram import HASH_NAMES, salted_password
from penstock.sasl.scram_server import DEFAULT_ITERATIONS, SALT_BYTES
from penstock.wire.messages import k50_describe_user_scram_credentials as k50
from penstock.wire.messages import k51_alter_user_scram_credentials as k51

PASSWORD_VARIABLE = "PENSTOCK_USER_PASSWORD"
MECHANISMS = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
_NUMBERS = {name: number for number, name in MECHANISMS.items()}
_RESOURCE_NOT_FOUND = 91

app = family("Add, list and delete users who log in with SCRAM.")

UserArgument = Annotated[str, typer.Argument(metavar="USER", help="Name of the user.", show_default=False)]
Mechanism = Annotated[
    str | None,
    typer.Option("--mechanism", metavar="NAME", help="SCRAM-SHA-256 or SCRAM-SHA-512; not given, both."),
]
Iterations = Annotated[
    int, typer.Option("--iterations", metavar="N", min=4096, max=16384, help="How often the password is hashed.")
]


@app.command()
def add(
    user: UserArgument,
    mechanism: Mechanism = None,
    iterations: Iterations = DEFAULT_ITERATIONS,
    bootstrap: Bootstrap = None,
    client_config: ClientConfig = None,
    settings: ClientSettings = None,
) -> None:
    """Add a user. The password is asked for, or read from stdin, or from PENSTOCK_USER_PASSWORD."""
    connection = Connection(bootstrap, client_config, settings)
    if _describe(connection, [user]):
        raise Failure(
            f"user '{user}' already exists: change the password with 'penstock user password'", ExitCode.EXISTS
        )
    _set_password(connection, user, _mechanisms(mechanism), iterations)
    typer.echo(f"user '{user}' can log in with {' and '.join(_mechanisms(mechanism))}")


@app.command()
def password(
    user: UserArgument,
    iterations: Iterations = DEFAULT_ITERATIONS,
    bootstrap: Bootstrap = None,
    client_config: ClientConfig = None,
    settings: ClientSettings = None,
) -> None:
    """Give a user another password, for all mechanisms that the user has."""
    connection = Connection(bootstrap, client_config, settings)
    known = _describe(connection, [user])
    if not known:
        raise Failure(f"user '{user}' does not exist", ExitCode.NOT_FOUND)
    _set_password(connection, user, list(known[0]["mechanisms"]), iterations)
    typer.echo(f"user '{user}' has a new password")


@app.command(name="list")
def list_users(
    as_json: Json = False,
    bootstrap: Bootstrap = None,
    client_config: ClientConfig = None,
    settings: ClientSettings = None,
) -> None:
    """List the users, and how they can log in."""
    users = _describe(Connection(bootstrap, client_config, settings), None)
    if as_json:
        print_json(users)
        return
    print_table(("USER", "MECHANISMS"), [(row["user"], ", ".join(row["mechanisms"])) for row in users])


@app.command()
def delete(
    user: UserArgument,
    yes: Yes = False,
    bootstrap: Bootstrap = None,
    client_config: ClientConfig = None,
    settings: ClientSettings = None,
) -> None:
    """Delete a user. Connections that are open stay so; nobody can log in as the user any more."""
    connection = Connection(bootstrap, client_config, settings)
    known = _describe(connection, [user])
    if not known:
        raise Failure(f"user '{user}' does not exist", ExitCode.NOT_FOUND)
    confirm(f"Delete the user '{user}'?", yes, "nobody was deleted")
    deletions = [
        k51.AlterUserScramCredentialsRequestDeletion(name=user, mechanism=_NUMBERS[name])
        for name in known[0]["mechanisms"]
    ]
    _alter(connection, user, k51.AlterUserScramCredentialsRequest(deletions=deletions))
    typer.echo(f"user '{user}' is deleted")


def _mechanisms(given: str | None) -> list[str]:
    if given is None:
        return list(MECHANISMS.values())
    if given.upper() not in _NUMBERS:
        raise usage(f"--mechanism is {' or '.join(_NUMBERS)}, not {given[:50]!r}")
    return [given.upper()]


def _set_password(connection: Connection, user: str, mechanisms: list[str], iterations: int) -> None:
    given = _read_password(user)
    upsertions = []
    for mechanism in mechanisms:
        salt = secrets.token_bytes(SALT_BYTES)
        upsertions.append(
            k51.AlterUserScramCredentialsRequestUpsertion(
                name=user,
                mechanism=_NUMBERS[mechanism],
                iterations=iterations,
                salt=salt,
                salted_password=salted_password(HASH_NAMES[mechanism], given, salt, iterations),
            )
        )
    _alter(connection, user, k51.AlterUserScramCredentialsRequest(upsertions=upsertions))


def _read_password(user: str) -> str:
    given = os.environ.get(PASSWORD_VARIABLE)
    if given is None and sys.stdin.isatty():
        given = str(typer.prompt(f"Password for {user}", hide_input=True, confirmation_prompt=True, err=True))
    elif given is None:
        given = sys.stdin.readline().rstrip("\n")
    if not given:
        raise usage("a password must not be empty")
    return given


def _alter(connection: Connection, user: str, request: k51.AlterUserScramCredentialsRequest) -> None:
    with connect_directly(connection) as client:
        answer = client.ask(k51.API.key, request, k51.AlterUserScramCredentialsResponse)
    for row in answer.results:
        check_error(row.error_code, row.error_message, f"user '{user}'")


def _describe(connection: Connection, users: list[str] | None) -> list[dict[str, Any]]:
    named = None if users is None else [k50.DescribeUserScramCredentialsRequestUser(name=name) for name in users]
    with connect_directly(connection) as client:
        answer = client.ask(
            k50.API.key,
            k50.DescribeUserScramCredentialsRequest(users=named),
            k50.DescribeUserScramCredentialsResponse,
        )
    check_error(answer.error_code, answer.error_message, "the users")
    found = []
    for row in answer.results:
        if row.error_code == _RESOURCE_NOT_FOUND:
            continue
        check_error(row.error_code, row.error_message, f"user '{row.user}'")
        shown = {MECHANISMS.get(each.mechanism, str(each.mechanism)): each.iterations for each in row.credential_infos}
        found.append({"user": row.user, "mechanisms": shown})
    return found
