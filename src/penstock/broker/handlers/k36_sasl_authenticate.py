"""SaslAuthenticate (0-2): one message of a login and the answer to it; a refusal is held back for a while, then sent
and followed by the end of the connection."""

from __future__ import annotations

import asyncio

from penstock.base.errors import Error
from penstock.broker.connection import Connection, Response
from penstock.broker.request_counts import ApiCounts
from penstock.broker.requests import frame_of
from penstock.broker.sasl_login import SaslLogin
from penstock.sasl.exchange import LoginFailed
from penstock.wire.codec import decoder
from penstock.wire.messages.k36_sasl_authenticate import API as API
from penstock.wire.messages.k36_sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse


class SaslAuthenticate:
    """The handler. It is given the raw frame, because its refusals close the connection once they are sent."""

    def __init__(self, counts: ApiCounts) -> None:
        self._counts = counts

    def __call__(
        self, connection: Connection, version: int, correlation_id: int, frame: memoryview, position: int
    ) -> Response | None:
        request, _ = decoder(SaslAuthenticateRequest, version)(frame, position)
        login = connection.login
        if not isinstance(login, SaslLogin):
            answer = _refusal(Error.ILLEGAL_SASL_STATE, "this listener has no login")
            self._counts.count_errors(answer)
            return frame_of(answer, API, version, correlation_id)
        try:
            return frame_of(login.step(request.auth_bytes), API, version, correlation_id)
        except LoginFailed as failed:
            answer = _refusal(Error.SASL_AUTHENTICATION_FAILED, f"the login failed: {failed}")
            self._counts.count_errors(answer)
            self._refuse(connection, login.refuse(failed), frame_of(answer, API, version, correlation_id))
            return None

    def _refuse(self, connection: Connection, delay_s: float, refusal: bytearray) -> None:
        slot = connection.reserve()
        connection.mute(True)

        def tell() -> None:
            connection.fill(slot, refusal)
            connection.close("a login that was refused")

        asyncio.get_running_loop().call_later(delay_s, tell)


def _refusal(error: Error, message: str) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(error_code=error, error_message=message, auth_bytes=b"")
