"""The simulated disk against the real one: the same scripts give the same results, errors and trees."""

from __future__ import annotations

import errno
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from penstock.base.real_disk import RealDisk
from penstock.base.world import Disk, File, Lock
from penstock.testing.sim_disk import SimDisk

Step = tuple[Any, ...]

NAMES = ["a", "b", "a/a", "a/b", "b/a", "a/a/a", "a/a/b", "b/a/b"]
paths = st.sampled_from(NAMES)
handles = st.integers(0, 3)
offsets = st.integers(-3, 20).filter(lambda offset: offset != -1)  # to pwritev2, -1 is the file's cursor
sizes = st.integers(-1, 20)
contents = st.lists(st.binary(max_size=6), max_size=3)
steps = st.one_of(
    st.tuples(st.just("open"), paths, st.booleans()),
    st.tuples(
        st.sampled_from(["exists", "is_dir", "list_dir", "make_dirs", "remove", "remove_dir", "sync_dir"]), paths
    ),
    st.tuples(st.just("make_dirs"), paths),
    st.tuples(st.just("rename"), paths, paths),
    st.tuples(st.just("file_size"), paths),
    st.tuples(st.just("lock"), paths),
    st.tuples(st.just("release"), handles),
    st.tuples(st.just("read"), handles, sizes, offsets),
    st.tuples(st.just("write"), handles, contents, offsets),
    st.tuples(st.just("truncate"), handles, sizes),
    st.tuples(st.sampled_from(["size", "sync", "close"]), handles),
)


class Script:
    """Runs steps on a disk below a folder, remembering open files and locks by number."""

    def __init__(self, disk: Disk, root: str) -> None:
        self.disk = disk
        self.root = root
        self.files: list[File] = []
        self.locks: list[Lock] = []

    def run(self, step: Step) -> object:
        """The result, or the number of the error."""
        try:
            return self._run(*step)
        except OSError as error:
            return "error", error.errno, type(error)
        except ValueError as error:  # Python's own check of a closed file's descriptor, in fdatasync alone
            assert "negative integer" in str(error)
            return "error", errno.EBADF, OSError

    def _run(self, kind: str, *arguments: Any) -> object:
        if kind == "open":
            self.files.append(self.disk.open(self._path(arguments[0]), create=arguments[1]))
            return None
        if kind == "lock":
            self.locks.append(self.disk.lock(self._path(arguments[0])))
            return None
        if kind == "release":
            return self.locks[arguments[0]].release() if arguments[0] < len(self.locks) else None
        if kind == "file_size" and self.disk.is_dir(self._path(arguments[0])):
            return None
        if isinstance(arguments[0], int):
            return self._on_file(kind, *arguments)
        method: Callable[..., object] = getattr(self.disk, kind)
        return method(*map(self._path, arguments))

    def _on_file(self, kind: str, handle: int, *arguments: Any) -> object:
        if handle >= len(self.files):
            return None
        method: Callable[..., object] = getattr(self.files[handle], kind)
        return method(*arguments)

    def _path(self, name: str) -> str:
        return f"{self.root}/{name}"

    def tree(self, path: str = "") -> dict[str, object]:
        found: dict[str, object] = {}
        for name in self.disk.list_dir(self.root + path):
            inside = f"{path}/{name}"
            if self.disk.is_dir(self.root + inside):
                found[inside] = None
                found.update(self.tree(inside))
            else:
                file = self.disk.open(self.root + inside)
                found[inside] = file.read(file.size(), 0)
                file.close()
        return found

    def end(self) -> None:
        for file in self.files:
            file.close()
        for lock in self.locks:
            lock.release()


def check_crashes(disk: SimDisk) -> None:
    """A crash that loses nothing shows what was there, and so does any crash after everything was synced."""
    now = disk.snapshot()
    assert disk.after_crash("none").snapshot() == now
    for kept in range(4):
        partly = disk.after_crash(lambda change, kept=kept: change.number % 4 != kept)  # type: ignore[misc]
        assert partly.pending() == [] and partly.after_crash("all").snapshot() == partly.snapshot()
    for path, content in now.items():
        if content is None:
            disk.sync_dir(path)
        else:
            disk.open(path).sync()
    disk.sync_dir("/")
    assert disk.after_crash("all").snapshot() == now


def run_on_both(script: list[Step], folder: str) -> None:
    simulated = SimDisk()
    simulated.make_dirs("/root")
    real, fake = Script(RealDisk(), folder), Script(simulated, "/root")
    try:
        for step in script:
            assert fake.run(step) == real.run(step), step
        assert fake.tree() == real.tree()
        check_crashes(simulated)
    finally:
        real.end()


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(steps, max_size=30))
def test_random_scripts_do_not_differ(script: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run_on_both(script, folder)


FILE = ("open", "a", True)
SCRIPTS: dict[str, list[Step]] = {
    "missing things": [
        ("open", "a", False),
        ("remove", "a"),
        ("remove_dir", "a"),
        ("list_dir", "a"),
        ("sync_dir", "a"),
    ],
    "a file in the way": [FILE, ("open", "a/b", True), ("make_dirs", "a/b"), ("make_dirs", "a"), ("list_dir", "a")],
    "a file is no folder": [FILE, ("sync_dir", "a"), ("remove_dir", "a"), ("rename", "a", "a/b"), ("exists", "a/b")],
    "a folder is no file": [
        ("make_dirs", "a/b"),
        ("open", "a", True),
        ("remove", "a"),
        ("remove_dir", "a"),
        ("lock", "a"),
    ],
    "into itself": [("make_dirs", "a/a"), ("rename", "a", "a/b"), ("rename", "a/a", "a"), ("rename", "a", "a")],
    "file onto its folder": [("make_dirs", "a"), ("open", "a/b", True), ("rename", "a/b", "a")],
    "file onto a folder": [FILE, ("make_dirs", "b"), ("rename", "a", "b"), ("rename", "b", "a")],
    "onto a full folder": [("make_dirs", "a/a"), ("make_dirs", "b/a"), ("rename", "a", "b"), ("rename", "a", "b/a")],
    "a gap reads as zeros": [FILE, ("write", 0, [b"x"], 5), ("read", 0, 9, 0), ("write", 0, [], 9), ("size", 0)],
    "nothing far out": [FILE, ("write", 0, [b""], 9), ("size", 0), ("read", 0, 3, 3), ("read", 0, 0, 0)],
    "grow and shrink": [FILE, ("truncate", 0, 4), ("read", 0, 9, 0), ("truncate", 0, 1), ("size", 0)],
    "negative": [FILE, ("truncate", 0, -1), ("read", 0, -1, 0), ("read", 0, 1, -1), ("write", 0, [b"x"], -2)],
    "closed": [FILE, ("close", 0), ("close", 0), ("size", 0), ("read", 0, 1, 0), ("sync", 0), ("write", 0, [b"x"], 0)],
    "closed, nothing to write": [FILE, ("close", 0), ("write", 0, [], 0), ("write", 0, [b""], 0)],
    "removed but open": [FILE, ("remove", "a"), ("write", 0, [b"x"], 0), ("read", 0, 1, 0), ("exists", "a")],
    "renamed but open": [FILE, ("rename", "a", "b"), ("write", 0, [b"x"], 0), ("file_size", "b")],
    "replaced but open": [FILE, ("open", "b", True), ("write", 1, [b"x"], 0), ("rename", "b", "a"), ("size", 0)],
    "locks": [("lock", "a"), ("lock", "a"), ("release", 0), ("release", 0), ("lock", "a"), ("exists", "a")],
    "a lock file removed": [("lock", "a"), ("remove", "a"), ("lock", "a"), ("release", 0), ("lock", "a")],
}


@pytest.mark.parametrize("name", SCRIPTS)
def test_script(name: str, tmp_path: Path) -> None:
    run_on_both(SCRIPTS[name], str(tmp_path))
