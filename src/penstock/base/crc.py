"""CRC-32C, the checksum of record batches and of our own files.

It is the compiled function of the crc32c package. The package itself also brings a command line and looks up its own
version, and with them argparse, email and zip files: three megabytes in every broker. So only its inside is loaded.
"""

from __future__ import annotations

from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import Protocol, cast

from penstock.base.world import Buffer


class Checksum(Protocol):
    def __call__(self, data: Buffer, value: int = 0, /) -> int:
        """The checksum of what had the checksum `value` and is followed by some more data."""


def _load() -> Checksum:
    package = find_spec("crc32c")
    places = package.submodule_search_locations if package is not None else None
    spec = PathFinder.find_spec("crc32c._crc32c", places) if places is not None else None
    if spec is None or spec.loader is None:
        raise ImportError("the package crc32c is missing, or is not as we know it: version 2.7 or newer is needed")
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return cast("Checksum", module.crc32c)


crc32c = _load()
