"""One table of both brokers: ranges over the rounds, the ratio, and whether Penstock reached its aim."""

from __future__ import annotations

from typing import NamedTuple

from rich.console import Console
from rich.table import Table
from rich.text import Text

from bench import work
from bench.brokers import Kafka, Penstock
from bench.results import Results


class Figure(NamedTuple):
    label: str
    scale: float = 1.0


FIGURES = {
    "mb_s": Figure("MB/s"),
    "messages_s": Figure("thousand messages/s", 1e-3),
    "requests_s": Figure("thousand requests/s", 1e-3),
    "cpu_s_per_gb": Figure("broker CPU-s per GB"),
    "cpu_us_per_request": Figure("broker CPU-µs per request"),
    "p50_ms": Figure("p50 ms"),
    "p99_ms": Figure("p99 ms"),
    "p999_ms": Figure("p99.9 ms"),
    "loaded_mb": Figure("MB"),
    "fresh_s": Figure("fresh, s"),
    "thousand_partitions_s": Figure("1,000 partitions to open, s"),
    "idle_mb": Figure("idle, MB"),
    "thousand_partitions_mb": Figure("1,000 partitions, MB"),
    "join_ms": Figure("one joins, ms"),
    "leave_ms": Figure("one leaves, ms"),
    "die_ms": Figure("one dies, ms after its session"),
    "transactions_s": Figure("transactions/s"),
    "writable_ms": Figure("writable again, ms"),
    "writable_ms_max": Figure("at worst, ms"),
    "writable_s": Figure("writable again, s"),
    "gone_ms": Figure("noticed, ms"),
    "elected_ms": Figure("then led anew, ms"),
    "all_writable_ms": Figure("all written to, ms"),
    "topic_made_ms": Figure("topic made, ms"),
    "reader_mb_s": Figure("the reader's MB/s"),
    "writer_requests_s": Figure("the writer's requests/s"),
    "columnar_rows_s": Figure("columns, million rows/s", 1e-6),
    "confluent_rows_s": Figure("confluent-kafka, million rows/s", 1e-6),
    "aiokafka_rows_s": Figure("aiokafka, million rows/s", 1e-6),
    "over_confluent": Figure("columns : confluent-kafka"),
    "over_aiokafka": Figure("columns : aiokafka"),
    "beside_p50_ms": Figure("p50 beside, ms"),
    "beside_p99_ms": Figure("p99 beside, ms"),
    "compacted_mb_s": Figure("compacted MB/s"),
    "noise_p99_ms": Figure("p99 beside noise, ms"),
    "quota_p99_ms": Figure("p99 beside noise with a quota, ms"),
    "noise_mb_s": Figure("noise MB/s"),
    "quota_mb_s": Figure("noise with a quota MB/s"),
    "one_message_guarded_s": Figure("one message, thousand requests/s", 1e-3),
    "one_message_share": Figure("share of the rate without rules"),
    "one_message_cpu_share": Figure("share of the CPU per request without rules"),
    "batches_guarded_s": Figure("16 KB batches, thousand requests/s", 1e-3),
    "batches_share": Figure("share of the rate without rules"),
    "batches_cpu_share": Figure("share of the CPU per request without rules"),
}


class Aim(NamedTuple):
    """What the ratio Penstock : Apache Kafka should be, or (absolute) what Penstock's own figure should be."""

    at_least: float | None = None
    at_most: float | None = None
    absolute: bool = False

    def is_met(self, value: float) -> bool:
        return (self.at_least is None or value >= self.at_least) and (self.at_most is None or value <= self.at_most)

    def __str__(self) -> str:
        unit = "" if self.absolute else "×"
        return f"≥ {self.at_least:,.4g}{unit}" if self.at_least is not None else f"≤ {self.at_most:,.4g}{unit}"


AIMS = {
    ("produce-1mb-100b", "mb_s"): Aim(at_least=3),
    ("produce-1mb-100b", "cpu_s_per_gb"): Aim(at_most=0.333),
    ("produce-1mb-1kb", "mb_s"): Aim(at_least=3),
    ("produce-1mb-1kb", "cpu_s_per_gb"): Aim(at_most=0.333),
    ("produce-16kb", "mb_s"): Aim(at_least=1.5),
    ("one-message-1", "requests_s"): Aim(at_least=1.5),
    ("one-message-1", "p99_ms"): Aim(at_most=1),
    ("one-message-100", "requests_s"): Aim(at_least=1.5),
    ("one-message-100", "p99_ms"): Aim(at_most=1),
    ("fetch-1", "mb_s"): Aim(at_least=1),
    ("fetch-4", "mb_s"): Aim(at_least=1),
    ("cluster-1mb", "mb_s"): Aim(at_least=2),
    ("cluster-1mb", "cpu_s_per_gb"): Aim(at_most=0.333),
    ("cluster-one-message-1", "p50_ms"): Aim(at_most=1),
    ("cluster-one-message-1", "p99_ms"): Aim(at_most=1),
    ("cluster-one-message-100", "p50_ms"): Aim(at_most=1),
    ("cluster-one-message-100", "p99_ms"): Aim(at_most=1),
    ("failover-leader", "writable_ms"): Aim(at_most=1000, absolute=True),
    ("failover-leader-controller", "writable_ms"): Aim(at_most=1000, absolute=True),
    ("failover-1000", "elected_ms"): Aim(at_most=1000, absolute=True),
    ("failover-1000-controller", "elected_ms"): Aim(at_most=1000, absolute=True),
    ("failover-controller", "topic_made_ms"): Aim(at_most=1000, absolute=True),
    (work.MEMORY, "loaded_mb"): Aim(at_most=0.1),
    (work.START, "idle_mb"): Aim(at_most=0.1),
    (work.START, "thousand_partitions_mb"): Aim(at_most=0.1),
    (work.START, "fresh_s"): Aim(at_most=0.5, absolute=True),
    (work.COLUMNS_READ, "over_confluent"): Aim(at_least=10, absolute=True),
    (work.COLUMNS_READ, "over_aiokafka"): Aim(at_least=5, absolute=True),
    (work.COLUMNS_WRITE, "over_confluent"): Aim(at_least=5, absolute=True),
}


def show(results: Results, console: Console) -> None:
    table = Table(title="Penstock beside Apache Kafka", title_justify="left", show_lines=False, pad_edge=False)
    for name in ("work", "figure"):
        table.add_column(name)
    for name in (Kafka.name, Penstock.name, "ratio", "aim"):
        table.add_column(name, justify="right", no_wrap=True)
    for item in work.NAMES:
        rows = [row for figure in work.SHOWN[item] if (row := _row(results, item, figure))]
        for number, row in enumerate(rows):
            table.add_row(item if number == 0 else "", *row, end_section=number == len(rows) - 1)
    console.print(table)
    _show_notes(results, console)


def markdown(results: Results) -> str:
    """The same table for a page of the docs."""
    lines = [f"| work | figure | {Kafka.name} | {Penstock.name} | ratio | aim |", "|---|---|---:|---:|---:|---|"]
    for item in work.NAMES:
        rows = [row for figure in work.SHOWN[item] if (row := _row(results, item, figure))]
        for number, (label, theirs, ours, ratio, verdict) in enumerate(rows):
            plain = Text.from_markup(verdict).plain
            lines.append(f"| {item if number == 0 else ''} | {label} | {theirs} | {ours} | {ratio} | {plain} |")
    return "\n".join(lines) + "\n"


def _row(results: Results, item: str, figure: str) -> tuple[str, ...] | None:
    theirs = list(results.by_round(item, Kafka.name, figure).values())
    ours = list(results.by_round(item, Penstock.name, figure).values())
    if not theirs and not ours:
        return None
    ratio = results.ratio(item, figure, Penstock.name, Kafka.name)
    label, scale = FIGURES[figure]
    shown_ratio = "" if ratio is None else f"{ratio:.2f}×"
    return label, _range(theirs, scale), _range(ours, scale), shown_ratio, _verdict(item, figure, ours, ratio)


def _range(values: list[float], scale: float) -> str:
    if not values:
        return ""
    low, high = _three_digits(min(values) * scale), _three_digits(max(values) * scale)
    return low if low == high else f"{low} – {high}"


def _three_digits(value: float) -> str:
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _verdict(item: str, figure: str, ours: list[float], ratio: float | None) -> str:
    aim = AIMS.get((item, figure))
    if aim is None:
        return ""
    worst = max if aim.at_least is None else min
    value = (worst(ours) if ours else None) if aim.absolute else ratio
    if value is None:
        return str(aim)
    return f"{aim} [green]yes[/]" if aim.is_met(value) else f"{aim} [red]no[/]"


def _show_notes(results: Results, console: Console) -> None:
    machine, settings = results.machine, results.settings
    console.print(
        f"{machine['date']} · {machine['processor']}, {machine['cores']} cores, {machine['memory_gb']} GB, "
        f"Linux {machine['kernel']} · Python {machine['python']} · Apache Kafka {settings['kafka'] or 'not run'} · "
        f"rounds: {settings['rounds']} · data on {settings['data_on']}"
    )
    for item in {sample.item: None for sample in results.samples}:
        console.print(f"  {item}: {work.TITLES[item]}", highlight=False)
    console.print(
        "MB: a million bytes of record batches. Ratio: the median of the rounds' own. All writes: idempotent, acks=all."
    )
    if results.busiest_neighbour() > 0.2:
        console.print(
            f"[yellow]The machine was shared: other processes used up to {results.busiest_neighbour():.1f} cores.[/]"
        )
    for failure in results.failures:
        console.print(f"[red]failed:[/] {failure}", highlight=False)
