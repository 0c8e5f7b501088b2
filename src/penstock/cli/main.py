"""The program `penstock`: the table of commands, and the one place that turns an outcome into an exit code.

A command's module is imported when the command runs and not before, so that `penstock --help` and tab completion answer
at once. The table therefore holds, for each command, its line in the help and a function that imports it. In the help
the commands are placeholders with just that line; `CommandTable.resolve_command` puts the real one in their place.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from penstock import __version__
from penstock.cli.failure import ExitCode, Failure
from penstock.cli.options import family, markup_mode

CommandFunction = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Command:
    """A row of the table: a name, its line in the help, and how to get the function or the family behind it."""

    name: str
    help: str
    load: Callable[[], CommandFunction | typer.Typer]
    extra: str = ""
    """What it needs beside penstock alone: `pip install 'penstock[…]'`."""


def _up() -> CommandFunction:
    from penstock.cli.up import up

    return up


def _broker() -> CommandFunction:
    from penstock.cli.broker import broker

    return broker


def _keeper() -> CommandFunction:
    from penstock.cli.keeper import keeper

    return keeper


def _topic() -> typer.Typer:
    from penstock.cli.topic import app

    return app


def _produce() -> CommandFunction:
    from penstock.cli.produce import produce

    return produce


def _consume() -> CommandFunction:
    from penstock.cli.consume import consume

    return consume


def _group() -> typer.Typer:
    from penstock.cli.group import app

    return app


def _transaction() -> typer.Typer:
    from penstock.cli.transaction import app

    return app


def _cluster() -> typer.Typer:
    from penstock.cli.cluster_commands import app

    return app


def _config() -> typer.Typer:
    from penstock.cli.config import app

    return app


def _user() -> typer.Typer:
    from penstock.cli.user import app

    return app


def _acl() -> typer.Typer:
    from penstock.cli.acl import app

    return app


def _token() -> typer.Typer:
    from penstock.cli.token import app

    return app


def _quota() -> typer.Typer:
    from penstock.cli.quota import app

    return app


def _log() -> typer.Typer:
    from penstock.cli.log import app

    return app


def _pipeline() -> typer.Typer:
    return _family_of(PIPELINE_COMMANDS, PipelineTable, "Write, check, run and watch data pipelines on Spark.")


def _pipeline_new() -> CommandFunction:
    from penstock.cli.pipeline_new import new

    return new


def _pipeline_check() -> CommandFunction:
    from penstock.cli.pipeline_run import check

    return check


def _pipeline_run() -> CommandFunction:
    from penstock.cli.pipeline_run import run

    return run


def _pipeline_status() -> CommandFunction:
    from penstock.cli.pipeline_service_commands import status

    return status


def _pipeline_up() -> CommandFunction:
    from penstock.cli.pipeline_service_commands import up

    return up


def _demo() -> CommandFunction:
    from penstock.cli.demo import demo

    return demo


def _doctor() -> CommandFunction:
    from penstock.cli.doctor import doctor

    return doctor


COMMANDS = (
    Command("up", "Start Penstock here and stay in the foreground.", _up),
    Command("broker", "Run one broker of a cluster on ZooKeeper.", _broker),
    Command("keeper", "Serve a small ZooKeeper for the brokers of this machine.", _keeper),
    Command("topic", "List, create, describe, alter and delete topics.", _topic),
    Command("produce", "Send messages to a topic, from stdin or a file.", _produce),
    Command("consume", "Print the messages of topics.", _consume),
    Command("group", "List, describe, reset and delete consumer groups.", _group),
    Command("transaction", "List, describe and abort transactions.", _transaction),
    Command("cluster", "Watch brokers, elect leaders, move copies.", _cluster),
    Command("config", "Show and change the settings of topics and brokers.", _config),
    Command("user", "Add, list and delete users who log in with SCRAM.", _user),
    Command("acl", "Allow, deny and list what users may do.", _acl),
    Command("token", "Create, list, renew and expire delegation tokens.", _token),
    Command("quota", "Set, list and remove limits on what clients use.", _quota),
    Command("log", "Look into the files of a data folder.", _log),
    Command("pipeline", "Write, check, run and watch data pipelines on Spark.", _pipeline),
    Command("demo", "Show a cluster and a pipeline at work, with nothing prepared.", _demo),
    Command("doctor", "Check this machine and say what to do.", _doctor),
)
#: A table of its own, because Spark is slow to load and only two of them need it.
PIPELINE_COMMANDS = (
    Command("new", "Write a commented file to start from.", _pipeline_new, "pipelines"),
    Command("check", "Find mistakes without running it, and draw the plan.", _pipeline_check, "pipelines"),
    Command("run", "Run it until Ctrl-C; started again, it goes on where it was.", _pipeline_run, "pipelines"),
    Command("status", "Show what every pipeline is doing.", _pipeline_status, "pipelines"),
    Command("up", "Run every pipeline of a folder, as a service.", _pipeline_up, "pipelines"),
)


class CommandTable(TyperGroup):
    """The root of the program: shows placeholders, runs the real commands."""

    rows: tuple[Command, ...] = COMMANDS

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        name, command, rest = super().resolve_command(ctx, args)
        row = next((row for row in self.rows if row.name == name), None)
        return name, command if row is None else _real_command(row), rest

    def invoke(self, ctx: Any) -> Any:
        """A closed pipe must leave here as a failure: typer would turn it into an exit of its own."""
        try:
            outcome = super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError as gone:
            raise Failure("the reader of the output has gone", ExitCode.PIPE_CLOSED) from gone
        return outcome


class PipelineTable(CommandTable):
    """The same for `penstock pipeline`."""

    rows = PIPELINE_COMMANDS


def _real_command(row: Command) -> Any:
    loaded = _load(row)
    if not isinstance(loaded, typer.Typer):
        app = typer.Typer(add_completion=False, rich_markup_mode=markup_mode())
        app.command(row.name)(loaded)
        loaded = app
    command = typer.main.get_command(loaded)
    command.name = row.name
    return command


def _load(row: Command) -> CommandFunction | typer.Typer:
    try:
        return row.load()
    except ModuleNotFoundError as missing:
        package = (missing.name or "").partition(".")[0]
        if not row.extra or package == "penstock":
            raise
        text = f"this command needs {package}, which is not installed: pip install 'penstock[{row.extra}]'"
        raise Failure(text, ExitCode.NOT_FOUND) from missing


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"penstock {__version__}")
        raise typer.Exit()


def _root(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", "-V", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    """A commit log that speaks Apache Kafka's protocol.

    Start with 'penstock up', then try 'penstock produce orders' and 'penstock consume orders' in another terminal.
    """
    if context.invoked_subcommand is None and (help_page := context.get_help()):
        typer.echo(help_page)


def _placeholder() -> None:
    raise AssertionError("a placeholder is replaced before it runs")


def build_app() -> typer.Typer:
    """The typer app with one placeholder per row of the table."""
    app = typer.Typer(
        name="penstock",
        cls=CommandTable,
        rich_markup_mode=markup_mode(),
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback(invoke_without_command=True)(_root)
    _add_placeholders(app, COMMANDS)
    return app


def _family_of(rows: tuple[Command, ...], table: type[CommandTable], help_text: str) -> typer.Typer:
    app = family(help_text, table)
    _add_placeholders(app, rows)
    return app


def _add_placeholders(app: typer.Typer, rows: tuple[Command, ...]) -> None:
    for row in rows:
        app.command(row.name, help=row.help)(_placeholder)


def run(arguments: list[str]) -> int:
    """Runs one command line and gives its exit code; every expected error becomes one line on stderr."""
    try:
        outcome = typer.main.get_command(build_app()).main(arguments, prog_name="penstock", standalone_mode=False)
    except Failure as failure:
        if failure.code == ExitCode.PIPE_CLOSED:
            _forget_stdout()
            return failure.code
        return _complain(failure.message, failure.code)
    except typer.TyperException as mistake:
        hint = getattr(getattr(mistake, "ctx", None), "command_path", "penstock")
        return _complain(f"{mistake.format_message().rstrip('.')} (see '{hint} --help')", ExitCode.USAGE)
    except (KeyboardInterrupt, typer.Abort):
        return ExitCode.INTERRUPTED
    except OSError as error:
        where = f": {error.filename}" if error.filename else ""
        return _complain(f"{error.strerror or error}{where}", ExitCode.FAILED)
    return outcome if isinstance(outcome, int) else ExitCode.OK


def _complain(message: str, code: ExitCode) -> ExitCode:
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _forget_stdout()
    typer.secho(f"penstock: {message}", err=True, fg="red" if sys.stderr.isatty() else None)
    return code


def _forget_stdout() -> None:
    """The reader has gone: what is still buffered goes nowhere, and Python's own flush at exit stays quiet."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def main() -> None:
    """The entry point of the `penstock` program."""
    sys.exit(run(sys.argv[1:]))
