"""What the operating system says of this process: time, memory, files. Linux tells all, other systems some of it."""

from __future__ import annotations

import os
import resource
import sys
from typing import NamedTuple

_PROC = "/proc/self"
_STARTED_FIELD, _VIRTUAL_FIELD, _RESIDENT_FIELD = 19, 20, 21  # of /proc/self/stat, counted after the name


class ProcessFigures(NamedTuple):
    """None where the system does not tell."""

    cpu_s: float
    resident_bytes: int | None
    virtual_bytes: int | None
    open_files: int | None
    open_files_max: int | None
    started_s: float | None
    """by the wall clock, since 1970"""


def process_figures() -> ProcessFigures:
    """As they are now. With many open files this takes some milliseconds."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    cpu_s = used.ru_utime + used.ru_stime
    files_max, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    open_files_max = None if files_max == resource.RLIM_INFINITY else files_max
    if not sys.platform.startswith("linux"):
        return ProcessFigures(cpu_s, None, None, None, open_files_max, None)
    with open(f"{_PROC}/stat", encoding="latin-1") as file:
        fields = file.read().rpartition(")")[2].split()
    return ProcessFigures(
        cpu_s,
        resident_bytes=int(fields[_RESIDENT_FIELD]) * os.sysconf("SC_PAGE_SIZE"),
        virtual_bytes=int(fields[_VIRTUAL_FIELD]),
        open_files=len(os.listdir(f"{_PROC}/fd")) - 1,  # one is that of the listing
        open_files_max=open_files_max,
        started_s=_booted_s() + int(fields[_STARTED_FIELD]) / os.sysconf("SC_CLK_TCK"),
    )


def _booted_s() -> int:
    with open("/proc/stat", encoding="latin-1") as file:
        for line in file:
            if line.startswith("btime "):
                return int(line.split()[1])
    return 0
