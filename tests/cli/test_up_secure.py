"""`penstock up --secure`: what it makes, who may read it, and a client that uses it."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.cli import certificates
from penstock.cli.failure import ExitCode
from penstock.cli.secure_setup import secure_setup
from penstock.testing.broker_process import free_port
from tests.cli.conftest import Command

END_S_MAX = 60


def mode(path: Path) -> int:
    return path.stat().st_mode & 0o777


def test_only_the_owner_can_read_what_is_made(tmp_path: Path) -> None:
    data = tmp_path / "data"
    setup = secure_setup(data, "127.0.0.1", "127.0.0.1:9092")
    assert (mode(data), mode(setup.folder)) == (0o700, 0o700)
    public = {"ca.pem"}
    assert {path.name for path in setup.folder.iterdir() if mode(path) & 0o077} <= public
    password = (setup.folder / "admin.password").read_text()
    assert password not in repr(setup) and password not in "".join(setup.lines())


def test_what_was_made_is_used_again(tmp_path: Path) -> None:
    first = secure_setup(tmp_path, "127.0.0.1", "127.0.0.1:9092")
    again = secure_setup(tmp_path, "127.0.0.1", "127.0.0.1:9092")
    assert (first.is_new, again.is_new) == (True, False)
    assert (first.settings, first.users) == (again.settings, again.users)


def test_the_certificate_is_made_anew_for_another_host_and_before_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secure_setup(tmp_path, "127.0.0.1", "127.0.0.1:9092")
    pem = tmp_path / "security" / "broker.pem"
    made, authority = pem.read_bytes(), (tmp_path / "security" / "ca.pem").read_bytes()
    setup = secure_setup(tmp_path, "10.1.2.3", "10.1.2.3:9092")
    assert setup.is_renewed and "new certificate" in "".join(setup.lines())
    of_host = pem.read_bytes()
    assert of_host != made and mode(pem) == 0o600
    assert not secure_setup(tmp_path, "10.1.2.3", "10.1.2.3:9092").is_renewed
    monkeypatch.setattr(certificates, "RENEWED_BEFORE_DAYS", certificates.SIGNED_DAYS)
    assert secure_setup(tmp_path, "10.1.2.3", "10.1.2.3:9092").is_renewed
    monkeypatch.undo()
    assert pem.read_bytes() != of_host
    pem.write_bytes(b"half a fi")
    assert secure_setup(tmp_path, "10.1.2.3", "10.1.2.3:9092").is_renewed
    assert (tmp_path / "security" / "ca.pem").read_bytes() == authority


@pytest.mark.clients
def test_admin_may_and_others_may_not(tmp_path: Path, command: Command) -> None:
    data, port = tmp_path / "data", free_port()
    start = [sys.executable, "-m", "penstock.cli", "up", "--secure", "--port", str(port), "--data", str(data)]
    with subprocess.Popen(start, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as process:
        assert process.stdout is not None
        try:
            assert any("penstock ready" in line for line in process.stdout)
            config = str(data / "security" / "client.properties")
            made = command("topic", "create", "orders", "--client-config", config)
            assert made.code == ExitCode.OK, made.err
            assert command("topic", "list", "--client-config", config).out.splitlines()[1].startswith("orders")
            assert command("token", "create", "--client-config", config).code == ExitCode.OK
            other = ("-X", "sasl.username=alice", "-X", "sasl.password=guessed")
            asked: tuple[tuple[str, ...], ...] = (
                ("topic", "list"),
                ("topic", "create", "t"),
                ("consume", "orders"),
                ("produce", "orders"),
                ("acl", "list"),
            )
            for words in asked:
                refused = command(*words, "--client-config", config, *other, stdin=b"a\n")
                assert refused.code == ExitCode.REFUSED, refused.err
                assert "the user or the password is wrong" in refused.err
                assert "guessed" not in refused.err
            assert "--client-config" in command("topic", "list", "--bootstrap", f"localhost:{port}").err
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(END_S_MAX)
    assert process.returncode == 0
