"""Making a connection: TCP, TLS where the settings ask for it, which versions the broker speaks, and the login.

We introduce ourselves as `penstock-columnar`, so that Penstock's brokers show the requests that only they have. Each
step has an end: what is made here is a connection that works, or an error that says which address and why.
"""

from __future__ import annotations

import socket
import ssl
import time

from penstock import __version__
from penstock.base.errors import Error
from penstock.base.world import Address
from penstock.columnar.connection import Connection
from penstock.columnar.errors import check
from penstock.columnar.login import log_in
from penstock.columnar.settings import ClientSettings
from penstock.columnar.tls import not_trusted, secured
from penstock.wire.messages import k18_api_versions
from penstock.wire.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse

SOFTWARE = "penstock-columnar"
#: Of the time that a login holds, how much is used before another connection is made.
_LIFETIME_USED = 0.85


def connect(address: Address, settings: ClientSettings, context: ssl.SSLContext | None) -> Connection:
    """OSError if it may work another time; NotTrusted, NotAllowed or Refused if it will not."""
    connection = Connection(_open(address, settings, context), address, settings)
    try:
        _agree_on_versions(connection)
        if settings.login is not None:
            lifetime_s = log_in(connection, settings.login)
            if lifetime_s is not None:
                connection.renew_s = time.monotonic() + lifetime_s * _LIFETIME_USED
    except BaseException as error:
        connection.close()
        cause = error.__cause__
        if isinstance(cause, ssl.SSLError):  # with TLS 1.3 a broker says after the handshake what it does not like
            raise not_trusted(address, cause) from cause
        raise
    return connection


def _open(address: Address, settings: ClientSettings, context: ssl.SSLContext | None) -> socket.socket:
    """The receive buffer is left to the system, which makes it larger by itself than it lets anyone ask for."""
    if not 0 < address.port < 65536:  # whoever told us of it may tell anything
        raise ConnectionError(f"{address}: this is no address")
    try:
        plain = socket.create_connection(address, settings.connect_timeout_s)
    except OSError as error:
        raise type(error)(f"{address}: {error.strerror or error}") from error
    except ValueError as error:  # of a host that cannot be a name
        raise ConnectionError(f"{address}: this is no address: {error}") from error
    try:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        return plain if context is None else secured(plain, context, address)
    except BaseException:
        plain.close()
        raise


def _agree_on_versions(connection: Connection) -> None:
    request = ApiVersionsRequest(client_software_name=SOFTWARE, client_software_version=__version__)
    answer: ApiVersionsResponse = connection.ask(request, k18_api_versions.API.max_version)
    if answer.error_code == Error.UNSUPPORTED_VERSION:
        connection.versions = _served(answer) or {k18_api_versions.API.key: (0, 0)}
        answer = connection.ask(request)
    check(answer.error_code)
    connection.versions = _served(answer)
    connection.features = {feature.name: feature.max_version_level for feature in answer.finalized_features}


def _served(answer: ApiVersionsResponse) -> dict[int, tuple[int, int]]:
    return {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}
