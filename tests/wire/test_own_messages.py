"""Penstock's own APIs and records: outside of Kafka's numbers, and sound like all others."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.wire.api import APIS, OWN_APIS
from penstock.wire.api_declaration import FIRST_OWN_KEY
from penstock.wire.codec import decode, encode
from penstock.wire.headers import request_header_version, response_header_version
from penstock.wire.messages.commit_many_records import COMMIT_DECISION_KIND, CommitDecisionKey, CommitDecisionValue
from penstock.wire.schema import Message, declared_flexible, declared_versions

MESSAGES = [
    *(cls for api in OWN_APIS.values() for cls in (api.request, api.response)),
    CommitDecisionKey,
    CommitDecisionValue,
]


def test_own_keys_are_not_kafkas() -> None:
    assert min(OWN_APIS) >= FIRST_OWN_KEY > max(APIS)
    assert COMMIT_DECISION_KIND >= FIRST_OWN_KEY
    for key, api in OWN_APIS.items():
        assert api.key == key
        assert declared_versions(api.request) == declared_versions(api.response)
        assert declared_flexible(api.request) == declared_flexible(api.response)
        assert (api.request.__name__, api.response.__name__) == (f"{api.name}Request", f"{api.name}Response")
        assert (request_header_version(key, 0), response_header_version(key, 0)) == (2, 1)


@pytest.mark.parametrize("own_class", MESSAGES, ids=lambda cls: cls.__name__)
def test_round_trips(own_class: type[Message], samples: Any) -> None:
    for version in samples.versions(own_class):
        for instance in (own_class(), samples.populated(own_class, version)):
            data = encode(instance, version)
            assert decode(own_class, version, data) == (instance, len(data))
