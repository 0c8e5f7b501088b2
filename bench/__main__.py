"""`python -m bench`: the command line. See bench/README.md."""

from __future__ import annotations

import argparse
import dataclasses
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import NoReturn

from rich.console import Console
from rich.status import Status

from bench import (
    brokers,
    columns,
    compactions,
    failovers,
    guards,
    load,
    machine,
    noise,
    replicated,
    stages,
    table,
    work,
)
from bench.results import Results

CACHE = brokers.ROOT / ".cache" / "bench"
RESULTS = Path(__file__).with_name("results")
TMPFS = Path("/dev/shm")
STAGES = (
    stages.loads,
    replicated.replicated_loads,
    failovers.failovers,
    stages.group_rebalances,
    stages.starts,
    stages.quiet_client,
    noise.noisy_client,
    guards.authorizers,
    columns.columns,
    compactions.compactions,
)


def main() -> int:
    options = _options()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _end)
    console = Console(width=None if sys.stdout.isatty() else 140)
    kinds = _kinds(options, console)
    sizes = work.QUICK if options.quick else work.FULL
    rounds = options.rounds or sizes.rounds
    on_disk = options.on_disk or not TMPFS.is_dir()
    try:
        generator = load.LoadGenerator(load.build(CACHE))
    except load.MeasurementFailed as problem:
        console.print(f"[red]{problem}[/]")
        return 1
    results = Results(machine.description(), _settings(options, kinds, rounds, on_disk))
    with (
        _scratch(CACHE if on_disk else TMPFS) as memory_folder,
        _scratch(CACHE) as disk_folder,
        _progress() as progress,
    ):
        run = stages.Run(
            kinds=kinds,
            sizes=sizes,
            rounds=rounds,
            only=frozenset(options.only),
            load=generator,
            memory_folder=memory_folder,
            disk_folder=disk_folder,
            results=results,
            progress=progress,
        )
        try:
            for stage in STAGES:
                _try(stage, run)
        except KeyboardInterrupt:
            results.failures.append("stopped by the user; what there is:")
    table.show(results, console)
    if options.markdown is not None:
        options.markdown.write_text(table.markdown(results), encoding="utf-8")
    console.print(f"written to {results.write(RESULTS).relative_to(brokers.ROOT)}")
    return 1 if results.failures else 0


def _try(stage: Callable[[stages.Run], None], run: stages.Run) -> None:
    try:
        stage(run)
    except (load.MeasurementFailed, OSError) as problem:
        run.results.failures.append(str(problem))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="Penstock beside Apache Kafka: same work, same run."
    )
    parser.add_argument("--quick", action="store_true", help="about a minute; figures that only show the direction")
    parser.add_argument("--rounds", type=int, help="how often everything is measured (3; 1 with --quick)")
    parser.add_argument("--only", type=_names, default=work.NAMES, help="some of: " + ", ".join(work.NAMES))
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the table there too, for the docs")
    parser.add_argument("--on-disk", action="store_true", help="keep all data on disk instead of tmpfs")
    alone = parser.add_mutually_exclusive_group()
    alone.add_argument("--penstock-only", action="store_true", help="without Apache Kafka")
    alone.add_argument("--kafka-only", action="store_true", help="without Penstock")
    return parser.parse_args()


def _names(text: str) -> list[str]:
    """Whole names or how they begin: `produce` is every item of that kind."""
    chosen = [name for name in work.NAMES if any(name.startswith(part) for part in text.split(","))]
    for part in text.split(","):
        if not any(name.startswith(part) for name in work.NAMES):
            raise argparse.ArgumentTypeError(f"there is no {part}; there are: {', '.join(work.NAMES)}")
    return chosen


def _kinds(options: argparse.Namespace, console: Console) -> list[type[brokers.Broker]]:
    if options.penstock_only:
        return [brokers.Penstock]
    missing = brokers.why_no_kafka()
    if missing:
        console.print(f"Apache Kafka is left out: {missing}.")
        if options.kafka_only:
            sys.exit(1)
        return [brokers.Penstock]
    return [brokers.Kafka] if options.kafka_only else [brokers.Kafka, brokers.Penstock]


def _settings(
    options: argparse.Namespace, kinds: list[type[brokers.Broker]], rounds: int, on_disk: bool
) -> dict[str, str | int | float]:
    sizes = dataclasses.asdict(work.QUICK if options.quick else work.FULL)
    kafka = brokers.kafka_version() if brokers.Kafka in kinds else ""
    return {**sizes, "rounds": rounds, "kafka": kafka, "data_on": "disk" if on_disk else "tmpfs"}


def _end(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


@contextmanager
def _scratch(parent: Path) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="penstock-bench-", dir=parent, ignore_cleanup_errors=True) as folder:
        yield Path(folder)


@contextmanager
def _progress() -> Iterator[stages.Progress]:
    """One moving line on a terminal, a line per step elsewhere; always on stderr, so that the table can be piped."""
    console = Console(stderr=True)
    if not console.is_terminal:
        yield lambda text: console.print(text, highlight=False)
        return
    with Status("preparing", console=console) as status:
        yield status.update


if __name__ == "__main__":
    sys.exit(main())
