"""A pipeline from its YAML file, or from the same as Python: all mistakes at once, each with its line and key.

    read_file(Path("revenue.yaml"))  →  Pipeline, or PipelineMistakes
    read_document({"name": …})       →  the same from dicts

This looks at the text alone; what can only be known by asking brokers, databases and Spark is found by `checking`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from penstock.pipelines.reading_loops import loops
from penstock.pipelines.reading_nodes import (
    Mistake,
    Node,
    PipelineMistakes,
    Reader,
    did_you_mean,
    from_python,
    parse_yaml,
)
from penstock.pipelines.reading_sinks import sink_of
from penstock.pipelines.reading_sources import source_of, step_of
from penstock.pipelines.reading_values import Place, bad_records_of, check_name, guarantee_of, interval_of, path_of
from penstock.pipelines.specification import (
    DEFAULT_BROKERS,
    Pipeline,
    Sink,
    Source,
    Step,
    StopAtBadRecord,
)

KEYS = (
    *("name", "sources", "steps", "sinks", "on_bad_record", "connections", "brokers", "client", "guarantee"),
    *("trigger", "spark", "checkpoints"),
)
BROKERS_VARIABLE = "PENSTOCK_BOOTSTRAP"
PIPELINE_NAME_LENGTH_MAX = 100
_NAME_CHARACTERS = set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")

Part = TypeVar("Part")


def read_file(path: Path, environment: Mapping[str, str] | None = None) -> Pipeline:
    """The pipeline in a file. PipelineMistakes, or OSError if there is no such file."""
    reader = Reader(os.environ if environment is None else environment)
    try:
        return _pipeline(parse_yaml(path.read_text("utf-8"), reader), reader, path)
    except UnicodeDecodeError as error:
        raise PipelineMistakes([Mistake(0, "", f"the file is not text in UTF-8: {error}")], str(path)) from None
    except PipelineMistakes as found:
        raise PipelineMistakes(found.mistakes, str(path)) from None


def read_document(
    document: Mapping[str, Any], environment: Mapping[str, str] | None = None, file: Path | None = None
) -> Pipeline:
    """The pipeline in a dict. PipelineMistakes."""
    reader = Reader(os.environ if environment is None else environment)
    return _pipeline(from_python(document, reader), reader, file)


def _pipeline(root: Node, reader: Reader, file: Path | None) -> Pipeline:
    if not root.mapping("a pipeline (name, sources, steps, sinks)"):
        raise PipelineMistakes(reader.mistakes)
    folder = Path.cwd() if file is None else file.resolve().parent
    place = Place(folder, _connections(root.take("connections")))
    names = _names(root, "sources")  # with those that have mistakes, which are told once and not of all who use them
    sources, steps = _sources(root, place), root.take("steps")
    made_steps = _steps(steps, names)
    sinks = _sinks(root, place, (*names, *_names(root, "steps")))
    brokers, client, spark = root.take("brokers"), root.take("client"), root.take("spark")
    trigger, checkpoints = root.take("trigger"), root.take("checkpoints")
    pipeline = Pipeline(
        name=_name(root, file),
        sources=sources,
        steps=made_steps,
        sinks=sinks,
        on_bad_record=bad_records_of(root.take("on_bad_record"), place) or StopAtBadRecord(),
        connections=place.connections,
        brokers=reader.environment.get(BROKERS_VARIABLE, DEFAULT_BROKERS) if brokers is None else _brokers_of(brokers),
        client={} if client is None else client.as_settings(),
        guarantee=guarantee_of(root.take("guarantee")),
        trigger=None if trigger is None else interval_of(trigger),
        spark={} if spark is None else spark.as_settings(),
        checkpoints=None if checkpoints is None else path_of(checkpoints, place),
        file=file,
        lines=reader.lines,
    )
    root.finish(KEYS)
    for key, text in loops(pipeline):
        reader.tell(pipeline.line_of(key), key, text)
    if reader.mistakes:
        raise PipelineMistakes(reader.mistakes)
    return pipeline


def _name(root: Node, file: Path | None) -> str:
    node = root.take("name")
    name = (file.stem if file else "") if node is None else node.as_text("the name of the pipeline")
    if node is None and not name:
        root.wrong("the pipeline has no name: add name: …")
    where = node or root
    if name and (not set(name) <= _NAME_CHARACTERS or name[0] in ".-" or len(name) > PIPELINE_NAME_LENGTH_MAX):
        where.wrong(f"a pipeline's name is the name of a folder too: letters, digits and . _ -, not {name!r}")
    return name


def _names(root: Node, key: str) -> tuple[str, ...]:
    node = root.entries.get(key) if root.entries is not None else None
    return () if node is None or node.entries is None else tuple(node.entries)


def _brokers_of(node: Node) -> str:
    return ",".join(node.as_texts("brokers as host:port"))


def _connections(node: Node | None) -> dict[str, str]:
    if node is None or not node.mapping("connections, such as shop: {url: …},"):
        return {}
    assert node.entries is not None
    found: dict[str, str] = {}
    for name, each in node.entries.items():
        url = each
        if each.entries is not None:
            given = each.take("url")
            each.finish(("url",))
            if given is None:
                each.wrong("a connection has a url, such as postgresql://user:${SHOP_PASSWORD}@host:5432/shopdb")
                continue
            url = given
        found[name] = url.as_text("the url of a database")
    return found


def _sources(root: Node, place: Place) -> dict[str, Source]:
    return _parts(root, root.take("sources"), "sources", lambda name, node: source_of(name, node, place))


def _steps(node: Node | None, tables: tuple[str, ...]) -> dict[str, Step]:
    steps: dict[str, Step] = {}
    if node is None or not node.mapping("steps by name"):
        return steps
    assert node.entries is not None
    before = tables
    for name, each in node.entries.items():
        check_name(each, name)
        if name in tables:
            each.wrong(f"a source is called {name} already; give the step another name")
        step = step_of(name, each, before)
        before = (*before, name)
        if step is not None:
            steps[name] = step
    return steps


def _sinks(root: Node, place: Place, tables: tuple[str, ...]) -> dict[str, Sink]:
    return _parts(root, root.take("sinks"), "sinks", lambda name, node: sink_of(name, node, place, tables))


def _parts(root: Node, node: Node | None, what: str, make: Callable[[str, Node], Part | None]) -> dict[str, Part]:
    if node is None:
        if root.has(what[:-1]):
            return {}
        root.wrong(f"there are no {what}{did_you_mean(what, root.left)}")
        return {}
    if not node.mapping(f"{what} by name"):
        return {}
    assert node.entries is not None
    if not node.entries:
        node.wrong(f"there are no {what}")
    parts: dict[str, Part] = {}
    for name, each in node.entries.items():
        check_name(each, name)
        part = make(name, each)
        if part is not None:
            parts[name] = part
    return parts
