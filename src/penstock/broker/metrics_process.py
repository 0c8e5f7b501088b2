"""Metrics of the process: what the operating system says of it, and how late its event loop is."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from penstock.base.process_figures import ProcessFigures
from penstock.broker.metrics_format import Family, Kind, Number, Sample, Section
from penstock.broker.metrics_scrape import Scrape


def _figure(read: Callable[[ProcessFigures], Number | None]) -> Callable[[Scrape], Iterable[Sample]]:
    """One that may not be known here."""

    def samples(scrape: Scrape) -> Iterable[Sample]:
        value = read(scrape.process) if scrape.process is not None else None
        if value is not None:
            yield "", value

    return samples


# fmt: off
PROCESS: Section[Scrape] = Section("Process", """\
Those without `penstock_` have the names that all programs use. What a system does not tell is left out.""", (
    Family("penstock_loop_delay_max_seconds", Kind.GAUGE,
           "The longest that anything had to wait for its turn in the event loop, in the last half to whole minute.",
           lambda scrape: [("", scrape.metered.loop_delay.max_s)]),
    Family("process_cpu_seconds_total", Kind.COUNTER, "Processor time of the process, in user and system mode.",
           _figure(lambda process: process.cpu_s)),
    Family("process_resident_memory_bytes", Kind.GAUGE, "Memory that the process has in use.",
           _figure(lambda process: process.resident_bytes)),
    Family("process_virtual_memory_bytes", Kind.GAUGE, "Address space of the process.",
           _figure(lambda process: process.virtual_bytes)),
    Family("process_open_fds", Kind.GAUGE, "Open file descriptors.",
           _figure(lambda process: process.open_files)),
    Family("process_max_fds", Kind.GAUGE, "How many there may be.",
           _figure(lambda process: process.open_files_max)),
    Family("process_start_time_seconds", Kind.GAUGE, "When the process started, in seconds since 1970.",
           _figure(lambda process: process.started_s)),
))
# fmt: on
