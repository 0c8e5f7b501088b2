"""The records of `__transaction_state` as this release writes them, Kafka's in the version that Kafka 4.3 writes."""

from __future__ import annotations

from penstock.wire.messages.commit_many_records import COMMIT_DECISION_KIND, CommitDecisionKey, CommitDecisionValue
from penstock.wire.messages.transaction_topic_records import TransactionLogKey, TransactionLogValue
from penstock.wire.state_records import StateCodec

TRANSACTIONS_CODEC = StateCodec(
    {
        0: (TransactionLogKey, TransactionLogValue),
        COMMIT_DECISION_KIND: (CommitDecisionKey, CommitDecisionValue),
    },
    {TransactionLogValue: 1},
)
