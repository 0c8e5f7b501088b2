"""Envelope (20007, Penstock's own, between brokers): a request that another broker has handed on to the controller."""

from __future__ import annotations

from penstock.broker.broker import Broker
from penstock.broker.requests import RequestContext
from penstock.wire.messages.k20007_envelope import EnvelopeRequest, EnvelopeResponse


async def handle(broker: Broker, request: EnvelopeRequest, context: RequestContext) -> EnvelopeResponse:
    return await broker.forwarding.open_envelope(request, context)
