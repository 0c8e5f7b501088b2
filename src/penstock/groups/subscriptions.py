"""What the members of a classic group say about the topics they read, as far as the broker looks at it.

Consumers put a subscription into JoinGroup: an int16 with its version, then the message. Every version begins like the
first, and only that part is read, so that versions yet to come do no harm.
"""

from __future__ import annotations

from collections.abc import Iterable

from penstock.wire.codec import decoder
from penstock.wire.messages.consumer_protocol import ConsumerProtocolSubscription

VERSION_BYTES = 2


def subscribed_topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    """All topics that some member reads; None if one of them says something that is no subscription."""
    topics: set[str] = set()
    decode = decoder(ConsumerProtocolSubscription, 0)
    try:
        for subscription in subscriptions:
            if len(subscription) < VERSION_BYTES:
                return None
            message, _ = decode(memoryview(subscription), VERSION_BYTES)
            topics.update(message.topics)
    except ValueError:  # a ProtocolError, or text that is none
        return None
    return frozenset(topics)
