"""The record of `__transaction_state` that is Penstock's own: which transactions of a name were committed as one.

Its kind is one that Kafka does not use, and its readers pass over it. It is small for ever: once all of the
transactions are complete it is written again without them, and only the number stays.
"""

from __future__ import annotations

from penstock.wire.schema import field, int16, int64, message, struct

COMMIT_DECISION_KIND = 20000


@message("0")
class CommitDecisionKey:
    name: str = field("0")


@struct
class CommitDecisionValueTransaction:
    member: str = field("0+")
    producer_id: int64 = field("0+")
    producer_epoch: int16 = field("0+")


@message("0", flexible="0+")
class CommitDecisionValue:
    number: int64 = field("0+")
    decided_ms: int64 = field("0+")
    transactions: list[CommitDecisionValueTransaction] = field("0+")
