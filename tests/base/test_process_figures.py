"""What the operating system says of this process, beside other ways of asking it."""

from __future__ import annotations

import os
import sys
import time

import pytest

from penstock.base.process_figures import process_figures


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="other systems tell less")
def test_the_figures_are_those_of_this_process() -> None:
    figures = process_figures()
    assert figures.cpu_s > 0
    assert figures.resident_bytes is not None and figures.virtual_bytes is not None
    assert 1 << 20 < figures.resident_bytes < figures.virtual_bytes
    assert figures.started_s is not None and time.time() - 7 * 86400 < figures.started_s <= time.time() + 1
    descriptors = [os.open(os.devnull, os.O_RDONLY) for _ in range(10)]
    try:
        more = process_figures().open_files
    finally:
        for descriptor in descriptors:
            os.close(descriptor)
    assert figures.open_files is not None and more == figures.open_files + 10


def test_other_systems_leave_out_what_they_do_not_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    figures = process_figures()
    assert figures.cpu_s > 0
    assert figures.resident_bytes is None and figures.open_files is None and figures.started_s is None
