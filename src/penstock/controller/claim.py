"""Becoming the controller: one multi that only one broker can win.

It creates the ephemeral `/controller` and raises the epoch, on the version that was read. From then on the version of
`/controller_epoch` is what every write of this controller checks.
"""

from __future__ import annotations

from typing import NamedTuple

from penstock.zookeeper.operations import Create, Operation, SetData
from penstock.zookeeper.znodes import ControllerEpoch, ControllerNode


class Claim(NamedTuple):
    """The multi, and the epoch and its znode's version once it has succeeded."""

    operations: tuple[Operation, ...]
    epoch: int
    epoch_version: int


def claim_controller(broker_id: int, current: ControllerEpoch, version: int, now_ms: int) -> Claim:
    """NodeExistsError: another is the controller. BadVersionError: another was, since the epoch was read."""
    epoch = current.epoch + 1
    node = ControllerNode(broker_id=broker_id, epoch=epoch, timestamp_ms=now_ms)
    operations = (
        Create(ControllerNode.PATH, node.encode(), ephemeral=True),
        SetData(ControllerEpoch.PATH, ControllerEpoch(epoch=epoch).encode(), version),
    )
    return Claim(operations, epoch, version + 1)
