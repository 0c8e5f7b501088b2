"""Rules of the house that linters cannot see. Each failure says where, and what to do."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PROJECT = Path(__file__).resolve().parent.parent
SOURCE = PROJECT / "src"
PACKAGE = SOURCE / "penstock"

#: Decisions only: nothing of the outside world. `zookeeper` is pure but for its durable half.
PURE_PACKAGES = ("sasl", "wire", "replication", "controller", "groups", "transactions", "security")
PURE_MODULES = ("zookeeper/tree.py", "zookeeper/operations.py", "zookeeper/znodes.py", "zookeeper/topic_znodes.py")
FORBIDDEN_IN_PURE = {"asyncio", "socket", "threading", "time", "random", "os", "uvloop", "selectors", "subprocess"}
#: The shell reaches the outside through the world, so that the simulator can run it.
SHELL_PACKAGES = ("broker", "log", "zookeeper")
FORBIDDEN_IN_SHELL = {"socket", "time", "random", "os", "uvloop", "selectors", "subprocess"}
FORBIDDEN_NAMES = {"common", "utils", "util", "helpers", "manager", "coordinator", "misc"}
HEAVY_AND_RARE = {"pyspark", "pyarrow", "pandas", "re2", "jwt", "urllib", "cramjam", "tempfile"}
TABLE_OF_COMMANDS = "cli/main.py"
#: Run by their names rather than imported: programs, plugins, and declarations that the next rooms will use.
ROOTS = {
    "penstock.cli.__main__",
    "penstock.cli.owned",
    "penstock.cli.serve",
    "penstock.cli.serve_cluster",
    "penstock.cli.serve_keeper",
    "penstock.cli.watch",
    "penstock.spark.data_source",
    "penstock.testing.pytest_plugin",
    "penstock.wire.messages.consumer_protocol",
    "penstock.wire.messages.offsets_topic_records",
    "penstock.wire.state_records",
}
LINES_MAX = 600
DANGEROUS = {"eval", "__import__"}
CODE_COMPILERS = {"exec", "compile"}

FILES = sorted(PACKAGE.rglob("*.py"))


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def imports_of(tree: ast.AST) -> Iterator[tuple[ast.stmt, str]]:
    """Every import statement with the names of the modules it may bring."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield node, alias.name
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node, node.module
            for alias in node.names:
                yield node, f"{node.module}.{alias.name}"


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_file_follows_the_rules_of_the_house(path: Path) -> None:
    tree = tree_of(path)
    problems = [*_header(path, tree), *_imports_inside_functions(path, tree), *_outside_world(path, tree)]
    problems += [*_dangerous_calls(path, tree), *_names(path)]
    assert not problems, "\n".join(problems)


def _header(path: Path, tree: ast.Module) -> Iterator[str]:
    if not ast.get_docstring(tree):
        yield f"{path}: a file starts with what it is for"
    lines = path.read_text(encoding="utf-8").count("\n")
    if lines > LINES_MAX:
        yield f"{path}: {lines} lines: more than one thing; split it"


def _imports_inside_functions(path: Path, tree: ast.Module) -> Iterator[str]:
    if path == PACKAGE / TABLE_OF_COMMANDS:
        return
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for node, name in imports_of(function):
                if name.split(".")[0] not in HEAVY_AND_RARE:
                    yield f"{path}:{node.lineno}: an import inside a function"


def _outside_world(path: Path, tree: ast.Module) -> Iterator[str]:
    relative = str(path.relative_to(PACKAGE))
    forbidden: set[str] = set()
    if room_of(path) in PURE_PACKAGES or relative in PURE_MODULES:
        forbidden = FORBIDDEN_IN_PURE
    elif room_of(path) in SHELL_PACKAGES:
        forbidden = FORBIDDEN_IN_SHELL
    for node, name in imports_of(tree):
        if name.split(".")[0] in forbidden:
            yield f"{path}:{node.lineno}: {name} does not belong here: take it from the world"


def _dangerous_calls(path: Path, tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id in DANGEROUS:
                yield f"{path}:{node.lineno}: {node.func.id} is not used here"
            if node.func.id in CODE_COMPILERS and room_of(path) != "wire":
                yield f"{path}:{node.lineno}: {node.func.id} is for the compiler of codecs alone"
    for node, name in imports_of(tree):
        if name.split(".")[0] in {"pickle", "marshal", "shelve"}:
            yield f"{path}:{node.lineno}: {name} can run code that came over the wire"


def _names(path: Path) -> Iterator[str]:
    for part in path.relative_to(PACKAGE).with_suffix("").parts:
        if part in FORBIDDEN_NAMES:
            yield f"{path}: {part!r} says nothing; name it after what it is"


def test_every_module_is_imported_by_somebody() -> None:
    known = {module_name(path) for path in FILES}
    imported = set(ROOTS)
    for path in FILES:
        for _, name in imports_of(tree_of(path)):
            imported.add(name)
            imported.update(name.rsplit(".", count)[0] for count in range(1, name.count(".") + 1))
    for library in ("testing",):  # its modules are for users and for our tests
        imported |= {name for name in known if name.startswith(f"penstock.{library}.")}
    assert known - imported - {"penstock"} == set()


def test_the_rules_see_what_they_forbid(tmp_path: Path) -> None:
    """The rules themselves: a file that breaks all of them."""
    bad = tmp_path / "bad.py"
    bad.write_text("def f():\n    import os\n    return eval('1')\n")
    tree = tree_of(bad)
    assert [name for _, name in imports_of(tree)] == ["os"]
    assert list(_header(bad, tree))
    assert list(_imports_inside_functions(bad, tree))


def test_python_is_new_enough() -> None:
    assert sys.version_info >= (3, 11)
