"""What the machine is, how busy it is, and its memory made ready.

On a virtual machine the first write to a page costs several times the copy, whoever does it; so a few gigabytes are
written and deleted before anything is measured, and again, since such a machine gives back what lies idle, as much as a
load will write right before it. CPU and memory of a broker are read from /proc.
"""

from __future__ import annotations

import os
import platform
import subprocess
import time
from pathlib import Path

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
MB = 1_000_000


def description() -> dict[str, str | int | float]:
    return {
        "date": time.strftime("%Y-%m-%d %H:%M %Z"),
        "processor": _first_line_with("/proc/cpuinfo", "model name"),
        "cores": os.cpu_count() or 1,
        "memory_gb": round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9, 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "commit": _commit(),
        "load_average_before": os.getloadavg()[0],
    }


def _first_line_with(path: str, name: str) -> str:
    for line in Path(path).read_text().splitlines():
        if line.startswith(name):
            return line.partition(":")[2].strip()
    return platform.machine()


def _commit() -> str:
    try:
        done = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip()


def warm_page_memory(folder: Path, size_bytes: int) -> None:
    """Write and delete, so that the pages that the brokers are given have been touched before."""
    path = folder / "warm"
    block = os.urandom(1 << 20) * 4
    with path.open("wb") as file:
        for _ in range(size_bytes // len(block)):
            file.write(block)
    path.unlink()


def process_tree(pid: int) -> list[int]:
    """The process and all that descend from it."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            fields = _stat(int(entry.name))
            if fields:
                children.setdefault(int(fields[1]), []).append(int(entry.name))
    tree = [pid]
    for member in tree:
        tree.extend(children.get(member, []))
    return tree


def _stat(pid: int) -> list[str]:
    """The fields of /proc/<pid>/stat after the name, which may hold anything; none if the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []


def cpu_s_of_tree(pid: int) -> float:
    ticks = 0
    for member in process_tree(pid):
        fields = _stat(member)
        if fields:
            ticks += int(fields[11]) + int(fields[12])
    return ticks / TICKS_PER_S


def memory_mb_of_tree(pid: int) -> float:
    """Resident memory."""
    pages = 0
    for member in process_tree(pid):
        try:
            pages += int(Path(f"/proc/{member}/statm").read_text().split()[1])
        except OSError:
            continue
    return pages * os.sysconf("SC_PAGE_SIZE") / MB


def busy_cpu_s() -> float:
    """What all cores together have worked since the machine started, for whomever (stolen time too)."""
    user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, Path("/proc/stat").read_text().split()[1:9])
    return (user + nice + system + irq + softirq + steal) / TICKS_PER_S
