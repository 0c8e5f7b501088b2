"""`penstock pipeline status`, from files as pipelines and their service write them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from penstock.cli.failure import ExitCode, Failure
from penstock.cli.pipeline_status import chosen, gather, overview, show
from penstock.pipelines.service import Doing, Report
from penstock.pipelines.service_status import ServiceStatus, only_service, write_service_status
from penstock.pipelines.status import PipelineStatus, QueryStatus, SourceStatus, State, held_lock, write_status

SOURCE = SourceStatus("items", 5.0, 10, lag_rows=40, held_back_bytes=4096)
QUERY = QueryStatus("to_table", batch_id=3, rows_per_s=5.0, batch_ms=210, state_rows=8, sources=(SOURCE,))
STATUS = PipelineStatus("revenue", State.RUNNING, "/p/revenue.yaml", 77, 100.0, 160.0, (QUERY,))


def cells(folder: Path, now_s: float = 160.0) -> dict[str, object]:
    columns, [row] = overview(gather(folder), now_s)
    return dict(zip(columns, row, strict=True))


def test_a_running_pipeline(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with held_lock(tmp_path, "revenue"):
        write_status(tmp_path, STATUS)
        assert cells(tmp_path) == {
            "PIPELINE": "revenue",
            "STATE": "running",
            "FOR": "1 min 0 s",
            "ROWS/S": "5.0",
            "LAG": "40",
            "HELD BACK": "4.0 KiB",
            "BATCH": "210 ms",
            "STATE ROWS": 8,
            "BAD": 0,
            "SERVICE": None,
            "FILE": "/p/revenue.yaml",
        }
        assert show(tmp_path, [], as_json=False) is ExitCode.OK
        assert show(tmp_path, ["revenue"], as_json=False) is ExitCode.OK
    assert "to_table\titems" in capsys.readouterr().out


def test_a_slot_that_two_queries_read_counts_once(tmp_path: Path) -> None:
    write_status(tmp_path, replace(STATUS, queries=(QUERY, replace(QUERY, name="to_topic"))))
    assert cells(tmp_path)["HELD BACK"] == "4.0 KiB"


def test_a_process_that_is_gone_is_noticed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_status(tmp_path, STATUS)
    assert cells(tmp_path)["STATE"] == "lost"
    assert show(tmp_path, [], as_json=False) is ExitCode.DEGRADED
    assert "revenue: process 77 is gone without a word" in capsys.readouterr().out


def test_a_failed_one_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_status(tmp_path, replace(STATUS, state=State.FAILED, last_error="topic 'orders' is gone"))
    assert show(tmp_path, [], as_json=False) is ExitCode.DEGRADED
    assert "revenue: topic 'orders' is gone" in capsys.readouterr().out


def test_what_the_service_does_is_shown(tmp_path: Path) -> None:
    write_status(tmp_path, replace(STATUS, state=State.FAILED))
    waits = Report("revenue.yaml", "revenue", Doing.WAITING, "no broker", 3, 8)
    with only_service(tmp_path, "/p"):
        write_service_status(tmp_path, ServiceStatus("/p", (waits,)))
        assert cells(tmp_path)["SERVICE"] == "starts again in 8 s (failed 3 times)"
        broken = replace(waits, name="other", doing=Doing.BROKEN, starts_again_in_s=None)
        write_service_status(tmp_path, ServiceStatus("/p", (broken,)))
        assert cells(tmp_path)["SERVICE"] == "broken"  # the same pipeline by its file, though its name cannot be read
        assert [line.problems for line in gather(tmp_path)] == [["no broker"]]


def test_a_pipeline_that_never_started_is_there_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = Report("a.yaml", "a", Doing.BROKEN, "cannot be read: line 3", 0, None)
    with only_service(tmp_path, "/p"):
        write_service_status(tmp_path, ServiceStatus("/p", (broken,)))
        assert (cells(tmp_path)["STATE"], cells(tmp_path)["SERVICE"]) == ("-", "broken")
        assert show(tmp_path, [], as_json=True) is ExitCode.DEGRADED
    assert '"doing": "broken"' in capsys.readouterr().out


def test_an_unknown_name_gets_a_suggestion(tmp_path: Path) -> None:
    write_status(tmp_path, STATUS)
    with pytest.raises(Failure, match=r"no pipeline 'revenu' in .*did you mean 'revenue'"):
        chosen(gather(tmp_path), ["revenu"], tmp_path)


def test_an_empty_folder_says_what_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert show(tmp_path / "none", [], as_json=False) is ExitCode.OK
    assert "start one with" in capsys.readouterr().err


def test_the_state_of_a_folder_beside_is_suggested(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    near = tmp_path / "pipelines" / ".penstock"
    write_status(near, STATUS)
    (tmp_path / "other" / ".penstock").mkdir(parents=True)
    assert show(tmp_path / ".penstock", [], as_json=False) is ExitCode.OK
    assert capsys.readouterr().err.endswith(f"try --state {near}\n")
