"""The few modules that a C compiler makes faster, and when they are used.

Each of them is plain Python with a `.pxd` file of C types beside it. `setup.py` builds them where there is a compiler;
the compiled ones share the layout of their objects, so all are used or none. In a working copy a source may be newer
than what was built from it: then none are, until they are built again. `PLAIN_PENSTOCK=1` does without them, too.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.machinery import EXTENSION_SUFFIXES, ModuleSpec
from importlib.util import spec_from_file_location
from types import ModuleType

MODULES = (
    "base/_real_ends",
    "base/_real_poll",
    "wire/_batch",
    "wire/_records",
    "wire/_keys",
    "log/_append",
    "broker/_exchange",
    "broker/_produce_again",
    "broker/_fetch_again",
    "columnar/_columns",
    "columnar/_rows",
)

INCLUDED = ("base/_calls", "wire/_copying")  # become part of the others


class PlainFinder:
    """Finds the sources of the modules, and passes over what was built from them."""

    def __init__(self, package_folder: str) -> None:
        self._paths = {f"penstock.{stem.replace('/', '.')}": f"{package_folder}/{stem}.py" for stem in MODULES}

    def find_spec(self, name: str, _path: Sequence[str] | None, _target: ModuleType | None = None) -> ModuleSpec | None:
        path = self._paths.get(name)
        return spec_from_file_location(name, path) if path is not None else None


def choose(package_folder: str) -> None:
    """Called first of all: make sure that whatever is imported from now on fits together."""
    if os.environ.get("PLAIN_PENSTOCK") or not is_all_built(package_folder):
        sys.meta_path.insert(0, PlainFinder(package_folder))


def is_all_built(package_folder: str) -> bool:
    """Whether every module was built, and none of their sources has changed since."""
    built = [_time_of(f"{package_folder}/{stem}", EXTENSION_SUFFIXES) for stem in MODULES]
    if not all(built):
        return False
    if not os.path.exists(f"{package_folder}/../../setup.py"):  # not a working copy: nobody changes it
        return True
    included = max(_time_of(f"{package_folder}/{stem}", (".pxd",)) for stem in INCLUDED)
    return all(
        max(included, _time_of(f"{package_folder}/{stem}", (".py",)), _time_of(f"{package_folder}/{stem}", (".pxd",)))
        <= time
        for stem, time in zip(MODULES, built, strict=True)
    )


def _time_of(stem: str, suffixes: Sequence[str]) -> float:
    """When the file was changed, by the first of the suffixes that there is; 0 if there is none."""
    for suffix in suffixes:
        try:
            return os.stat(stem + suffix).st_mtime
        except FileNotFoundError:
            continue
    return 0
