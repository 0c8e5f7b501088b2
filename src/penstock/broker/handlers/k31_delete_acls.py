"""DeleteAcls (1-3): remove the rules that filters match; the answer has what each of them matched."""

from __future__ import annotations

from penstock.base.errors import ApiError
from penstock.broker.acl_changes import remove_acls
from penstock.broker.broker import Broker
from penstock.broker.handlers.acl_messages import check_has_authorizer, filter_of
from penstock.broker.requests import RequestContext
from penstock.security.acls import Acl, AclFilter
from penstock.wire.messages.k31_delete_acls import (
    DeleteAclsRequest,
    DeleteAclsResponse,
    DeleteAclsResponseFilter,
    DeleteAclsResponseMatchingAcl,
)


async def handle(broker: Broker, request: DeleteAclsRequest, context: RequestContext) -> DeleteAclsResponse:
    wanted: list[AclFilter] = []
    results: list[DeleteAclsResponseFilter] = []
    asked: list[DeleteAclsResponseFilter] = []
    try:
        check_has_authorizer(broker)
        for each in request.filters:
            try:
                wanted.append(filter_of(each))
            except ApiError as error:
                results.append(_refusal(error))
            else:
                asked.append(DeleteAclsResponseFilter(error_message=None))
                results.append(asked[-1])
        matched = await remove_acls(broker, wanted, context) if wanted else []
    except ApiError as error:
        return refused(request, error)
    for result, acls in zip(asked, matched, strict=True):
        result.matching_acls = [_row(acl) for acl in acls]
    return DeleteAclsResponse(filter_results=results)


def refused(request: DeleteAclsRequest, error: ApiError) -> DeleteAclsResponse:
    return DeleteAclsResponse(filter_results=[_refusal(error) for _ in request.filters])


def _refusal(error: ApiError) -> DeleteAclsResponseFilter:
    return DeleteAclsResponseFilter(error_code=error.error, error_message=error.message)


def _row(acl: Acl) -> DeleteAclsResponseMatchingAcl:
    (kind, how, name), (principal, host, operation, permission) = acl
    return DeleteAclsResponseMatchingAcl(
        error_message=None,
        resource_type=kind,
        resource_name=name,
        pattern_type=how,
        principal=principal,
        host=host,
        operation=operation,
        permission_type=permission,
    )
