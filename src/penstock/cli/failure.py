"""What a command raises when it cannot do its work, and the exit codes that scripts rely on.

A command never prints a traceback for something that may go wrong: it raises `Failure` with one sentence that says what
happened and what to do, and `main` prints that sentence on stderr and ends with the code.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from enum import IntEnum


class ExitCode(IntEnum):
    """The exit codes of every command; docs/guides/command-line.md lists them."""

    OK = 0
    FAILED = 1
    USAGE = 2
    UNREACHABLE = 3
    NOT_FOUND = 4
    EXISTS = 5
    REFUSED = 6
    OFFLINE = 7
    DEGRADED = 8
    INTERRUPTED = 130
    PIPE_CLOSED = 141


class Failure(Exception):
    """A command failed for a reason that its user can understand."""

    def __init__(self, message: str, code: ExitCode = ExitCode.FAILED) -> None:
        super().__init__(message)
        self.message = message
        self.code = code


def usage(message: str) -> Failure:
    """The command was called in a way that makes no sense."""
    return Failure(message, ExitCode.USAGE)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """ " (did you mean 'orders'?)" when something known is close to the name, otherwise nothing."""
    close = get_close_matches(name, list(known), n=3, cutoff=0.6)
    if not close:
        return ""
    return f" (did you mean {' or '.join(repr(word) for word in close)}?)"
