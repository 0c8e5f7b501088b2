"""`penstock cluster` on clusters of three brokers, ours and Apache Kafka: looked at, moved about, and killed."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

import pytest

from penstock.testing.apache_kafka_cluster import ApacheKafkaCluster
from penstock.testing.cluster_processes import ClusterProcesses

Command = Callable[..., Any]

PATIENCE_S = 90
PROGRAM = [sys.executable, "-m", "penstock.cli"]
RACKS = ("a", "b", "c")
SETTINGS = {
    "default.replication.factor": "3",
    "min.insync.replicas": "1",
    "auto.leader.rebalance.enable": "false",
    "unclean.leader.election.enable": "false",
}


class Site(Protocol):
    """A running cluster: its addresses by broker id, and ways to end a broker and bring it back."""

    addresses: dict[int, str]

    def kill(self, broker_id: int) -> None: ...
    def start(self, broker_id: int) -> None: ...


class PenstockSite:
    def __init__(self, cluster: ClusterProcesses) -> None:
        self._cluster = cluster
        self.addresses = {broker.broker_id: broker.bootstrap for broker in cluster}

    def kill(self, broker_id: int) -> None:
        self._cluster.kill(broker_id)

    def start(self, broker_id: int) -> None:
        self._cluster[broker_id].start()


class KafkaSite:
    def __init__(self, cluster: ApacheKafkaCluster) -> None:
        self._cluster = cluster
        self.addresses = {node.node_id: node.bootstrap for node in cluster}

    def kill(self, broker_id: int) -> None:
        self._cluster[broker_id].kill()

    def start(self, broker_id: int) -> None:
        self._cluster[broker_id].start()


@contextmanager
def running_site(name: str, folder: Path, request: pytest.FixtureRequest) -> Iterator[Site]:
    if name == "kafka":
        racks = dict(zip((1, 2, 3), RACKS, strict=True))
        # Without this feature the setting of the file is the one that counts.
        features = ["eligible.leader.replicas.version=0"]
        libs = request.getfixturevalue("kafka_libs")
        with ApacheKafkaCluster(libs, folder, 3, settings=SETTINGS, racks=racks, features=features) as kafka:
            yield KafkaSite(kafka)
    else:
        own = {broker_id: {"broker.rack": rack} for broker_id, rack in enumerate(RACKS)}
        with ClusterProcesses(3, folder, settings=SETTINGS, own_settings=own) as cluster:
            yield PenstockSite(cluster)


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("penstock", marks=pytest.mark.cluster),
        pytest.param("kafka", marks=[pytest.mark.kafka, pytest.mark.slow]),
    ],
)
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Every test leaves all three brokers running and no topics."""
    with running_site(request.param, tmp_path_factory.mktemp("site"), request) as site:
        yield site


@pytest.fixture
def bootstrap(site: Site) -> str:
    return ",".join(site.addresses.values())


@pytest.fixture
def ids(site: Site) -> list[int]:
    return sorted(site.addresses)


@pytest.fixture
def new_topic(on_broker: Command) -> Iterator[Callable[..., str]]:
    """Makes topics with the replicas that are wanted: `new_topic([[1, 2], [2, 3]])`."""
    made: list[str] = []

    def make(assignment: list[list[int]], *options: str) -> str:
        name = f"cli-{uuid4().hex[:8]}"
        made.append(name)
        partitions, copies = str(len(assignment)), str(len(assignment[0]))
        assert on_broker("topic", "create", name, "-p", partitions, "-r", copies, *options).code == 0
        for number, replicas in enumerate(assignment):
            place(on_broker, name, number, replicas)
        eventually(lambda: replicas_of(on_broker, name) == assignment)
        assert on_broker("cluster", "elect", "--topic", name).code == 0
        return name

    yield make
    for name in made:
        on_broker("topic", "delete", name, "--yes", "--if-exists")


def place(on_broker: Command, topic: str, partition: int, replicas: list[int], *options: str) -> Any:
    wanted = ",".join(map(str, replicas))
    return on_broker("cluster", "reassign", "-t", topic, "-p", partition, "-r", wanted, *options)


def described(on_broker: Command, topic: str) -> list[dict[str, Any]]:
    outcome = on_broker("topic", "describe", topic, "--json")
    assert outcome.code == 0, outcome.err
    [document] = json.loads(outcome.out)
    partitions: list[dict[str, Any]] = document["partitions"]
    return partitions


def replicas_of(on_broker: Command, topic: str) -> list[list[int]]:
    return [part["replicas"] for part in described(on_broker, topic)]


def messages_in(on_broker: Command, topic: str) -> int:
    """Counted at the leaders: a consumer would make the topic of the groups, which these tests do not expect."""
    return sum(part["end_offset"] for part in described(on_broker, topic))


def leaders_of(on_broker: Command, topic: str) -> list[int | None]:
    return [part["leader"] for part in described(on_broker, topic)]


def status(on_broker: Command) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(on_broker("cluster", "status", "--json").out)
    return document


def state(on_broker: Command) -> str:
    return str(status(on_broker)["state"])


def eventually(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline_s, "it did not come true"
        time.sleep(0.1)


# Looking


def test_a_cluster_that_is_well(on_broker: Command, new_topic: Command, ids: list[int]) -> None:
    one, two, three = ids
    topic = new_topic([[one, two, three], [two, three, one], [three, one, two], [one, three, two]])
    on_broker("produce", topic, stdin=b"message\n" * 100)
    eventually(lambda: state(on_broker) == "healthy")
    outcome = on_broker("cluster", "status", "--json")
    document = json.loads(outcome.out)
    assert outcome.code == 0
    assert [broker["id"] for broker in document["brokers"]] == ids
    assert [broker["rack"] for broker in document["brokers"]] == list(RACKS)
    assert [broker["leaders"] for broker in document["brokers"]] == [2, 1, 1]
    assert all(broker["status"] == "ok" and broker["replicas"] == 4 for broker in document["brokers"])
    assert all(broker["used_bytes"] > 0 and broker["free_bytes"] > 0 for broker in document["brokers"])
    assert document["controller"] in ids
    text = on_broker("cluster", "status").lines
    assert text[0].startswith(f"cluster {document['cluster_id']}: healthy, 3 brokers, controller ")
    assert text[7].split("\t") == ["4", "0", "0", "0", "0", "0"]
    assert on_broker("config", "list").code == 0, "each broker is asked for its own settings"


def test_how_far_copies_reach(on_broker: Command, new_topic: Command, ids: list[int]) -> None:
    """Every broker tells the end of its own copy, so that nothing is behind in the end."""
    topic = new_topic([ids])
    on_broker("produce", topic, stdin=b"message\n" * 1000)

    def all_there() -> bool:
        return [broker["lag_max"] for broker in status(on_broker)["brokers"]] == [0, 0, 0]

    eventually(all_there)


def test_the_picture_is_drawn_again(bootstrap: str) -> None:
    main_end, terminal = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "140", "LINES": "40"}
    arguments = [*PROGRAM, "cluster", "status", "--watch", "0.1", "-b", bootstrap]
    program = subprocess.Popen(arguments, stdin=terminal, stdout=terminal, stderr=terminal, env=environment)
    os.close(terminal)
    shown = b""
    deadline_s = time.monotonic() + PATIENCE_S
    while shown.count(b"Ctrl-C ends") < 3:
        assert select.select([main_end], [], [], deadline_s - time.monotonic())[0], shown
        shown += os.read(main_end, 65536)
    program.send_signal(signal.SIGINT)
    while select.select([main_end], [], [], PATIENCE_S)[0]:
        try:
            if not os.read(main_end, 65536):
                break
        except OSError:
            break
    os.close(main_end)
    assert program.wait(PATIENCE_S) == 130
    assert b"OUT OF SYNC" in shown


# Moving


def test_a_partition_gets_other_replicas_and_its_leader_back(
    on_broker: Command, new_topic: Command, ids: list[int]
) -> None:
    one, two, three = ids
    topic = new_topic([[one, two]])
    on_broker("produce", topic, stdin=b"message\n" * 100)
    moved = place(on_broker, topic, 0, [three, two], "--wait")
    assert (moved.code, moved.lines[-1]) == (0, f"moved {topic}:0")
    assert moved.lines[1] == f"{topic}\t0\t{one},{two}\t{three},{two}"
    again = place(on_broker, topic, 0, [three, two], "--wait")
    assert (again.code, again.err) == (0, "nothing to move: every partition has these replicas already\n")
    place(on_broker, topic, 0, [two, three], "--wait")
    on_broker("cluster", "elect", "--topic", topic, "--partition", "0")
    assert leaders_of(on_broker, topic) == [two]
    place(on_broker, topic, 0, [three, two], "--wait")
    assert [row["preferred"] for row in status(on_broker)["not_preferred"]] == [three]
    elected = on_broker("cluster", "elect", "--all", "--json")
    assert json.loads(elected.out) == [{"topic": topic, "partition": 0, "leader": three}]
    assert on_broker("cluster", "elect", "--topic", topic).err == "no election was needed\n"
    assert messages_in(on_broker, topic) == 100


def test_what_cannot_be_moved(on_broker: Command, new_topic: Command, ids: list[int]) -> None:
    topic = new_topic([ids[:2]])
    for partition, replicas, code, message in (
        (7, ids, 4, f"there is no partition 7 of topic '{topic}'"),
        (0, [99], 4, "there is no broker 99: the cluster has "),
        (0, [ids[0], ids[0]], 2, "twice"),
    ):
        outcome = place(on_broker, topic, partition, replicas)
        assert outcome.code == code
        assert message in outcome.err
    assert on_broker("cluster", "elect", "--topic", topic, "--partition", "7").code == 4
    assert on_broker("cluster", "elect", "--topic", "nothing-like-it").code == 4
    assert on_broker("cluster", "reassign", "--list", "--topic", "nothing-like-it").code == 4


def test_copies_are_spread_by_a_plan_in_a_file(
    on_broker: Command, new_topic: Command, ids: list[int], tmp_path: Path
) -> None:
    one, two, three = ids
    topic = new_topic([[one, two]] * 6)
    plan = on_broker("cluster", "rebalance", "--topic", topic, "--dry-run", "--json")
    assert replicas_of(on_broker, topic) == [[one, two]] * 6
    file = tmp_path / "plan.json"
    file.write_text(plan.out)
    assert on_broker("cluster", "reassign", "--file", file, "--wait").code == 0
    placed = replicas_of(on_broker, topic)
    assert sum(three in replicas for replicas in placed) == 4
    assert sorted(replicas[0] for replicas in placed) == [one, one, two, two, three, three]
    assert on_broker("cluster", "rebalance", "--topic", topic, "--wait").err.startswith("nothing to move")


def test_a_limit_holds_a_move_back_until_it_is_taken_back(
    on_broker: Command, new_topic: Command, ids: list[int], bootstrap: str
) -> None:
    one, two, three = ids
    topic = new_topic([[one, two]])
    on_broker("produce", topic, stdin=b"%s\n" % (b"x" * 1000) * 5000)
    arguments = ["cluster", "reassign", "-t", topic, "-p", "0", "-r", f"{two},{three}", "--throttle", "1000"]
    command = subprocess.Popen(
        [*PROGRAM, *arguments, "-b", bootstrap], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )

    def is_under_way() -> bool:
        assert command.poll() is None, command.communicate()
        return bool(json.loads(on_broker("cluster", "reassign", "--list", "--json").out))

    eventually(is_under_way)
    [row] = json.loads(on_broker("cluster", "reassign", "--list", "--topic", topic, "--json").out)
    assert (row["adding"], row["removing"], row["target"]) == ([three], [one], [two, three])
    limits = json.loads(on_broker("config", "list", "--topic", topic, "--json").out)
    assert {setting["name"]: setting["value"] for setting in limits} == {
        "leader.replication.throttled.replicas": f"0:{one},0:{two}",
        "follower.replication.throttled.replicas": f"0:{three}",
    }
    assert on_broker("cluster", "reassign", "--list").lines[1].split("\t")[3:5] == [str(three), str(one)]
    taken_back = on_broker("cluster", "reassign", "--cancel", "--topic", topic)
    assert (taken_back.code, taken_back.out) == (0, f"took back the moves of {topic}:0\n")
    _, complaint = command.communicate(timeout=PATIENCE_S)
    assert (command.returncode, complaint) == (
        1,
        f"penstock: somebody has taken back or changed the move of {topic}:0\n",
    )
    assert [sorted(replicas) for replicas in replicas_of(on_broker, topic)] == [[one, two]]
    assert on_broker("config", "list", "--topic", topic).lines == []
    assert rates(on_broker, ids) == []


def rates(on_broker: Command, ids: list[int]) -> list[str]:
    return [
        setting["name"]
        for broker_id in ids
        for setting in json.loads(on_broker("config", "list", "--broker", str(broker_id), "--json").out)
    ]


def test_a_limit_is_removed_when_the_move_is_done(on_broker: Command, new_topic: Command, ids: list[int]) -> None:
    one, two, three = ids
    topic = new_topic([[one, two]])
    on_broker("produce", topic, stdin=b"message\n" * 100)
    assert place(on_broker, topic, 0, [two, three], "--throttle", "100M").code == 0
    assert replicas_of(on_broker, topic) == [[two, three]]
    assert on_broker("config", "list", "--topic", topic).lines == []
    assert rates(on_broker, ids) == []
    assert on_broker("cluster", "reassign", "--wait").err == "nothing is under way\n"


def test_limits_that_were_left_are_removed(on_broker: Command, new_topic: Command, ids: list[int]) -> None:
    topic = new_topic([ids])
    on_broker("config", "set", "--topic", topic, "leader.replication.throttled.replicas=0:1")
    on_broker("config", "set", "--broker", str(ids[0]), "leader.replication.throttled.rate=1000")
    assert on_broker("cluster", "reassign", "--wait").err == "removed the limits on moves\n"
    assert (on_broker("config", "list", "--topic", topic).lines, rates(on_broker, ids)) == ([], [])


def test_more_and_fewer_copies(on_broker: Command, new_topic: Command, ids: list[int]) -> None:
    topic = new_topic([[broker_id] for broker_id in ids])
    assert on_broker("topic", "alter", topic, "--replication-factor", "3").out == f"altered topic {topic}\n"
    on_broker("cluster", "reassign", "--wait")
    assert [sorted(part["isr"]) for part in described(on_broker, topic)] == [ids] * 3
    assert leaders_of(on_broker, topic) == ids
    on_broker("topic", "alter", topic, "--replication-factor", "2")
    eventually(lambda: [len(replicas) for replicas in replicas_of(on_broker, topic)] == [2, 2, 2])
    too_many = on_broker("topic", "alter", topic, "--replication-factor", "4")
    assert (too_many.code, "the cluster has 3 brokers" in too_many.err) == (1, True)


# Brokers that go


def test_watching_while_a_broker_dies(
    on_broker: Command, new_topic: Command, ids: list[int], site: Site, bootstrap: str
) -> None:
    """The watch begins at the broker that dies, and goes on through the others."""
    one, two, three = ids
    new_topic([[one]])
    copied = new_topic([[one, two, three]])
    arguments = ["cluster", "status", "--watch", "0.2", "--json", "-b", site.addresses[one]]
    watch = subprocess.Popen([*PROGRAM, *arguments], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert watch.stdout is not None
    try:
        assert json.loads(watch.stdout.readline())["state"] == "healthy"
        site.kill(one)
        seen = next(document for line in watch.stdout if (document := json.loads(line))["state"] == "offline")
        assert {broker["status"] for broker in seen["brokers"]} <= {"ok", "away", "silent"}
        offline = on_broker("cluster", "status", "-b", bootstrap)
        assert (offline.code, ": offline, 2 brokers, " in offline.lines[0]) == (7, True)
        # With a leader elsewhere, and without figures of what has none.
        leader = leaders_of(on_broker, copied)[0]
        assert leader in (two, three)
        unclean = on_broker("cluster", "elect", "--all", "--unclean", "--yes")
        assert unclean.code == 1 and unclean.out == ""
        gone = on_broker("cluster", "unregister", str(one), "--yes")
        assert (gone.code, f"penstock cluster decommission {one}" in gone.err) == (1, True)
        site.start(one)
        next(document for line in watch.stdout if (document := json.loads(line))["state"] == "healthy")
    finally:
        watch.kill()
        watch.communicate()
    plain = subprocess.Popen([*PROGRAM, "cluster", "status", "-w", "0.1", "-b", bootstrap], stdout=subprocess.PIPE)
    assert plain.stdout is not None
    assert b" state=healthy brokers=3/3 controller=" in plain.stdout.readline()
    plain.kill()
    plain.communicate()


def test_an_unclean_election(on_broker: Command, new_topic: Command, ids: list[int], site: Site) -> None:
    """What only the dead leader had is lost: the operator said so."""
    one, two, _ = ids
    topic = new_topic([[one, two]], "--config", "min.insync.replicas=1")
    on_broker("produce", topic, stdin=b"first\n")
    eventually(lambda: state(on_broker) == "healthy")
    site.kill(two)
    eventually(lambda: [row["broker"] for row in status(on_broker)["out_of_sync"]] == [two])
    on_broker("produce", topic, stdin=b"second\n")
    site.kill(one)
    site.start(two)
    eventually(lambda: status(on_broker)["offline"] == [{"topic": topic, "partition": 0}])
    refused = on_broker("cluster", "elect", "--topic", topic)
    assert refused.code == 1
    elected = on_broker("cluster", "elect", "--topic", topic, "--unclean", "--yes")
    assert elected.lines[1] == f"{topic}\t0\t{two}"
    assert messages_in(on_broker, topic) == 1
    site.start(one)
    eventually(lambda: state(on_broker) == "healthy")
    assert messages_in(on_broker, topic) == 1


def test_a_broker_is_emptied_and_forgotten(on_broker: Command, new_topic: Command, ids: list[int], site: Site) -> None:
    one, two, three = ids
    everywhere = new_topic([ids])
    too_many = on_broker("cluster", "decommission", str(three))
    assert (too_many.code, "add a broker first" in too_many.err) == (1, True)
    on_broker("topic", "delete", everywhere, "--yes")
    topic = new_topic([[one, three], [three, two], [one, two], [three]])
    on_broker("produce", topic, stdin=b"message\n" * 100)
    plan = on_broker("cluster", "decommission", str(three), "--dry-run")
    assert plan.code == 0, plan.err
    assert [line.split("\t")[2:] for line in plan.lines[1:3]] == [
        [f"{one},{three}", f"{one},{two}"],
        [f"{three},{two}", f"{one},{two}"],
    ]
    running = on_broker("cluster", "unregister", str(three))
    assert (running.code, running.err) == (1, f"penstock: broker {three} is running: stop it first\n")
    outcome = on_broker("cluster", "decommission", str(three), "--wait", "--yes")
    assert outcome.code == 0
    assert outcome.err == (
        f"broker {three} holds nothing: stop it, then forget it with 'penstock cluster unregister {three}'\n"
    )
    assert not any(three in replicas for replicas in replicas_of(on_broker, topic))
    assert messages_in(on_broker, topic) == 100
    site.kill(three)
    eventually(lambda: broker_states(on_broker).get(three) == "away")
    again = on_broker("cluster", "decommission", str(three), "--yes")
    assert again.err == f"broker {three} holds nothing: forget it with 'penstock cluster unregister {three}'\n"
    assert on_broker("cluster", "unregister", str(three), "--yes").out == f"forgot broker {three}\n"
    eventually(lambda: three not in broker_states(on_broker))
    unknown = on_broker("cluster", "unregister", str(three), "--yes")
    assert (unknown.code, f"nobody knows a broker {three}" in unknown.err) == (4, True)
    assert state(on_broker) == "healthy"
    site.start(three)
    eventually(lambda: broker_states(on_broker).get(three) == "ok")


def broker_states(on_broker: Command) -> dict[int, str]:
    return {broker["id"]: broker["status"] for broker in status(on_broker)["brokers"]}
