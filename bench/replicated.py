"""Loads on clusters: three replicas, acks=all. One connection, or many, for each of three partitions, to its leader."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from functools import partial

from bench import machine, work
from bench.clusters import CLUSTERS, Cluster
from bench.load import Figures, MeasurementFailed, Options
from bench.stages import START_WITHIN_S, Run, measured
from bench.topics import Topics
from bench.work import Item

REPLICAS = 3


def replicated_loads(run: Run) -> None:
    items = [item for item in work.REPLICATED if item.name in run.only]
    if not items:
        return
    machine.warm_page_memory(run.memory_folder, run.sizes.warm_bytes)
    with running_clusters(run) as clusters:
        for item in items:
            for cluster in clusters:
                run.progress(f"warming up · {item.name} · {cluster.name}")
                with contextlib.suppress(MeasurementFailed):  # the rounds will say it
                    _one_load(run, item, cluster, f"warm-{item.name}", share=run.sizes.warm_up)
        for number in range(run.rounds):
            for item in items:
                for cluster in clusters if number % 2 == 0 else clusters[::-1]:
                    topic = f"{item.name}-{number}"
                    run.measure(item.name, cluster.name, number, partial(_one_load, run, item, cluster, topic))


@contextlib.contextmanager
def running_clusters(run: Run) -> Iterator[list[Cluster]]:
    """All of them, up and answering; stopped and swept away at the end."""
    with contextlib.ExitStack() as stack:
        clusters = []
        for kind in run.kinds:
            run.progress(f"starting three of {kind.name}")
            clusters.append(stack.enter_context(running_cluster(run, CLUSTERS[kind])))
        yield clusters


@contextlib.contextmanager
def running_cluster(run: Run, kind: type[Cluster], settings: dict[str, str] | None = None) -> Iterator[Cluster]:
    folder = run.memory_folder / kind.__name__.lower()
    try:
        cluster = kind(folder, settings)
        try:
            cluster.start()
            yield cluster
        finally:
            cluster.stop()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _one_load(run: Run, item: Item, cluster: Cluster, topic: str, share: float = 1.0) -> Figures:
    topics = Topics(cluster.bootstrap, replicas=REPLICAS)
    topics.create(topic, item.partitions)
    try:
        cluster.sight.wait_in_sync()
        ports = leader_ports(cluster, topic)
        target: Options = {"topic": topic, "ports": ",".join(map(str, ports))}
        run.load.run("first", ports[0], {**target, "partitions": item.partitions}, START_WITHIN_S)
        if share == 1.0:  # a new topic's first requests are not its usual ones
            run.load.run(item.mode, ports[0], target | item.load_options(run.sizes, run.sizes.warm_up / 4))
        options = target | item.load_options(run.sizes, share)
        machine.warm_page_memory(run.memory_folder, REPLICAS * item.stored_bytes(run.sizes))
        return measured(cluster, lambda: run.load.run(item.mode, ports[0], options))
    finally:
        topics.delete(topic)


def leader_ports(cluster: Cluster, topic: str) -> list[int]:
    """The port of each partition's leader, in the order of the partitions."""
    addresses = cluster.addresses()
    leaders = sorted(cluster.sight.leaders(topic).items())
    return [int(addresses[leader].rpartition(":")[2]) for _, leader in leaders]
