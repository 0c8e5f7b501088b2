"""Kills: the driver, a Python worker and a broker of three die at every moment of a batch, and each row is there once.

The query writes lines of files, one file a batch. A kill is placed at a labelled moment; what was killed is started
again, the query goes on from its checkpoint, and the next kill follows. In the end a read_committed reader of another
make finds every line once.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from itertools import cycle
from pathlib import Path

import pytest

from penstock.testing.broker_process import BrokerProcess
from penstock.testing.cluster_processes import ClusterProcesses
from penstock.testing.cluster_sight import ClusterSight

from .committed_rows import settled_values
from .conftest import BROKER_SETTINGS, WORKER_ENVIRONMENT, create_topic
from .driver_process import DriverProcess
from .moments import AFTER_COMMIT, BEFORE_COMMIT, LABELS, TASK_RUNNING, Moments
from .standalone_cluster import StandaloneCluster
from .stream_driver import DriverPlan

pytestmark = pytest.mark.spark

#: So large that a task has sent rows, and its transaction is open, before it has taken all of them.
LINE_BYTES = 32_000
LINES = 240
SESSION = {"spark.sql.execution.arrow.maxRecordsPerBatch": "80", "spark.sql.shuffle.partitions": "2"}
OPTIONS = {"kafka.compression.type": "none", "kafka.batch.size": "200000"}


class Site:
    """A broker or a cluster, a topic, a query, and what must be in the topic in the end."""

    def __init__(self, bootstrap: str, topic: str, folder: Path) -> None:
        self.bootstrap = bootstrap
        self.topic = topic
        self.folder = folder
        self.lines = folder / "lines"
        self.lines.mkdir()
        self.moments = Moments(folder / "moments")
        self.expected: list[str] = []

    def plan(self, **changes: object) -> DriverPlan:
        values: dict[str, object] = {
            "bootstrap": self.bootstrap,
            "topic": self.topic,
            "lines": str(self.lines),
            "checkpoint": str(self.folder / "checkpoint"),
            "moments": str(self.moments.folder),
            "session": SESSION,
            "options": OPTIONS,
        }
        return DriverPlan(**{**values, **changes})  # type: ignore[arg-type]

    def add(self, batches: int) -> None:
        for _ in range(batches):
            number = len(list(self.lines.iterdir()))
            lines = [f"{number:03}-{line:04}-{os.urandom(LINE_BYTES // 2).hex()}" for line in range(LINES)]
            (self.lines / f"{number:05}.txt").write_text("".join(f"{line}\n" for line in lines))
            self.expected += lines

    def place(self, labels: tuple[str, ...]) -> None:
        """A batch, and a stop in it, for each of these."""
        self.add(len(labels))
        for batch, label in enumerate(labels):
            self.moments.stop(label, batch)

    def check(self) -> None:
        found, expected = settled_values(self.bootstrap, self.topic), sorted(self.expected)
        assert [value[:8] for value in found] == [value[:8] for value in expected]
        assert found == expected


@pytest.fixture
def site(broker: BrokerProcess, tmp_path: Path) -> Iterator[Site]:
    yield Site(broker.bootstrap, create_topic(broker.bootstrap, partitions=3), tmp_path)


def kill_drivers(site: Site, labels: tuple[str, ...]) -> None:
    """A driver dies at each of these moments, and its successor writes the batch with another number of tasks."""
    site.place(labels)
    for batch, (label, partitions) in enumerate(zip(labels, cycle([2, 3, 1]), strict=False)):
        with DriverProcess(site.plan(partitions=partitions), site.folder) as driver:
            driver.start()
            site.moments.wait(label, batch)
            driver.kill()
    with DriverProcess(site.plan(partitions=2), site.folder, "last") as driver:
        driver.start().wait_done()
    site.check()


def test_a_driver_dies_between_its_commit_and_its_checkpoint(site: Site) -> None:
    kill_drivers(site, (AFTER_COMMIT,))


@pytest.mark.slow
def test_drivers_die_at_every_moment(site: Site) -> None:
    kill_drivers(site, (*LABELS, *LABELS))


@pytest.mark.slow
def test_workers_die_at_every_moment(site: Site) -> None:
    """Tasks are tried again by Spark; a commit that dies ends the query, which the driver starts again."""
    labels = LABELS * 3
    site.place(labels)
    with DriverProcess(site.plan(master="local[2,4]", restarts=len(labels)), site.folder) as driver:
        driver.start()
        for batch, label in enumerate(labels):
            os.kill(site.moments.wait(label, batch), signal.SIGKILL)
        driver.wait_done()
    site.check()


# ── a broker of three ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ClusterProcesses]:
    with ClusterProcesses(3, tmp_path / "cluster", settings=BROKER_SETTINGS) as processes:
        yield processes


@pytest.mark.slow
@pytest.mark.cluster
def test_brokers_die_at_every_moment(cluster: ClusterProcesses, tmp_path: Path) -> None:
    """Each of the three: one of them is the coordinator of the name, and each leads partitions."""
    topic = create_topic(cluster.bootstrap, partitions=3, replicas=3, settings={"min.insync.replicas": "2"})
    site = Site(cluster.bootstrap, topic, tmp_path)
    sight = ClusterSight({one.broker_id: one.bootstrap for one in cluster})
    labels = LABELS * 3
    site.place(labels)
    with DriverProcess(site.plan(restarts=len(labels)), site.folder) as driver:
        driver.start()
        for batch, label in enumerate(labels):
            site.moments.wait(label, batch)
            victim = batch // len(LABELS)
            cluster.kill(victim)
            site.moments.go(label, batch)
            cluster[victim].start()
            sight.wait_in_sync()
        driver.wait_done()
    site.check()


# ── speculation ──────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
def test_a_speculative_task_finishes_for_one_that_hangs(site: Site) -> None:
    """Spark starts a task again on another machine while the first attempt hangs; only one of them is in the topic."""
    site.add(1)
    speculation = {
        "spark.speculation": "true",
        "spark.speculation.interval": "200ms",
        "spark.speculation.quantile": "0.5",
        "spark.speculation.minTaskRuntime": "1s",
        "spark.executor.memory": "512m",
    }
    with StandaloneCluster(
        site.folder / "standalone", workers=2, environment=WORKER_ENVIRONMENT, many_hosts=True
    ) as cluster:
        plan = site.plan(master=cluster.master, partitions=4, session={**SESSION, **speculation})
        site.moments.stop(TASK_RUNNING)
        with DriverProcess(plan, site.folder) as driver:
            driver.start().wait_done()  # the one that hangs is never let go
        site.moments.wait(TASK_RUNNING)
    site.check()


# ── zombies ──────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.slow
@pytest.mark.parametrize("label", LABELS)
def test_a_driver_comes_back_while_its_successor_runs(site: Site, label: str) -> None:
    """The first one stands still at some moment; the second writes the same batch and goes on; then the first wakes."""
    site.add(3)
    other_moments = Moments(site.folder / "moments of the second")
    with (
        DriverProcess(site.plan(), site.folder, "zombie") as zombie,
        DriverProcess(site.plan(partitions=3, moments=str(other_moments.folder)), site.folder) as successor,
    ):
        site.moments.stop(label)
        zombie.start()
        site.moments.wait(label)
        other_moments.stop(BEFORE_COMMIT)
        successor.start()
        other_moments.wait(BEFORE_COMMIT)
        site.moments.go(label)
        zombie.wait_end()
        other_moments.go(BEFORE_COMMIT)
        if successor.wait_end():  # it may have been held up; it must not have been harmed
            successor.start()
            successor.wait_done()
    site.check()
