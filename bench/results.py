"""What was measured: one sample per item, broker and round; a JSON file of all of them."""

from __future__ import annotations

import json
import statistics
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from bench.load import Figures


@dataclass(frozen=True, slots=True)
class Sample:
    item: str
    broker: str
    round: int
    figures: Figures


@dataclass(slots=True)
class Results:
    machine: dict[str, str | int | float]
    settings: dict[str, str | int | float]
    samples: list[Sample] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def add(self, item: str, broker: str, number: int, figures: Figures) -> None:
        self.samples.append(Sample(item, broker, number, figures))

    def by_round(self, item: str, broker: str, figure: str) -> dict[int, float]:
        return {
            sample.round: sample.figures[figure]
            for sample in self.samples
            if sample.item == item and sample.broker == broker and figure in sample.figures
        }

    def ratio(self, item: str, figure: str, broker: str, beside: str) -> float | None:
        """The median of the rounds' own ratios: both brokers of a round saw the same machine."""
        ours, theirs = self.by_round(item, broker, figure), self.by_round(item, beside, figure)
        ratios = [ours[number] / theirs[number] for number in ours if theirs.get(number)]
        return statistics.median(ratios) if ratios else None

    def busiest_neighbour(self) -> float:
        """The most cores that anything but broker and client used during a measurement."""
        return max((sample.figures.get("other_cores", 0.0) for sample in self.samples), default=0.0)

    def write(self, folder: Path) -> Path:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / time.strftime("%Y-%m-%d-%H%M%S.json")
        path.write_text(json.dumps(asdict(self), indent=1) + "\n")
        return path
