"""ApiVersions (0-4): what is served, and nothing that is not.

Penstock's own APIs are shown to clients whose software is called `penstock` or `penstock-…`: that is how to ask.

Features tell clients which way to take where there are two: `group.version` 1 is the group protocol of KIP-848,
`transaction.version` 2 that transactions end with a new epoch and partitions are added by producing to them. Both
can be at level 0, which older clients cannot read as the lowest one: version 3 does not say that we support them.
"""

from __future__ import annotations

import re

from penstock.base.errors import Error
from penstock.broker.requests import Dispatcher, RequestContext, api_version_rows
from penstock.wire.messages.k18_api_versions import API as API
from penstock.wire.messages.k18_api_versions import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    ApiVersionsResponseFinalizedFeatureKey,
    ApiVersionsResponseSupportedFeatureKey,
)

_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
_SOFTWARE_SINCE = 3
OUR_SOFTWARE = "penstock"
FEATURES = {"group.version": 1, "transaction.version": 2}
"""and their levels, for all brokers and clients of this release"""
FEATURES_EPOCH = 1
"""of two brokers' features, clients believe those with the higher epoch: to be raised with a level"""
_LOWEST_LEVEL_0_SINCE = 4


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
        return ApiVersionsResponse(
            api_keys=api_version_rows(self._dispatcher.served, with_own=is_ours),
            supported_features=[
                ApiVersionsResponseSupportedFeatureKey(name=name, min_version=0, max_version=level)
                for name, level in FEATURES.items()
                if context.version >= _LOWEST_LEVEL_0_SINCE
            ],
            finalized_features_epoch=FEATURES_EPOCH,
            finalized_features=[
                ApiVersionsResponseFinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
                for name, level in FEATURES.items()
            ],
        )
