"""The kinds of databases, for tests that run once for each."""

from __future__ import annotations

import pytest

KINDS = [
    pytest.param("postgresql", marks=pytest.mark.postgres),
    pytest.param("mysql", marks=pytest.mark.mysql),
    pytest.param("sqlite"),
]
#: For tests that take their time: one kind always, the others in the long form.
KINDS_SLOW_BUT_FOR_ONE = [
    pytest.param("postgresql", marks=pytest.mark.postgres),
    pytest.param("mysql", marks=[pytest.mark.mysql, pytest.mark.slow]),
    pytest.param("sqlite", marks=pytest.mark.slow),
]
