"""Which access control list a broker gives to the znodes it makes, once it has proven who it is (`digest`).

Znodes with credentials are for the brokers alone; so are the settings of brokers, among which passwords and keys may
be. With `zookeeper.set.acl` all others can be read by everybody and changed only by the brokers; without it they stay
open.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.zookeeper.operations import ALL_PERMISSIONS, ANYONE, OPEN_ACL, READ, Acl, Identity
from penstock.zookeeper.znodes import BROKER_CONFIGS, CONFIG_PATH, SECRET_CONFIG_TYPES, LoginSecret

AclOf = Callable[[str], tuple[Acl, ...]]

_SECRETS = (
    LoginSecret.PATH,
    *(f"{CONFIG_PATH}/{config_type}" for config_type in (*SECRET_CONFIG_TYPES, BROKER_CONFIGS)),
)
_OURS = Acl(ALL_PERMISSIONS, Identity("auth", ""))


def acl_of(path: str) -> tuple[Acl, ...]:
    """With secrets for the brokers alone, and all else open."""
    return (_OURS,) if is_secret(path) else OPEN_ACL


def strict_acl_of(path: str) -> tuple[Acl, ...]:
    """The same, and all else only to be read by others."""
    return (_OURS,) if is_secret(path) else (_OURS, Acl(READ, ANYONE))


def is_secret(path: str) -> bool:
    return any(path == secret or path.startswith(f"{secret}/") for secret in _SECRETS)
