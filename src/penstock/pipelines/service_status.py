"""What a service of pipelines is doing, for `penstock pipeline status`: a small JSON file in the state folder.

It is called after the folder that the service runs, so that several services can share a state folder. The service
holds a lock beside it for as long as it lives: a file without one was left by a service that has ended.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Self

from penstock.pipelines.service import Doing, Report

PREFIX = "service-"


class ServiceRuns(Exception):
    """Another service runs the same folder."""


@dataclass(frozen=True, slots=True)
class ServiceStatus:
    """The folder, and what is done with each of its files. Times are seconds since 1970."""

    folder: str
    reports: tuple[Report, ...] = ()
    pid: int = field(default_factory=os.getpid)
    since_s: float = 0.0
    changed_s: float = 0.0

    def to_document(self) -> dict[str, Any]:
        """As plain data for JSON."""
        return asdict(self)

    @classmethod
    def from_document(cls, document: dict[str, Any]) -> Self:
        """ValueError if it is none."""
        try:
            reports = tuple(Report(**{**each, "doing": Doing(each["doing"])}) for each in document["reports"])
            return cls(**{**document, "reports": reports})
        except (KeyError, TypeError) as error:
            raise ValueError(f"this is no status of a service: {error}") from error


def write_service_status(state_folder: Path, status: ServiceStatus) -> None:
    """Replaces the status of this service, as a whole."""
    handle, temporary = tempfile.mkstemp(prefix=f".{PREFIX}", dir=state_folder)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            json.dump(status.to_document(), file)
        os.replace(temporary, _path(state_folder, status.folder, "json"))
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def living_services(state_folder: Path) -> list[ServiceStatus]:
    """The services that run now with this state folder."""
    found = []
    for path in sorted(state_folder.glob(f"{PREFIX}*.json")):
        if not _is_held(path.with_suffix(".lock")):
            continue
        try:
            found.append(ServiceStatus.from_document(json.loads(path.read_text("utf-8"))))
        except (OSError, ValueError):
            continue
    return found


@contextmanager
def only_service(state_folder: Path, folder: str) -> Iterator[None]:
    """Makes this process the only service of a folder; its status goes with it. ServiceRuns if there is one."""
    state_folder.mkdir(parents=True, exist_ok=True)
    with _path(state_folder, folder, "lock").open("a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ServiceRuns(f"another 'penstock pipeline up' runs {folder} already") from None
        try:
            yield
        finally:
            _path(state_folder, folder, "json").unlink(missing_ok=True)


def _path(state_folder: Path, folder: str, suffix: str) -> Path:
    return state_folder / f"{PREFIX}{hashlib.sha256(folder.encode()).hexdigest()[:12]}.{suffix}"


def _is_held(lock: Path) -> bool:
    """A look through another descriptor than the owner's, which is why it is refused while the owner lives."""
    try:
        with lock.open("r") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            return False
    except FileNotFoundError:
        return False
    except BlockingIOError:
        return True
