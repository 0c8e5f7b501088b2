"""What is on a simulated disk: the tree that a process sees, and what of it a power loss would leave.

Every file and folder exists twice: as it looks now (`content`, `entries`) and as it surely is on the medium
(`durable`). Between the two lies the journal: the changes, in order, that no sync has covered yet. A sync of a file
moves its writes and truncations to the durable side; a sync of a folder moves its creations, renames and removals.
`image_after_crash` starts from the durable side and applies those changes of the journal that the caller lets survive.

The model is as pessimistic as POSIX allows. Any change may be lost while a later one survives, in content and in names;
a file's sync does not make its name durable; a new folder's own sync does not make it durable in its parent. A rename
is atomic; between two folders, a sync of either one makes it durable, with all earlier changes of both. What cannot
happen on any file system does not happen here: a removal of a folder is lost when something in it is not removed, a
rename is lost when it would put a folder into itself, and what is renamed twice is found under one of its names.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

PAGE_BYTES = 4096


class Inode:
    """One file, whatever its name is now."""

    def __init__(self, modified_ms: int) -> None:
        self.content = bytearray()
        self.durable = bytearray()
        self.modified_ms = modified_ms
        self.cold_pages: set[int] = set()
        self.links = 0
        self.handles = 0


class Folder:
    """One folder: names to nodes."""

    def __init__(self, modified_ms: int = 0) -> None:
        self.entries: dict[str, Node] = {}
        self.durable: dict[str, Node] = {}
        self.modified_ms = modified_ms


Node: TypeAlias = Inode | Folder


@dataclass(eq=False, slots=True)
class Operation:
    """One numbered change (or sync) of the disk. `kind` is create, make_dir, write, truncate, rename, remove, ..."""

    number: int
    kind: str
    path: str

    def __str__(self) -> str:
        return f"#{self.number} {self.kind} {self.path}"


@dataclass(eq=False, slots=True)
class Write(Operation):
    inode: Inode
    offset: int
    data: bytes

    def __str__(self) -> str:
        return f"#{self.number} write {self.path} {len(self.data)} bytes at {self.offset}"


@dataclass(eq=False, slots=True)
class Truncate(Operation):
    inode: Inode
    size: int

    def __str__(self) -> str:
        return f"#{self.number} truncate {self.path} to {self.size}"


@dataclass(eq=False, slots=True)
class Link(Operation):
    """A new name: create and make_dir."""

    folder: Folder
    name: str
    node: Node


@dataclass(eq=False, slots=True)
class Unlink(Operation):
    """A name that is gone: remove and remove_dir."""

    folder: Folder
    name: str
    node: Node


@dataclass(eq=False, slots=True)
class Rename(Operation):
    source_folder: Folder
    source_name: str
    target_folder: Folder
    target_name: str
    node: Node
    target_path: str

    def __str__(self) -> str:
        return f"#{self.number} rename {self.path} to {self.target_path}"


NameChange: TypeAlias = Link | Unlink | Rename
Change: TypeAlias = Write | Truncate | Link | Unlink | Rename
Lost: TypeAlias = Callable[[Change], bool] | Collection[int] | str
Torn: TypeAlias = int | Mapping[int, int] | None
LostPages: TypeAlias = Callable[[Write, int], bool] | Collection[tuple[int, int]] | None
Names: TypeAlias = dict[Folder, dict[str, Node]]


def folders_of(change: NameChange) -> list[Folder]:
    """The folders whose entries the change touches."""
    if isinstance(change, Rename):
        if change.source_folder is change.target_folder:
            return [change.source_folder]
        return [change.source_folder, change.target_folder]
    return [change.folder]


def put(content: bytearray, data: bytes | memoryview, offset: int) -> None:
    """Write into a file's content; a gap before `offset` reads as zeros."""
    if not data:
        return
    if offset > len(content):
        content.extend(bytes(offset - len(content)))
    content[offset : offset + len(data)] = data


def resize(content: bytearray, size: int) -> None:
    """Truncate or extend with zeros."""
    if size < len(content):
        del content[size:]
    else:
        content.extend(bytes(size - len(content)))


def apply_content(content: bytearray, change: Write | Truncate) -> None:
    """Do to `content` what the change did."""
    if isinstance(change, Write):
        put(content, change.data, change.offset)
    else:
        resize(content, change.size)


def sync_inode(journal: list[Change], inode: Inode) -> list[Change]:
    """Make the file's content durable; the journal that remains."""
    remaining: list[Change] = []
    for change in journal:
        if isinstance(change, Write | Truncate) and change.inode is inode:
            apply_content(inode.durable, change)
        else:
            remaining.append(change)
    return remaining


def drop_inode_changes(journal: list[Change], inode: Inode) -> list[Change]:
    """What a failed sync does: the changes count as clean now, and were never written."""
    return [change for change in journal if not (isinstance(change, Write | Truncate) and change.inode is inode)]


def sync_folder(journal: list[Change], folder: Folder) -> list[Change]:
    """Make the folder's entries durable; the journal that remains.

    With a rename from or to another folder go the earlier changes of that other folder, so that the order of each
    folder's changes is kept.
    """
    synced: list[NameChange] = []
    remaining: list[Change] = []
    folders = {folder}
    for change in reversed(journal):
        if isinstance(change, Link | Unlink | Rename) and not folders.isdisjoint(folders_of(change)):
            folders.update(folders_of(change))
            synced.append(change)
        else:
            remaining.append(change)
    for change in reversed(synced):
        _make_durable(change)
    return remaining[::-1]


def _make_durable(change: NameChange) -> None:
    if isinstance(change, Link):
        change.folder.durable[change.name] = change.node
    elif isinstance(change, Unlink):
        change.folder.durable.pop(change.name, None)
    else:
        change.source_folder.durable.pop(change.source_name, None)
        change.target_folder.durable[change.target_name] = change.node


def drop_folder_changes(journal: list[Change], folder: Folder) -> list[Change]:
    """What a failed sync of a folder does to the changes of its entries."""
    return [change for change in journal if isinstance(change, Write | Truncate) or folder not in folders_of(change)]


def without_forgotten(root: Folder, journal: list[Change]) -> list[Change]:
    """The journal without changes of files that no crash can bring back: their last name is durably gone."""
    unnamed = {change.inode for change in journal if isinstance(change, Write | Truncate) and change.inode.links == 0}
    if unnamed:
        unnamed -= {change.node for change in journal if isinstance(change, Link | Unlink | Rename)}
        unnamed -= set(_durable_nodes(root, journal))
    return [change for change in journal if not (isinstance(change, Write | Truncate) and change.inode in unnamed)]


def _durable_nodes(root: Folder, journal: list[Change]) -> Iterator[Node]:
    """Everything that has a durable name, also in folders that only the journal knows."""
    folders = [root]
    for change in journal:
        if isinstance(change, Link | Unlink | Rename):
            folders.extend(folders_of(change))
            folders.extend([change.node] if isinstance(change.node, Folder) else [])
    seen: set[Folder] = set()
    while folders:
        folder = folders.pop()
        if folder not in seen:
            seen.add(folder)
            yield from folder.durable.values()
            folders.extend(node for node in folder.durable.values() if isinstance(node, Folder))


def _is_lost(lost: Lost, change: Change) -> bool:
    if callable(lost):
        return lost(change)
    if isinstance(lost, str):
        if lost not in ("all", "none"):
            raise ValueError(f"lost is 'all', 'none', op numbers or a function, not {lost!r}")
        return lost == "all"
    return change.number in lost


def surviving(journal: list[Change], lost: Lost, ordered_names: bool) -> list[Change]:
    """The changes that reach the medium; with `ordered_names`, nothing of a folder survives its first lost change."""
    broken: list[Folder] = []
    kept: list[Change] = []
    for change in journal:
        is_lost = _is_lost(lost, change)
        if ordered_names and isinstance(change, Link | Unlink | Rename):
            folders = folders_of(change)
            is_lost = is_lost or any(folder in broken for folder in folders)
            if is_lost:
                broken.extend(folders)
        if not is_lost:
            kept.append(change)
    return kept


class CrashImage:
    """The tree after a power loss, as fresh nodes; built once by `image_after_crash`."""

    def __init__(self, kept: list[Change], torn: Torn, lost_pages: LostPages) -> None:
        self._names: Names = {}
        self._copies: dict[Node, Node] = {}
        self._lost_pages = lost_pages
        self._content: dict[Inode, list[Write | Truncate]] = {}
        self._kept_bytes = self._torn_writes(kept, torn)
        for change in kept:
            if isinstance(change, Write | Truncate):
                self._content.setdefault(change.inode, []).append(change)
        self._kept_names = [change for change in kept if isinstance(change, Link | Unlink | Rename)]

    @staticmethod
    def _torn_writes(kept: list[Change], torn: Torn) -> Mapping[int, int]:
        if torn is None:
            return {}
        if not isinstance(torn, int):
            return torn
        last = max((change.number for change in kept if isinstance(change, Write)), default=None)
        return {} if last is None else {last: torn}

    def build(self, root: Folder) -> Folder:
        for change in self._kept_names:
            self._apply_name(root, change)
        return self._copy_folder(root)

    def _entries(self, folder: Folder) -> dict[str, Node]:
        if folder not in self._names:
            self._names[folder] = dict(folder.durable)
        return self._names[folder]

    def _apply_name(self, root: Folder, change: NameChange) -> None:
        if isinstance(change, Link):
            self._entries(change.folder)[change.name] = change.node
        elif isinstance(change, Unlink):
            if not self._is_filled(change.node):
                self._entries(change.folder).pop(change.name, None)
        else:
            self._apply_rename(root, change)

    def _apply_rename(self, root: Folder, change: Rename) -> None:
        target = self._entries(change.target_folder)
        old = target.get(change.target_name)
        if old is not None and old is not change.node and self._is_filled(old):
            return
        if isinstance(change.node, Folder) and change.target_folder in self._walk(change.node):
            return
        self._entries(change.source_folder).pop(change.source_name, None)
        for folder in list(self._walk(root)):
            entries = self._entries(folder)
            for name in [name for name, node in entries.items() if node is change.node]:
                del entries[name]
        target[change.target_name] = change.node

    def _is_filled(self, node: Node) -> bool:
        return isinstance(node, Folder) and bool(self._entries(node))

    def _walk(self, folder: Folder) -> Iterator[Folder]:
        yield folder
        for node in list(self._entries(folder).values()):
            if isinstance(node, Folder):
                yield from self._walk(node)

    def _copy_folder(self, folder: Folder) -> Folder:
        copy = Folder(folder.modified_ms)
        for name, node in self._entries(folder).items():
            new = self._copy_folder(node) if isinstance(node, Folder) else self._copy_inode(node)
            copy.entries[name] = copy.durable[name] = new
        return copy

    def _copy_inode(self, inode: Inode) -> Inode:
        copy = Inode(inode.modified_ms)
        copy.links = 1
        copy.content[:] = inode.durable
        for change in self._content.get(inode, ()):
            if isinstance(change, Write):
                self._put_surviving_part(copy.content, change)
            else:
                apply_content(copy.content, change)
        copy.durable[:] = copy.content
        return copy

    def _put_surviving_part(self, content: bytearray, change: Write) -> None:
        data = memoryview(change.data)[: self._kept_bytes.get(change.number, len(change.data))]
        if self._lost_pages is None or not data:
            put(content, data, change.offset)
            return
        end = change.offset + len(data)
        if end > len(content):
            resize(content, end)
        for page in range(change.offset // PAGE_BYTES, (end - 1) // PAGE_BYTES + 1):
            if not self._is_page_lost(change, page):
                start = max(change.offset, page * PAGE_BYTES)
                stop = min(end, (page + 1) * PAGE_BYTES)
                put(content, data[start - change.offset : stop - change.offset], start)

    def _is_page_lost(self, change: Write, page: int) -> bool:
        if callable(self._lost_pages):
            return self._lost_pages(change, page)
        return self._lost_pages is not None and (change.number, page) in self._lost_pages


def image_after_crash(
    root: Folder,
    journal: list[Change],
    *,
    lost: Lost = "all",
    torn: Torn = None,
    lost_pages: LostPages = None,
    ordered_names: bool = False,
) -> Folder:
    """A copy of the tree as it would be found after power comes back; nothing here is changed."""
    kept = surviving(journal, lost, ordered_names)
    return CrashImage(kept, torn, lost_pages).build(root)
