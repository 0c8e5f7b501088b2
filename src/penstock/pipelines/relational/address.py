"""Where a table is: one line of text that names the kind of database, how to get there, and the table.

    postgresql://user:password@host:5432/database/table         schema.table for a table outside the search path
    mysql://user:password@host:3306/database/table              (mariadb:// is the same)
    sqlite:///folder/shop.db/items · sqlite:shop.db/items       the last part is the table

A pipeline's file gives databases short names, `connections: {shop: {url: …}}`; then `postgresql://shop/items` is the
table items over there (`whole_address` joins the two). Odd characters are written as in any URL, `%20` for a space; a
dot that belongs to the name of a table of PostgreSQL is `%2E`. Settings of the connection follow a question mark.

Passwords are in no repr and in no text that an address gives of itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qsl, quote, unquote

from penstock.pipelines.relational.failures import RelationalError

KINDS = {
    "postgresql": "postgresql",
    "postgres": "postgresql",
    "mysql": "mysql",
    "mariadb": "mysql",
    "sqlite": "sqlite",
}
DEFAULT_PORTS = {"postgresql": 5432, "mysql": 3306}
#: What may follow the question mark, for each kind.
SETTINGS = {
    "postgresql": ("sslmode", "sslrootcert", "sslcert", "sslkey", "connect_timeout", "application_name"),
    "mysql": ("ssl_ca", "ssl_cert", "ssl_key", "connect_timeout", "unix_socket"),
    "sqlite": ("timeout",),
}
_AUTHORITY = re.compile(
    r"(?:(?P<user>[^:@]*)(?::(?P<password>[^@]*))?@)?(?P<host>\[[^\]]*\]|[^:@\[\]]*)(?::(?P<port>.*))?"
)
_PORT_MAX = 65_535
_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*):")
_EXAMPLES = {
    "postgresql": "postgresql://user:password@host:5432/database/table",
    "mysql": "mysql://user:password@host:3306/database/table",
    "sqlite": "sqlite:///folder/shop.db/table",
}


class AddressError(RelationalError, ValueError):
    """A text that does not say where a table is."""


@dataclass(frozen=True, slots=True)
class TableAddress:
    """See the head of this file."""

    kind: str
    """postgresql, mysql or sqlite"""
    database: str
    """its name; for SQLite the file"""
    table: str
    schema: str | None = None
    """PostgreSQL only; None: as the search path says"""
    host: str = ""
    port: int = 0
    user: str = ""
    password: str = field(default="", repr=False)
    settings: tuple[tuple[str, str], ...] = ()

    def setting(self, name: str) -> str | None:
        return dict(self.settings).get(name)

    @property
    def table_shown(self) -> str:
        """The table as it is named to people, with its schema."""
        return self.table if self.schema is None else f"{self.schema}.{self.table}"

    @property
    def database_shown(self) -> str:
        """The database as it is named to people: everything but the password and the table."""
        if self.kind == "sqlite":
            return f"sqlite:{self.database}"
        user = f"{quote(self.user)}@" if self.user else ""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.kind}://{user}{host}:{self.port}/{quote(self.database)}"

    def __str__(self) -> str:
        return f"{self.database_shown}/{self.table_shown}"


def is_named(text: str) -> bool:
    """Whether this is a table of a named connection, such as `postgresql://shop/items`."""
    _, rest = _split_kind(text)
    place = rest.partition("?")[0]
    return place.startswith("//") and not place.startswith("///") and place.count("/") == 3 and "@" not in place


def connection_name(text: str) -> str:
    """The `shop` of `postgresql://shop/items`."""
    return unquote(_split_kind(text)[1].removeprefix("//").partition("/")[0])


def whole_address(text: str, connections: Mapping[str, str]) -> str:
    """The same table with its connection written out; AddressError. What is whole already stays as it is."""
    if not is_named(text):
        return text
    kind, rest = _split_kind(text)
    name, _, table = rest.removeprefix("//").partition("/")
    url = connections.get(unquote(name))
    if url is None:
        known = ", ".join(sorted(connections)) or "none is defined"
        raise AddressError(
            f"there is no connection called {unquote(name)!r} (connections: {known}); define it under connections:, or "
            f"write the whole address, such as {_EXAMPLES[kind]}"
        )
    if _split_kind(url)[0] != kind:
        raise AddressError(f"the connection {unquote(name)} is {_split_kind(url)[0]}, and the table says {kind}")
    place, mark, settings = url.partition("?")
    table, _, more = table.partition("?")
    both = "&".join(each for each in (settings, more) if each)
    return f"{place.rstrip('/')}/{table}" + (f"?{both}" if mark or more else "")


def parse_address(text: str) -> TableAddress:
    """The address in a text; AddressError, which never repeats a password."""
    text = text.strip()
    kind, rest = _split_kind(text)
    place, _, query = rest.partition("?")
    settings = _parse_settings(kind, query)
    if kind == "sqlite":
        return _parse_file(place, settings)
    if not place.startswith("//"):
        raise AddressError(f"an address of a table is written as {_EXAMPLES[kind]}")
    authority, _, path = place[2:].partition("/")
    found = _AUTHORITY.fullmatch(authority)
    if found is None:
        raise AddressError(
            f"the part between // and / is user:password@host:port, with %40 for an @ and %3A for a colon in a "
            f"password: {_EXAMPLES[kind]}"
        )
    database, slash, table = path.partition("/")
    if not database or not slash or not table.strip("/") or "/" in table.rstrip("/"):
        raise AddressError(
            f"after the host come the database and the table, as in {_EXAMPLES[kind]}; here it is /{path}. (A table of "
            f"a connection that the file names is {kind}://connection/table)"
        )
    schema, name = _split_schema(kind, table.rstrip("/"))
    return TableAddress(
        kind=kind,
        database=_plain(database),
        table=name,
        schema=schema,
        host=unquote(found["host"]).strip("[]") or "localhost",
        port=_parse_port(kind, found["port"]),
        user=unquote(found["user"] or ""),
        password=unquote(found["password"] or ""),
        settings=settings,
    )


def _split_kind(text: str) -> tuple[str, str]:
    found = _SCHEME.match(text.strip())
    kind = KINDS.get(found[1].lower()) if found else None
    if found is None or kind is None:
        what = f"{found[1]!r} is no kind of database that is known" if found else "it says no kind of database"
        raise AddressError(f"an address of a table starts with postgresql:, mysql:, mariadb: or sqlite: ({what})")
    return kind, text.strip()[found.end() :]


def _parse_settings(kind: str, query: str) -> tuple[tuple[str, str], ...]:
    settings = parse_qsl(query, keep_blank_values=True, max_num_fields=20)
    for name, _ in settings:
        if name not in SETTINGS[kind]:
            raise AddressError(
                f"{name[:100]!r} is no setting of a {kind} address; there are {', '.join(SETTINGS[kind])}"
            )
    return tuple(sorted(dict(settings).items()))


def _parse_file(place: str, settings: tuple[tuple[str, str], ...]) -> TableAddress:
    if place.startswith("//"):
        place = place[2:]
        if not place.startswith("/"):
            raise AddressError(
                "a file of SQLite is sqlite:///folder/shop.db/table with three slashes; sqlite:shop.db/table is one in "
                "the folder where the program runs"
            )
    file, _, table = place.rstrip("/").rpartition("/")
    if not file or not table:
        raise AddressError(f"the last part is the table: {_EXAMPLES['sqlite']}, or sqlite:shop.db/table")
    return TableAddress("sqlite", _plain(file), _plain(table), settings=settings)


def _parse_port(kind: str, text: str | None) -> int:
    if not text:
        return DEFAULT_PORTS[kind]
    if not (text.isascii() and text.isdecimal()) or not 0 < int(text) <= _PORT_MAX:
        raise AddressError("the port, after the host and a colon, is a number up to 65535")
    return int(text)


def _split_schema(kind: str, table: str) -> tuple[str | None, str]:
    """A dot divides only with PostgreSQL: elsewhere it is part of the name."""
    schema, dot, name = table.partition(".")
    if kind != "postgresql" or not dot:
        return None, _plain(table)
    if not schema or not name or "." in name:
        raise AddressError("a table is table or schema.table; a dot that belongs to a name is written %2E")
    return _plain(schema), _plain(name)


def _plain(text: str) -> str:
    plain = unquote(text)
    if "\0" in plain:
        raise AddressError("a name in an address has a zero byte, which no database takes")
    return plain
