"""Which line of Spark's long errors a user is shown."""

from __future__ import annotations

import pytest

from penstock.pipelines.bad_records import STOPPED
from penstock.pipelines.running_errors import TOO_BUSY, explained

TRACEBACK = """[STREAM_FAILED] Query [id = 1] terminated with exception: Job aborted SQLSTATE: XXKST
  File "/srv/sink.py", line 3, in write
    raise something
{last}

JVM stacktrace:
    at org.apache.spark.Some.run(Some.java:1)
"""


@pytest.mark.parametrize(
    ("last", "told"),
    [
        ("penstock.pipelines.relational.failures.RowsRefused: id may not be null", "id may not be null"),
        ("penstock.columnar.errors.TopicGone: the topic orders is gone", "the topic orders is gone"),
        ("ZeroDivisionError: division by zero", "ZeroDivisionError: division by zero"),
        ("my.project.OddError: no", "my.project.OddError: no"),
    ],
)
def test_the_line_that_says_it(last: str, told: str) -> None:
    assert explained(RuntimeError(TRACEBACK.format(last=last))) == told


def test_without_a_traceback() -> None:
    assert explained(RuntimeError("one\ntwo")) == "one"
    assert explained(RuntimeError()) == "RuntimeError"


def test_a_machine_that_is_too_busy() -> None:
    assert explained(RuntimeError("[X] Job aborted\nPython worker failed to connect back.\n at y")) == TOO_BUSY


def test_a_bad_record_says_what_can_be_done() -> None:
    text = explained(
        RuntimeError(f"Job aborted: {STOPPED} source orders: there is no value (offset 3) SQLSTATE: P0001\n at x")
    )
    assert text.startswith("a record cannot be read: source orders: there is no value (offset 3). Mend it")
    assert "on_bad_record" in text


def test_the_plan_of_a_query_is_no_bad_record() -> None:
    """Spark shows the plan beside other errors, and with it the expression that would stop the pipeline."""
    plan = f"+- Filter CASE WHEN isnull(_reason#39) THEN raise_error(concat({STOPPED} source orders: , _reason#39,  ("
    last = f"penstock.pipelines.relational.failures.RelationalError: there is no column n\n{plan}"
    assert explained(RuntimeError(TRACEBACK.format(last=last))) == "there is no column n"
