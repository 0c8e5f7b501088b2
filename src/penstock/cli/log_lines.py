"""The lines that a serving process writes to its log, on stderr: one for each thing that is told.

Texts in them may be a client's, like the name of a topic that does not exist: characters that would begin another line,
or tell the terminal of whoever reads it what to do, are written as Python writes them in quotes.
"""

from __future__ import annotations

import logging
import sys

_CONTROLS = [*range(0x20), *range(0x7F, 0xA0), 0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A)]
_ESCAPED = {number: repr(chr(number))[1:-1] for number in _CONTROLS}


class LogLines(logging.Formatter):
    """See the head of this file. Tracebacks are ours, and keep their lines."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        record.message = record.message.translate(_ESCAPED)
        return super().formatMessage(record)


def log_to_stderr(*, verbose: bool, prefix: str = "") -> None:
    """From now on; with everything there is to tell if it is verbose."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LogLines(f"%(asctime)s %(levelname)-7s {prefix}%(message)s"))
    logging.basicConfig(level=logging.DEBUG if verbose else logging.INFO, handlers=[handler])
