"""Settings: tables of rows, layers of given values, and how a value is decided from them.

One `Setting` is one row: everything there is to know about it, its reference text included. A table is a mapping of
names to rows. `Settings` answers what a setting is now: it looks through layers of given values, the strongest first
(this broker's dynamic values, the dynamic values for all brokers, the file and command line), and then at the default.
A setting may fall back to others (`log.retention.ms` to its minutes and hours), and `listener.name.NAME.x` to `x`.

A `Settings` never changes: new dynamic values make a new one. Names that are not in the table are programming errors
(KeyError) here; what people wrote was judged by `judge` before.
"""

from __future__ import annotations

import difflib
import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum, IntEnum
from types import MappingProxyType

from penstock.base.setting_values import UNIT_MS, Check, Kind, Value, format_value, parse_value

_LISTENER_PREFIX = re.compile(r"(listener\.name\.[^.]+\.)((?:plain|scram-sha-256|scram-sha-512|oauthbearer)\.)?(.+)")


class Source(IntEnum):
    """Where a value comes from; the numbers are those of DescribeConfigs."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5


class Dynamic(Enum):
    """How a broker's setting can be altered while it runs."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """One row. `falls_back_to`: read when this one is not given. `broker_name`: the broker's default for a topic's."""

    name: str
    kind: Kind
    default: Value
    doc: str
    unit: str | None = None
    check: Check | None = None
    dynamic: Dynamic = Dynamic.READ_ONLY
    falls_back_to: tuple[str, ...] = ()
    broker_name: str | None = None
    per_listener: bool = False

    @property
    def sensitive(self) -> bool:
        return self.kind is Kind.PASSWORD

    def parse(self, text: str) -> Value:
        """The value that `text` means for this setting; ValueError with a sentence that names it."""
        try:
            value = parse_value(self.kind, text, self.unit)
        except ValueError as error:
            raise ValueError(f"{self.name} {error}") from None
        problem = self.check.problem(value) if self.check else None
        if problem is not None:
            raise ValueError(f"{self.name} {problem}")
        return value

    def problem(self, text: str) -> str | None:
        """What is wrong with `text` as a value of this setting, or None."""
        try:
            self.parse(text)
        except ValueError as error:
            return str(error)
        return None


@dataclass(frozen=True, slots=True)
class Section:
    """Rows that belong together on the reference page."""

    title: str
    intro: str
    rows: tuple[Setting, ...]


@dataclass(frozen=True, slots=True)
class Synonym:
    """One place that gives a value for a setting, under the name it has there; secrets have no value."""

    name: str
    value: str | None
    source: Source


@dataclass(frozen=True, slots=True)
class Resolved:
    """A setting as it is now. `synonyms` are all the places that give a value, the one that counts first."""

    setting: Setting
    value: str | None
    source: Source
    synonyms: tuple[Synonym, ...]
    read_only: bool


class SettingsError(ValueError):
    """Everything that is wrong with a set of given settings, one sentence each."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = tuple(problems)
        super().__init__("\n".join(self.problems))


class Table(Mapping[str, Setting]):
    """Rows by name. A name with a listener's prefix has the row of the setting behind the prefix."""

    def __init__(self, sections: Iterable[Section]) -> None:
        self.sections = tuple(sections)
        self._rows = {row.name: row for section in self.sections for row in section.rows}
        assert len(self._rows) == sum(len(section.rows) for section in self.sections), "a setting has two rows"

    def __getitem__(self, name: str) -> Setting:
        row = self._rows.get(name)
        return row if row is not None else self._listener_row(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def _listener_row(self, name: str) -> Setting:
        match = _LISTENER_PREFIX.fullmatch(name)
        row = self._rows.get(match[3]) if match else None
        if match is None or row is None or not row.per_listener:
            raise KeyError(name)
        without_mechanism = (match[1] + row.name,) if match[2] else ()
        return replace(row, name=name, default=None, falls_back_to=(*without_mechanism, row.name, *row.falls_back_to))

    def suggestion(self, name: str) -> str | None:
        """The known name that looks most like `name`."""
        close = difflib.get_close_matches(name, self._rows, n=1, cutoff=0.7)
        return close[0] if close else None


@dataclass(frozen=True, slots=True)
class Judgement:
    """Given settings, sorted: what is kept, what is wrong, what is only worth a warning."""

    kept: dict[str, str]
    problems: list[str]
    warnings: list[str]


def judge(table: Table, given: Mapping[str, str], ignored: Mapping[str, str], refused: Mapping[str, str]) -> Judgement:
    """Look at every given setting and find all problems, not just the first.

    `ignored` and `refused` hold known names that are not in the table, with the reason. A name in them that ends with
    a dot stands for all names that begin with it.
    """
    judgement = Judgement({}, [], [])
    for name, text in given.items():
        if name in table:
            problem = table[name].problem(text)
            if problem is None:
                judgement.kept[name] = text
            else:
                judgement.problems.append(problem)
        elif (reason := known_reason(name, refused)) is not None:
            judgement.problems.append(f"{name} cannot be used: {reason}")
        elif (reason := known_reason(name, ignored)) is not None:
            judgement.warnings.append(f"{name} has no effect: {reason}")
        else:
            judgement.problems.append(unknown_name(table, name))
    return judgement


def known_reason(name: str, reasons: Mapping[str, str]) -> str | None:
    """The reason given for `name`, or for names that begin like it, without the prefix of a listener."""
    match = _LISTENER_PREFIX.fullmatch(name)
    bare = match[3] if match else name
    if bare in reasons:
        return reasons[bare]
    prefixes = (prefix for prefix in reasons if prefix.endswith(".") and bare.startswith(prefix))
    return next((reasons[prefix] for prefix in prefixes), None)


def unknown_name(table: Table, name: str) -> str:
    """The sentence about a name that is not a setting."""
    suggestion = table.suggestion(name) if len(name) < 100 else None
    return f"{name[:100]} is not a setting" + (f"; did you mean {suggestion}?" if suggestion else "")


class TypedSettings(ABC):
    """Reading of settings by type. A wrong name or type is a programming error."""

    @abstractmethod
    def value(self, name: str) -> Value:
        """The value as it is now."""

    def integer(self, name: str) -> int:
        value = self.value(name)
        assert isinstance(value, int) and not isinstance(value, bool), f"{name} is not a whole number"
        return value

    def number(self, name: str) -> float:
        value = self.value(name)
        assert isinstance(value, int | float) and not isinstance(value, bool), f"{name} is not a number"
        return float(value)

    def flag(self, name: str) -> bool:
        value = self.value(name)
        assert isinstance(value, bool), f"{name} is not true or false"
        return value

    def text(self, name: str) -> str:
        value = self.value(name)
        assert isinstance(value, str), f"{name} is not text"
        return value

    def list(self, name: str) -> list[str]:
        value = self.value(name)
        assert isinstance(value, tuple), f"{name} is not a list"
        return [*value]

    def optional_text(self, name: str) -> str | None:
        return None if self.value(name) is None else self.text(name)

    def optional_integer(self, name: str) -> int | None:
        return None if self.value(name) is None else self.integer(name)


class Settings(TypedSettings):
    """What the settings of a broker are now, from layers of values that were judged before."""

    def __init__(
        self, table: Table, layers: Iterable[tuple[Source, Mapping[str, str]]], warnings: Iterable[str] = ()
    ) -> None:
        self.table = table
        self.warnings = tuple(warnings)
        self._layers = tuple((source, MappingProxyType(dict(values))) for source, values in sorted(layers, key=_source))
        self._values: dict[str, Value] = {}

    def given(self, source: Source) -> Mapping[str, str]:
        """The values of one layer."""
        return next((values for layer_source, values in self._layers if layer_source is source), {})

    def with_layers(self, *layers: tuple[Source, Mapping[str, str]]) -> Settings:
        """The same settings with some layers replaced."""
        replaced = {source for source, _ in layers}
        kept = [layer for layer in self._layers if layer[0] not in replaced]
        return Settings(self.table, [*kept, *layers], self.warnings)

    def with_warnings(self, warnings: Iterable[str]) -> Settings:
        """The same settings with warnings of their own."""
        return Settings(self.table, self._layers, warnings)

    def value(self, name: str) -> Value:
        if name not in self._values:
            row = self.table[name]
            found = next(self._places(row), None)
            self._values[name] = None if found is None else _converted(found[0], found[1], row)
        return self._values[name]

    def explain(self, name: str) -> Resolved:
        """The value, where it comes from, and every other place that gives one. Secrets are left out."""
        row = self.table[name]
        synonyms = tuple(
            Synonym(place.name, None if row.sensitive else text, source) for place, text, source in self._places(row)
        )
        value = None if row.sensitive else format_value(self.value(name))
        source = synonyms[0].source if synonyms else Source.DEFAULT
        return Resolved(row, value, source, synonyms, read_only=row.dynamic is Dynamic.READ_ONLY)

    def explain_all(self) -> list[Resolved]:
        """Every setting there is, and those that are given for single listeners."""
        given = {name for _, values in self._layers for name in values}
        return [self.explain(name) for name in (*self.table, *sorted(given - set(self.table)))]

    def for_listener(self, listener: str, mechanism: str | None = None) -> ListenerSettings:
        """The settings as one listener has them: `listener.name.<listener>.x` is stronger than `x`."""
        prefix = f"listener.name.{listener.lower()}."
        return ListenerSettings(self, prefix + (f"{mechanism.lower()}." if mechanism else ""))

    def _places(self, row: Setting) -> Iterator[tuple[Setting, str, Source]]:
        family = [row, *(self.table[name] for name in row.falls_back_to)]
        for source, values in self._layers:
            for member in family:
                if member.name in values:
                    yield member, values[member.name], source
        for member in family:
            default = format_value(member.default)
            if default is not None:
                yield member, default, Source.DEFAULT

    def __repr__(self) -> str:
        given = {name: text for _, values in reversed(self._layers) for name, text in values.items()}
        shown = (f"{name}={'[hidden]' if self.table[name].sensitive else text}" for name, text in sorted(given.items()))
        return f"{type(self).__name__}({', '.join(shown)})"


class ListenerSettings(TypedSettings):
    """A broker's settings as one of its listeners has them."""

    def __init__(self, settings: Settings, prefix: str) -> None:
        self._settings = settings
        self._prefix = prefix

    def value(self, name: str) -> Value:
        per_listener = self._settings.table[name].per_listener
        return self._settings.value(self._prefix + name if per_listener else name)


def _source(layer: tuple[Source, Mapping[str, str]]) -> int:
    return layer[0]


def _converted(place: Setting, text: str, wanted: Setting) -> Value:
    """A value given under another name, in the unit of the wanted one: hours to milliseconds."""
    value = place.parse(text)
    if place.unit == wanted.unit or not isinstance(value, int):
        return value
    assert place.unit in UNIT_MS and wanted.unit == "ms", f"{place.name} does not convert to {wanted.name}"
    return value * UNIT_MS[place.unit] if value > 0 else value
