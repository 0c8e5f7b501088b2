"""The file `boot-id` of a log directory: whether unsynced writes may have been lost since it was last in use.

A process that is killed loses nothing that it has written: the pages are the kernel's. Only a machine that stopped
does. So the file has the id of the boot in which the directory was last opened. If it is another one now, and there is
no mark of a clean stop, records that others count on may be gone. That is remembered, in a second line, until the
controller has taken it into account (`forget_loss`), through any number of restarts.
"""

from __future__ import annotations

import logging

from penstock.base.world import Disk, NoSpaceError, read_file, write_file_durably

logger = logging.getLogger(__name__)

BOOT_FILE = "boot-id"
LOST = "lost"


class BootMark:
    """The mark of one log directory."""

    def __init__(self, disk: Disk, directory: str, boot_id: str, *, was_clean: bool) -> None:
        self._disk = disk
        self._path = f"{directory}/{BOOT_FILE}"
        self._boot_id = boot_id
        lines = self._read()
        is_same_boot = bool(lines) and lines[0] == boot_id and bool(boot_id)
        self.has_lost = LOST in lines[1:] or not (was_clean or is_same_boot)
        """Unsynced writes may be gone, and the controller does not know it yet."""
        if lines != self._lines():
            self._write()

    def forget_loss(self) -> None:
        """The controller knows. Blocks."""
        if self.has_lost:
            self.has_lost = False
            self._write()

    def _lines(self) -> list[str]:
        return [self._boot_id, LOST] if self.has_lost else [self._boot_id]

    def _read(self) -> list[str]:
        try:
            return read_file(self._disk, self._path).decode(errors="replace").splitlines()
        except FileNotFoundError:
            return []

    def _write(self) -> None:
        try:
            write_file_durably(self._disk, self._path, ("\n".join(self._lines()) + "\n").encode())
        except NoSpaceError as error:  # the older mark makes the next start assume a loss: that is safe
            logger.warning("%s cannot be written: %s", self._path, error)
