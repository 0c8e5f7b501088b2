"""ReassignPartitionsCommand, LeaderElectionCommand and LogDirsCommand on three brokers: Penstock's, or Kafka's."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.testing.apache_kafka_cluster import ApacheKafkaCluster
from penstock.testing.cluster_processes import ClusterProcesses

pytestmark = pytest.mark.kafka

WITHIN_S = 60


class Tools:
    """Kafka's programs, run on one of the clusters."""

    def __init__(self, runner: Any, bootstrap: str, folder: Path, ids: tuple[int, int, int]) -> None:
        self.ids = ids
        self._runner = runner
        self._bootstrap = bootstrap
        self._folder = folder

    def run(self, tool: str, *arguments: str | Path) -> str:
        answer = self._runner.run(tool, *arguments, "--bootstrap-server", self._bootstrap)
        assert answer.code == 0, answer
        out: str = answer.out
        return out

    def create(self, name: str, *replicas: int) -> None:
        assignment = ":".join(map(str, replicas))
        self.run("TopicCommand", "--create", "--topic", name, "--replica-assignment", assignment)

    def described(self, name: str) -> str:
        """Leader, replicas and in-sync ones."""
        found = re.search(
            r"Leader: (\S+)\tReplicas: (\S+)\tIsr: (\S+)", self.run("TopicCommand", "--describe", "--topic", name)
        )
        assert found is not None
        leader, replicas, isr = found.groups()
        return f"{leader} of {replicas}, in sync {','.join(sorted(isr.split(',')))}"

    def plan(self, name: str, replicas: list[int], log_dirs: list[str] | None = None) -> Path:
        row: dict[str, Any] = {"topic": name, "partition": 0, "replicas": replicas}
        if log_dirs is not None:
            row["log_dirs"] = log_dirs
        path = self._folder / f"{name}.json"
        path.write_text(json.dumps({"version": 1, "partitions": [row]}))
        return path

    def reassign(self, action: str, plan: Path) -> str:
        return self.run("ReassignPartitionsCommand", action, "--reassignment-json-file", plan)

    def until(self, holds: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WITHIN_S
        while not holds():
            assert time.monotonic() < deadline


@pytest.fixture(scope="module", params=["penstock", pytest.param("apache-kafka", marks=pytest.mark.slow)])
def tools(
    request: pytest.FixtureRequest, tool_runner: Any, kafka_libs: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Tools]:
    folder = tmp_path_factory.mktemp("move-tools")
    settings = {"controlled.shutdown.enable": "false", "leader.imbalance.check.interval.seconds": "3600"}
    cluster: Any
    if request.param == "penstock":
        cluster, ids = ClusterProcesses(3, folder / "cluster", settings=settings), (0, 1, 2)
    else:
        cluster, ids = ApacheKafkaCluster(kafka_libs, folder / "kafka", 3, settings=settings), (1, 2, 3)
    with cluster:
        yield Tools(tool_runner, cluster.bootstrap, folder, ids)


def test_a_partition_is_given_other_replicas(tools: Tools) -> None:
    one, two, three = tools.ids
    tools.create("moves", one, two)
    plan = tools.plan("moves", [three, two])
    out = tools.reassign("--execute", plan)
    assert "Successfully started partition reassignment for moves-0" in out
    tools.until(lambda: "Reassignment of partition moves-0 is completed." in tools.reassign("--verify", plan))
    tools.until(lambda: tools.described("moves") == f"{three} of {three},{two}, in sync {two},{three}")
    assert "No partition reassignments found." in tools.run("ReassignPartitionsCommand", "--list")
    out = tools.reassign("--cancel", plan)
    assert "None of the specified partition reassignments are active." in out


def test_a_leader_is_elected(tools: Tools) -> None:
    one, two, _ = tools.ids
    tools.create("leads", one, two)
    tools.reassign("--execute", tools.plan("leads", [two, one]))
    tools.until(lambda: tools.described("leads") == f"{one} of {two},{one}, in sync {one},{two}")
    which = ("--topic", "leads", "--partition", "0", "--election-type", "preferred")
    assert "Successfully completed leader election (PREFERRED) for partitions leads-0" in tools.run(
        "LeaderElectionCommand", *which
    )
    tools.until(lambda: tools.described("leads") == f"{two} of {two},{one}, in sync {one},{two}")
    assert "Valid replica already elected for partitions leads-0" in tools.run("LeaderElectionCommand", *which)


def test_log_directories_are_described(tools: Tools) -> None:
    one, _, three = tools.ids
    tools.create("lies", one, three)
    described: dict[str, Any] = {}

    def holders() -> set[int]:
        out = tools.run("LogDirsCommand", "--describe", "--topic-list", "lies")
        described.update(json.loads(out[out.index("{") :]))
        return {
            broker["broker"]
            for broker in described["brokers"]
            for directory in broker["logDirs"]
            if any(part["partition"] == "lies-0" and not part["isFuture"] for part in directory["partitions"])
        }

    tools.until(lambda: holders() == {one, three})
    assert {broker["broker"] for broker in described["brokers"]} == set(tools.ids)
    assert all(directory["error"] is None for broker in described["brokers"] for directory in broker["logDirs"])


def test_a_replica_is_moved_to_the_directory_where_it_is(tools: Tools) -> None:
    one = tools.ids[0]
    tools.create("rests", one)
    out = tools.run("LogDirsCommand", "--describe", "--broker-list", str(one))
    (directory,) = json.loads(out[out.index("{") :])["brokers"][0]["logDirs"]
    plan = tools.plan("rests", [one], [directory["logDir"]])
    assert "Successfully started" in tools.reassign("--execute", plan)
    done = f"Reassignment of replica rests-0-{one} completed successfully."
    tools.until(lambda: done in tools.reassign("--verify", plan))
