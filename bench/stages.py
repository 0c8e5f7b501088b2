"""The stages of a run: loads, rebalances, starts, and the quiet client on disk.

In every stage the brokers take turns item by item and change who goes first with each round, so that a machine that
gets slower for a while is slow for both. While one works the other is up and idle.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol

from bench import machine, rebalances, work
from bench.brokers import Broker
from bench.load import Figures, LoadGenerator, MeasurementFailed, Options, RunningLoad
from bench.members import Topic
from bench.results import Results
from bench.topics import Topics
from bench.work import Item, Sizes

PARTITIONS_MANY = 1000
START_WITHIN_S = 60
DROP_CACHE_EVERY_S = 0.05

Progress = Callable[[str], None]


@dataclass(slots=True)
class Run:
    """What every stage needs."""

    kinds: Sequence[type[Broker]]
    sizes: Sizes
    rounds: int
    only: frozenset[str]
    load: LoadGenerator
    memory_folder: Path
    disk_folder: Path
    results: Results
    progress: Progress

    def measure(self, item: str, broker: str, number: int, work_to_do: Callable[[], Figures]) -> None:
        """One sample; a failure is noted and the run goes on."""
        self.progress(f"round {number + 1}/{self.rounds} · {item} · {broker}")
        try:
            self.results.add(item, broker, number, work_to_do())
        except (MeasurementFailed, OSError) as problem:
            self.results.failures.append(f"{item}, {broker}, round {number + 1}: {problem}")

    def turns(self, brokers: Sequence[Broker], number: int) -> Sequence[Broker]:
        return brokers if number % 2 == 0 else brokers[::-1]


@contextlib.contextmanager
def running(run: Run, folder: Path, settings: Mapping[str, str] | None = None) -> Iterator[list[Broker]]:
    """All brokers, up and answering, each in a folder of its own; stopped and swept away at the end."""
    with contextlib.ExitStack() as stack:
        brokers = []
        for kind in run.kinds:
            run.progress(f"starting {kind.name}")
            broker = _set_up(stack, kind, folder, settings)
            start_until_acknowledged(run, broker, "bench-first", 0)
            brokers.append(broker)
        yield brokers


def _set_up(
    stack: contextlib.ExitStack, kind: type[Broker], folder: Path, settings: Mapping[str, str] | None = None
) -> Broker:
    home = folder / kind.__name__.lower()
    stack.callback(shutil.rmtree, home, ignore_errors=True)
    broker = kind(home, settings)
    stack.callback(broker.stop)
    return broker


def start_until_acknowledged(run: Run, broker: Broker, topic: str, partition: int) -> float:
    """Seconds from the start of the process to the first acknowledged message."""
    began_s = time.monotonic()
    broker.start()
    try:
        figures = run.load.run("first", broker.port, {"topic": topic, "partition": partition}, START_WITHIN_S)
    except MeasurementFailed as problem:
        raise MeasurementFailed(f"{broker.name} does not start: {problem}\n{broker.last_words()}") from None
    return figures["acknowledged_at_ns"] / 1e9 - began_s


def _create(
    run: Run, broker: Broker, topics: Topics, topic: str, partitions: int = 1, settings: dict[str, str] | None = None
) -> None:
    """Returns when every partition has taken a message: a leader is announced a moment before it takes writes."""
    topics.create(topic, partitions, settings)
    run.load.run("first", broker.port, {"topic": topic, "partitions": partitions}, START_WITHIN_S)


# ---- loads


def loads(run: Run) -> None:
    items = [item for item in work.LOADS if item.name in run.only]
    if not items and work.MEMORY not in run.only:
        return
    machine.warm_page_memory(run.memory_folder, run.sizes.warm_bytes)
    with running(run, run.memory_folder) as brokers:
        for item in items:
            for broker in brokers:
                run.progress(f"warming up · {item.name} · {broker.name}")
                with contextlib.suppress(MeasurementFailed):  # the rounds will say it
                    one_load(run, item, broker, f"warm-{item.name}", share=run.sizes.warm_up)
        for number in range(run.rounds):
            for item in items:
                for broker in run.turns(brokers, number):
                    topic = f"{item.name}-{number}"
                    run.measure(item.name, broker.name, number, partial(one_load, run, item, broker, topic))
            if work.MEMORY in run.only:
                time.sleep(run.sizes.settle_s)
                for broker in brokers:
                    run.measure(work.MEMORY, broker.name, number, partial(_memory_after_load, broker))


def _memory_after_load(broker: Broker) -> Figures:
    return {"loaded_mb": broker.memory_mb()}


def one_load(run: Run, item: Item, broker: Broker, topic: str, share: float = 1.0) -> Figures:
    topics = Topics(broker.port)
    _create(run, broker, topics, topic, item.partitions)
    try:
        target: Options = {"topic": topic}
        if item.fill:
            fill_bytes = int(run.sizes.fill_bytes * share) * item.partitions
            shape: Options = {"connections": item.partitions, "partitions": item.partitions, "total_bytes": fill_bytes}
            run.load.run("produce", broker.port, target | work.FILL | shape)
        elif share == 1.0:  # a new topic's first requests are not its usual ones
            run.load.run(item.mode, broker.port, target | item.load_options(run.sizes, run.sizes.warm_up / 4))
        options = target | item.load_options(run.sizes, share)
        machine.warm_page_memory(run.memory_folder, item.stored_bytes(run.sizes))
        figures = measured(broker, lambda: run.load.run(item.mode, broker.port, options))
        return figures | {"transactions_s": figures["requests_s"]} if item.mode == "transaction" else figures
    finally:
        topics.delete(topic)


class UsesCpu(Protocol):
    def cpu_s(self) -> float: ...


def measured(broker: UsesCpu, load: Callable[[], Figures]) -> Figures:
    """The figures of a load with what the broker, and everybody else, used for it."""
    cpu_before_s, busy_before_s, began_s = broker.cpu_s(), machine.busy_cpu_s(), time.monotonic()
    figures = load()
    cpu_s, busy_s = broker.cpu_s() - cpu_before_s, machine.busy_cpu_s() - busy_before_s
    took_s = time.monotonic() - began_s
    used = {"cpu_s": cpu_s, "other_cores": max(0.0, busy_s - cpu_s - figures["client_cpu_s"]) / took_s}
    if figures.get("bytes"):
        used["cpu_s_per_gb"] = cpu_s / (figures["bytes"] / 1e9)
    if figures.get("requests"):
        used["cpu_us_per_request"] = cpu_s / figures["requests"] * 1e6
    return figures | used


# ---- rebalances


def group_rebalances(run: Run) -> None:
    items = [item for item in work.REBALANCES if item.name in run.only]
    if not items:
        return
    with running(run, run.memory_folder, rebalances.SETTINGS) as brokers:
        for item in items:
            for broker in brokers:
                run.progress(f"warming up · {item.name} · {broker.name}")
                with contextlib.suppress(MeasurementFailed):  # the rounds will say it
                    _one_group(run, item, broker, f"warm-{item.name}", share=run.sizes.warm_up)
        for number in range(run.rounds):
            for item in items:
                for broker in run.turns(brokers, number):
                    name = f"{item.name}-{number}"
                    run.measure(item.name, broker.name, number, partial(_one_group, run, item, broker, name))


def _one_group(run: Run, item: work.Rebalance, broker: Broker, name: str, share: float = 1.0) -> Figures:
    topics = Topics(broker.port)
    _create(run, broker, topics, name, rebalances.PARTITIONS)
    topic = Topic(name, topics.id_of(name), rebalances.PARTITIONS)
    changes = max(1, int(run.sizes.group_changes * share))
    try:
        return measured(broker, lambda: rebalances.rebalances(broker.port, name, topic, item.make, changes))
    finally:
        topics.delete(name)


# ---- starts


def starts(run: Run) -> None:
    if work.START not in run.only:
        return
    for number in range(run.rounds):
        kinds = run.kinds if number % 2 == 0 else run.kinds[::-1]
        for kind in kinds:
            run.measure(work.START, kind.name, number, partial(_starts_of, run, kind))


def _starts_of(run: Run, kind: type[Broker]) -> Figures:
    with contextlib.ExitStack() as stack:
        broker = _set_up(stack, kind, run.memory_folder)
        figures = {"fresh_s": start_until_acknowledged(run, broker, "first", 0)}
        time.sleep(run.sizes.settle_s)
        figures["idle_mb"] = broker.memory_mb()
        _create(run, broker, Topics(broker.port), "many", PARTITIONS_MANY)
        shape: Options = {"partitions": PARTITIONS_MANY, "connections": 10, "total_bytes": PARTITIONS_MANY * 170 * 3}
        run.load.run("produce", broker.port, {"topic": "many", **shape})
        time.sleep(run.sizes.settle_s)
        figures["thousand_partitions_mb"] = broker.memory_mb()
        broker.stop()
        figures["thousand_partitions_s"] = start_until_acknowledged(run, broker, "many", PARTITIONS_MANY - 1)
        return figures


# ---- the quiet client


def quiet_client(run: Run) -> None:
    if work.QUIET not in run.only:
        return
    with running(run, run.disk_folder) as brokers:
        for broker in brokers:
            run.progress(f"filling the disk · {broker.name}")
            _prepare_disk(run, broker)
        for number in range(run.rounds):
            for broker in run.turns(brokers, number):
                run.measure(work.QUIET, broker.name, number, partial(_quiet_beside_noise, run, broker))


def _prepare_disk(run: Run, broker: Broker) -> None:
    topics = Topics(broker.port)
    for topic in ("quiet", "cold"):
        _create(run, broker, topics, topic)
    _create(run, broker, topics, "flushed", settings=broker.flush_always)
    cold: Options = {"batch_bytes": 1_000_000, "record_bytes": 1000, "inflight": 5, "total_bytes": run.sizes.cold_bytes}
    run.load.run("produce", broker.port, {"topic": "cold", **cold})
    run.load.run("produce", broker.port, {"topic": "quiet", "record_bytes": 1000, "seconds": run.sizes.seconds})


def _quiet_beside_noise(run: Run, broker: Broker) -> Figures:
    seconds = run.sizes.quiet_seconds
    reading: Options = {"topic": "cold", "seconds": seconds + 1}
    writing: Options = {"topic": "flushed", "batch_bytes": 16_000, "record_bytes": 1000, "seconds": seconds + 1}
    quiet: Options = {"topic": "quiet", "rate": 100, "connections": 2, "record_bytes": 1000, "seconds": seconds}
    with contextlib.ExitStack() as stack:
        stack.enter_context(cold_cache(sorted(broker.data.rglob("cold-0/*.log"))))
        reader = _started(stack, run.load.start("fetch", broker.port, reading))
        writer = _started(stack, run.load.start("produce", broker.port, writing))
        time.sleep(0.5)
        figures = run.load.run("rate", broker.port, quiet)
        beside = {"reader_mb_s": reader.figures()["mb_s"], "writer_requests_s": writer.figures()["requests_s"]}
    return {name: figures[name] for name in ("p50_ms", "p99_ms", "p999_ms", "max_ms")} | beside


def _started(stack: contextlib.ExitStack, load: RunningLoad) -> RunningLoad:
    stack.callback(load.end)
    return load


@contextlib.contextmanager
def cold_cache(paths: list[Path]) -> Iterator[None]:
    """The pages of these files leave memory, again and again, as long as the block lasts."""
    if not paths:
        raise FileNotFoundError("the broker's segment files are not where Kafka's layout puts them")
    with contextlib.ExitStack() as stack:
        files = [stack.enter_context(path.open("rb")) for path in paths]
        for file in files:
            os.fsync(file.fileno())
        over = threading.Event()

        def drop() -> None:
            while True:
                for file in files:
                    os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
                if over.wait(DROP_CACHE_EVERY_S):
                    return

        dropper = threading.Thread(target=drop)
        dropper.start()
        try:
            yield
        finally:
            over.set()
            dropper.join()
