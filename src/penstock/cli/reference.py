"""`penstock config reference`: what each setting means, from the same tables that the broker reads."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from penstock.base.broker_settings import BROKER_SETTINGS
from penstock.base.setting_values import format_value
from penstock.base.settings import Setting, Table
from penstock.base.topic_settings import TOPIC_SETTINGS
from penstock.cli.failure import ExitCode, Failure, did_you_mean
from penstock.cli.options import Json
from penstock.cli.output import print_heading, print_json, print_line, print_table

TABLES: dict[str, Table] = {"topic": TOPIC_SETTINGS, "broker": BROKER_SETTINGS}


def reference(
    names: Annotated[
        list[str] | None, typer.Argument(metavar="[SETTING…]", help="Names; all if none.", show_default=False)
    ] = None,
    as_json: Json = False,
) -> None:
    """Explain settings: type, default, limits, and whether they can change while a broker runs."""
    rows = [(kind, row) for kind, table in TABLES.items() for row in _rows(table, names)]
    known = {name for table in TABLES.values() for name in table}
    for name in names or []:
        if all(row.name != name for _, row in rows):
            raise Failure(f"there is no setting '{name}'{did_you_mean(name, known)}", ExitCode.NOT_FOUND)
    if as_json:
        print_json([_document(kind, row) for kind, row in rows])
    elif names:
        for kind, row in rows:
            _print_setting(kind, row)
    else:
        print_table(["OF", "SETTING", "DEFAULT"], [[kind, row.name, _default(row)] for kind, row in rows])


def _rows(table: Table, names: list[str] | None) -> list[Setting]:
    if names is None:
        return [table[name] for name in table]
    return [table[name] for name in names if name in table]


def _print_setting(kind: str, row: Setting) -> None:
    print_heading(f"{row.name} (setting of a {kind})")
    print_line(f"  {row.doc}")
    unit = f" {row.unit}" if row.unit else ""
    print_line(f"  type {row.kind.name.lower()}, default {_default(row)}{unit if row.default is not None else ''}")
    if row.check is not None:
        print_line(f"  allowed: {row.check.text}")
    if kind == "broker":
        print_line(f"  while a broker runs: {row.dynamic.value}")
    if row.broker_name:
        print_line(f"  the broker's default: {row.broker_name}")
    if row.falls_back_to:
        print_line(f"  if not given: {', '.join(row.falls_back_to)}")


def _document(kind: str, row: Setting) -> dict[str, Any]:
    return {
        "of": kind,
        "name": row.name,
        "type": row.kind.name.lower(),
        "unit": row.unit,
        "default": format_value(row.default),
        "allowed": row.check.text if row.check else None,
        "dynamic": row.dynamic.value if kind == "broker" else None,
        "broker_name": row.broker_name,
        "doc": row.doc,
    }


def _default(row: Setting) -> str:
    shown = format_value(row.default)
    return "(none)" if shown is None or shown == "" else shown
