"""The status file and the lock of a pipeline."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.pipelines.status import (
    STATUS_FILE,
    AlreadyRunning,
    PipelineStatus,
    QueryStatus,
    SourceStatus,
    State,
    all_statuses,
    held_lock,
    read_status,
    write_status,
)

STATUS = PipelineStatus("p", State.RUNNING, queries=(QueryStatus("q", sources=(SourceStatus("s", lag_rows=3),)),))


def test_a_status_is_read_as_it_was_written(tmp_path: Path) -> None:
    with held_lock(tmp_path, "p"):
        write_status(tmp_path, STATUS)
        assert read_status(tmp_path, "p") == STATUS
        assert STATUS.lag_rows == 3
        assert [path.name for path in (tmp_path / "p").iterdir() if path.suffix == ".json"] == [STATUS_FILE]


def test_a_process_that_is_gone_without_a_word_is_told_as_lost(tmp_path: Path) -> None:
    with held_lock(tmp_path, "p"):
        write_status(tmp_path, STATUS)
    assert [each.state for each in all_statuses(tmp_path)] == [State.LOST]


def test_a_pipeline_runs_once_at_a_time(tmp_path: Path) -> None:
    with held_lock(tmp_path, "p"):
        with pytest.raises(AlreadyRunning, match="running already"), held_lock(tmp_path, "p"):
            pass
        with held_lock(tmp_path, "other"):
            pass
    with held_lock(tmp_path, "p"):
        pass


def test_damaged_files_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / STATUS_FILE).write_text("[]")
    assert all_statuses(tmp_path) == []
    with pytest.raises(ValueError, match="no status"):
        read_status(tmp_path, "p")
    assert read_status(tmp_path, "never") is None
