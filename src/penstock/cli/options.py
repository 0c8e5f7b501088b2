"""The options that many commands share, declared once, and the kind of typer app that holds a family of commands."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Literal

import typer
from typer.core import TyperGroup

from penstock.cli.failure import usage

BOOTSTRAP_VARIABLE = "PENSTOCK_BOOTSTRAP"
CLIENT_CONFIG_VARIABLE = "PENSTOCK_CLIENT_CONFIG"
CONNECTION_PANEL = "Connection"

Bootstrap = Annotated[
    str | None,
    typer.Option(
        "--bootstrap",
        "-b",
        metavar="HOST:PORT,…",
        envvar=BOOTSTRAP_VARIABLE,
        show_default="127.0.0.1:9092",
        help="Brokers to ask first.",
        rich_help_panel=CONNECTION_PANEL,
    ),
]
ClientConfig = Annotated[
    Path | None,
    typer.Option(
        "--client-config",
        metavar="FILE",
        envvar=CLIENT_CONFIG_VARIABLE,
        help="Properties file with client settings (librdkafka's names), such as sasl.username.",
        rich_help_panel=CONNECTION_PANEL,
    ),
]
ClientSettings = Annotated[
    list[str] | None,
    typer.Option(
        "-X",
        metavar="KEY=VALUE",
        help="One client setting (librdkafka's names); may be repeated.",
        rich_help_panel=CONNECTION_PANEL,
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
TopicOption = Annotated[str | None, typer.Option("--topic", "-t", metavar="TOPIC", help="A topic.")]
PartitionOption = Annotated[
    int | None, typer.Option("--partition", "-p", metavar="N", min=0, help="A partition of the topic.")
]
BrokerArgument = Annotated[int, typer.Argument(metavar="BROKER", min=0, help="Id of the broker.", show_default=False)]


def markup_mode() -> Literal["rich"] | None:
    """Help has boxes and colours on a terminal, and is plain text in a pipe."""
    return "rich" if sys.stdout.isatty() else None


def family(help_text: str, table: type[TyperGroup] | None = None) -> typer.Typer:
    """A typer app for a family of commands; without a command it prints its help. `table`: what finds the commands."""
    app = typer.Typer(
        cls=table, help=help_text, add_completion=False, rich_markup_mode=markup_mode(), invoke_without_command=True
    )

    @app.callback(help=help_text)
    def show_help(context: typer.Context) -> None:
        if context.invoked_subcommand is None:
            help_page = context.get_help()
            if help_page:
                typer.echo(help_page)

    return app


def key_values(pairs: list[str] | None, option: str) -> dict[str, str]:
    """`["a=1", "b=2"]` as a dict; `option` names the culprit in the error."""
    result: dict[str, str] = {}
    for pair in pairs or []:
        key, separator, value = pair.partition("=")
        if not separator or not key.strip():
            raise usage(f"{option} wants KEY=VALUE, not {pair!r}")
        result[key.strip()] = value.strip()
    return result
