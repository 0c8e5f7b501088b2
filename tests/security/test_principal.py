"""Principals, and the text that people write for them."""

from __future__ import annotations

import pytest

from penstock.security.principal import ANONYMOUS, Principal


@pytest.mark.parametrize("text", ["User:alice", "User:CN=a,OU=b:c", "Group:x:y"])
def test_what_is_written_is_read(text: str) -> None:
    assert str(Principal.parse(text)) == text


@pytest.mark.parametrize("text", ["", "alice", ":alice", "User:", ":"])
def test_half_a_principal_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="User:alice"):
        Principal.parse(text)


def test_everybody_else_is_anonymous() -> None:
    assert str(ANONYMOUS) == "User:ANONYMOUS"
