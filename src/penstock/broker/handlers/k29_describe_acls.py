"""DescribeAcls (1-3): the rules that match a filter, by resource."""

from __future__ import annotations

from penstock.base.errors import ApiError
from penstock.broker.broker import Broker
from penstock.broker.handlers.acl_messages import check_has_authorizer, filter_of
from penstock.broker.requests import RequestContext
from penstock.security.acls import Acl, Operation, Pattern, ResourceType
from penstock.wire.messages.k29_describe_acls import (
    DescribeAclsRequest,
    DescribeAclsResponse,
    DescribeAclsResponseAcl,
    DescribeAclsResponseResource,
)


def handle(broker: Broker, request: DescribeAclsRequest, context: RequestContext) -> DescribeAclsResponse:
    try:
        broker.rights.check(context, Operation.DESCRIBE, ResourceType.CLUSTER)
        check_has_authorizer(broker)
        found = broker.rights.authorizer.acls(filter_of(request))
    except ApiError as error:
        return DescribeAclsResponse(error_code=error.error, error_message=error.message)
    resources: dict[Pattern, DescribeAclsResponseResource] = {}
    for acl in found:
        _resource_of(resources, acl).acls.append(_row(acl))
    return DescribeAclsResponse(error_message=None, resources=list(resources.values()))


def _resource_of(resources: dict[Pattern, DescribeAclsResponseResource], acl: Acl) -> DescribeAclsResponseResource:
    kind, how, name = acl.pattern
    empty = DescribeAclsResponseResource(resource_type=kind, resource_name=name, pattern_type=how)
    return resources.setdefault(acl.pattern, empty)


def _row(acl: Acl) -> DescribeAclsResponseAcl:
    principal, host, operation, permission = acl.entry
    return DescribeAclsResponseAcl(principal=principal, host=host, operation=operation, permission_type=permission)
