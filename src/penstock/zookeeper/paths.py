"""What a znode's path may look like, as ZooKeeper has it."""

from __future__ import annotations

import re
from urllib.parse import quote, unquote

# Control characters, surrogates and the private use area, and the specials at the end of the basic plane.
_FORBIDDEN = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff]")


def path_problem(path: str) -> str | None:
    """What is wrong with an absolute path, or None."""
    if not path.startswith("/"):
        return f"the path of a znode begins with '/', this is {path!r}"
    if path == "/":
        return None
    if path.endswith("/"):
        return f"the path of a znode does not end with '/', this is {path!r}"
    if any(part in ("", ".", "..") for part in path[1:].split("/")):
        return f"the path of a znode has no empty, '.' or '..' parts, this is {path!r}"
    if _FORBIDDEN.search(path):
        return f"the path of a znode has no control or private characters, this is {path!r}"
    return None


def parent_of(path: str) -> str:
    """The path of the znode above; the root for one directly below it."""
    return path.rpartition("/")[0] or "/"


def name_of(path: str) -> str:
    """The last part of the path."""
    return path.rpartition("/")[2]


def escaped_name(text: str) -> str:
    """Any text but the empty one as a part of a path: the name of a user, of a client."""
    return {".": "%2E", "..": "%2E%2E"}.get(text) or quote(text, safe="")


def unescaped_name(part: str) -> str:
    """The text behind a part of a path."""
    return unquote(part)
