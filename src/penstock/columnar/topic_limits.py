"""How large a batch a topic takes, asked from the brokers."""

from __future__ import annotations

from penstock.columnar.cluster import Cluster
from penstock.columnar.errors import Refused, check
from penstock.wire.messages.k32_describe_configs import DescribeConfigsRequest, DescribeConfigsRequestResource

SETTING = "max.message.bytes"
_TOPIC = 2


def message_bytes_max(cluster: Cluster, topic: str) -> int | None:
    """The topic's `max.message.bytes`; None if the brokers do not tell, which may be for want of a right."""
    resource = DescribeConfigsRequestResource(resource_type=_TOPIC, resource_name=topic, configuration_keys=[SETTING])

    def attempt() -> int | None:
        answer = cluster.any().ask(DescribeConfigsRequest(resources=[resource]))
        (found,) = answer.results
        check(found.error_code, found.error_message)
        values = [row.value for row in found.configs if row.name == SETTING]
        return int(values[0]) if values and values[0] and values[0].isdecimal() else None

    try:
        return cluster.retry(attempt, f"look up {SETTING} of topic {topic}")
    except Refused:
        return None
