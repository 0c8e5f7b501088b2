"""The options of a table as a source, typed and checked against each other."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from decimal import Decimal

from penstock.pipelines.relational.address import TableAddress
from penstock.pipelines.relational.failures import TableOptionError
from penstock.pipelines.relational.table_options import TableOptions

GROWING, CHANGES = "growing", "changes"
_EVERYWHERE = ("url", "mode", "partitions", "partitionColumn", "columns")
_OF_STREAMS = ("rowsPerBatch", "pollInterval")
_OF_GROWING = ("column", "overlap", "windowRows", "nulls")
_OF_CHANGES = ("slot", "publication")
KNOWN = (*_EVERYWHERE, *_OF_STREAMS, *_OF_GROWING, *_OF_CHANGES)

OVERLAP_TIME_S = 300.0
OVERLAP_NUMBERS = 1000
WINDOW_ROWS = 100_000
POLL_S = 1.0
PARTITIONS_MAX = 10_000
STREAM_PARTITIONS = 4
CHANGES_PER_BATCH = 100_000
_SLOT_NAME = re.compile(r"[a-z0-9_]{1,63}")


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What somebody wants to read."""

    address: TableAddress
    mode: str | None
    """growing, changes; None: the table as it is"""
    partitions: int | None
    partition_column: str | None
    columns: tuple[str, ...]
    """none: all"""
    rows_per_batch: int | None
    poll_s: float
    column: str
    overlap: str | None
    window_rows: int
    skips_nulls: bool
    slot: str
    publication: str

    def overlap_time(self) -> timedelta:
        options = TableOptions({} if self.overlap is None else {"overlap": self.overlap})
        return timedelta(seconds=options.duration_s("overlap", OVERLAP_TIME_S))

    def overlap_numbers(self) -> Decimal:
        if self.overlap is None:
            return Decimal(OVERLAP_NUMBERS)
        if not (self.overlap.isascii() and self.overlap.isdecimal()):
            raise TableOptionError("overlap", f"is a whole number for a column of numbers, not {self.overlap[:100]!r}")
        return Decimal(self.overlap)


def parse_source_options(values: Mapping[str, str]) -> SourceOptions:
    """TableOptionError names what is wrong."""
    options = TableOptions(values)
    options.check_names(KNOWN)
    mode = options.choice("mode", (GROWING, CHANGES), None)
    _check_mode(options, mode)
    partitions = options.whole("partitions", lowest=1)
    if partitions is not None and partitions > PARTITIONS_MAX:
        raise TableOptionError("partitions", f"is at most {PARTITIONS_MAX}, not {partitions}")
    return SourceOptions(
        address=options.address(),
        mode=mode,
        partitions=partitions,
        partition_column=options.text("partitionColumn"),
        columns=options.words("columns"),
        rows_per_batch=options.whole("rowsPerBatch", lowest=1),
        poll_s=options.duration_s("pollInterval", POLL_S),
        column=options.text("column") or "",
        overlap=options.text("overlap"),
        window_rows=options.whole("windowRows", lowest=1) or WINDOW_ROWS,
        skips_nulls=options.choice("nulls", ("fail", "skip"), "fail") == "skip",
        slot=options.text("slot") or "",
        publication=options.text("publication") or "",
    )


def _check_mode(options: TableOptions, mode: str | None) -> None:
    for names, belongs_to in ((_OF_GROWING, GROWING), (_OF_CHANGES, CHANGES)):
        for name in names:
            if name in options and mode != belongs_to:
                raise TableOptionError(name, f"belongs to the mode {belongs_to}: set the option mode, or leave it out")
    if mode is None and "rowsPerBatch" in options:
        raise TableOptionError("rowsPerBatch", "belongs to streams, which have a mode: growing or changes")
    if mode == GROWING and not options.text("column"):
        raise TableOptionError("column", "is needed: the column that grows, such as id or updated_at")
    if mode == CHANGES:
        for name in _OF_CHANGES:
            if not options.text(name):
                raise TableOptionError(name, f"is needed for change capture: the name of the {name} in PostgreSQL")
        if not _SLOT_NAME.fullmatch(options.text("slot") or ""):
            raise TableOptionError("slot", "PostgreSQL takes small letters, digits and _ for a slot's name, at most 63")
        if options.address().kind != "postgresql":
            raise TableOptionError("mode", "changes are captured from PostgreSQL only; elsewhere use mode growing")
        if "columns" in options:
            raise TableOptionError("columns", "does not belong to change capture: choose columns in the publication")
