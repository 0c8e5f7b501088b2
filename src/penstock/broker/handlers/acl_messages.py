"""Rules of access as the messages of Kafka's protocol have them: numbers that may mean nothing here."""

from __future__ import annotations

from enum import IntEnum
from typing import Protocol, TypeVar

from penstock.base.errors import ApiError, Error
from penstock.broker.broker import Broker
from penstock.security.acls import AclFilter, Operation, PatternType, Permission, ResourceType

E = TypeVar("E", bound=IntEnum)


class FilterMessage(Protocol):
    """What DescribeAcls and DeleteAcls have in common."""

    resource_type_filter: int
    resource_name_filter: str | None
    pattern_type_filter: int
    principal_filter: str | None
    host_filter: str | None
    operation: int
    permission_type: int


def known(kind: type[E], number: int) -> E:
    """What a number means; ApiError if it means nothing."""
    try:
        found = kind(number)
    except ValueError:
        found = kind(0)
    if not found:
        raise ApiError(Error.INVALID_REQUEST, f"{number} is not known as a {kind.__name__}")
    return found


def filter_of(message: FilterMessage) -> AclFilter:
    return AclFilter(
        known(ResourceType, message.resource_type_filter),
        message.resource_name_filter,
        known(PatternType, message.pattern_type_filter),
        message.principal_filter,
        message.host_filter,
        known(Operation, message.operation),
        known(Permission, message.permission_type),
    )


def check_has_authorizer(broker: Broker) -> None:
    """ApiError where rules would be without effect."""
    if not broker.rights.is_on:
        raise ApiError(Error.SECURITY_DISABLED, "there are no rules: no authorizer is configured")
