"""The compiled modules: all or none are used, none that is older than its source; and plain Python means the same."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

import penstock
from penstock.base.compiled import INCLUDED, MODULES, PlainFinder, is_all_built
from penstock.wire import _records

PACKAGE = Path(penstock.__path__[0])
ROOT = Path(__file__).parent.parent
PLAIN_TOO = [
    "wire/test_batch.py",
    "log/test_producers.py",
    "log/test_partition_log.py",
    "broker/test_connection.py",
    "broker/test_produce_ways.py",
    "broker/test_fetch_ways.py",
    "columnar/test_decode.py",
    "columnar/test_encode.py",
]


def build_all(package: Path) -> None:
    for stem in MODULES:
        path = package / stem
        path.parent.mkdir(parents=True, exist_ok=True)
        for suffix in (".py", ".pxd", EXTENSION_SUFFIXES[0]):
            path.with_name(path.name + suffix).touch()
            os.utime(path.with_name(path.name + suffix), (1000, 1000))
    for stem in INCLUDED:
        path = package / f"{stem}.pxd"
        path.touch()
        os.utime(path, (1000, 1000))


@pytest.mark.parametrize("is_working_copy", [True, False])
def test_all_or_none(tmp_path: Path, is_working_copy: bool) -> None:
    package = tmp_path / "src" / "penstock"
    build_all(package)
    if is_working_copy:
        (tmp_path / "setup.py").touch()
    assert is_all_built(str(package))
    sources = [f"{stem}{suffix}" for stem in MODULES for suffix in (".py", ".pxd")]
    for name in (*sources, *(f"{stem}.pxd" for stem in INCLUDED)):
        os.utime(package / name, (2000, 2000))
        assert is_all_built(str(package)) is not is_working_copy
        os.utime(package / name, (1000, 1000))
    for stem in MODULES:
        built = package / f"{stem}{EXTENSION_SUFFIXES[0]}"
        built.rename(built.with_suffix(".away"))
        assert not is_all_built(str(package))
        built.with_suffix(".away").rename(built)
    assert is_all_built(str(package))


def test_every_file_of_types_has_its_module() -> None:
    found = [str(path.relative_to(PACKAGE).with_suffix("")) for path in PACKAGE.rglob("*.pxd")]
    assert sorted(found) == sorted([*MODULES, *INCLUDED])


def test_the_plain_ones_are_found() -> None:
    finder = PlainFinder(str(PACKAGE))
    spec = finder.find_spec("penstock.wire._records", None)
    assert spec is not None and spec.origin == str(PACKAGE / "wire" / "_records.py")
    assert finder.find_spec("penstock.wire.records", None) is None


@pytest.mark.skipif(
    not any((PACKAGE / f"{MODULES[0]}{suffix}").exists() for suffix in EXTENSION_SUFFIXES), reason="nothing is built"
)
@pytest.mark.skipif("PLAIN_PENSTOCK" in os.environ, reason="plain Python is asked for")
def test_what_is_built_is_used() -> None:
    assert _records.is_compiled(), "build again: python setup.py build_ext --inplace"


@pytest.mark.skipif(not _records.is_compiled(), reason="this run is plain already")
def test_plain_python_passes_the_same_tests() -> None:
    tests = [str(ROOT / "tests" / name) for name in PLAIN_TOO]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests],
        env={**os.environ, "PLAIN_PENSTOCK": "1"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-4000:]
