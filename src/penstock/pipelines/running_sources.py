"""Which source of the file Spark speaks of when it tells of a batch, and what databases keep for replication slots.

Spark knows sources by their place in the plan and by the offsets they have. Offsets of topics name the topics, those of
followed tables and of change capture have a shape of their own, and files are known by their folder. If two followed
tables fit, both are named.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from penstock.pipelines.reading_loops import reads_topic
from penstock.pipelines.relational.failures import RelationalError
from penstock.pipelines.relational.slot import SlotStatus, slot_status
from penstock.pipelines.specification import FileSource, Pipeline, TableSource, TopicSource

LOOK_EVERY_S = 5.0
#: What is in the offsets of a followed table, by its mode.
OFFSET_MARKS = {"lsn": "changes", "position": "growing"}

AskSlot = Callable[[str, str], SlotStatus | None]


def source_name(pipeline: Pipeline, end_offset: Mapping[str, Any], description: str, number: int) -> str:
    """The name in the file; "source 2" for one that is not known."""
    found: list[str] = []
    mode = next((mode for mark, mode in OFFSET_MARKS.items() if mark in end_offset), None)
    for source in pipeline.sources.values():
        if isinstance(source, TopicSource):
            fits = any(isinstance(ends, dict) and reads_topic(source, topic) for topic, ends in end_offset.items())
        elif isinstance(source, TableSource):
            fits = mode is not None and source.mode == mode
        else:
            fits = _is_folder_of(source, description)
        if fits:
            found.append(source.name)
    return " or ".join(found) or f"source {number + 1}"


def _is_folder_of(source: FileSource, description: str) -> bool:
    """FileStreamSource[file:/data/orders] is the source of /data/orders."""
    _, bracket, place = description.partition("FileStreamSource[")
    return bool(bracket) and place.rstrip("]").endswith(source.path.rstrip("/"))


class SlotWatch:
    """Asks databases now and then how much they keep; a database that does not answer delays nobody."""

    def __init__(self, pipeline: Pipeline, ask: AskSlot = slot_status) -> None:
        self._slots = {
            source.name: (source.address, source.options["slot"])
            for source in pipeline.sources.values()
            if isinstance(source, TableSource) and source.mode == "changes" and "slot" in source.options
        }
        self._ask = ask
        self._held: dict[str, int] = {}
        self._ended = threading.Event()
        if self._slots:
            threading.Thread(target=self._run, name="penstock-slot-watch", daemon=True).start()

    def held_back_bytes(self, source: str) -> int | None:
        """None: there is no slot, or nobody knows."""
        return self._held.get(source)

    def end(self) -> None:
        self._ended.set()

    def _run(self) -> None:
        while True:
            self.look()
            if self._ended.wait(LOOK_EVERY_S):
                return

    def look(self) -> None:
        """Ask for each slot once."""
        for name, (address, slot) in self._slots.items():
            try:
                found = self._ask(address, slot)
            except (RelationalError, OSError, ValueError):
                found = None
            if found is None:
                self._held.pop(name, None)
            else:
                self._held[name] = found.held_back_bytes
