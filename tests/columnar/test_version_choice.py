"""Which version is spoken with a broker."""

from __future__ import annotations

import pytest

from penstock.columnar.errors import Refused
from penstock.columnar.versions import chosen_version, common_version
from penstock.wire.messages.k01_fetch import API as FETCH


@pytest.mark.parametrize(
    ("served", "highest", "version"),
    [
        ((4, 18), None, 18),
        ((4, 99), None, FETCH.max_version),
        ((0, 11), None, 11),
        ((0, 18), 12, 12),
        ((0, 4), None, 4),
        ((0, 3), None, None),
        ((99, 120), None, None),
        ((13, 18), 12, None),
    ],
)
def test_highest_that_both_know(served: tuple[int, int], highest: int | None, version: int | None) -> None:
    assert common_version(FETCH, {FETCH.key: served}, highest) == version


def test_what_is_not_served_is_refused_with_both_ranges() -> None:
    assert common_version(FETCH, {}) is None
    with pytest.raises(Refused, match=r"Fetch at the broker here: .* in versions 0-3, and we know 4-"):
        chosen_version(FETCH, {FETCH.key: (0, 3)}, "here")
    with pytest.raises(Refused, match="not at all"):
        chosen_version(FETCH, {}, "here")
