"""What a service tells: written, read back, and not believed when the service has gone."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.pipelines.service import Doing, Report
from penstock.pipelines.service_status import (
    ServiceRuns,
    ServiceStatus,
    living_services,
    only_service,
    write_service_status,
)

REPORT = Report("a.yaml", "orders", Doing.WAITING, "the broker is gone", 3, 4)


def test_a_living_service_is_seen_and_a_gone_one_is_not(tmp_path: Path) -> None:
    state = tmp_path / "state"
    status = ServiceStatus(str(tmp_path), (REPORT,), since_s=1.0, changed_s=2.0)
    with only_service(state, status.folder):
        assert living_services(state) == []
        write_service_status(state, status)
        assert living_services(state) == [status]
    assert living_services(state) == []


def test_a_folder_has_one_service(tmp_path: Path) -> None:
    with only_service(tmp_path, "/pipelines"):
        with pytest.raises(ServiceRuns, match="runs /pipelines already"), only_service(tmp_path, "/pipelines"):
            pass
        with only_service(tmp_path, "/others"):
            pass


def test_a_file_without_a_service_behind_it_and_a_damaged_one_are_left_out(tmp_path: Path) -> None:
    write_service_status(tmp_path, ServiceStatus("/left", (REPORT,)))
    with only_service(tmp_path, "/damaged"):
        write_service_status(tmp_path, ServiceStatus("/damaged"))
        for path in tmp_path.glob("service-*.json"):
            path.write_text("{}")
        assert living_services(tmp_path) == []
    with pytest.raises(ValueError, match="no status of a service"):
        ServiceStatus.from_document({"folder": "/x", "reports": [{"file": "a"}]})
