"""Data that should have been read and is not there any more: an error, or with failOnDataLoss=false a warning."""

from __future__ import annotations

import logging
from collections.abc import Sequence

from penstock.columnar.errors import ColumnarError

LOSSES_SHOWN_MAX = 10
LOSSES_REMEMBERED_MAX = 10_000

_log = logging.getLogger(__name__)
_written_down: set[str] = set()


class DataLoss(ColumnarError):
    """What is gone, in words, and what can be done about it."""

    def __init__(self, losses: Sequence[str]) -> None:
        super().__init__(tuple(losses))
        self.losses = losses

    def __str__(self) -> str:
        more = len(self.losses) - LOSSES_SHOWN_MAX
        shown = [*self.losses[:LOSSES_SHOWN_MAX], *([f"and {more} more"] if more > 0 else [])]
        return f"{'; '.join(shown)}. To go on without what is lost, set the option failOnDataLoss to false"


def report(losses: Sequence[str], *, fail: bool) -> None:
    """Raises DataLoss, or writes it down, each once."""
    if not losses:
        return
    if fail:
        raise DataLoss(losses)
    for loss in set(losses) - _written_down:
        _log.warning("data loss (failOnDataLoss is false): %s", loss)
    if len(_written_down) > LOSSES_REMEMBERED_MAX:
        _written_down.clear()
    _written_down.update(losses)
