"""ApiVersions (0-4): what is served, and nothing that is not.

Penstock's own APIs are shown to clients whose software is called `penstock` or `penstock-…`: that is how to ask.
"""

from __future__ import annotations

import re

from penstock.base.errors import Error
from penstock.broker.requests import Dispatcher, RequestContext, api_version_rows
from penstock.wire.messages.k18_api_versions import API as API
from penstock.wire.messages.k18_api_versions import ApiVersionsRequest, ApiVersionsResponse

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_SOFTWARE_SINCE = 3
OUR_SOFTWARE = "penstock"


class ApiVersions:
    """The handler; knows the table it is itself a row of."""

    def __init__(self, dispatcher: Dispatcher) -> None:
        self._dispatcher = dispatcher

    def __call__(self, request: ApiVersionsRequest, context: RequestContext) -> ApiVersionsResponse:
        is_ours = False
        if context.version >= _SOFTWARE_SINCE:
            name, version = request.client_software_name, request.client_software_version
            if not (_SOFTWARE.fullmatch(name) and _SOFTWARE.fullmatch(version)):
                return ApiVersionsResponse(error_code=Error.INVALID_REQUEST)
            is_ours = name.partition("-")[0] == OUR_SOFTWARE
        return ApiVersionsResponse(api_keys=api_version_rows(self._dispatcher.served, with_own=is_ours))
