"""What the user wrote with `.option(name, value)`: names in any case, values as text, typed when asked for.

Spark hands options to Python data sources with lower-cased names, so names are looked up that way and shown as they are
written in the documentation. Everything that is wrong is an `OptionError` that names the option.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping

from penstock.columnar.errors import SettingError
from penstock.columnar.settings import KNOWN as CLIENT_SETTINGS
from penstock.columnar.settings import ClientSettings

CLIENT_PREFIX = "kafka."
BOOTSTRAP = "kafka.bootstrap.servers"
TEXT_SHOWN_MAX = 200

_YES = ("true", "on", "yes", "1")
_NO = ("false", "off", "no", "0")
_NUMBER = re.compile(r"[+-]?[0-9]{1,19}")
_LONG_MAX = (1 << 63) - 1
_DURATION = re.compile(r"([0-9]{1,15})\s*([a-z]*)")
#: Spark's names for units of time, in seconds; without a unit it is milliseconds.
_UNITS_S = {
    "": 0.001, "us": 1e-6, "ms": 0.001, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86400,
}  # fmt: skip


class OptionError(ValueError):
    """An option that is unknown, missing or has a value that cannot be."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(f"option {name}: {message}")


class GivenOptions:
    """The options of one reader or writer."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = {name.lower(): value for name, value in values.items()}

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._values

    def text(self, name: str) -> str | None:
        """The value without the space around it, or None if it was not given."""
        value = self._values.get(name.lower())
        return None if value is None else str(value).strip()

    def flag(self, name: str, default: bool) -> bool:
        text = self.text(name)
        if text is None:
            return default
        if text.lower() in _YES:
            return True
        if text.lower() in _NO:
            return False
        raise OptionError(name, f"is true or false, not {shown(text)}")

    def whole(self, name: str, *, lowest: int) -> int | None:
        """A whole number that fits into 64 bits."""
        text = self.text(name)
        if text is None:
            return None
        if not _NUMBER.fullmatch(text) or not lowest <= int(text) <= _LONG_MAX:
            at_least = f", at least {lowest}," if lowest > -_LONG_MAX else ""
            raise OptionError(name, f"is a whole number{at_least} not {shown(text)}")
        return int(text)

    def duration_s(self, name: str, default_s: float) -> float:
        """A time as Spark writes it: `500ms`, `10s`, `15m`, `2h`; milliseconds without a unit."""
        text = self.text(name)
        if text is None:
            return default_s
        found = _DURATION.fullmatch(text.lower())
        if found is None or found[2] not in _UNITS_S:
            raise OptionError(name, f"is a time such as 500ms, 10s, 15m or 2h, not {shown(text)}")
        return int(found[1]) * _UNITS_S[found[2]]

    def words(self, name: str) -> list[str] | None:
        """A list with commas; what is empty does not count."""
        text = self.text(name)
        return None if text is None else [word.strip() for word in text.split(",") if word.strip()]

    def check_names(self, known: Iterable[str], hints: Mapping[str, str], refused: Mapping[str, str]) -> None:
        """OptionError for the first name that is not one of ours; `hints` are lower-cased names people try."""
        by_lower = {name.lower(): name for name in known}
        for name in sorted(self._values):
            bare = name.removeprefix(CLIENT_PREFIX)
            if bare in refused:
                raise OptionError(name, f"is not supported: {refused[bare]}")
            if name.startswith(CLIENT_PREFIX) or name in by_lower:
                continue
            if name in hints:
                raise OptionError(name, hints[name])
            if bare in CLIENT_SETTINGS:
                raise OptionError(name, f"settings of the Kafka client carry a prefix: {CLIENT_PREFIX}{name}")
            near = difflib.get_close_matches(name, by_lower, n=1, cutoff=0.7)
            raise OptionError(name[:100], "is unknown" + (f"; did you mean {by_lower[near[0]]}?" if near else ""))

    def client_settings(self) -> ClientSettings:
        """The settings of the client: everything with the prefix `kafka.`, checked."""
        if not self.text(BOOTSTRAP):
            raise OptionError(BOOTSTRAP, "is needed: the addresses of some brokers, as host:port,host:port")
        values = {
            name.removeprefix(CLIENT_PREFIX): str(value)
            for name, value in self._values.items()
            if name.startswith(CLIENT_PREFIX)
        }
        try:
            return ClientSettings.parse(values)
        except SettingError as error:
            raise OptionError(f"{CLIENT_PREFIX}{error.name}", error.message) from None


def shown(text: str) -> str:
    """A value as part of a message."""
    return repr(text if len(text) <= TEXT_SHOWN_MAX else text[:TEXT_SHOWN_MAX] + "…")
