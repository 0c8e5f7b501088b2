"""PostgreSQL and MariaDB as real processes for tests: start, kill, and bring back on the same port and folder.

    with PostgreSQLServer() as server:
        url = server.new_database()  # postgresql://penstock:…@127.0.0.1:40123/d_0123abcd

Both are Debian's packages (`scripts/install-test-tools` brings them). Neither runs as root, so root starts them as
somebody else, in a temporary folder that belongs to that user and that is removed at the end. They listen on
loopback only, and sync nothing to disk: they survive the kill of a process, which is all that tests ask of them.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from uuid import uuid4

import psycopg
import pymysql

from penstock.testing.broker_process import free_port

POSTGRESQL_FOLDERS = Path("/usr/lib/postgresql")
MARIADB_PROGRAM = Path("/usr/sbin/mariadbd")
MARIADB_INSTALLER = Path("/usr/bin/mariadb-install-db")
USER = "penstock"
PASSWORD = "open sesame: 100%"
PASSWORD_IN_URL = "open%20sesame%3A%20100%25"
PREPARE_S_MAX = 120.0
START_S_MAX = 60.0
STOP_S_MAX = 30.0
POLL_S = 0.05
LOG_LINES_SHOWN = 30


class NoDatabaseServer(Exception):
    """The server is not installed here; the text says what is missing."""


class DatabaseServerError(AssertionError):
    """The server did not do what was asked of it; the text ends with what it printed."""


class _Server:
    """A process that keeps its data in a folder of its own and listens on a port that stays the same."""

    name = "server"
    #: Who runs it if we are root.
    runs_as = "nobody"
    stop_signal = signal.SIGTERM

    def __init__(self) -> None:
        self.port = 0
        self.folder = Path()
        self._process: subprocess.Popen[bytes] | None = None

    # ── what differs ─────────────────────────────────────────────────────────────────────────────────────────────

    def _prepare(self) -> None:
        raise NotImplementedError

    def _command(self) -> list[str]:
        raise NotImplementedError

    def connect(self, database: str | None = None) -> Any:
        """A connection of the driver that commits by itself."""
        raise NotImplementedError

    def url(self, database: str) -> str:
        """What stands before `/table` in an address."""
        raise NotImplementedError

    # ── what is the same ─────────────────────────────────────────────────────────────────────────────────────────

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> Self:
        """Start it, with a fresh folder the first time, and wait until it serves."""
        if not self.port:
            self.folder = Path(tempfile.mkdtemp(prefix=f"penstock-{type(self).__name__.lower()}-"))
            self.port = free_port()
            if os.getuid() == 0:
                shutil.chown(self.folder, self.runs_as, pwd.getpwnam(self.runs_as).pw_gid)
            self._prepare()
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder, **self._identity()
            )
        self._wait_until_serving()
        return self

    def new_database(self) -> str:
        """The url of a database that nobody else has."""
        name = f"d_{uuid4().hex[:8]}"
        connection = self.connect()
        try:
            with connection.cursor() as cursor:
                cursor.execute(f"CREATE DATABASE {name}")
        finally:
            connection.close()
        return self.url(name)

    def kill(self) -> None:
        """End it at once, as a crash does; `start` brings it back with its data."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait(STOP_S_MAX)

    def stop(self) -> None:
        """Ask it to stop; a kill if that takes too long."""
        if self._process is None or not self.is_running:
            return
        self._process.send_signal(self.stop_signal)
        try:
            self._process.wait(STOP_S_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(STOP_S_MAX)

    def __enter__(self) -> Self:
        return self if self.is_running else self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        if self.port:
            shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def _log(self) -> Path:
        return self.folder / "server.log"

    def _identity(self) -> dict[str, Any]:
        """Whom the process runs as: ourselves, unless we are root."""
        if os.getuid() != 0:
            return {}
        return {"user": self.runs_as, "group": pwd.getpwnam(self.runs_as).pw_gid, "extra_groups": []}

    def _do(self, *command: str | Path) -> None:
        done = subprocess.run(
            [str(word) for word in command],
            capture_output=True,
            text=True,
            check=False,
            cwd=self.folder,
            timeout=PREPARE_S_MAX,
            **self._identity(),
        )
        if done.returncode:
            raise DatabaseServerError(f"{self.name} could not be prepared:\n{done.stdout}{done.stderr}")

    def _write(self, name: str, text: str) -> Path:
        file = self.folder / name
        file.write_text(text)
        if os.getuid() == 0:
            shutil.chown(file, self.runs_as)
        file.chmod(0o600)
        return file

    def _wait_until_serving(self) -> None:
        until_s = time.monotonic() + START_S_MAX
        while True:
            try:
                self.connect().close()
                return
            except (psycopg.OperationalError, pymysql.MySQLError):
                if not self.is_running or time.monotonic() > until_s:
                    lines = self._log.read_text(errors="replace").splitlines()[-LOG_LINES_SHOWN:]
                    raise DatabaseServerError("\n".join([f"{self.name} does not serve", *lines])) from None
            time.sleep(POLL_S)


class PostgreSQLServer(_Server):
    """PostgreSQL with logical decoding; `settings` are lines of its postgresql.conf."""

    name = "PostgreSQL"
    runs_as = "postgres"
    stop_signal = signal.SIGINT  # "fast": it ends sessions

    def __init__(self, settings: dict[str, str] | None = None) -> None:
        super().__init__()
        versions = sorted(POSTGRESQL_FOLDERS.glob("*/bin/postgres"), key=lambda path: float(path.parts[-3]))
        if not versions:
            raise NoDatabaseServer("Debian's package postgresql is not installed")
        self._programs = versions[-1].parent
        self._settings = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "fsync": "off",
            "wal_level": "logical",
            "max_connections": "60",
            "shared_buffers": "64MB",
            **(settings or {}),
        }

    def _prepare(self) -> None:
        secret = self._write("password", PASSWORD)
        data = self.folder / "data"
        self._do(
            self._programs / "initdb", "-D", data, "-U", USER, "-A", "scram-sha-256", "--pwfile", secret,
            "-E", "UTF8", "--locale=C", "--no-sync",
        )  # fmt: skip
        secret.unlink()

    def _command(self) -> list[str]:
        settings = {**self._settings, "port": str(self.port)}
        flags = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        return [str(self._programs / "postgres"), "-D", str(self.folder / "data"), *flags]

    def connect(self, database: str | None = None) -> psycopg.Connection[Any]:
        return psycopg.connect(
            host="127.0.0.1",
            port=self.port,
            user=USER,
            password=PASSWORD,
            dbname=database or "postgres",
            connect_timeout=5,
            autocommit=True,
        )

    def url(self, database: str) -> str:
        return f"postgresql://{USER}:{PASSWORD_IN_URL}@127.0.0.1:{self.port}/{database}"

    def kill(self) -> None:
        """Its children notice at once that it is gone, and end; the next start waits for them."""
        super().kill()
        (self.folder / "data" / "postmaster.pid").unlink(missing_ok=True)


class MariaDBServer(_Server):
    """MariaDB; `settings` are options of mariadbd."""

    name = "MariaDB"
    runs_as = "nobody"

    def __init__(self, settings: dict[str, str] | None = None) -> None:
        super().__init__()
        for program in (MARIADB_PROGRAM, MARIADB_INSTALLER):
            if not program.exists():
                raise NoDatabaseServer(f"Debian's package mariadb-server is not installed: there is no {program}")
        self._settings = {
            "bind-address": "127.0.0.1",
            "skip-name-resolve": "ON",
            "character-set-server": "utf8mb4",
            "innodb-flush-log-at-trx-commit": "2",
            "innodb-buffer-pool-size": "64M",
            "innodb-lock-wait-timeout": "20",
            **(settings or {}),
        }

    def _prepare(self) -> None:
        self._write(
            "init.sql",
            f"CREATE USER IF NOT EXISTS '{USER}'@'%' IDENTIFIED BY '{PASSWORD}';\nGRANT ALL ON *.* TO '{USER}'@'%';\n",
        )
        temporary = self.folder / "tmp"
        temporary.mkdir()
        if os.getuid() == 0:
            shutil.chown(temporary, self.runs_as)
        self._do(
            MARIADB_INSTALLER, "--no-defaults", f"--datadir={self.folder / 'data'}", self._temporary, "--skip-test-db",
            "--auth-root-authentication-method=normal", "--skip-name-resolve",
        )  # fmt: skip

    @property
    def _temporary(self) -> str:
        """A folder of its own for temporary tables: a server that starts removes all that it finds."""
        return f"--tmpdir={self.folder / 'tmp'}"

    def _command(self) -> list[str]:
        settings = {
            "datadir": str(self.folder / "data"),
            "port": str(self.port),
            "socket": str(self.folder / "socket"),
            "pid-file": str(self.folder / "pid"),
            "init-file": str(self.folder / "init.sql"),
            **self._settings,
        }
        return [
            str(MARIADB_PROGRAM),
            "--no-defaults",
            self._temporary,
            *(f"--{name}={value}" for name, value in settings.items()),
        ]

    def connect(self, database: str | None = None) -> pymysql.Connection[Any]:
        return pymysql.connect(
            host="127.0.0.1",
            port=self.port,
            user=USER,
            password=PASSWORD,
            database=database,
            connect_timeout=5,
            autocommit=True,
            charset="utf8mb4",
        )

    def url(self, database: str) -> str:
        return f"mysql://{USER}:{PASSWORD_IN_URL}@127.0.0.1:{self.port}/{database}"
