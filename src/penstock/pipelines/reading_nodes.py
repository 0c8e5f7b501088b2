"""A YAML file as a tree in which every value knows its line and its key, and the list of mistakes in it.

Whoever reads the tree takes the keys he knows (`Node.take`) and says at the end that this was all (`Node.finish`): what
is left is unknown, and the nearest key that is known is suggested. A mistake does not end the reading: it is noted and
reading goes on, so that a person sees all of them at once.

`${NAME}` in a value is taken from the environment, `${NAME:-otherwise}` with something to fall back on, and `$${` is a
plain `${`. What is shown of a value in an error is what stands in the file, never what came from the environment.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

import yaml

SIZE_BYTES_MAX = 1 << 20
NODES_MAX = 20_000
DEPTH_MAX = 20
SHOWN_CHARACTERS_MAX = 60
_VARIABLE = re.compile(r"\$\$\{|\$\{(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P<fallback>:-[^}]*)?\}|\$\{(?P<wrong>[^}]*)\}?")
_TRUTH = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_NULL_TAG = "tag:yaml.org,2002:null"


@dataclass(frozen=True, slots=True, order=True)
class Mistake:
    """Something wrong with a pipeline: where, and what to do about it."""

    line: int
    """from 1; 0: nowhere in particular"""
    key: str
    text: str

    def __str__(self) -> str:
        where = f"line {self.line}: " if self.line else ""
        return f"{where}{self.key}: {self.text}" if self.key else f"{where}{self.text}"


class PipelineMistakes(Exception):
    """All that is wrong with a pipeline, at once."""

    def __init__(self, mistakes: Iterable[Mistake], file: str | None = None) -> None:
        self.mistakes = sorted(set(mistakes))
        self.file = file
        prefix = "" if file is None else f"{file}: "
        super().__init__("\n".join(f"{prefix}{mistake}" for mistake in self.mistakes))


@dataclass(slots=True)
class Reader:
    """What a reading needs everywhere: the environment, and the mistakes so far."""

    environment: Mapping[str, str]
    mistakes: list[Mistake] = field(default_factory=list)
    nodes: int = 0
    lines: dict[str, int] = field(default_factory=dict)
    """where each key stands"""

    def tell(self, line: int, key: str, text: str) -> None:
        self.mistakes.append(Mistake(line, key, text))

    def fill_in(self, text: str, line: int, key: str) -> str:
        """The text with what the environment says for its variables."""

        def value_of(found: re.Match[str]) -> str:
            if found[0] == "$${":
                return "${"
            if found["name"] is None:
                self.tell(line, key, f"${{{found['wrong']}}} is no name of a variable; write $${{ for a plain ${{")
                return ""
            if found["name"] in self.environment:
                return self.environment[found["name"]]
            if found["fallback"] is None:
                name = found["name"]
                self.tell(line, key, f"the environment has no variable {name}: set it, or write ${{{name}:-otherwise}}")
                return ""
            return found["fallback"].removeprefix(":-")

        return _VARIABLE.sub(value_of, text)


@dataclass(slots=True)
class Node:
    """A value of the file: one of `text`, `entries` and `items`, or none of them where nothing was given."""

    reader: Reader
    line: int
    key: str
    text: str | None = None
    shown: str = ""
    """the text as it stands in the file"""
    entries: dict[str, Node] | None = None
    items: list[Node] | None = None
    left: set[str] = field(default_factory=set)
    """keys that nobody has taken yet"""

    # ── mistakes ─────────────────────────────────────────────────────────────────────────────────────────────────

    def wrong(self, text: str) -> None:
        self.reader.tell(self.line, self.key, text)

    def what_it_is(self) -> str:
        """For errors: what stands here instead of what was wanted."""
        if self.entries is not None:
            return "keys and values"
        if self.items is not None:
            return "a list"
        if self.text is None:
            return "nothing"
        shortened = self.shown if len(self.shown) <= SHOWN_CHARACTERS_MAX else self.shown[:SHOWN_CHARACTERS_MAX] + "…"
        return repr(shortened)

    # ── keys ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def take(self, key: str) -> Node | None:
        """The value of a key, if it is there."""
        assert self.entries is not None
        self.left.discard(key)
        return self.entries.get(key)

    def has(self, key: str) -> bool:
        return self.entries is not None and key in self.entries

    def finish(self, known: Collection[str]) -> None:
        """No other keys than these were meant to be here."""
        for key in sorted(self.left):
            assert self.entries is not None
            suggestion = did_you_mean(key, known) or f"; there are {', '.join(sorted(known))}"
            self.entries[key].wrong(f"this key is unknown{suggestion}")
        self.left.clear()

    def mapping(self, wanted: str) -> bool:
        """Whether there are keys and values here; if not, that is a mistake."""
        if self.entries is None:
            self.wrong(f"{wanted} is wanted here, not {self.what_it_is()}")
        return self.entries is not None

    # ── values ───────────────────────────────────────────────────────────────────────────────────────────────────

    def as_text(self, wanted: str = "a text") -> str:
        """The text, or "" after a mistake was noted."""
        if self.text is None or not self.text.strip():
            if self.text is None or "$" not in self.shown:  # a missing variable has been told already
                self.wrong(f"{wanted} is wanted here, not {self.what_it_is()}")
            return ""
        return self.text

    def as_texts(self, wanted: str = "a name or a list of names") -> tuple[str, ...]:
        """A list of texts; one text is a list of one, and commas separate several."""
        if self.items is not None:
            return tuple(filter(None, (item.as_text(wanted) for item in self.items)))
        return tuple(part.strip() for part in self.as_text(wanted).split(",") if part.strip())

    def as_truth(self) -> bool:
        if self.text is None or self.text.lower() not in _TRUTH:
            self.wrong(f"true or false is wanted here, not {self.what_it_is()}")
            return False
        return _TRUTH[self.text.lower()]

    def misspelled(self, wanted: Collection[str]) -> str:
        """ ": 'tabel' (did you mean 'table'?)" for a key that may have been meant as one of these; or nothing."""
        hints = ((key, did_you_mean(key, wanted)) for key in self.entries or {})
        return next((f": {key!r}{hint}" for key, hint in hints if hint), "")

    def as_choice(self, choices: Collection[str], otherwise: str, also: str = "") -> str:
        """One of these words, or `otherwise` after a mistake was noted."""
        text = (self.text or "").strip().lower().replace("-", " ")
        found = next((choice for choice in choices if choice.replace("-", " ") == text), None)
        if found is None:
            hint = did_you_mean(text, choices) or f"; it is one of {', '.join(choices)}{also}"
            self.wrong(f"{self.what_it_is()} is not possible here{hint}")
            return otherwise
        return found

    def as_settings(self) -> dict[str, str]:
        """Keys with texts."""
        if not self.mapping("settings and their values"):
            return {}
        assert self.entries is not None
        self.left.clear()
        return {key: node.as_text("a value") for key, node in self.entries.items()}


def did_you_mean(name: str, known: Collection[str]) -> str:
    """ " (did you mean 'format'?)", or nothing if no known name is close."""
    close = get_close_matches(name, [str(each) for each in known], n=2, cutoff=0.6)
    return f" (did you mean {' or '.join(repr(word) for word in close)}?)" if close else ""


# ── from YAML, and from Python ───────────────────────────────────────────────────────────────────────────────────────


def parse_yaml(text: str, reader: Reader) -> Node:
    """The tree of a file. PipelineMistakes if it is not YAML at all."""
    if len(text) > SIZE_BYTES_MAX:
        raise PipelineMistakes([Mistake(0, "", f"the file is larger than {SIZE_BYTES_MAX} bytes")])
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise PipelineMistakes([Mistake(mark.line + 1 if mark else 0, "", _yaml_problem(error))]) from None
    except (yaml.YAMLError, RecursionError) as error:
        raise PipelineMistakes([Mistake(0, "", f"this is not YAML: {error}")]) from None
    if root is None:
        return Node(reader, 1, "")
    return _from_yaml(root, reader, "", 0)


def _yaml_problem(error: yaml.MarkedYAMLError) -> str:
    parts = [part for part in (error.problem, error.context) if part]
    return f"this is not YAML: {', '.join(parts)}"


def _from_yaml(node: yaml.Node, reader: Reader, key: str, depth: int) -> Node:
    line = node.start_mark.line + 1
    reader.nodes += 1
    if depth > DEPTH_MAX or reader.nodes > NODES_MAX:  # also what refers to itself, and what multiplies by references
        raise PipelineMistakes([Mistake(line, key, "the file is nested too deeply, or too large")])
    if isinstance(node, yaml.MappingNode):
        return _mapping_from_yaml(node, reader, key, depth)
    if isinstance(node, yaml.SequenceNode):
        items = [_from_yaml(each, reader, f"{key}[{number}]", depth + 1) for number, each in enumerate(node.value)]
        return Node(reader, line, key, items=items)
    if node.tag == _NULL_TAG:
        return Node(reader, line, key)
    is_block = isinstance(node, yaml.ScalarNode) and node.style in ("|", ">")
    begins = line + 1 if is_block else line
    return Node(reader, begins, key, text=reader.fill_in(node.value, line, key), shown=node.value)


def _mapping_from_yaml(node: yaml.MappingNode, reader: Reader, key: str, depth: int) -> Node:
    entries: dict[str, Node] = {}
    for name_node, value_node in node.value:
        name = str(name_node.value)
        path = f"{key}.{name}" if key else name
        if not isinstance(name_node, yaml.ScalarNode):
            reader.tell(name_node.start_mark.line + 1, key, "a key is a plain word")
            continue
        if name in entries:
            reader.tell(
                name_node.start_mark.line + 1, path, f"is here twice; the first is in line {entries[name].line}"
            )
            continue
        entries[name] = _from_yaml(value_node, reader, path, depth + 1)
        reader.lines[path] = name_node.start_mark.line + 1
        if entries[name].text is None:
            entries[name].line = name_node.start_mark.line + 1
    return Node(reader, node.start_mark.line + 1, key, entries=entries, left=set(entries))


def from_python(value: Any, reader: Reader, key: str = "") -> Node:
    """The same tree from dicts, lists and plain values."""
    if isinstance(value, Mapping):
        entries = {
            str(name): from_python(each, reader, f"{key}.{name}" if key else str(name)) for name, each in value.items()
        }
        return Node(reader, 0, key, entries=entries, left=set(entries))
    if isinstance(value, list | tuple):
        items = [from_python(each, reader, f"{key}[{number}]") for number, each in enumerate(value)]
        return Node(reader, 0, key, items=items)
    if value is None:
        return Node(reader, 0, key)
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return Node(reader, 0, key, text=reader.fill_in(text, 0, key), shown=text)
