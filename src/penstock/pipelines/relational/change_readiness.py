"""Whether the changes of a table of PostgreSQL can be captured, looked at before anything runs.

All that is not as it must be comes in one error, each with the statement that mends it, so that whoever administers
the database is asked once. Nothing is made or changed here. `check_ready` is asked before every batch; `check_start`,
when a query is planned and by `penstock pipeline check`, also looks at what the slot needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from penstock.pipelines.relational.failures import RelationalError
from penstock.pipelines.relational.session import Session
from penstock.pipelines.relational.slot import find_slot

#: Who may make and read slots. Amazon's servers let nobody be a superuser, and have a role for it.
_MAY_REPLICATE = """
    SELECT current_user::text, bool_or(rolsuper OR rolreplication OR rolname = 'rds_replication')
    FROM pg_roles
    WHERE rolname = current_user OR (rolname = 'rds_replication' AND pg_has_role(oid, 'member'))"""
_SLOTS = "SELECT count(*), current_setting('max_replication_slots')::int FROM pg_replication_slots"
_TABLE = """
    SELECT n.nspname, c.relname, c.relreplident::text, has_table_privilege(c.oid, 'SELECT'), current_user::text
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass(%s)"""
_IDENTITIES = {"n": "nothing", "i": "an index"}


def check_ready(session: Session, publication: str) -> tuple[str, str]:
    """Schema and name of the table, if its changes can be captured; otherwise an error that says what to do."""
    schema, name, *_ = found = _table(session)
    _refuse(session, [*_problems_of_server(session), *_problems_of_table(session, publication, found)])
    return schema, name


def check_start(session: Session, publication: str, slot: str) -> None:
    """The same, and whether the slot is there or can be made."""
    problems = [*_problems_of_server(session), *_problems_of_table(session, publication, _table(session))]
    _refuse(session, [*problems, *_problems_of_slot(session, slot)])


def _refuse(session: Session, problems: Iterable[str]) -> None:
    if found := list(problems):
        numbered = found if len(found) == 1 else [f"({number}) {text}" for number, text in enumerate(found, 1)]
        raise RelationalError(f"changes of {session.address} cannot be captured yet: {'; '.join(numbered)}")


def _table(session: Session) -> tuple[str, str, str, bool, str]:
    """Schema, name, replica identity, whether it may be read, and who asks."""
    session.shape()  # says so if there is none
    schema, name, identity, may_read, user = session.run(_TABLE, (_plain(session.table),))[0]
    return schema, name, identity, may_read, user


def _problems_of_server(session: Session) -> Iterator[str]:
    level, is_standby = session.run("SELECT current_setting('wal_level'), pg_is_in_recovery()")[0]
    if is_standby:
        yield "this server is a standby, which follows another one: name that one"
    elif level != "logical":
        yield (
            f"the server has wal_level = {level}, and must have logical: "
            "ALTER SYSTEM SET wal_level = 'logical', then restart the server"
        )


def _problems_of_table(session: Session, publication: str, found: tuple[str, str, str, bool, str]) -> Iterator[str]:
    schema, name, identity, may_read, user = found
    table, quoted = _plain(session.table), _quoted(publication)
    in_it = "SELECT 1 FROM pg_publication_tables WHERE pubname = %s AND schemaname = %s AND tablename = %s"
    if not session.run("SELECT 1 FROM pg_publication WHERE pubname = %s", (publication,)):
        yield f"the database has no publication {publication!r}: CREATE PUBLICATION {quoted} FOR TABLE {table}"
    elif not session.run(in_it, (publication, schema, name)):
        yield (
            f"the publication {publication} does not have the table {schema}.{name}: ALTER PUBLICATION {quoted} ADD "
            f"TABLE {table} (for a partitioned table also: SET (publish_via_partition_root = true))"
        )
    if identity in _IDENTITIES:
        yield (
            f"the table has replica identity {_IDENTITIES[identity]}, so the log does not say by primary key which row "
            f"was changed or deleted: ALTER TABLE {table} REPLICA IDENTITY DEFAULT (or FULL, to see rows as they were)"
        )
    if not may_read:
        yield f"the user {user} may not read the table for the snapshot: GRANT SELECT ON {table} TO {_quoted(user)}"


def _problems_of_slot(session: Session, slot: str) -> Iterator[str]:
    user, may_replicate = session.run(_MAY_REPLICATE)[0]
    if not may_replicate:
        yield f"the user {user} may not use replication slots: ALTER ROLE {_quoted(user)} REPLICATION"
    used, slots_max = session.run(_SLOTS)[0]
    if find_slot(session, slot) is None and used >= slots_max:
        yield (
            f"the server has {used} replication slots, as many as it may, and none is called {slot}: drop one that "
            "nobody needs (SELECT pg_drop_replication_slot('…')), or raise max_replication_slots and restart the server"
        )


def _plain(table: str) -> str:
    """A table as a person writes it: `quote` doubles percent signs for the driver."""
    return table.replace("%%", "%")


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
