"""Who may do what with a znode: ZooKeeper's access control lists.

A list grants permissions to identities. Those are `world:anyone`; `digest:user:hash`, whoever proved to know the
password behind the hash; and `ip:address` or `ip:network/bits`, whoever connects from there. When a list is given,
`auth` stands for all that the connection has proven to be.
"""

from __future__ import annotations

import ipaddress
from base64 import b64encode
from hashlib import sha1

from penstock.zookeeper.errors import InvalidAclError, NoAuthError
from penstock.zookeeper.operations import ADMIN, ANYONE, OPEN_ACL, Acl, Identity

Identities = tuple[Identity, ...]


def digest_identity(user_and_password: bytes) -> Identity:
    """Who is meant by "user:password"; the password is not kept."""
    user = user_and_password.partition(b":")[0].decode("utf-8", "replace")
    return Identity("digest", f"{user}:{b64encode(sha1(user_and_password).digest()).decode()}")


def is_allowed(acl: tuple[Acl, ...], permission: int, identities: Identities) -> bool:
    """Whether one of them may do this; of several permissions one is enough."""
    if acl is OPEN_ACL or any(identity.scheme == "super" for identity in identities):
        return True
    return any(granted & permission and _is_one_of(identity, identities) for granted, identity in acl)


def require(acl: tuple[Acl, ...], permission: int, identities: Identities, path: str) -> None:
    """NoAuthError unless it is allowed."""
    if not is_allowed(acl, permission, identities):
        raise NoAuthError(f"znode {path} does not allow this")


def effective_acl(acl: tuple[Acl, ...], identities: Identities) -> tuple[Acl, ...]:
    """The list as it is kept: "auth" stands for whoever asks, and a list that names nobody is refused."""
    kept: list[Acl] = []
    for entry in dict.fromkeys(acl):
        if entry.identity.scheme == "auth":
            proven = [identity for identity in identities if identity.scheme == "digest"]
            if not proven:
                raise InvalidAclError("an access control list with 'auth' needs an authenticated connection")
            kept += [Acl(entry.permissions, identity) for identity in proven]
        elif _is_valid(entry.identity):
            kept.append(entry)
        else:
            raise InvalidAclError(f"unknown identity {entry.identity.scheme}:{entry.identity.name} in a list")
    if not kept:
        raise InvalidAclError("an access control list must not be empty")
    return OPEN_ACL if tuple(kept) == OPEN_ACL else tuple(kept)


def shown_acl(acl: tuple[Acl, ...], identities: Identities) -> tuple[Acl, ...]:
    """The list as it is told to somebody: the hashes only to those who may change it."""
    if is_allowed(acl, ADMIN, identities):
        return acl
    return tuple(
        Acl(granted, Identity("digest", f"{identity.name.partition(':')[0]}:x"))
        if identity.scheme == "digest"
        else Acl(granted, identity)
        for granted, identity in acl
    )


def _is_one_of(wanted: Identity, identities: Identities) -> bool:
    if wanted == ANYONE or wanted in identities:
        return True
    return wanted.scheme == "ip" and any(
        identity.scheme == "ip" and _is_within(identity.name, wanted.name) for identity in identities
    )


def _is_within(address: str, network: str) -> bool:
    try:
        return ipaddress.ip_address(address) in ipaddress.ip_network(network, strict=False)
    except ValueError:
        return False


def _is_valid(identity: Identity) -> bool:
    match identity.scheme:
        case "world":
            return identity == ANYONE
        case "digest":  # a name and a hash; ZooKeeper overlooks colons at the end
            return identity.name.rstrip(":").count(":") == 1
        case "ip":
            try:
                ipaddress.ip_network(identity.name, strict=False)
            except ValueError:
                return False
            return True
        case _:
            return False
