"""Errors of Spark in the user's words: the line that says what happened, out of the many that are wrapped around it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import PySparkException

from penstock.pipelines.bad_records import STOPPED
from penstock.pipelines.spark_errors import in_short

ERROR_CHARACTERS_MAX = 1000
#: What Spark says of a Python process that did not start within the ten seconds that it gives it.
NOT_CONNECTED = "Python worker failed to connect back"
TOO_BUSY = (
    "Spark's Python worker did not start in time: the machine is too busy, or PYSPARK_PYTHON is a Python that does not "
    "work. Started again, the pipeline goes on where it was"
)
STATE_DIFFERS = (
    "what this sink remembers (counts, joins, what came before) was kept with other columns or steps. Take the change "
    "back; or remove the checkpoint of this sink, and it begins anew"
)
_STATE_DIFFERS = re.compile(r"STATE_STORE_\w*SCHEMA\w*_NOT_COMPATIBLE|STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA")
#: A record that stops the pipeline. Where Spark shows its plan, an expression follows instead of a reason.
_BAD_RECORD = re.compile(rf"{STOPPED} (source [^:\n]+: (?!,)[^\n]+)")
#: The last line of a Python traceback; our own errors say what happened in the user's words, whatever they are called.
_OUR_ERROR = re.compile(r"penstock(?:\.\w+)+: ")
_PYTHON_ERROR = re.compile(r"[\w.]*Error: ")


def explained(error: BaseException) -> str:
    """The line of an error that says what happened; Spark wraps it in many."""
    text = str(error)
    if stopped := _BAD_RECORD.search(text):
        told = stopped[1].partition(" SQLSTATE: ")[0].strip()
        return f"a record cannot be read: {told}. Mend it, or choose another on_bad_record: drop, or {{topic: …}}"
    if NOT_CONNECTED in text:
        return TOO_BUSY
    if _STATE_DIFFERS.search(text):
        return STATE_DIFFERS
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    useful = [line for line in lines if not line.startswith(("at ", "File ", "JVM stacktrace", "SQLSTATE", "==="))]
    ours = [line.removeprefix(found[0]) for line in useful if (found := _OUR_ERROR.match(line))]
    python = ours or [line for line in useful if _PYTHON_ERROR.match(line)]
    chosen = python[-1] if python else in_short((useful or [type(error).__name__])[0])
    return chosen[:ERROR_CHARACTERS_MAX]


class PartError(ValueError):
    """A source, step or sink that cannot be built; says which."""


@contextmanager
def told_of(part: str) -> Iterator[None]:
    """What goes wrong in here is the fault of this part of the file."""
    try:
        yield
    except (PySparkException, ValueError) as error:
        raise PartError(f"{part}: {explained(error)}") from error
