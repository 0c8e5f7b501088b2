"""ZooKeeper's error codes, one exception class each, in one table.

Everything that speaks to a coordination service, in process or over the network, raises these. `definite` says whether
the request surely did not take effect: after a `ConnectionLossError` nobody knows, and the state must be read again.
"""

from __future__ import annotations

from typing import ClassVar


class CoordinationError(Exception):
    """A request that the coordination service refused, or whose answer was lost."""

    code: ClassVar[int] = -1
    definite: ClassVar[bool] = True

    def __init__(self, message: str = "", *, operation_index: int | None = None) -> None:
        super().__init__(message or self.__doc__)
        #: In a multi, which operation failed; the others had no effect.
        self.operation_index = operation_index


class ServiceError(CoordinationError):
    """the coordination service failed"""

    definite = False


class RuntimeInconsistencyError(CoordinationError):
    """not attempted, because an earlier operation of the same multi failed"""

    code = -2


class ConnectionLossError(CoordinationError):
    """the connection was lost; whether the request took effect is not known"""

    code = -4
    definite = False


class MarshallingError(CoordinationError):
    """the request could not be read"""

    code = -5


class UnimplementedError(CoordinationError):
    """the operation is not supported"""

    code = -6


class OperationTimeoutError(CoordinationError):
    """no answer in time; whether the request took effect is not known"""

    code = -7
    definite = False


class BadArgumentsError(CoordinationError):
    """invalid arguments"""

    code = -8


class NoNodeError(CoordinationError):
    """no such znode"""

    code = -101


class NoAuthError(CoordinationError):
    """not allowed by the znode's access control list"""

    code = -102


class BadVersionError(CoordinationError):
    """the znode has another version"""

    code = -103


class NoChildrenForEphemeralsError(CoordinationError):
    """an ephemeral znode cannot have children"""

    code = -108


class NodeExistsError(CoordinationError):
    """the znode exists already"""

    code = -110


class NotEmptyError(CoordinationError):
    """the znode has children"""

    code = -111


class SessionExpiredError(CoordinationError):
    """the session has expired or was closed"""

    code = -112


class InvalidAclError(CoordinationError):
    """invalid access control list"""

    code = -114


class AuthFailedError(CoordinationError):
    """authentication failed"""

    code = -115


class SessionMovedError(CoordinationError):
    """the session has moved to another connection"""

    code = -118


class NoWatcherError(CoordinationError):
    """no such watch"""

    code = -121


class StorageFullError(CoordinationError):
    """there is no room to store the change; it was not made, and can be tried again"""

    code = -125  # to ZooKeeper a quota that is used up


#: The code of an operation that was undone because a later one of the same multi failed.
ROLLED_BACK = 0
RUNTIME_INCONSISTENCY = RuntimeInconsistencyError.code

ERRORS: dict[int, type[CoordinationError]] = {
    error.code: error
    for error in (
        ServiceError,
        RuntimeInconsistencyError,
        ConnectionLossError,
        MarshallingError,
        UnimplementedError,
        OperationTimeoutError,
        BadArgumentsError,
        NoNodeError,
        NoAuthError,
        BadVersionError,
        NoChildrenForEphemeralsError,
        NodeExistsError,
        NotEmptyError,
        SessionExpiredError,
        InvalidAclError,
        AuthFailedError,
        SessionMovedError,
        NoWatcherError,
        StorageFullError,
    )
}


def error_for(code: int, message: str = "", *, operation_index: int | None = None) -> CoordinationError:
    """The exception for a code; one that we do not know counts as a failure of the service."""
    return ERRORS.get(code, ServiceError)(message, operation_index=operation_index)
