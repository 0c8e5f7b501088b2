"""The clients that take part in groups, by their names."""

from __future__ import annotations

from .aiokafka_client import AiokafkaClient
from .aiokafka_group_client import AiokafkaGroups
from .confluent_client import ConfluentClient
from .confluent_group_client import ConfluentClassicGroups, ConfluentConsumerGroups
from .group_client import GroupClient
from .kafka_python_client import KafkaPythonClient
from .kafka_python_group_client import KafkaPythonGroups

_PLAIN = {
    ConfluentClassicGroups: ConfluentClient,
    ConfluentConsumerGroups: ConfluentClient,
    KafkaPythonGroups: KafkaPythonClient,
    AiokafkaGroups: AiokafkaClient,
}
GROUP_CLIENTS = tuple(kind.name for kind in _PLAIN)
#: Those that differ in transactions; the protocol of groups is of no matter there.
TRANSACTIONAL_CLIENTS = (ConfluentClassicGroups.name, KafkaPythonGroups.name, AiokafkaGroups.name)


def group_client(name: str, bootstrap: str) -> GroupClient:
    kind = next(kind for kind in _PLAIN if kind.name == name)
    return kind(_PLAIN[kind](bootstrap))
