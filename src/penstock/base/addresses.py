"""Addresses of peers as they are compared: one way to write each, wherever it comes from.

A listener on `[::]` sees clients of IPv4 as `::ffff:10.0.0.1`, and an IPv6 address can be written in many ways. Rules
of access, quotas and limits name addresses, so a second way to write one would be a way around them.
"""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address


def plain_address(address: str) -> str:
    """An address as it is usually written, that of IPv4 within IPv6 as IPv4; what is none stays as it is."""
    try:
        found = ip_address(address)
    except ValueError:
        return address
    within = found.ipv4_mapped if isinstance(found, IPv6Address) else None
    return str(found if within is None else within)


def is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
