"""What Kafka's Java clients see: the same on Penstock as on Apache Kafka.

The programs print one line for each step. `*.transcript` is what they print on Apache Kafka, which the slow tests
check; the others check that they print the same on Penstock, but for `DIFFERENCES`.
To write the files anew from Apache Kafka, run this file with --long and PENSTOCK_WRITE_TRANSCRIPTS=1.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.testing.broker_process import BrokerProcess

pytestmark = pytest.mark.kafka

HERE = Path(__file__).parent
PROGRAMS = ["AdminTranscript", "ClientTranscript", "GroupTranscript", "TransactionTranscript"]

#: Where we do something else on purpose: the step, what we answer, and why.
DIFFERENCES: dict[str, tuple[str, str]] = {
    "delete an unknown setting": (
        "InvalidConfigurationException",
        "a slip in the name of a setting is told, not passed over",
    ),
    "append to a number of a broker": (
        "InvalidRequestException",
        "whatever a broker's settings refuse is an invalid request",
    ),
    "resources, loggers": ("[]", "log levels cannot be changed over the wire, so no loggers are listed"),
    "largest timestamp after deleting": (
        "offset 3, timestamp 3000, epoch Optional[0]",
        "Kafka still names a record that was deleted",
    ),
    "largest timestamp of what was deleted": (
        "offset -1, timestamp -1, epoch Optional.empty",
        "Kafka still names a record that was deleted",
    ),
}

JavaProgram = Callable[[str, str], str]


def steps(text: str) -> dict[str, str]:
    """The answer of each step; the lines of a long answer begin with two blanks."""
    found: dict[str, str] = {}
    for entry in re.split(r"\n(?!  )", text.rstrip("\n")):
        name, _, answer = entry.partition(": ")
        assert name not in found, f"two steps are called {name!r}"
        found[name] = answer
    return found


def assert_same(printed: dict[str, str], expected: dict[str, str]) -> None:
    assert list(printed) == list(expected)
    wrong = [
        f"{name}\n  expected {answer}\n  printed  {printed[name]}"
        for name, answer in expected.items()
        if printed[name] != answer
    ]
    assert not wrong, "\n".join(wrong)


def transcript(program: str) -> Path:
    return HERE / f"{program}.transcript"


@pytest.mark.parametrize("program", PROGRAMS)
def test_penstock_answers_as_kafka_does(
    program: str, java_program: JavaProgram, tmp_path: Path, quick_settings: dict[str, str]
) -> None:
    expected = steps(transcript(program).read_text())
    for name, (ours, _why) in DIFFERENCES.items():
        if name in expected:
            assert expected[name] != ours, f"{name!r} is no difference any more"
            expected[name] = ours
    with BrokerProcess(tmp_path / "data", settings=quick_settings) as broker:
        assert_same(steps(java_program(program, broker.bootstrap)), expected)


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS)
def test_transcripts_are_those_of_kafka(program: str, java_program: JavaProgram, fresh_apache_kafka: str) -> None:
    printed = java_program(program, fresh_apache_kafka)
    if "PENSTOCK_WRITE_TRANSCRIPTS" in os.environ:
        transcript(program).write_text(printed)
    assert_same(steps(printed), steps(transcript(program).read_text()))


def test_differences_are_of_steps_that_exist() -> None:
    known = {name for program in PROGRAMS for name in steps(transcript(program).read_text())}
    assert DIFFERENCES.keys() <= known
