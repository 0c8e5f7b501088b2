"""`penstock quota`: how much clients may, by user, client id, both, or address.

Rates are written as people write them: `--produce 10MB/s`. A quota that is set for `--default-user` or
`--default-client-id` counts for each of those who have none of their own.
"""

from __future__ import annotations

from typing import Annotated, Any

import typer

from penstock.cli.byte_sizes import format_bytes, parse_bytes
from penstock.cli.connection import Connection
from penstock.cli.direct import check_error, connect_directly
from penstock.cli.failure import ExitCode, Failure, usage
from penstock.cli.options import Bootstrap, ClientConfig, ClientSettings, Json, family
from penstock.cli.output import note, print_json, print_line, print_table
from penstock.security.quotas import CLIENT_ID, CONNECTION, FETCH, IP, MUTATION, PRODUCE, REQUEST, USER
from penstock.wire.messages import k48_describe_client_quotas as k48
from penstock.wire.messages import k49_alter_client_quotas as k49

app = family("Set, list and remove limits on what clients use.")

Parts = dict[str, str | None]

User = Annotated[str | None, typer.Option("--user", metavar="NAME", help="For this user.")]
DefaultUser = Annotated[bool, typer.Option("--default-user", help="For each user without a quota of their own.")]
ClientIdName = Annotated[str | None, typer.Option("--client-id", metavar="ID", help="For this client id.")]
DefaultClientId = Annotated[bool, typer.Option("--default-client-id", help="For each client id without its own.")]
Ip = Annotated[str | None, typer.Option("--ip", metavar="ADDRESS", help="For connections from this address.")]
DefaultIp = Annotated[bool, typer.Option("--default-ip", help="For each address without a quota of its own.")]


@app.command("set")
def set_quotas(
    user: User = None,
    default_user: DefaultUser = False,
    client_id: ClientIdName = None,
    default_client_id: DefaultClientId = False,
    ip: Ip = None,
    default_ip: DefaultIp = False,
    produce: Annotated[str | None, typer.Option("--produce", metavar="RATE", help="Bytes in: 10MB/s.")] = None,
    consume: Annotated[str | None, typer.Option("--consume", metavar="RATE", help="Bytes out: 10MB/s.")] = None,
    request_percent: Annotated[
        float | None, typer.Option("--request-percent", metavar="N", help="Percents of a broker's time.")
    ] = None,
    mutations: Annotated[
        float | None, typer.Option("--mutations", metavar="N", help="Partitions made or deleted in a second.")
    ] = None,
    connections: Annotated[
        int | None, typer.Option("--connections", metavar="N", help="New connections in a second (with --ip).")
    ] = None,
    bootstrap: Bootstrap = None,
    client_config: ClientConfig = None,
    client_settings: ClientSettings = None,
) -> None:
    """Set limits; all brokers keep to them at once."""
    parts = _entity(user, default_user, client_id, default_client_id, ip, default_ip)
    wanted = {
        PRODUCE: None if produce is None else float(_rate(produce, "--produce")),
        FETCH: None if consume is None else float(_rate(consume, "--consume")),
        REQUEST: request_percent,
        MUTATION: mutations,
        CONNECTION: None if connections is None else float(connections),
    }
    values = {key: value for key, value in wanted.items() if value is not None}
    if not values:
        raise usage("a limit on what? Pass --produce, --consume, --request-percent, --mutations or --connections")
    ops = [k49.AlterClientQuotasRequestOp(key=key, value=value) for key, value in values.items()]
    _alter(Connection(bootstrap, client_config, client_settings), parts, ops)
    print_line(f"{_who(parts)}: {', '.join(_shown(key, value) for key, value in values.items())}")


@app.command("list")
def list_quotas(
    as_json: Json = False,
    bootstrap: Bootstrap = None,
    client_config: ClientConfig = None,
    client_settings: ClientSettings = None,
) -> None:
    """List all limits."""
    rows = _described(Connection(bootstrap, client_config, client_settings))
    if as_json:
        print_json([{"entity": parts, "quotas": values} for parts, values in rows])
    elif rows:
        cells = [[_who(parts), key, _amount(key, value)] for parts, values in rows for key, value in values.items()]
        print_table(["FOR", "QUOTA", "LIMIT"], cells)
    else:
        note("nobody has a quota")


@app.command()
def remove(
    user: User = None,
    default_user: DefaultUser = False,
    client_id: ClientIdName = None,
    default_client_id: DefaultClientId = False,
    ip: Ip = None,
    default_ip: DefaultIp = False,
    bootstrap: Bootstrap = None,
    client_config: ClientConfig = None,
    client_settings: ClientSettings = None,
) -> None:
    """Remove all limits of a user, client id, both, or address."""
    parts = _entity(user, default_user, client_id, default_client_id, ip, default_ip)
    connection = Connection(bootstrap, client_config, client_settings)
    found = [values for each, values in _described(connection) if each == parts]
    if not found:
        raise Failure(f"{_who(parts)} has no quota ('penstock quota list' shows who has)", ExitCode.NOT_FOUND)
    _alter(connection, parts, [k49.AlterClientQuotasRequestOp(key=key, remove=True) for key in found[0]])
    print_line(f"{_who(parts)}: no quota any more")


def _entity(
    user: str | None, default_user: bool, client_id: str | None, default_client_id: bool, ip: str | None, any_ip: bool
) -> Parts:
    parts: Parts = {}
    for kind, name, is_default in (
        (USER, user, default_user),
        (CLIENT_ID, client_id, default_client_id),
        (IP, ip, any_ip),
    ):
        if name is not None and is_default:
            raise usage(f"--{kind} and --default-{kind} exclude each other")
        if name is not None or is_default:
            parts[kind] = name
    if not parts:
        raise usage("a quota for whom? Pass --user, --client-id, both, or --ip (or their --default-… forms)")
    return parts


def _rate(text: str, option: str) -> int:
    return parse_bytes(text.strip().removesuffix("/s"), option)


def _alter(connection: Connection, parts: Parts, ops: list[k49.AlterClientQuotasRequestOp]) -> None:
    entity = [k49.AlterClientQuotasRequestEntity(entity_type=kind, entity_name=name) for kind, name in parts.items()]
    request = k49.AlterClientQuotasRequest(entries=[k49.AlterClientQuotasRequestEntry(entity=entity, ops=ops)])
    with connect_directly(connection) as client:
        answer = client.ask(k49.API.key, request, k49.AlterClientQuotasResponse)
    for row in answer.entries:
        check_error(row.error_code, row.error_message, _who(parts))


def _described(connection: Connection) -> list[tuple[Parts, dict[str, float]]]:
    with connect_directly(connection) as client:
        answer = client.ask(k48.API.key, k48.DescribeClientQuotasRequest(), k48.DescribeClientQuotasResponse)
    check_error(answer.error_code, answer.error_message, "quotas")
    return [
        (
            {part.entity_type: part.entity_name for part in row.entity},
            {value.key: value.value for value in row.values},
        )
        for row in answer.entries or ()
    ]


def _who(parts: dict[str, Any]) -> str:
    return ", ".join(f"every {kind}" if name is None else f"{kind} {name}" for kind, name in sorted(parts.items()))


def _shown(key: str, value: float) -> str:
    return f"{key} {_amount(key, value)}"


def _amount(key: str, value: float) -> str:
    if key in (PRODUCE, FETCH):
        return f"{format_bytes(int(value))}/s"
    return f"{value:g} %" if key == REQUEST else f"{value:g}/s"
