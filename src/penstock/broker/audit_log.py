"""The audit log: who was refused, who changed what, and why each byte went, as JSON lines in a folder of its own.

`record` never waits and never fails: it puts a line into a queue, and one task beside the loop writes what is there.
A queue that is full, or a disk that refuses, costs lines and not requests; how many is written down as soon as there
is room again. Files grow to a size, then become `audit.1.jsonl`, `audit.2.jsonl` and so on, and the oldest is removed.

Events that anybody can cause as often as he likes (a refusal, a login) are written once a second for each that is
alike, with the number of repeats; and of those that are not, only so many in a second for whoever causes them, with the
number of the others. So nobody can push the rest out of the files by asking a million times, nor for a million things.

Nothing secret gets in: a field, or a setting in a field, whose name says so is replaced, and long texts are cut.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import NamedTuple, Protocol

from penstock.base.broker_settings import BROKER_SETTINGS
from penstock.base.settings import Settings
from penstock.base.world import File, World

logger = logging.getLogger(__name__)

FILE = "audit.jsonl"
HIDDEN = "[hidden]"
QUEUE_LINES_MAX = 10_000
TEXT_LENGTH_MAX = 1_000
ITEMS_MAX = 200
REPEATS_ARE_TOLD_AFTER_S = 1.0
ALIKE_MAX = 2_000
OF_ONE_MAX = 50
"""In a second, of one kind and from one address."""
OTHERS_MAX = 1_000

REPEATABLE = frozenset(
    {"operation_denied", "login", "login_failed", "client_throttled", "connection_refused", "corruption_found"}
)
"""Events that are caused by clients, and written once a second for those that are alike."""

_SECRET = re.compile(r"password|secret|jaas|hmac|salt|stored.?key|server.?key|private|credential|keystore\.key|token$")


class Record(Protocol):
    """How those who do not have the log itself put something on record."""

    def __call__(self, event: str, **fields: object) -> None: ...


def not_recorded(event: str, **fields: object) -> None:
    """Where nobody keeps a record."""


class AuditLog:
    """See the head of this file. `open` is called once its folder may be used; what is recorded before waits."""

    def __init__(self, world: World, settings: Settings) -> None:
        self._world = world
        self._is_on = settings.flag("audit.log.enable")
        self._folder = settings.optional_text("audit.log.dir") or f"{settings.list('log.dirs')[0]}/audit"
        self._size_max = settings.integer("audit.log.file.bytes")
        self._files_max = settings.integer("audit.log.files")
        self._node_id = settings.integer("node.id")
        self._queue: list[bytes] = []
        self._lost = 0
        self._alike: dict[str, int] = {}  # lines that were written lately, without their time, and how often since
        self._written_of: Counter[_Cause] = Counter()  # how many of those each has caused
        self._others: Counter[_Cause] = Counter()  # and how many more, which were not written
        self._telling: asyncio.TimerHandle | None = None
        self._file: File | None = None
        self._size = 0
        self._is_open = False
        self._is_failing = False
        self._writing: asyncio.Task[None] | None = None

    @property
    def folder(self) -> str:
        return self._folder

    def record(self, event: str, **fields: object) -> None:
        """Write down an event. Fields are plain values, lists of them, or mappings; None is left out."""
        if not self._is_on:
            return
        shown = {name: _shown(name, value) for name, value in fields.items() if value is not None}
        if event in REPEATABLE:
            alike = json.dumps([event, shown], ensure_ascii=False)
            self._tell_repeats_later()
            if alike in self._alike:
                self._alike[alike] += 1
                return
            cause = _cause(event, shown)
            if cause.host is not None and (len(self._alike) >= ALIKE_MAX or self._written_of[cause] >= OF_ONE_MAX):
                is_known = cause in self._others or len(self._others) < OTHERS_MAX
                self._others[cause if is_known else _Cause(event)] += 1
                return
            self._written_of[cause] += 1
            if len(self._alike) < ALIKE_MAX:
                self._alike[alike] = 0
        self._put(event, shown)

    def open(self) -> None:
        """Begin to write."""
        self._is_open = True
        self._write_soon()

    async def stop(self) -> None:
        """Write what is left, durably, and write no more."""
        if self._telling is not None:
            self._telling.cancel()
            self._tell_repeats()
        if self._writing is not None:
            await asyncio.wait([self._writing])
        self._is_open = self._is_on = False
        if self._telling is not None:
            self._telling.cancel()
        if self._file is not None:
            await self._world.disk.run("sync", self._close)

    # ── the queue ────────────────────────────────────────────────────────────────────────────────────────────────

    def _put(self, event: str, fields: Mapping[str, object]) -> None:
        if len(self._queue) >= QUEUE_LINES_MAX:
            self._lost += 1
            return
        self._queue.append(self._line(event, fields))
        self._write_soon()

    def _line(self, event: str, fields: Mapping[str, object]) -> bytes:
        head = {"time_ms": self._world.clock.wall_ms(), "broker": self._node_id, "event": event}
        return json.dumps({**head, **fields}, ensure_ascii=False).encode("utf-8", "backslashreplace") + b"\n"

    def _tell_repeats_later(self) -> None:
        if self._telling is None:
            self._telling = asyncio.get_running_loop().call_later(REPEATS_ARE_TOLD_AFTER_S, self._tell_repeats)

    def _tell_repeats(self) -> None:
        self._telling = None
        self._written_of.clear()
        others, self._others = self._others, Counter()
        for cause, count in others.items():
            told = {name: value for name, value in cause._asdict().items() if value is not None}
            self._put(told.pop("event"), {**told, "others": count})
        again, self._alike = self._alike, {}
        for alike, count in again.items():
            if count:
                event, fields = json.loads(alike)
                self._put(event, {**fields, "repeated": count})

    def _write_soon(self) -> None:
        if self._is_open and self._writing is None and (self._queue or self._lost):
            self._writing = asyncio.get_running_loop().create_task(self._write_queue())
            self._writing.add_done_callback(self._written)

    def _written(self, task: asyncio.Task[None]) -> None:
        self._writing = None
        if not task.cancelled() and task.exception() is not None:
            logger.error("the audit log failed", exc_info=task.exception())

    async def _write_queue(self) -> None:
        while self._queue:
            lines, self._queue = self._queue, []
            if self._lost:
                lines.append(self._line("audit_lines_lost", {"lines": self._lost}))
            try:
                await self._world.disk.run("delete", partial(self._write, lines))
            except OSError as error:
                self._lost += len(lines) - bool(self._lost)
                if not self._is_failing:
                    logger.error("the audit log in %s cannot be written: %s", self._folder, error)
                self._is_failing = True
                return
            self._lost, self._is_failing = 0, False

    # ── the files, beside the loop ───────────────────────────────────────────────────────────────────────────────

    def _write(self, lines: list[bytes]) -> None:
        file = self._file or self._opened()
        data = b"".join(lines)
        try:
            file.write([data], self._size)
        except OSError:
            file.truncate(self._size)  # no half a line
            raise
        self._size += len(data)
        if self._size >= self._size_max:
            self._rotate()

    def _opened(self) -> File:
        disk = self._world.disk
        if not disk.is_dir(self._folder):
            disk.make_dirs(self._folder)
        self._file = file = disk.open(f"{self._folder}/{FILE}", create=True)
        self._size = file.size()
        if self._size and file.read(1, self._size - 1) != b"\n":  # a crash cut the last line off
            self._size += file.write([b"\n"], self._size)
        return file

    def _rotate(self) -> None:
        self._close()
        disk = self._world.disk
        for number in range(self._files_max - 1, 0, -1):
            name = f"{self._folder}/{_numbered(number - 1)}"
            if disk.exists(name):
                disk.rename(name, f"{self._folder}/{_numbered(number)}")
        if self._files_max == 1:
            disk.remove(f"{self._folder}/{FILE}")
        disk.sync_dir(self._folder)

    def _close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            try:
                file.sync()
            finally:
                file.close()


class _Cause(NamedTuple):
    """Who caused an event of some kind: whoever it is on the word of the login, not of the one that failed."""

    event: str
    principal: object = None
    host: object = None


def _cause(event: str, shown: Mapping[str, object]) -> _Cause:
    principal = shown.get("principal") if event != "login_failed" else None
    return _Cause(event, principal, shown.get("host", shown.get("peer")))


def _numbered(number: int) -> str:
    return FILE if number == 0 else f"audit.{number}.jsonl"


def _shown(name: str, value: object) -> object:
    """A value as it may be written down under a name."""
    if _is_secret(name):
        return HIDDEN
    if isinstance(value, bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {str(key): _shown(str(key), each) for key, each in list(value.items())[:ITEMS_MAX]}
    if isinstance(value, list | tuple | set | frozenset) and not hasattr(value, "_fields"):
        items = sorted(value) if isinstance(value, set | frozenset) else value
        return [_shown(name, each) for each in list(items)[:ITEMS_MAX]]
    text = str(value)
    return text if len(text) <= TEXT_LENGTH_MAX else text[:TEXT_LENGTH_MAX] + "…"


def _is_secret(name: str) -> bool:
    row = BROKER_SETTINGS.get(name)
    return row.sensitive if row is not None else _SECRET.search(name.lower()) is not None
