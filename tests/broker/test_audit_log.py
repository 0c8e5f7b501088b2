"""The audit log: what is written, what is hidden, how it is bounded, and what a bad disk costs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Sequence
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec

import pytest

from penstock.base.broker_settings import load_broker_settings
from penstock.base.real_world import real_world
from penstock.base.world import Buffer, World
from penstock.broker import audit_log
from penstock.broker.audit_log import FILE, HIDDEN, OF_ONE_MAX, AuditLog
from penstock.security.principal import ANONYMOUS

P = ParamSpec("P")


def on_a_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """A test that is a coroutine."""

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(test(*args, **kwargs))

    return run


def new_log(tmp_path: Path, world: World | None = None, **settings: str) -> AuditLog:
    given = {name.replace("_", "."): value for name, value in settings.items()}
    values = {"node.id": "7", "log.dirs": str(tmp_path / "data"), **given}
    return AuditLog(world or real_world(), load_broker_settings(values))


def lines(folder: Path | str, name: str = FILE) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (Path(folder) / name).read_text().splitlines()]


@on_a_loop
async def test_events_become_lines_with_a_time_and_a_broker(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    log.record("topic_created", topic="orders", principal=ANONYMOUS, partitions=[0, 1], clean=True, nothing=None)
    log.open()
    log.record("topic_deleted", topic="orders")
    await log.stop()
    first, second = lines(tmp_path / "data" / "audit")
    assert first.pop("time_ms") > 0
    assert first == {
        "broker": 7,
        "event": "topic_created",
        "topic": "orders",
        "principal": "User:ANONYMOUS",
        "partitions": [0, 1],
        "clean": True,
    }
    assert second["event"] == "topic_deleted"


@on_a_loop
async def test_secrets_are_hidden_also_inside_of_settings(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    log.open()
    log.record(
        "settings_changed",
        password="hunter2",
        changes={"ssl.key.password": "hunter2", "sasl.jaas.config": "hunter2", "log.retention.ms": "1"},
        values=[{"listener.name.x.ssl.keystore.key": "hunter2"}],
    )
    await log.stop()
    text = (Path(log.folder) / FILE).read_text()
    assert "hunter2" not in text and text.count(HIDDEN) == 4
    assert lines(log.folder)[0]["changes"]["log.retention.ms"] == "1"


@on_a_loop
async def test_what_is_alike_is_written_once_with_its_number(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    log.open()
    for _ in range(1000):
        log.record("operation_denied", principal="User:mallory", topic="orders")
    log.record("operation_denied", principal="User:mallory", topic="other")
    await log.stop()
    assert [(line["topic"], line.get("repeated")) for line in lines(log.folder)] == [
        ("orders", None),
        ("other", None),
        ("orders", 999),
    ]


@on_a_loop
async def test_nobody_pushes_others_out_by_asking_for_many_things(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    log.open()
    for number in range(10_000):
        log.record("operation_denied", principal="User:mallory", host="10.0.0.1", resource=f"topic-{number}")
        log.record("login_failed", principal=f"User:{number}", peer="10.0.0.2", reason="wrong")
    log.record("operation_denied", principal="User:alice", host="10.0.0.1", resource="orders")
    log.record("corruption_found", partition="orders-0")
    await log.stop()
    written = lines(log.folder)
    assert len(written) == 2 * OF_ONE_MAX + 4
    assert [line["resource"] for line in written if line.get("principal") == "User:alice"] == ["orders"]
    assert [(line["event"], line.get("principal"), line["host"], line["others"]) for line in written[-2:]] == [
        ("operation_denied", "User:mallory", "10.0.0.1", 10_000 - OF_ONE_MAX),
        ("login_failed", None, "10.0.0.2", 10_000 - OF_ONE_MAX),
    ]


@on_a_loop
async def test_nor_from_many_addresses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_log, "ALIKE_MAX", 20)
    monkeypatch.setattr(audit_log, "OTHERS_MAX", 5)
    log = new_log(tmp_path)
    log.open()
    for number in range(1000):
        log.record("login_failed", peer=f"10.0.{number // 250}.{number % 250}", reason="wrong")
    await log.stop()
    written = lines(log.folder)
    assert len(written) == 20 + 6
    assert sum(line.get("others", 1) for line in written) == 1000


@on_a_loop
async def test_files_are_bounded_and_the_oldest_goes(tmp_path: Path) -> None:
    log = new_log(tmp_path, audit_log_file_bytes="1024", audit_log_files="3")
    log.open()
    for number in range(200):
        log.record("numbered", number=number, text="x" * 100)
        await asyncio.sleep(0.0)
        while log._writing is not None:
            await asyncio.wait([log._writing])
    await log.stop()
    names = sorted(path.name for path in Path(log.folder).iterdir())
    assert set(names) <= {FILE, "audit.1.jsonl", "audit.2.jsonl"} and len(names) >= 2
    assert all(path.stat().st_size < 1400 for path in Path(log.folder).iterdir())
    kept = [line["number"] for name in ("audit.2.jsonl", "audit.1.jsonl") for line in lines(log.folder, name)]
    assert kept == sorted(kept) and len(kept) < 30


@on_a_loop
async def test_a_line_that_a_crash_cut_off_spoils_no_other(tmp_path: Path) -> None:
    folder = tmp_path / "data" / "audit"
    folder.mkdir(parents=True)
    (folder / FILE).write_text('{"event": "half')
    log = new_log(tmp_path)
    log.open()
    log.record("whole")
    await log.stop()
    half, whole = (folder / FILE).read_text().splitlines()
    assert half == '{"event": "half' and json.loads(whole)["event"] == "whole"


@on_a_loop
async def test_off_it_writes_nothing(tmp_path: Path) -> None:
    log = new_log(tmp_path, audit_log_enable="false")
    log.open()
    log.record("anything")
    await log.stop()
    assert not Path(log.folder).exists()


@on_a_loop
async def test_a_disk_that_refuses_costs_lines_and_says_how_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    log = new_log(tmp_path)
    log.open()
    log.record("before")
    while log._writing is not None:
        await asyncio.wait([log._writing])
    file: Any = log._file

    class Full:
        def write(self, buffers: Sequence[Buffer], offset: int) -> int:
            raise OSError(28, "No space left on device")

        def truncate(self, size: int) -> None:
            file.truncate(size)

    monkeypatch.setattr(log, "_file", Full())
    log.record("lost")
    while log._writing is not None:
        await asyncio.wait([log._writing])
    assert "cannot be written" in caplog.text
    monkeypatch.setattr(log, "_file", file)
    log.record("after")
    await log.stop()
    assert [line["event"] for line in lines(log.folder)] == ["before", "after", "audit_lines_lost"]
    assert lines(log.folder)[-1]["lines"] == 1


@on_a_loop
async def test_a_queue_that_is_full_counts_what_it_loses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_log, "QUEUE_LINES_MAX", 3)
    log = new_log(tmp_path)
    for number in range(5):
        log.record("numbered", number=number)
    log.open()
    await log.stop()
    assert [line["event"] for line in lines(log.folder)] == ["numbered"] * 3 + ["audit_lines_lost"]
