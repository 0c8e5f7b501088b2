"""Whether the user may do what a sink does with a table of PostgreSQL; the error has the statement that allows it.

A sink makes staging tables and its list of batches beside the target, and changes the target as its mode says. MySQL
has no function that answers this, and a file of SQLite no users: there the first batch says so.
"""

from __future__ import annotations

from penstock.pipelines.relational.failures import NotAllowed
from penstock.pipelines.relational.session import Session
from penstock.pipelines.relational.table_sink_options import DELETE, INSERT, UPSERT, TableSinkOptions

_NEEDED = {INSERT: ("INSERT",), UPSERT: ("SELECT", "INSERT", "UPDATE"), DELETE: ("SELECT", "DELETE")}
_SCHEMA = (
    "SELECT n.nspname, has_schema_privilege(n.oid, 'CREATE'), current_user::text FROM pg_namespace n "
    "WHERE n.nspname = coalesce(%s, current_schema())"
)


def check_rights(session: Session, options: TableSinkOptions, *, is_there: bool) -> None:
    """NotAllowed says which rights are missing; a table that will be made belongs to whoever makes it."""
    if session.address.kind != "postgresql":
        return
    found = session.run(_SCHEMA, (session.address.schema,))
    missing = []
    for schema, may_create, user in found:
        if not may_create:
            missing.append(f'GRANT CREATE ON SCHEMA "{schema}" TO "{user}" (for staging tables)')
        lacks = _lacking(session, options) if is_there else []
        if lacks:
            missing.append(f'GRANT {", ".join(lacks)} ON {session.table.replace("%%", "%")} TO "{user}"')
    if missing:
        raise NotAllowed(f"{session.address}: this user lacks rights that the sink needs: {'; '.join(missing)}")


def _lacking(session: Session, options: TableSinkOptions) -> list[str]:
    needed = [*_NEEDED[options.mode], *(["DELETE"] if options.delete_when else [])]
    table = session.table.replace("%%", "%")
    statement = "SELECT has_table_privilege(to_regclass(%s), %s)"
    return [right for right in needed if not session.run(statement, (table, right))[0][0]]
