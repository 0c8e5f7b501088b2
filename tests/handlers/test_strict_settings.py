"""Brokers that neither create topics on demand nor let them be deleted."""

from __future__ import annotations

import pytest

from penstock.base.errors import Error


@pytest.mark.parametrize("version", range(14))
def test_topics_are_not_created_on_demand(strict_client, version):
    name = f"{strict_client.prefix}-none"
    for allow in (False, True):
        answer = strict_client.ask("Metadata", version, topics=[{"name": name}], allow_auto_topic_creation=allow)
        assert [found.error_code for found in answer.topics] == [Error.UNKNOWN_TOPIC_OR_PARTITION]


@pytest.mark.parametrize("version", range(1, 7))
def test_topics_are_not_deleted(strict_client, version):
    topic = strict_client.topic()
    answer = strict_client.ask("DeleteTopics", version, topics=[{"name": topic}], topic_names=[topic], timeout_ms=1000)
    expected = Error.TOPIC_DELETION_DISABLED if version >= 3 else Error.INVALID_REQUEST
    assert [found.error_code for found in answer.responses] == [expected]
    answer = strict_client.ask("Metadata", 13, topics=[{"name": topic}])
    assert answer.topics[0].error_code == Error.NONE


@pytest.mark.parametrize("version", range(1, 7))
def test_what_is_not_there_is_not_deleted(strict_client, version):
    name = f"{strict_client.prefix}-none"
    answer = strict_client.ask("DeleteTopics", version, topics=[{"name": name}], topic_names=[name], timeout_ms=1000)
    assert answer.responses[0].error_code != Error.NONE
