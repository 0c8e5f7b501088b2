"""CreateAcls (1-3): keep more rules. One that is there already is no error; a wrong one keeps no other out."""

from __future__ import annotations

from penstock.base.errors import ApiError, Error
from penstock.broker.acl_changes import add_acls
from penstock.broker.broker import Broker
from penstock.broker.handlers.acl_messages import check_has_authorizer, known
from penstock.broker.requests import RequestContext
from penstock.security.acls import Acl, Entry, Operation, Pattern, PatternType, Permission, ResourceType, acl_problem
from penstock.wire.messages.k30_create_acls import (
    CreateAclsRequest,
    CreateAclsRequestAcl,
    CreateAclsResponse,
    CreateAclsResponseAcl,
)


async def handle(broker: Broker, request: CreateAclsRequest, context: RequestContext) -> CreateAclsResponse:
    problems: list[ApiError | None] = []
    acls: list[Acl] = []
    try:
        check_has_authorizer(broker)
        for creation in request.creations:
            try:
                acls.append(_acl(creation))
            except ApiError as error:
                problems.append(error)
            else:
                problems.append(None)
        if acls:
            await add_acls(broker, acls, context)
    except ApiError as error:
        return refused(request, error)
    return CreateAclsResponse(results=[_row(problem) for problem in problems])


def refused(request: CreateAclsRequest, error: ApiError) -> CreateAclsResponse:
    return CreateAclsResponse(results=[_row(error) for _ in request.creations])


def _acl(creation: CreateAclsRequestAcl) -> Acl:
    pattern = Pattern(
        known(ResourceType, creation.resource_type),
        known(PatternType, creation.resource_pattern_type),
        creation.resource_name,
    )
    operation, permission = known(Operation, creation.operation), known(Permission, creation.permission_type)
    acl = Acl(pattern, Entry(creation.principal, creation.host, operation, permission))
    problem = acl_problem(acl)
    if problem is not None:
        raise ApiError(Error.INVALID_REQUEST, problem)
    return acl


def _row(problem: ApiError | None) -> CreateAclsResponseAcl:
    if problem is None:
        return CreateAclsResponseAcl(error_message=None)
    return CreateAclsResponseAcl(error_code=problem.error, error_message=problem.message)
