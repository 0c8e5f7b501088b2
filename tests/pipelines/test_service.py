"""The decisions of `penstock pipeline up`, on a clock that stands still unless a test moves it."""

from __future__ import annotations

import pytest

from penstock.pipelines.service import Action, Check, Doing, Kill, Reading, Rules, Say, Service, Start, Stop

RULES = Rules(pause_s=2, pause_s_max=10, settled_s=60, stop_s_max=30)
ORDERS = Reading("v1", "orders")
CHANGED = Reading("v2", "orders")
BROKEN = Reading("v3", "a", "line 3: unknown key 'sinkz'")


def deeds(actions: list[Action]) -> list[Action]:
    """Without what is only said."""
    return [action for action in actions if not isinstance(action, Say)]


def said(actions: list[Action]) -> str:
    return "\n".join(action.text for action in actions if isinstance(action, Say))


@pytest.fixture
def service() -> Service:
    return Service(RULES)


@pytest.fixture
def running(service: Service) -> Service:
    """A service in which a.yaml runs."""
    assert service.saw({"a.yaml": ORDERS}, 0) == [Start("a.yaml")]
    return service


def doing(service: Service, now_s: float = 0) -> dict[str, Doing]:
    return {report.file: report.doing for report in service.reports(now_s)}


def test_every_file_of_the_folder_runs_once(service: Service) -> None:
    files = {"b.yaml": Reading("v1", "b"), "a.yaml": Reading("v1", "a")}
    assert service.saw(files, 0) == [Start("a.yaml"), Start("b.yaml")]
    assert service.saw(files, 1) == []
    assert doing(service) == {"a.yaml": Doing.RUNNING, "b.yaml": Doing.RUNNING}


def test_a_file_that_goes_is_stopped_and_forgotten(running: Service) -> None:
    assert running.saw({}, 1) == []  # perhaps an editor is just replacing it
    assert deeds(running.saw({}, 2)) == [Stop("a.yaml")]
    assert doing(running) == {"a.yaml": Doing.STOPPING}
    assert deeds(running.ended("a.yaml", 0, "", 3)) == []
    assert running.saw({}, 4) == []
    assert doing(running) == {}


def test_a_change_is_checked_before_the_old_one_stops(running: Service) -> None:
    assert running.saw({"a.yaml": CHANGED}, 1) == []  # perhaps only half of it is written
    assert deeds(running.saw({"a.yaml": CHANGED}, 2)) == [Check("a.yaml", "v2")]
    assert doing(running) == {"a.yaml": Doing.CHECKING}
    assert running.saw({"a.yaml": CHANGED}, 3) == []
    assert deeds(running.checked("a.yaml", "v2", None, 4)) == [Stop("a.yaml")]
    assert deeds(running.ended("a.yaml", 0, "", 5)) == [Start("a.yaml")]
    assert running.saw({"a.yaml": CHANGED}, 6) == []


def test_a_change_that_cannot_be_read_keeps_the_old_one_and_is_told_once(running: Service) -> None:
    running.saw({"a.yaml": BROKEN}, 1)
    actions = running.saw({"a.yaml": BROKEN}, 2)
    assert deeds(actions) == []
    assert "the old one keeps running: line 3: unknown key 'sinkz'" in said(actions)
    assert running.saw({"a.yaml": BROKEN}, 3) == []
    [report] = running.reports(3)
    assert report.doing is Doing.RUNNING and report.problem and "sinkz" in report.problem
    assert report.name == "orders"


def test_a_change_that_does_not_pass_the_check_keeps_the_old_one(running: Service) -> None:
    running.saw({"a.yaml": CHANGED}, 1)
    running.saw({"a.yaml": CHANGED}, 2)
    actions = running.checked("a.yaml", "v2", "no column 'amuont'", 3)
    assert deeds(actions) == []
    assert "no column 'amuont'" in said(actions)
    assert running.saw({"a.yaml": CHANGED}, 4) == []  # not checked again and again
    running.saw({"a.yaml": ORDERS}, 5)
    assert running.saw({"a.yaml": ORDERS}, 6) == []  # taken back: nothing to do and nothing to tell
    assert running.reports(6)[0].problem is None


def test_a_change_during_a_check_is_checked_after_it(running: Service) -> None:
    running.saw({"a.yaml": CHANGED}, 1)
    running.saw({"a.yaml": CHANGED}, 2)
    newer = Reading("v9", "orders")
    assert running.saw({"a.yaml": newer}, 3) == running.saw({"a.yaml": newer}, 4) == []
    assert deeds(running.checked("a.yaml", "v2", None, 5)) == [Check("a.yaml", "v9")]
    assert deeds(running.checked("a.yaml", "v9", None, 6)) == [Stop("a.yaml")]


def test_a_failed_one_starts_again_after_a_pause_that_doubles(running: Service) -> None:
    now_s = 1.0
    for pause_s in (2, 4, 8, 10, 10):
        actions = running.ended("a.yaml", 1, "the broker is gone", now_s)
        assert f"starts again in {pause_s} s: the broker is gone" in said(actions)
        assert deeds(actions) == deeds(running.passed(now_s + pause_s - 0.1)) == []
        assert doing(running) == {"a.yaml": Doing.WAITING}
        assert running.reports(now_s + pause_s - 1)[0].starts_again_in_s == pytest.approx(1)
        now_s += pause_s
        assert running.passed(now_s) == [Start("a.yaml")]
    assert running.reports(now_s)[0].failures == 5


def test_who_ran_long_enough_starts_with_the_shortest_pause_again(running: Service) -> None:
    running.ended("a.yaml", 1, "x", 1)
    running.passed(3)
    running.ended("a.yaml", 1, "x", 4)
    running.passed(8)
    running.passed(8 + 60)
    assert running.reports(68)[0].failures == 0
    assert "in 2 s" in said(running.ended("a.yaml", 1, "x", 70))


def test_a_changed_file_does_not_wait_for_the_pause(running: Service) -> None:
    running.ended("a.yaml", 1, "x", 1)
    running.saw({"a.yaml": CHANGED}, 1.1)
    assert running.saw({"a.yaml": CHANGED}, 1.2) == [Start("a.yaml")]


def test_a_finished_one_rests_until_its_file_changes(running: Service) -> None:
    assert deeds(running.ended("a.yaml", 0, "", 1)) == []
    assert running.passed(1000) == []
    assert doing(running) == {"a.yaml": Doing.FINISHED}
    running.saw({"a.yaml": CHANGED}, 1001)
    assert running.saw({"a.yaml": CHANGED}, 1002) == [Start("a.yaml")]


def test_who_does_not_stop_is_ended(running: Service) -> None:
    running.saw({}, 1)
    running.saw({}, 2)
    assert running.passed(31.9) == []
    assert deeds(running.passed(32)) == [Kill("a.yaml")]
    assert running.passed(33) == []
    assert said(running.ended("a.yaml", 137, "killed", 34)) == "has stopped"


def test_a_broken_file_waits_until_it_is_mended(service: Service) -> None:
    assert "cannot be read: line 3" in said(service.saw({"a.yaml": BROKEN}, 0))
    assert service.saw({"a.yaml": BROKEN}, 1) == []
    assert doing(service) == {"a.yaml": Doing.BROKEN}
    service.saw({"a.yaml": ORDERS}, 2)
    assert service.saw({"a.yaml": ORDERS}, 3) == [Start("a.yaml")]


def test_two_files_do_not_run_one_pipeline(service: Service) -> None:
    actions = service.saw({"a.yaml": ORDERS, "b.yaml": CHANGED}, 0)
    assert deeds(actions) == [Start("a.yaml")]
    assert "a.yaml has a pipeline of the same name, 'orders'" in said(actions)


def test_a_renamed_file_waits_for_the_end_of_the_old_one(running: Service) -> None:
    assert deeds(running.saw({"0.yaml": ORDERS}, 1)) == []
    assert deeds(running.saw({"0.yaml": ORDERS}, 2)) == [Stop("a.yaml")]
    assert deeds(running.ended("a.yaml", 0, "", 3)) == [Start("0.yaml")]


def test_a_stop_waits_for_all_and_starts_nothing(running: Service) -> None:
    both = {"a.yaml": ORDERS, "b.yaml": Reading("v1", "b")}
    running.saw(both, 1)
    running.ended("b.yaml", 1, "x", 2)
    assert deeds(running.stop(3)) == [Stop("a.yaml")]
    assert not running.is_idle
    assert running.saw(both, 100) != [] and not running.is_idle  # the kill that is due
    assert deeds(running.ended("a.yaml", 143, "", 101)) == []
    assert running.is_idle
    assert running.saw(both, 102) == []


def test_a_second_stop_waits_for_nobody(running: Service) -> None:
    running.stop(1)
    assert deeds(running.stop(2)) == [Kill("a.yaml")]


def test_a_check_that_ends_after_the_file_has_gone_is_forgotten(running: Service) -> None:
    running.saw({"a.yaml": CHANGED}, 1)
    running.saw({"a.yaml": CHANGED}, 2)
    running.saw({}, 3)
    assert deeds(running.saw({}, 4)) == [Stop("a.yaml")]
    running.ended("a.yaml", 0, "", 5)
    assert running.checked("a.yaml", "v2", None, 6) == []
    assert doing(running) == {}
