"""Errors of Spark's analysis in short: what is wrong, without its code and the plan that Spark shows behind it."""

from __future__ import annotations

import re

_CODE = re.compile(r"^\s*\[[A-Z_.0-9]+\]\s*")
#: Behind it Spark shows the SQL, its plan, or a place in it.
_REST = re.compile(r"\n'|\n\n|\n== |; line |\(line |SQLSTATE")


def in_short(error: Exception | str) -> str:
    """One line."""
    text = _REST.split(_CODE.sub("", str(error)), maxsplit=1)[0]
    return " ".join(text.split()).rstrip("; ")
