"""`penstock token`: delegation tokens, short-lived logins that a user hands to programs in place of a password.

    penstock token create --renewer User:scheduler --lifetime 1d
    penstock token list
    penstock token renew ID
    penstock token expire ID

The HMAC of a token is its password, and `create` is the only command that shows it. The others are given the id, which
is no secret, and find the HMAC themselves: it never stands in a command line.
"""

from __future__ import annotations

from base64 import b64encode
from typing import Annotated, Any

import typer

from penstock.base.errors import Error
from penstock.cli.connection import Connection
from penstock.cli.direct import check_error, connect_directly
from penstock.cli.failure import ExitCode, Failure, usage
from penstock.cli.options import Bootstrap, ClientConfig, ClientSettings, Json, Yes, family
from penstock.cli.output import confirm, note, print_json, print_table
from penstock.cli.timestamps import format_timestamp, parse_duration_ms
from penstock.sasl.jaas_entries import SCRAM_MODULE
from penstock.security.principal import Principal
from penstock.wire.messages import k38_create_delegation_token as k38
from penstock.wire.messages import k39_renew_delegation_token as k39
from penstock.wire.messages import k40_expire_delegation_token as k40
from penstock.wire.messages import k41_describe_delegation_token as k41

AT_ONCE = -1
AS_USUAL = -1
_ADVICE = {
    Error.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: "give the login with --client-config",
    Error.DELEGATION_TOKEN_AUTH_DISABLED: "give all of them the same one, and start them again",
    Error.DELEGATION_TOKEN_AUTHORIZATION_FAILED: "to make tokens for others takes CREATE_TOKENS on them: "
    "penstock acl add --allow User:you --operation create_tokens --user User:them",
}

app = family("Create, list, renew and expire delegation tokens.")

TokenArgument = Annotated[str, typer.Argument(metavar="ID", help="Id of the token.", show_default=False)]
Owner = Annotated[
    str | None, typer.Option("--owner", metavar="PRINCIPAL", help="As whom its holder acts; not given, you.")
]
Renewers = Annotated[
    list[str] | None,
    typer.Option("--renewer", metavar="PRINCIPAL", help="Who else may renew and expire it; may be repeated."),
]
Lifetime = Annotated[
    str | None,
    typer.Option("--lifetime", metavar="DURATION", help="For how long at most, as 12h or 7d; not given, the longest."),
]
Period = Annotated[
    str | None, typer.Option("--period", metavar="DURATION", help="For how long from now, as 12h; not given, as usual.")
]
After = Annotated[
    str | None, typer.Option("--after", metavar="DURATION", help="Only after this time, as 10m; not given, at once.")
]


@app.command()
def create(
    owner: Owner = None,
    renewer: Renewers = None,
    lifetime: Lifetime = None,
    as_json: Json = False,
    bootstrap: Bootstrap = None,
    client_config: ClientConfig = None,
    settings: ClientSettings = None,
) -> None:
    """Create a token, and show what its holder logs in with."""
    request = k38.CreateDelegationTokenRequest(
        renewers=[
            k38.CreateDelegationTokenRequestRenewer(principal_type=kind, principal_name=name)
            for kind, name in (_principal("--renewer", each) for each in renewer or [])
        ],
        max_lifetime_ms=_duration_ms("--lifetime", lifetime, AS_USUAL),
    )
    if owner is not None:
        request.owner_principal_type, request.owner_principal_name = _principal("--owner", owner)
    with connect_directly(Connection(bootstrap, client_config, settings)) as client:
        lowest = k38.API.min_version if owner is None else k38.API.max_version
        answer = client.ask(k38.API.key, request, k38.CreateDelegationTokenResponse, lowest=lowest)
    _check(answer.error_code, "the token")
    hmac = b64encode(answer.hmac).decode()
    document = {
        "id": answer.token_id,
        "hmac": hmac,
        "owner": f"{answer.principal_type}:{answer.principal_name}",
        "renewers": list(renewer or []),
        "expires": format_timestamp(answer.expiry_timestamp_ms),
        "ends": format_timestamp(answer.max_timestamp_ms),
    }
    if as_json:
        print_json(document)
        return
    print_table(("TOKEN", "VALUE"), list(document.items()))
    note(
        "The hmac is a password, and this is the only command that shows it. Java clients, Spark and penstock.columnar"
    )
    note("log in with it like this:")
    note("  sasl.mechanism=SCRAM-SHA-512")
    note(
        f"  sasl.jaas.config={SCRAM_MODULE} required "
        f'username="{answer.token_id}" password="<the hmac>" tokenauth="true";'
    )


@app.command(name="list")
def list_tokens(
    owner: Annotated[str | None, typer.Option("--owner", metavar="PRINCIPAL", help="Only those of this one.")] = None,
    as_json: Json = False,
    bootstrap: Bootstrap = None,
    client_config: ClientConfig = None,
    settings: ClientSettings = None,
) -> None:
    """List the tokens that you may see, without their secrets."""
    owners = None if owner is None else [_principal("--owner", owner)]
    rows = [_document(token) for token in _described(Connection(bootstrap, client_config, settings), owners)]
    if as_json:
        print_json(rows)
        return
    print_table(
        ("ID", "OWNER", "REQUESTER", "RENEWERS", "ISSUED", "EXPIRES", "ENDS"), [tuple(row.values()) for row in rows]
    )


@app.command()
def renew(
    token_id: TokenArgument,
    period: Period = None,
    bootstrap: Bootstrap = None,
    client_config: ClientConfig = None,
    settings: ClientSettings = None,
) -> None:
    """Let a token live on, but never past its end."""
    period_ms = _duration_ms("--period", period, AS_USUAL)
    connection = Connection(bootstrap, client_config, settings)
    request = k39.RenewDelegationTokenRequest(hmac=_found(connection, token_id).hmac, renew_period_ms=period_ms)
    with connect_directly(connection) as client:
        answer = client.ask(k39.API.key, request, k39.RenewDelegationTokenResponse)
    _check(answer.error_code, f"token '{token_id}'")
    typer.echo(f"token '{token_id}' expires at {format_timestamp(answer.expiry_timestamp_ms)}")


@app.command()
def expire(
    token_id: TokenArgument,
    after: After = None,
    yes: Yes = False,
    bootstrap: Bootstrap = None,
    client_config: ClientConfig = None,
    settings: ClientSettings = None,
) -> None:
    """End a token, at once or after a while: nobody logs in with it any more, and who has done so is cut off."""
    period_ms = _duration_ms("--after", after, AT_ONCE)
    connection = Connection(bootstrap, client_config, settings)
    token = _found(connection, token_id)
    confirm(f"End the token '{token_id}' of {_owner(token)}?", yes, f"token '{token_id}' was not changed")
    request = k40.ExpireDelegationTokenRequest(hmac=token.hmac, expiry_time_period_ms=period_ms)
    with connect_directly(connection) as client:
        answer = client.ask(k40.API.key, request, k40.ExpireDelegationTokenResponse)
    _check(answer.error_code, f"token '{token_id}'")
    if period_ms == AT_ONCE:
        typer.echo(f"token '{token_id}' is gone")
    else:
        typer.echo(f"token '{token_id}' expires at {format_timestamp(answer.expiry_timestamp_ms)}")


def _described(
    connection: Connection, owners: list[tuple[str, str]] | None
) -> list[k41.DescribeDelegationTokenResponseToken]:
    named = None
    if owners is not None:
        named = [
            k41.DescribeDelegationTokenRequestOwner(principal_type=kind, principal_name=name) for kind, name in owners
        ]
    with connect_directly(connection) as client:
        answer = client.ask(
            k41.API.key, k41.DescribeDelegationTokenRequest(owners=named), k41.DescribeDelegationTokenResponse
        )
    _check(answer.error_code, "the tokens")
    return answer.tokens


def _found(connection: Connection, token_id: str) -> k41.DescribeDelegationTokenResponseToken:
    for token in _described(connection, None):
        if token.token_id == token_id:
            return token
    raise Failure(
        f"token '{token_id}' does not exist, or is not yours to see: 'penstock token list'", ExitCode.NOT_FOUND
    )


def _document(token: k41.DescribeDelegationTokenResponseToken) -> dict[str, Any]:
    return {
        "id": token.token_id,
        "owner": _owner(token),
        "requester": f"{token.token_requester_principal_type}:{token.token_requester_principal_name}",
        "renewers": [f"{each.principal_type}:{each.principal_name}" for each in token.renewers],
        "issued": format_timestamp(token.issue_timestamp),
        "expires": format_timestamp(token.expiry_timestamp),
        "ends": format_timestamp(token.max_timestamp),
    }


def _owner(token: k41.DescribeDelegationTokenResponseToken) -> str:
    return f"{token.principal_type}:{token.principal_name}"


def _principal(option: str, text: str) -> tuple[str, str]:
    try:
        return Principal.parse(text)
    except ValueError as error:
        raise usage(f"{option}: {error}") from None


def _duration_ms(option: str, text: str | None, otherwise: int) -> int:
    if text is None:
        return otherwise
    duration_ms = parse_duration_ms(text)
    if duration_ms is None or duration_ms == 0:
        raise usage(f"{option} wants a time such as 90s, 12h or 7d, not {text[:50]!r}")
    return duration_ms


def _check(code: int, subject: str) -> None:
    advice = _ADVICE.get(Error(code)) if code in _ADVICE else None
    if advice is not None:
        raise Failure(f"{subject}: {Error(code).text.rstrip('.')}; {advice}", ExitCode.REFUSED)
    check_error(code, None, subject)
