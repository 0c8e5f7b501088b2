"""What the user wrote with `.option(name, value)` for a table: names in any case, values as text, typed when asked for.

Spark hands options to Python data sources with lower-cased names, so names are looked up that way and shown as they are
written in the documentation. Everything that is wrong is a `TableOptionError` that names the option.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping

from penstock.pipelines.relational.address import AddressError, TableAddress, parse_address
from penstock.pipelines.relational.failures import TableOptionError

URL = "url"
TEXT_SHOWN_MAX = 200
_YES = ("true", "on", "yes", "1")
_NO = ("false", "off", "no", "0")
_NUMBER = re.compile(r"[0-9]{1,18}")
_DURATION = re.compile(r"([0-9]{1,12})\s*([a-z]*)")
_UNITS_S = {
    "ms": 0.001, "millisecond": 0.001, "s": 1, "sec": 1, "second": 1, "m": 60, "min": 60, "minute": 60,
    "h": 3600, "hour": 3600, "d": 86400, "day": 86400, "week": 604800,
}  # fmt: skip


class TableOptions:
    """The options of one reader or writer."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self._values = {name.lower(): str(value) for name, value in values.items()}

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._values

    def text(self, name: str) -> str | None:
        """The value without the space around it, or None if it was not given."""
        value = self._values.get(name.lower())
        return None if value is None else value.strip()

    def address(self) -> TableAddress:
        text = self.text(URL)
        if not text:
            raise TableOptionError(
                URL, "is needed: where the table is, as postgresql://user:password@host/database/table"
            )
        try:
            return parse_address(text)
        except AddressError as error:
            raise TableOptionError(URL, str(error)) from None

    def flag(self, name: str, default: bool) -> bool:
        text = self.text(name)
        if text is None:
            return default
        if text.lower() in (*_YES, *_NO):
            return text.lower() in _YES
        raise TableOptionError(name, f"is true or false, not {shown(text)}")

    def whole(self, name: str, *, lowest: int) -> int | None:
        text = self.text(name)
        if text is None:
            return None
        if not _NUMBER.fullmatch(text) or int(text) < lowest:
            raise TableOptionError(name, f"is a whole number, at least {lowest}, not {shown(text)}")
        return int(text)

    def duration_s(self, name: str, default_s: float) -> float:
        """A time such as `30s`, `5 minutes` or `2h`."""
        text = self.text(name)
        if text is None:
            return default_s
        found = _DURATION.fullmatch(text.lower())
        unit = found[2] if found else ""
        size_s = _UNITS_S.get(unit) or _UNITS_S.get(unit.removesuffix("s"))
        if found is None or size_s is None:
            raise TableOptionError(name, f"is a time such as 30s, 5 minutes or 2h, not {shown(text)}")
        return int(found[1]) * size_s

    def choice(self, name: str, choices: Iterable[str], default: str | None) -> str | None:
        text, every = self.text(name), tuple(choices)
        if text is None:
            return default
        if text.lower() not in every:
            raise TableOptionError(name, f"is {' or '.join(every)}, not {shown(text)}")
        return text.lower()

    def words(self, name: str) -> tuple[str, ...]:
        """A list with commas; what is empty does not count."""
        return tuple(word.strip() for word in (self.text(name) or "").split(",") if word.strip())

    def check_names(self, known: Iterable[str]) -> None:
        """TableOptionError for the first name that is not one of these."""
        by_lower = {name.lower(): name for name in known}
        for name in sorted(self._values):
            if name not in by_lower:
                near = difflib.get_close_matches(name, by_lower, n=1, cutoff=0.6)
                hint = f"; did you mean {by_lower[near[0]]}?" if near else f"; there are {', '.join(by_lower.values())}"
                raise TableOptionError(name[:100], "is unknown" + hint)


def shown(text: str) -> str:
    """A value as part of a message."""
    return repr(text if len(text) <= TEXT_SHOWN_MAX else text[:TEXT_SHOWN_MAX] + "…")
