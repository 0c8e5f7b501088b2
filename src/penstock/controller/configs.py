"""Writing the settings of a topic, a broker, …: the whole set of one, on the version that was read."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.controller.plan import Plan
from penstock.zookeeper.operations import Create, Delete, Operation, SetData
from penstock.zookeeper.znodes import ConfigNode, Notice


def set_configs(config_type: str, name: str, values: Mapping[str, str], version: int | None) -> Plan:
    """Replace the settings; `version` is that of the znode, None if there is none. No values: no znode."""
    path = ConfigNode.path(config_type, name)
    content = ConfigNode(values=dict(values)).encode()
    operations: tuple[Operation, ...]
    if version is None:
        operations = (Create(path, content),) if values else ()
    elif values:
        operations = (SetData(path, content, version),)
    else:
        operations = (Delete(path, version),)
    return Plan(operations, Notice(configs=(f"{config_type}/{name}",)))
