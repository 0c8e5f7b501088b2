"""Kills: the driver of a stream into a table dies at every moment of a batch, and each row is there once.

The query writes lines of files, one file a batch; whoever comes after the dead one cuts the batch differently.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from itertools import cycle
from pathlib import Path

import pytest

from ...spark.conftest import PROJECT, WORKER_ENVIRONMENT
from ...spark.moments import AFTER_COMMIT, FOLDER, LABELS, Moments
from .conftest import Shop
from .database_kinds import KINDS_SLOW_BUT_FOR_ONE
from .table_moments import TablePlan

pytestmark = pytest.mark.spark

LINES = 200
END_S_MAX = 240.0


class Site:
    """A table, a query, and what must be in the table in the end."""

    def __init__(self, shop: Shop, folder: Path, **options: str) -> None:
        self.shop = shop
        self.folder = folder
        self.lines = folder / "lines"
        self.lines.mkdir()
        self.moments = Moments(folder / FOLDER)
        self.options = {"url": f"{shop.url}/t", "create": "true", FOLDER: str(self.moments.folder), **options}

    def add(self, batches: int) -> list[tuple[int, str]]:
        rows = [(number, f"n{number}") for number in range(batches * LINES)]
        for batch in range(batches):
            some = rows[batch * LINES : (batch + 1) * LINES]
            (self.lines / f"{batch:05}.txt").write_text("".join(f"{number} {name}\n" for number, name in some))
        return rows

    def start(self, partitions: int) -> subprocess.Popen[bytes]:
        plan = TablePlan(str(self.lines), str(self.folder / "checkpoint"), self.options, partitions)
        with (self.folder / "driver.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.pipelines.relational.table_moments", plan.text()],
                stdout=log,
                stderr=log,
                env={**os.environ, **WORKER_ENVIRONMENT},
                cwd=PROJECT,
                start_new_session=True,
            )


def kill(process: subprocess.Popen[bytes]) -> None:
    """The driver, its JVM and its Python workers, which are in its process group."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass
    process.wait(END_S_MAX)


def kill_drivers(site: Site, labels: tuple[str, ...]) -> None:
    expected = site.add(len(labels) + 1)
    for batch, label in enumerate(labels):
        site.moments.stop(label, batch)
    for batch, (label, partitions) in enumerate(zip(labels, cycle([2, 3, 1]), strict=False)):
        process = site.start(partitions)
        try:
            site.moments.wait(label, batch)
        finally:
            kill(process)
    last = site.start(2)
    try:
        code = last.wait(END_S_MAX)
    finally:
        kill(last)
    assert code == 0, (site.folder / "driver.log").read_text()[-4000:]
    assert sorted(site.shop.run("SELECT id, name FROM t")) == expected
    assert site.shop.stages() == set()


@pytest.mark.parametrize("shop", KINDS_SLOW_BUT_FOR_ONE, indirect=True)
def test_a_driver_dies_between_its_commit_and_its_checkpoint(shop: Shop, tmp_path: Path) -> None:
    kill_drivers(Site(shop, tmp_path), (AFTER_COMMIT,))


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["insert", "upsert"])
def test_drivers_die_at_every_moment(shop: Shop, tmp_path: Path, mode: str) -> None:
    options = {"mode": "upsert", "keys": "id"} if mode == "upsert" else {}
    kill_drivers(Site(shop, tmp_path, queryName="lines to t", **options), (*LABELS, *LABELS))
