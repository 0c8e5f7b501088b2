"""What Penstock asks of its coordination service, whichever it is: ZooKeeper, our keeper, or a tree in this process.

One object is one session. All methods raise the exceptions of `errors.py`; a multi raises the error of the operation
that failed, with its index, and had no effect. Watches fire once, before the answer to any later read that
could show the change; when the session is lost they are gone, and listeners are told.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum
from typing import Protocol, TypeAlias

from penstock.zookeeper.operations import ANY_VERSION, OPEN_ACL, Acl, Operation, Result, Stat, WatchEvent

Watch: TypeAlias = Callable[[WatchEvent], None]

#: A multi stays below this, well under ZooKeeper's limit of a mebibyte for a request.
MULTI_SIZE_BYTES_MAX = 512 * 1024


class SessionState(Enum):
    """What listeners are told about their session."""

    CONNECTED = "connected"  # (again) in touch; watches may have been missed
    SUSPENDED = "suspended"  # out of touch; the session may live or not
    EXPIRED = "expired"  # over: ephemeral znodes are gone; register anew with a new session
    CLOSED = "closed"  # over, by our own wish
    FAILED = "failed"  # the keeper in this process cannot write any more: the process should end


class Coordination(Protocol):
    """One session with the coordination service."""

    @property
    def session_id(self) -> int: ...

    @property
    def state(self) -> SessionState: ...

    @property
    def timeout_ms(self) -> int:
        """How long the session lives without being heard of, as the service has granted it."""
        ...

    @property
    def lease_until_s(self) -> float:
        """The session surely lives until this time of the monotonic clock."""
        ...

    @property
    def keeps_secrets(self) -> bool:
        """Whether what is written for the brokers alone can be read by nobody else: they have shown who they are."""
        ...

    def add_listener(self, listener: Callable[[SessionState], None]) -> None:
        """Be told whenever the state of the session changes."""
        ...

    async def get(self, path: str, watch: Watch | None = None) -> tuple[bytes, Stat]:
        """Data of a znode; `watch` hears of its next change or deletion. Nothing is watched if it does not exist."""
        ...

    async def exists(self, path: str, watch: Watch | None = None) -> Stat | None:
        """Its stat, or None; `watch` hears of its creation too."""
        ...

    async def children(self, path: str, watch: Watch | None = None) -> tuple[list[str], Stat]:
        """Names of the children; `watch` hears of the next that comes or goes, and of the deletion of the znode."""
        ...

    async def create(
        self,
        path: str,
        data: bytes = b"",
        *,
        ephemeral: bool = False,
        sequential: bool = False,
        acl: tuple[Acl, ...] = OPEN_ACL,
    ) -> str:
        """The path as it was made."""
        ...

    async def set(self, path: str, data: bytes, version: int = ANY_VERSION) -> Stat: ...

    async def delete(self, path: str, version: int = ANY_VERSION) -> None: ...

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        """Perform all of the operations, or none and raise the error of the first that cannot be done."""
        ...

    async def sync(self, path: str = "/") -> None:
        """Reads after this see everything that was answered to anybody before it."""
        ...

    async def close(self) -> None:
        """End the session: its ephemeral znodes vanish."""
        ...
