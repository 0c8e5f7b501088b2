"""Changes to given settings, as IncrementalAlterConfigs brings them: set, delete, append, subtract."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum

from penstock.base.setting_values import Kind
from penstock.base.settings import Setting, SettingsError, Table, TypedSettings, known_reason, unknown_name


class Operation(IntEnum):
    """What to do with a value; the numbers are those of IncrementalAlterConfigs."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


@dataclass(frozen=True, slots=True)
class Change:
    """One change to one setting. A deletion has no value."""

    name: str
    operation: Operation
    value: str | None = None


def apply_changes(
    table: Table,
    given: Mapping[str, str],
    changes: Iterable[Change],
    inherited: TypedSettings,
    ignored: Mapping[str, str],
) -> dict[str, str]:
    """What is given after the changes. Lists that are not given are appended to from their `inherited` value.

    Names and operations are checked here, all of them before SettingsError is raised; values are judged by the caller.
    """
    result = dict(given)
    problems: list[str] = []
    seen: set[str] = set()
    for change in changes:
        problem = _change_problem(table, change, result, ignored)
        if problem is None and change.name in seen:
            problem = f"{change.name} is changed twice in one request"
        seen.add(change.name)
        if problem is not None:
            problems.append(problem)
        elif change.operation is Operation.DELETE:
            result.pop(change.name, None)
        else:
            result[change.name] = _new_value(change, result, inherited)
    if problems:
        raise SettingsError(problems)
    return result


def _change_problem(table: Table, change: Change, given: Mapping[str, str], ignored: Mapping[str, str]) -> str | None:
    row: Setting | None = table.get(change.name)
    if row is None and change.name not in given and known_reason(change.name, ignored) is None:
        return unknown_name(table, change.name)
    if change.operation is Operation.DELETE:
        return None
    if change.value is None:
        return f"{change.name} needs a value (to go back to the default, delete it)"
    is_list = row is not None and row.kind is Kind.LIST
    if change.operation is not Operation.SET and not is_list:
        verb = "appended to" if change.operation is Operation.APPEND else "subtracted from"
        return f"{change.name} is not a list and cannot be {verb}"
    return None


def _new_value(change: Change, given: Mapping[str, str], inherited: TypedSettings) -> str:
    assert change.value is not None
    if change.operation is Operation.SET:
        return change.value
    words = _members(change.value)
    if change.name in given:
        current = _members(given[change.name])
    else:
        current = [] if inherited.value(change.name) is None else inherited.list(change.name)
    if change.operation is Operation.APPEND:
        return ",".join(dict.fromkeys([*current, *words]))
    return ",".join(word for word in current if word not in words)


def _members(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]
