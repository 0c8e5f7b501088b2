"""The settings that somebody gave to a broker that is to be started: a file, the environment, the command line."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from penstock.base.broker_settings import load_broker_settings
from penstock.base.properties import from_environment, parse_properties
from penstock.base.settings import Settings, SettingsError
from penstock.cli.failure import usage

#: Variables of this prefix that are not settings.
NOT_SETTINGS = ("PENSTOCK_BOOTSTRAP", "PENSTOCK_CLIENT_CONFIG", "PENSTOCK_KAFKA_LIBS", "PENSTOCK_TEST_BOOTSTRAP")
OLDER_NAMES = {"broker.id": "node.id", "log.dir": "log.dirs"}

ConfigFile = Annotated[
    Path | None,
    typer.Option("--config", metavar="FILE", help="A .properties file with settings, as Kafka's server.properties."),
]
SetOptions = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="One setting, under Kafka's name; repeatable."),
]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Log more.")]


def given_settings(config: Path | None, given: Sequence[str] | None) -> dict[str, str]:
    """Everything that was given, the strongest last: file, environment, command line."""
    values: dict[str, str] = {}
    if config is not None:
        try:
            values |= parse_properties(config.read_text(encoding="utf-8"))
        except SettingsError as error:
            raise usage("\n  ".join([f"{config} cannot be read:", *error.problems])) from error
        except UnicodeDecodeError as error:
            raise usage(f"{config} cannot be read: it is not text in UTF-8") from error
    values |= from_environment(os.environ, NOT_SETTINGS)
    for item in given or ():
        name, equals, value = item.partition("=")
        if not equals:
            raise usage(f"--set {item}: write it as KEY=VALUE")
        values[name.strip()] = value.strip()
    for older, name in OLDER_NAMES.items():
        if older in values and name not in values:
            values[name] = values.pop(older)  # what a command chooses itself is under the newer name, and weaker
    return values


def checked_settings(values: Mapping[str, str]) -> Settings:
    """The settings of a broker; a Failure with all problems."""
    try:
        return load_broker_settings(values)
    except SettingsError as error:
        raise usage("\n  ".join(["the broker cannot start with these settings:", *error.problems])) from error


def check_port(port: int, highest: int = 65535) -> None:
    if not 0 <= port <= highest:
        raise usage(f"--port {port}: a port is a number from 0 to {highest}")
