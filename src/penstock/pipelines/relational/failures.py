"""What goes wrong with a database, in the words of whoever asked for it.

Drivers have exceptions of their own; each dialect turns them into one of these. Only two questions matter to the code:
may the same thing work in a moment (`DatabaseAway`, `TryAgain`), or is it for a person to mend (all others)?
"""

from __future__ import annotations


class RelationalError(Exception):
    """A table cannot be read or written; the text says why, and what to do."""


class TableOptionError(RelationalError, ValueError):
    """An option that is unknown, missing or has a value that cannot be."""

    def __init__(self, name: str, message: str) -> None:
        super().__init__(f"option {name}: {message}")
        self.name = name
        self.message = message

    def __reduce__(self) -> tuple[type[TableOptionError], tuple[str, str]]:
        return TableOptionError, (self.name, self.message)


class DatabaseAway(RelationalError):
    """Nobody answers, or the connection broke: what was under way may have happened or not."""


class TryAgain(RelationalError):
    """Somebody else was in the way (a lock, a deadlock); nothing has happened."""


class LoginRefused(RelationalError):
    """The database does not let this user in, or has no such database."""


class NotAllowed(RelationalError):
    """This user may not do that with the table."""


class NoSuchTable(RelationalError):
    """The table is not there."""


class RowsRefused(RelationalError):
    """The database does not take these rows: a type, a constraint, a null."""
