"""Which version of a request to speak with a broker: the highest that both sides know."""

from __future__ import annotations

from collections.abc import Mapping

from penstock.base.errors import Error
from penstock.columnar.errors import Refused
from penstock.wire.api_declaration import Api

Served = Mapping[int, tuple[int, int]]
"""The lowest and highest version of each API that a broker serves, by its key."""


def common_version(api: Api, served: Served, highest: int | None = None) -> int | None:
    """The version to use, at most `highest`; None if there is none."""
    lowest_theirs, highest_theirs = served.get(api.key, (0, -1))
    version = min(api.max_version, highest_theirs, api.max_version if highest is None else highest)
    return version if version >= max(api.min_version, lowest_theirs) else None


def chosen_version(api: Api, served: Served, where: object, highest: int | None = None) -> int:
    """As `common_version`; Refused, with the broker's name, if there is none."""
    version = common_version(api, served, highest)
    if version is None:
        theirs = "not at all" if api.key not in served else "in versions {}-{}".format(*served[api.key])
        raise Refused(
            f"{api.name} at the broker {where}",
            Error.UNSUPPORTED_VERSION,
            f"the broker serves it {theirs}, and we know {api.min_version}-{api.max_version}",
        )
    return version
