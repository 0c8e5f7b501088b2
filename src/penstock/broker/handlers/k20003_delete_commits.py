"""DeleteCommits (20003, Penstock's own): forget the last numbers of names."""

from __future__ import annotations

from functools import partial

from penstock.base.errors import ApiError, Error
from penstock.broker.broker import Broker
from penstock.broker.handlers.group_callers import for_each
from penstock.broker.requests import RequestContext
from penstock.security.acls import Operation, ResourceType
from penstock.transactions.names import MARK
from penstock.wire.messages.k20003_delete_commits import (
    DeleteCommitsRequest,
    DeleteCommitsResponse,
    DeleteCommitsResponseName,
)


async def handle(broker: Broker, request: DeleteCommitsRequest, context: RequestContext) -> DeleteCommitsResponse:
    names = dict.fromkeys(request.names)
    return DeleteCommitsResponse(names=await for_each(names, partial(_delete, broker, context)))


async def _delete(broker: Broker, context: RequestContext, name: str) -> DeleteCommitsResponseName:
    try:
        broker.rights.check(context, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, name)
        deleted: DeleteCommitsResponseName = await broker.transactions.of_key(MARK + name).ask(
            lambda machine, token, now: machine.many.delete(token, name, now)
        )
    except ApiError as refused:
        return DeleteCommitsResponseName(name=name, error_code=refused.error, error_message=refused.message)
    if deleted.error_code == Error.NONE:
        broker.audit.record("commits_deleted", name=name, principal=context.principal, host=context.host)
    return deleted
