"""The program itself: help, versions, wrong usage, exit codes, speed, terminals and pipes."""

from __future__ import annotations

import os
import pty
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import __version__
from penstock.cli.failure import Failure, did_you_mean
from penstock.cli.main import COMMANDS
from penstock.cli.main import Command as CommandRow
from penstock.cli.options import key_values
from penstock.cli.output import print_table

PROGRAM = [sys.executable, "-m", "penstock.cli"]
NOBODY = "127.0.0.1:1"

Command = Callable[..., Any]


def test_help_names_every_command(command: Command) -> None:
    for arguments in ([], ["--help"], ["-h"]):
        outcome = command(*arguments)
        assert outcome.code == 0
        for row in COMMANDS:
            assert row.name in outcome.out and row.help in outcome.out


@pytest.mark.parametrize("row", COMMANDS, ids=lambda row: row.name)
def test_every_command_has_help(command: Command, row: CommandRow) -> None:
    outcome = command(row.name, "-h")
    assert outcome.code == 0
    assert f"penstock {row.name}" in outcome.out


@pytest.mark.parametrize("family", ["topic", "group", "transaction", "cluster", "config", "log", "pipeline"])
def test_a_family_alone_shows_its_help(command: Command, family: str) -> None:
    outcome = command(family)
    assert outcome.code == 0
    assert f"Usage: penstock {family}" in outcome.out


def test_version(command: Command) -> None:
    assert command("--version").out == f"penstock {__version__}\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["topc"], "Did you mean 'topic'?"),
        (["--nonsense"], "No such option"),
        (["topic", "crate"], "Did you mean 'create'"),
        (["topic", "create"], "Missing argument 'TOPIC…'"),
        (["topic", "create", "a", "--partitions", "none"], "Invalid value for '--partitions'"),
        (["topic", "create", "a", "--partitions", "0"], "Invalid value for '--partitions'"),
        (["topic", "create", "a", "--config", "x"], "--config wants KEY=VALUE"),
        (["topic", "alter", "a"], "nothing to alter"),
        (["topic", "list", "-b", "host:port"], "--bootstrap wants HOST:PORT"),
        (["topic", "list", "-X", "x"], "-X wants KEY=VALUE"),
        (["topic", "list", "--client-config", "/does/not/exist"], "cannot read the client settings"),
        (["produce"], "Missing argument 'TOPIC'"),
        (["produce", "a", "--compression", "rar"], "Invalid value for '--compression'"),
        (["produce", "a", "--acks", "2"], "Invalid value for '--acks'"),
        (["produce", "a", "--headers", "x"], "--headers wants NAME=VALUE"),
        (["produce", "a", "--json", "--key-separator", ":"], "--json goes with neither"),
        (["produce", "a", "--binary", "--key-separator", ":"], "--binary takes no --key-separator"),
        (["produce", "a", "--key", "k", "--key-separator", ":"], "exclude each other"),
        (["produce", "a", "--key-separator", ""], "must not be empty"),
        (["produce", "a", "--timestamp", "soon"], "is not a time"),
        (["consume"], "Missing argument 'TOPIC…'"),
        (["consume", "a", "--from", "soon"], "--from wants"),
        (["consume", "a", "--max", "0"], "Invalid value for '--max'"),
        (["consume", "a", "--format", "%q"], "--format does not know %q"),
        (["consume", "a", "--format", "%v", "--json"], "exclude each other"),
        (["consume", "a", "--group", "g", "--partition", "0"], "exclude each other"),
        (["consume", "a", "--isolation", "snapshot"], "Invalid value for '--isolation'"),
        (["group", "list", "--state", "busy"], "Invalid value for '--state'"),
        (["group", "list", "--type", "new"], "Invalid value for '--type'"),
        (["group", "describe"], "which groups? pass their names, or --all"),
        (["group", "describe", "g", "--all"], "which groups?"),
        (["group", "reset"], "Missing argument 'GROUP'"),
        (["group", "reset", "g", "--topic", "a"], "where to? pass one of --to-earliest"),
        (["group", "reset", "g", "--topic", "a", "--to-latest", "--shift", "-1"], "where to? pass one of"),
        (["group", "reset", "g", "--to-latest"], "which topics? pass --topic"),
        (["group", "reset", "g", "--topic", "a", "--all-topics", "--to-latest"], "which topics?"),
        (["group", "reset", "g", "--topic", "a:b", "--to-latest"], "--topic wants TOPIC or TOPIC:0,1"),
        (["group", "reset", "g", "--topic", "a", "--to-offset", "-1"], "Invalid value for '--to-offset'"),
        (["group", "reset", "g", "--topic", "a", "--to-time", "soon"], "is not a time"),
        (["group", "reset", "g", "--from-file", "/does/not/exist"], "cannot read the offsets"),
        (["group", "delete"], "Missing argument 'GROUP…'"),
        (["group", "delete-offsets", "g"], "which topics? pass --topic"),
        (["transaction", "list", "--state", "busy"], "Invalid value for '--state'"),
        (["transaction", "list", "--longer-than", "5"], "--longer-than wants a number and a unit"),
        (["transaction", "describe"], "pass transactional ids, or --topic"),
        (["transaction", "describe", "x", "--topic", "a"], "pass transactional ids, or --topic"),
        (["transaction", "find-hanging", "--partition", "1"], "--partition needs --topic"),
        (["transaction", "abort"], "which one? pass a transactional id, or --topic"),
        (["transaction", "abort", "--topic", "a", "--partition", "0"], "which one?"),
        (["transaction", "abort", "x", "--topic", "a"], "which one?"),
        (["cluster", "status", "5"], "goes with --watch"),
        (["cluster", "status", "--watch", "0"], "Invalid value for '[SECONDS]'"),
        (["cluster", "elect"], "which partitions? pass --topic"),
        (["cluster", "elect", "--all", "--topic", "a"], "which partitions?"),
        (["cluster", "elect", "--all", "--partition", "1"], "--partition needs --topic"),
        (["cluster", "reassign"], "what? pass --topic, --partition and --replicas"),
        (["cluster", "reassign", "--list", "--cancel"], "what? pass"),
        (["cluster", "reassign", "--list", "--wait"], "what? pass"),
        (["cluster", "reassign", "--topic", "a", "--replicas", "1"], "--replicas needs --topic and --partition"),
        (["cluster", "reassign", "-t", "a", "-p", "0", "-r", "1,x"], "--replicas wants ids of brokers"),
        (["cluster", "reassign", "--file", "/does/not/exist"], "cannot read the reassignment"),
        (["cluster", "reassign", "--file", "x", "--topic", "a"], "--file says which partitions"),
        (["cluster", "reassign", "--wait", "--throttle", "fast"], "--throttle wants a number of bytes"),
        (["cluster", "decommission"], "Missing argument 'BROKER'"),
        (["cluster", "unregister", "one"], "Invalid value for 'BROKER'"),
        (["config", "set", "x"], "config set wants KEY=VALUE"),
        (["config", "list", "--topic", "a", "--broker", "1"], "exclude each other"),
        (["config", "describe", "retention.ms"], "settings of what?"),
        (["doctor", "--port", "0"], "Invalid value for '--port'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_usage_is_one_line_and_code_2(command: Command, arguments: list[str], message: str) -> None:
    outcome = command(*arguments)
    assert outcome.code == 2
    assert outcome.out == ""
    assert message in outcome.err
    assert outcome.err.startswith("penstock: ") and outcome.err.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ["topic", "list"],
        ["topic", "create", "a"],
        ["topic", "describe", "a"],
        ["topic", "alter", "a", "--partitions", "2"],
        ["topic", "delete", "a", "--yes"],
        ["produce", "a"],
        ["consume", "a"],
        ["group", "list"],
        ["group", "describe", "g"],
        ["group", "reset", "g", "--topic", "a", "--to-latest"],
        ["group", "delete", "g", "--yes"],
        ["transaction", "list"],
        ["transaction", "abort", "t"],
        ["cluster", "status"],
        ["cluster", "elect", "--all"],
        ["cluster", "reassign", "--list"],
        ["cluster", "rebalance"],
        ["cluster", "decommission", "1"],
        ["cluster", "unregister", "1"],
        ["config", "list"],
        ["config", "set", "--topic", "a", "retention.ms=1"],
        ["config", "list", "--broker-defaults"],
    ],
    ids=" ".join,
)
def test_no_broker_is_code_3_with_advice(command: Command, arguments: list[str]) -> None:
    outcome = command(*arguments, "--bootstrap", NOBODY, stdin=b"x\n")
    assert outcome.code == 3
    assert NOBODY in outcome.err
    assert outcome.err.count("\n") == 1
    assert "start one with 'penstock up' or pass --bootstrap" in outcome.err


@pytest.fixture
def silent_server() -> Iterator[socket.socket]:
    """A server that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(10)
        yield server


def address_of(server: socket.socket) -> str:
    return f"127.0.0.1:{server.getsockname()[1]}"


def test_an_unknown_client_setting_is_named(command: Command, silent_server: socket.socket) -> None:
    outcome = command("topic", "list", "-b", address_of(silent_server), "-X", "no.such=1")
    assert outcome.code == 2
    assert "no.such" in outcome.err


def test_client_settings_come_from_a_file_too(command: Command, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text(f"# a comment\nbootstrap.servers={NOBODY}\n")
    outcome = command("topic", "list", "--client-config", str(file))
    assert outcome.code == 3
    assert NOBODY in outcome.err


def test_key_values() -> None:
    assert key_values(["a=1", "b = x=y", "c="], "-X") == {"a": "1", "b": "x=y", "c": ""}
    assert key_values(None, "-X") == {}
    with pytest.raises(Failure):
        key_values(["=1"], "-X")


def test_suggestions() -> None:
    assert did_you_mean("ordrs", ["orders", "payments"]) == " (did you mean 'orders'?)"
    assert did_you_mean("zzz", ["orders"]) == ""


def test_tables_in_a_pipe_are_separated_by_tabs(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(["A", "B"], [[1, None], ["x\ty", [1, 2]], [True, []]])
    assert capsys.readouterr().out == "A\tB\n1\t-\nx y\t1,2\nyes\t-\n"


def test_help_answers_at_once() -> None:
    """The best of five: other work on the machine must not fail this."""
    times = []
    for _ in range(5):
        started = time.monotonic()
        subprocess.run([*PROGRAM, "--help"], check=True, capture_output=True)
        times.append(time.monotonic() - started)
    assert min(times) < 0.5


def test_help_does_not_load_the_commands() -> None:
    script = "import sys; from penstock.cli.main import run; run(['--help']); print(sorted(sys.modules))"
    loaded = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout
    assert "penstock.cli.main" in loaded
    for heavy in ("confluent_kafka", "penstock.cli.topic", "'asyncio'"):
        assert heavy not in loaded


@pytest.mark.parametrize("arguments", [["pipeline", "--help"], ["pipeline", "status"], ["pipeline", "up", "--help"]])
def test_only_what_runs_on_spark_loads_it(arguments: list[str], tmp_path: Path) -> None:
    script = "import sys; from penstock.cli.main import run; run(sys.argv[1:]); print('pyspark' in sys.modules)"
    program = [sys.executable, "-c", script, *arguments]
    loaded = subprocess.run(program, check=True, capture_output=True, text=True, cwd=tmp_path).stdout
    assert loaded.splitlines()[-1] == "False"


@pytest.mark.parametrize("missing", ["pyspark", "yaml"])
def test_a_command_without_its_extra_says_what_to_install(missing: str) -> None:
    script = (
        "import sys; sys.modules[sys.argv[1]] = None; from penstock.cli.main import run; sys.exit(run(sys.argv[2:]))"
    )
    program = [sys.executable, "-c", script, missing, "pipeline", "check", "shop.yaml"]
    done = subprocess.run(program, capture_output=True, text=True)
    advice = "pip install 'penstock[pipelines]'"
    told = f"penstock: this command needs {missing}, which is not installed: {advice}\n"
    assert (done.returncode, done.stderr) == (4, told)


def test_help_on_a_terminal_is_drawn_and_in_a_pipe_plain() -> None:
    assert "╭" in _on_terminal("--help")
    assert "╭" not in subprocess.run([*PROGRAM, "--help"], capture_output=True, text=True, check=True).stdout


def _on_terminal(*arguments: str) -> str:
    main_end, terminal = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "120"}
    program = subprocess.Popen(
        [*PROGRAM, *arguments], stdin=terminal, stdout=terminal, stderr=terminal, env=environment
    )
    os.close(terminal)
    shown = b""
    while True:
        try:
            part = os.read(main_end, 65536)
        except OSError:
            break
        if not part:
            break
        shown += part
    os.close(main_end)
    program.wait(10)
    return shown.decode()


def test_a_closed_pipe_ends_quietly() -> None:
    program = subprocess.Popen([*PROGRAM, "config", "reference"], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert program.stdout is not None and program.stderr is not None
    program.stdout.close()
    assert program.stderr.read() == b""
    program.stderr.close()
    assert program.wait(10) == 141


def test_ctrl_c_ends_with_130(silent_server: socket.socket) -> None:
    arguments = [*PROGRAM, "topic", "list", "-b", address_of(silent_server)]
    program = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    accepted = [silent_server.accept()[0] for _ in ("the probe", "the client")]
    program.send_signal(signal.SIGINT)
    _, complaint = program.communicate(timeout=20)
    for connection in accepted:
        connection.close()
    assert (program.returncode, complaint) == (130, b"")


@pytest.mark.parametrize(
    ("words", "shown"),
    [
        ("penstock topic cr", ["create"]),
        ("penstock group r", ["reset"]),
        ("penstock transaction find", ["find-hanging"]),
        ("penstock cluster re", ["reassign", "rebalance"]),
        ("penstock cluster reassign --th", ["--throttle"]),
        ("penstock group list --state Em", ["Empty"]),
        ("penstock pipeline st", ["status"]),
        ("penstock pipeline up --ma", ["--master"]),
    ],
)
def test_completion_knows_the_commands(words: str, shown: list[str]) -> None:
    environment = {
        **os.environ,
        "_PENSTOCK_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(words.count(" ")),
    }
    assert subprocess.run(PROGRAM, env=environment, capture_output=True, text=True).stdout.split() == shown


def test_a_settings_file_that_is_no_text_is_wrong_usage(command: Command, tmp_path: Path) -> None:
    file = tmp_path / "server.properties"
    file.write_bytes(b"\xff\xfe\0")
    outcome = command("up", "--config", str(file), "--data", str(tmp_path / "data"))
    assert outcome.code == 2
    assert f"{file} cannot be read: it is not text in UTF-8" in outcome.err
