"""Both versions of a module of loops, compiled and plain, and strategies for what such loops are given."""

from __future__ import annotations

import importlib.util
from array import array
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from hypothesis import strategies as st

small = st.integers(-3, 12)
int32 = st.integers(-(2**31), 2**31 - 1) | small
int64 = st.integers(-(2**63), 2**63 - 1) | small
int32_columns = st.lists(int32, max_size=6)
int64_columns = st.lists(int64, max_size=6)
some_bytes = st.binary(max_size=12)


def plain(module: ModuleType) -> ModuleType:
    """The loops as plain Python, even where they are compiled."""
    assert module.__file__ is not None
    name = module.__name__.rpartition(".")[2]
    source = Path(module.__file__).with_name(f"{name}.py")
    spec = importlib.util.spec_from_file_location(f"plain{name}", source)
    assert spec is not None and spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def is_as_new_as_its_source(module: ModuleType) -> bool:
    assert module.__file__ is not None
    built, name = Path(module.__file__), module.__name__.rpartition(".")[2]
    sources = [built.with_name(f"{name}{suffix}") for suffix in (".py", ".pxd")]
    return all(source.stat().st_mtime <= built.stat().st_mtime for source in sources)


def ints(numbers: list[int]) -> array[int]:
    return array("i", numbers)


def longs(numbers: list[int]) -> array[int]:
    return array("q", numbers)


def outcome(call: Callable[[], object]) -> object:
    try:
        return call()
    except ValueError as error:
        return type(error).__name__, str(error)


class Pair:
    """A module and its plain version."""

    def __init__(self, module: ModuleType) -> None:
        self.built, self.plain = module, plain(module)

    def agree(self, name: str, make_arguments: Callable[[], list[object]]) -> None:
        """Both versions give the same answer, and leave the same in their arguments."""
        results = []
        for loops in (self.built, self.plain):
            arguments = make_arguments()
            loop = getattr(loops, name)
            results.append((outcome(lambda loop=loop, arguments=arguments: loop(*arguments)), arguments))  # type: ignore[misc]
        assert results[0] == results[1]
